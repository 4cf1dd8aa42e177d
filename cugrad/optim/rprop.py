"""Rprop: steps by the sign of the gradient, each element with a step size of its own."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_call, check_rate
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, rule

__all__ = ["Rprop", "rprop"]


@rule(numbers="step", begins={"step_size": "lr"})
def rprop_rule(
    m: Any, param: Any, grad: Any, prev: Any, step_size: Any, step: Any, *,
    step_size_min: Any, step_size_max: Any, etaminus: Any, etaplus: Any, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= sign(g) · Δ; Δ grows while g keeps its sign, shrinks where it changed: there g is 0."""
    if maximize:
        grad = -grad
    turn = grad * prev
    factor = m.where(turn > 0, etaplus, m.where(turn < 0, etaminus, 1.0))
    step_size = m.minimum(m.maximum(step_size * factor, step_size_min), step_size_max)
    grad = m.where(turn < 0, 0.0, grad)
    return {"param": param - m.sign(grad) * step_size, "prev": grad, "step_size": step_size,
            "step": step + 1}  # fmt: skip


def rprop(
    params: list[Tensor],
    grads: list[Tensor],
    prevs: list[Tensor],
    step_sizes: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    capturable: bool = False,
    maximize: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    step_size_min: float,
    step_size_max: float,
    etaminus: float,
    etaplus: float,
) -> None:
    """One step of Rprop on lists of tensors, in place; the arguments are those of the class."""
    check_call(params, state_steps, foreach, differentiable, capturable)
    states: dict[str, list[Any]] = {"prev": prevs, "step_size": step_sizes, "step": state_steps}
    settings = {"step_size_min": step_size_min, "step_size_max": step_size_max,
                "etaminus": etaminus, "etaplus": etaplus, "maximize": maximize}  # fmt: skip
    advance(rprop_rule, params, grads, states, settings, differentiable)


class Rprop(RuledOptimizer):
    """Resilient backpropagation: param -= sign(gradient) * step size, for whole batches.

    A step size begins at `lr`; it is multiplied by `etas[1]` where the gradient keeps its sign, and
    by `etas[0]` where it changed, which takes no step then; it stays within `step_sizes`.
    `maximize` climbs instead. Source: Riedmiller & Braun 1993,
    https://doi.org/10.1109/ICNN.1993.298623, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element.
        foreach: PyTorch's way to compute the same. There is one way here, an update in place of
            each parameter, which both True and False give.
        capturable: the count of steps is on the parameters' device, and nothing is read from there.
            AssertionError in `step` for parameters on the CPU, as in PyTorch.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative lr, or unless 0 < etas[0] < 1 < etas[1].

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.Rprop([w], lr=0.25).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    _function = staticmethod(rprop)
    _rule = rprop_rule
    _settings = "lr etas step_sizes foreach maximize differentiable capturable"
    _pairs = {"etas": ("etaminus", "etaplus"), "step_sizes": ("step_size_min", "step_size_max")}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, locals())
