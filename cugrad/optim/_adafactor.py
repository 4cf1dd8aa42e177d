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
    keep = None if weight_decay is None else 1 - lr * weight_decay
    weight, rate, keep = m.told(  # of this gradient in the running averages
        param, step**beta2_decay, m.minimum(lr, 1 / m.sqrt(step)), keep
    )
    size = m.rms(param)
    if m.rank(grad) > 1:
        squares = grad.square()
        row_var = m.fused(averaged, row_var, squares.mean(-1, keepdim=True), weight)
        col_var = m.fused(averaged, col_var, squares.mean(-2, keepdim=True), weight)
        mean = row_var.mean(-2, keepdim=True)
        update = m.fused(over_root_of_product, grad, row_var, col_var, mean, eps1)
    else:
        variance = m.fused(averaged, variance, grad * grad, weight)
        update = m.fused(over_root, grad, variance, eps1)
    new = m.fused(moved, param, update, size, m.rms(update, d), rate, keep, eps2)
    return {"param": new, "row_var": row_var, "col_var": col_var, "variance": variance,
            "step": step}  # fmt: skip


def averaged(average: Any, value: Any, weight: Any) -> Any:
    return average + weight * (value - average)


def over_root(grad: Any, variance: Any, eps1: float) -> Any:
    return variance.clamp(min=eps1 * eps1).rsqrt() * grad


def over_root_of_product(grad: Any, rows: Any, columns: Any, mean: Any, eps1: float) -> Any:
    return over_root(grad, rows * columns / mean.clamp(min=eps1), eps1)


def moved(
    param: Any, update: Any, size: Any, length: Any, rate: Any, keep: Any, eps2: float
) -> Any:
    """A step in proportion to the size of a parameter, against an update of a length over d."""
    alpha = size.clamp_min(eps2) * rate
    if keep is not None:
        param = param * keep
    return param - alpha / length.clamp(min=1.0) * update


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
    kinds: dict[Any, list[int]] = {}
    for at, param in enumerate(params):
        kinds.setdefault(param.dtype, []).append(at)
    for dtype, places in kinds.items():
        settings = {"lr": lr.item() if isinstance(lr, Tensor) else lr, "d": d, "eps2": eps2,
                    "eps1": finfo(dtype).eps if eps1 is None else eps1,
                    "beta2_decay": beta2_decay, "weight_decay": nonzero(weight_decay),
                    "maximize": maximize}  # fmt: skip
        own = {name: [column[at] for at in places] for name, column in states.items()}
        some, of_these = ([column[at] for at in places] for column in (params, grads))
        advance(adafactor_rule, some, of_these, own, settings)


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
