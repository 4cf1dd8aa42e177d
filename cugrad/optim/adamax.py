"""Adamax: Adam with the largest gradient in place of the root of the mean of squares."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_adam, check_call
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule

__all__ = ["Adamax", "adamax"]


@rule(numbers="step")
def adamax_rule(
    m: Any, param: Any, grad: Any, exp_avg: Any, exp_inf: Any, step: Any, *,
    lr: Any, beta1: Any, beta2: Any, eps: Any, weight_decay: Any, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= lr / (1 - β1ᵗ) · m / u, with the running average m of g, and u = max(β2 u, |g| + ε)."""
    step = step + 1
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    exp_avg = exp_avg + (1 - beta1) * (grad - exp_avg)
    exp_inf = m.maximum(beta2 * exp_inf, m.abs(grad) + eps)
    param = param - lr / (1 - beta1**step) * (exp_avg / exp_inf)
    return {"param": param, "exp_avg": exp_avg, "exp_inf": exp_inf, "step": step}


def adamax(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_infs: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: float | Tensor,
    weight_decay: float,
) -> None:
    """One step of Adamax on lists of tensors, in place; the arguments are those of the class."""
    check_call(params, state_steps, foreach, differentiable, capturable)
    states: dict[str, list[Any]] = {"exp_avg": exp_avgs, "exp_inf": exp_infs, "step": state_steps}
    settings = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps,
                "weight_decay": nonzero(weight_decay), "maximize": maximize}  # fmt: skip
    advance(adamax_rule, params, grads, states, settings, differentiable)


class Adamax(RuledOptimizer):
    """Adamax: param -= lr / (1 - beta1^step) * m / u.

    m is the running average of the gradient plus weight_decay * param, u the largest of beta2 * u
    and |gradient| + eps; `maximize` climbs instead. Source: Kingma & Ba 2015, section 7.1,
    https://arxiv.org/abs/1412.6980, in PyTorch's form.

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
    >>> torch.optim.Adamax([w], lr=0.25).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    _function = staticmethod(adamax)
    _rule = adamax_rule

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        super().__init__(params, locals())
