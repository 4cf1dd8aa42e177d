"""Muon: momentum whose matrix is made orthogonal before it is a step."""

from __future__ import annotations

import math
from typing import Any

from ..tensor import Tensor
from .checks import check_rate
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, rule

__all__ = ["Muon", "muon"]

COEFFICIENTS = (
    3.4445,
    -4.7750,
    2.0315,
)  # of Jordan's quintic, https://kellerjordan.github.io/posts/muon
RATIOS = ["original", "match_rms_adamw"]


@rule(elementwise=False)
def muon_rule(
    m: Any, param: Any, grad: Any, momentum_buffer: Any, *,
    lr: Any, ratio: Any, weight_decay: Any, momentum: Any, nesterov: bool, a: Any, b: Any, c: Any,
    ns_steps: Any, eps: Any,
) -> dict[str, Any]:  # fmt: skip
    """θ = (1 - lr λ) θ - lr ρ · O, where O is nearly the orthogonal factor of the momentum."""
    momentum_buffer = m.fused(averaged, momentum_buffer, grad, 1 - momentum)
    update = momentum_buffer
    if nesterov:
        update = m.fused(ahead, grad, momentum_buffer, momentum)
    update = orthogonal(m, update, (a, b, c), int(ns_steps), eps).to(param.dtype)
    keep, rate = m.told(param, 1 - lr * weight_decay, lr * ratio)
    return {"param": m.fused(moved, param, update, keep, rate), "momentum_buffer": momentum_buffer}


def averaged(average: Any, value: Any, weight: float) -> Any:
    return average + weight * (value - average)


def ahead(grad: Any, average: Any, momentum: float) -> Any:
    return grad + momentum * (average - grad)


def moved(param: Any, update: Any, keep: Any, rate: Any) -> Any:
    return param * keep - rate * update


def orthogonal(m: Any, matrix: Tensor, coefficients: Any, steps: int, eps: float) -> Tensor:
    """A matrix with the singular vectors of another, and singular values near 1, in bfloat16.

    Newton-Schulz iterations x = a x + (b y + c y²) x, where y = x xᵀ, of the matrix over its norm.
    Source: Higham, Functions of Matrices, chapter 8, with Jordan's coefficients.
    """
    a, b, c = coefficients
    tall = matrix.size(-2) > matrix.size(-1)
    x = (matrix.mT if tall else matrix).bfloat16()
    x = x / m.norm(x).clamp(min=eps)
    for _ in range(steps):
        gram = (x @ x.mT).float()
        polynomial = m.fused(combined, gram, gram @ gram, b, c)
        x = m.fused(added, x, polynomial.float() @ x.float(), a)
    return x.mT if tall else x


def combined(x: Any, y: Any, b: float, c: float) -> Any:
    return (b * x + c * y).bfloat16()


def added(x: Any, y: Any, a: float) -> Any:
    return (a * x.float() + y).bfloat16()


def muon(
    params: list[Tensor],
    grads: list[Tensor],
    muon_momentum_bufs: list[Tensor],
    *,
    foreach: bool | None = None,
    lr: float | Tensor,
    weight_decay: float,
    momentum: float,
    nesterov: bool,
    ns_coefficients: tuple[float, float, float],
    ns_steps: int,
    eps: float,
    adjust_lr_fn: str | None,
    has_complex: bool = False,
) -> None:
    """One step of Muon on lists of matrices, in place; the arguments are those of the class."""
    if foreach:
        raise RuntimeError("Foreach is not supported for Muon yet")
    if has_complex:
        raise ValueError("Complex parameters are not supported")
    if ns_steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(ns_coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = ns_coefficients
    shapes: dict[Any, list[int]] = {}
    for at, grad in enumerate(grads):
        if grad.dim() != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        shapes.setdefault(tuple(params[at].shape), []).append(at)
    for places in shapes.values():
        ratio = _ratio(adjust_lr_fn, params[places[0]])
        settings = {"lr": lr, "ratio": ratio, "weight_decay": weight_decay,
                    "momentum": momentum, "nesterov": nesterov, "a": a, "b": b, "c": c,
                    "ns_steps": ns_steps, "eps": eps}  # fmt: skip
        some, of_these, buffers = (
            [column[at] for at in places] for column in (params, grads, muon_momentum_bufs)
        )
        advance(muon_rule, some, of_these, {"momentum_buffer": buffers}, settings)


def _ratio(adjust_lr_fn: str | None, param: Tensor) -> float:
    """What the rate of a matrix is multiplied by for its shape."""
    rows, columns = param.shape[0], param.shape[1]
    if adjust_lr_fn is None or adjust_lr_fn == "original":
        return math.sqrt(max(1, rows / columns))
    return 0.2 * math.sqrt(max(rows, columns))


class Muon(RuledOptimizer):
    """Muon: param -= lr * ratio * orthogonal(momentum), for the matrices of hidden layers.

    The momentum is made nearly orthogonal by `ns_steps` Newton-Schulz iterations in bfloat16, with
    `ns_coefficients`; lr * weight_decay * param is taken away. Other parameters want another
    optimizer. Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon, in PyTorch's
    form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        adjust_lr_fn: "original" (and None): ratio is √max(1, rows / columns); "match_rms_adamw":
            0.2 √max(rows, columns), of Liu et al. 2025, https://arxiv.org/abs/2502.16982.

    Raises:
        ValueError: for a negative setting, a parameter that is no matrix, or another adjust_lr_fn.
        RuntimeError: in `step`, for a complex parameter.

    >>> import cugrad as torch
    >>> w = torch.zeros(2, 2, requires_grad=True)
    >>> w.grad = torch.tensor([[0., 3.], [-3., 0.]])
    >>> torch.optim.Muon([w], lr=0.5).step()
    >>> w.sign()
    tensor([[ 0., -1.],
            [ 1.,  0.]], grad_fn=<SignBackward0>)
    """

    _function = staticmethod(muon)
    _rule = muon_rule

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_rate(lr, "Learning rate should be >= 0 but is: {}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn is not None and adjust_lr_fn not in RATIOS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, locals())
        for group in self.param_groups:
            for param in group["params"]:
                if param.dim() != 2:
                    raise ValueError(
                        "Muon only supports 2D parameters whereas we found a parameter with size: "
                        f"{param.size()}"
                    )

    def _first_state(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        if param.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        return super()._first_state(param, group)
