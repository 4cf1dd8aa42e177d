"""Adafactor: steps over root mean squares that are kept by row and by column only."""

from __future__ import annotations

from typing import Any

from ..functions.creation.factories import zeros_like
from ..functions.queries import finfo
from ..tensor import Tensor
from .checks import check_rate, check_steps, check_ways
from .optimizer import ParamsT
from .ruled import RuledOptimizer, count_of
from .rules import advance, nonzero, rule

__all__ = ["Adafactor", "adafactor"]


@rule(numbers="step", elementwise=False)
def adafactor_rule(
    m: Any, param: Any, grad: Any, row_var: Any, col_var: Any, variance: Any, step: Any, *,
    lr: Any, beta2_decay: Any, eps1: Any, eps2: Any, d: Any, weight_decay: Any, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= α / max(1, rms(u) / d) · u, where u = g / √v, and v is r cᵀ / mean(r) for matrices."""
    step = step + 1
    if maximize:
        grad = -grad
    new = step**beta2_decay  # the weight of this gradient in the running averages
    rate = m.minimum(lr, 1 / m.sqrt(step))
    alpha = m.maximum(param.norm(2) / max(param.numel(), 1) ** 0.5, eps2) * rate
    if weight_decay is not None:
        param = param * (1 - lr * weight_decay)
    if grad.dim() > 1:
        row_var = row_var + new * (grad.square().mean(-1, keepdim=True) - row_var)
        col_var = col_var + new * (grad.square().mean(-2, keepdim=True) - col_var)
        estimate = row_var @ col_var / row_var.mean(-2, keepdim=True).clamp(min=eps1)
    else:
        estimate = variance = variance + new * (grad * grad - variance)
    update = estimate.clamp(min=eps1 * eps1).rsqrt() * grad
    clip = (update.norm(2) / (max(update.numel(), 1) ** 0.5 * d)).clamp(min=1.0)
    return {"param": param - alpha / clip * update, "row_var": row_var, "col_var": col_var,
            "variance": variance, "step": step}  # fmt: skip


def adafactor(
    params: list[Tensor],
    grads: list[Tensor],
    row_vars: list[Tensor | None],
    col_vars: list[Tensor | None],
    variances: list[Tensor | None],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_complex: bool = False,
    *,
    d: float,
    lr: float | Tensor,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
) -> None:
    """One step of Adafactor on lists of tensors, in place; the arguments are those of the class."""
    check_ways(foreach, None, False)
    check_steps(state_steps)
    if grad_scale is not None or found_inf is not None:
        raise AssertionError("Grad scaling should occur outside of optimizer.step()")
    states: dict[str, Any] = {
        "row_var": row_vars,
        "col_var": col_vars,
        "variance": variances,
        "step": state_steps,
    }
    for at, param in enumerate(params):
        settings = {"lr": lr.item() if isinstance(lr, Tensor) else lr, "d": d, "eps2": eps2,
                    "eps1": finfo(param.dtype).eps if eps1 is None else eps1,
                    "beta2_decay": beta2_decay, "weight_decay": nonzero(weight_decay),
                    "maximize": maximize}  # fmt: skip
        own = {name: column[at : at + 1] for name, column in states.items()}
        advance(adafactor_rule, [param], [grads[at]], own, settings)


class Adafactor(RuledOptimizer):
    """Adafactor: the state of a matrix is one number a row, and one a column.

    The gradient is divided by the root of a running average of its squares, which is the product
    of both; a step is as large as `lr` says in proportion to the root mean square of the
    parameter, at least eps[1]; `d` bounds that of the update, `beta2_decay` is the exponent of the
    step's weight in the averages; weight_decay * param * lr is taken away; `maximize` climbs
    instead. Source: Shazeer & Stern 2018, https://arxiv.org/abs/1804.04235, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        eps: the least mean square, None for that of the dtype, and the least size of a step.
        foreach: PyTorch's way to compute the same, which both True and False give.

    Raises:
        ValueError: for a setting of the wrong sign, or d below 1.
        RuntimeError: in `step`, for a complex parameter.

    >>> import cugrad as torch
    >>> w = torch.ones(2, 2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.Adafactor([w], lr=0.25).step()
    >>> w
    tensor([[0.7500, 0.7500],
            [0.7500, 0.7500]], requires_grad=True)
    """

    _function = staticmethod(adafactor)
    _rule = adafactor_rule
    _pairs = {"eps": ("eps1", "eps2")}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_rate(lr, "Learning rate should be >= 0 but is: {}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, locals())

    def _first_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        if param.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        state: dict[str, Any] = {"step": count_of(param, group)}
        if param.dim() < 2:
            return state | {"variance": zeros_like(param)}
        *outer, rows, columns = param.shape
        row_var, col_var = ([*outer, rows, 1], [*outer, 1, columns])
        zeros = param.detach().new_zeros
        return state | {"row_var": zeros(row_var), "col_var": zeros(col_var)}
