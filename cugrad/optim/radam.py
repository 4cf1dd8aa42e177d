"""RAdam: Adam that begins without its root, until the mean of squares is certain enough."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_adam, check_call
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule

__all__ = ["RAdam", "radam"]


@rule(numbers="step")
def radam_rule(
    m: Any, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, step: Any, *,
    lr: Any, beta1: Any, beta2: Any, eps: Any, weight_decay: Any, decoupled: bool, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= lr / (1 - β1ᵗ) · m · r √(1 - β2ᵗ) / (√v + ε) where ρₜ > 5; m alone before."""
    step = step + 1
    if maximize:
        grad = -grad
    if weight_decay is not None and decoupled:
        param = param * (1 - lr * weight_decay)
    elif weight_decay is not None:
        grad = grad + weight_decay * param
    exp_avg = exp_avg + (1 - beta1) * (grad - exp_avg)
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad * grad
    bias2 = 1 - beta2**step
    rho_inf = 2 / (1 - beta2) - 1
    rho = rho_inf - 2 * step * beta2**step / bias2

    def certainty() -> Any:
        ratio = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
        return m.sqrt(ratio * bias2)

    rate = m.where(rho > 5, certainty, 1.0)
    divisor = m.where(rho > 5, lambda: m.sqrt(exp_avg_sq) + eps, 1.0)
    param = param - lr / (1 - beta1**step) * rate * (exp_avg / divisor)
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step}


def radam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: float | Tensor,
    weight_decay: float,
    eps: float,
) -> None:
    """One step of RAdam on lists of tensors, in place; the arguments are those of the class."""
    check_call(params, state_steps, foreach, differentiable, capturable)
    states: dict[str, list[Any]] = {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs,
                                    "step": state_steps}  # fmt: skip
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps,
                "weight_decay": nonzero(weight_decay), "decoupled": decoupled_weight_decay,
                "maximize": maximize}  # fmt: skip
    advance(radam_rule, params, grads, states, settings, differentiable)


class RAdam(RuledOptimizer):
    """RAdam: Adam whose steps are corrected for how little is known of v at first.

    Until then, five steps or so, it descends along the running average of gradients alone.
    weight_decay * param is added to the gradient, or taken from the parameter with
    `decoupled_weight_decay`; `maximize` climbs instead. Source: Liu et al. 2020,
    https://arxiv.org/abs/1908.03265, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach: PyTorch's way to compute the same. There is one way here, an update in place of
            each parameter, which both True and False give.
        capturable: the count of steps is on the parameters' device, and nothing is read from there.
            AssertionError in `step` for parameters on the CPU, as in PyTorch.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative setting, or a beta outside [0, 1).

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.RAdam([w], lr=0.25).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    _function = staticmethod(radam)
    _rule = radam_rule
    _settings = (
        "lr betas eps weight_decay "
        "maximize foreach capturable decoupled_weight_decay differentiable"
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        super().__init__(params, locals())
