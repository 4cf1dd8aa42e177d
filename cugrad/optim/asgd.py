"""ASGD: gradient descent with falling rates, and the average of its parameters."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_capturable, check_rate, check_setting, check_steps, check_ways
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule

__all__ = ["ASGD", "asgd"]


@rule(numbers="step eta mu", begins={"eta": "lr", "mu": 1.0})
def asgd_rule(
    m: Any, param: Any, grad: Any, ax: Any, mu: Any, eta: Any, step: Any, *,
    lr: Any, lambd: Any, t0: Any, alpha: Any, weight_decay: Any, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ = (1 - λη) θ - η g, averaged as ax += μ (θ - ax); η = lr / (1 + λ lr t)^α from then on."""
    step = step + 1
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    param = param * (1 - lambd * eta) - eta * grad
    ax = m.where(m.equal(mu, 1.0), param, ax + mu * (param - ax))
    return {"param": param, "ax": ax, "step": step,
            "eta": lr / (1 + lambd * lr * step) ** alpha,
            "mu": 1 / m.maximum(step - t0, 1.0)}  # fmt: skip


def asgd(
    params: list[Tensor],
    grads: list[Tensor],
    axs: list[Tensor],
    mus: list[Tensor],
    etas: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lambd: float,
    lr: float | Tensor,
    t0: float,
    alpha: float,
    weight_decay: float,
) -> None:
    """One step of ASGD on lists of tensors, in place; the arguments are those of the class."""
    check_ways(foreach, None, differentiable)
    check_steps(state_steps)
    if capturable:
        for counts in (mus, etas, state_steps):
            check_capturable(params, counts)
    states: dict[str, list[Any]] = {"ax": axs, "mu": mus, "eta": etas, "step": state_steps}
    settings = {"lr": lr, "lambd": lambd, "t0": t0, "alpha": alpha,
                "weight_decay": nonzero(weight_decay), "maximize": maximize}  # fmt: skip
    advance(asgd_rule, params, grads, states, settings, differentiable)


class ASGD(RuledOptimizer):
    """Averaged stochastic gradient descent: param = (1 - lambd * eta) * param - eta * gradient.

    The gradient is that plus weight_decay * param. `state[param]["ax"]` is the average of the
    parameter from step `t0` on; eta is lr / (1 + lambd * lr * step)^alpha. `maximize` climbs
    instead. Source: Polyak & Juditsky 1992, https://doi.org/10.1137/0330046, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach: PyTorch's way to compute the same. There is one way here, an update in place of
            each parameter, which both True and False give.
        capturable: the count of steps is on the parameters' device, and nothing is read from there.
            AssertionError in `step` for parameters on the CPU, as in PyTorch.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative lr or weight_decay.

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.ASGD([w], lr=0.25, lambd=0.0).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    _function = staticmethod(asgd)
    _rule = asgd_rule
    _counts_here = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_rate(lr)
        check_setting("weight_decay value", weight_decay)
        super().__init__(params, locals())
