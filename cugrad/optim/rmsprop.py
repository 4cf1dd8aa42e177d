"""RMSprop: steps over the root of the running mean of squared gradients."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_call, check_rate, check_setting
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule

__all__ = ["RMSprop", "rmsprop"]


@rule(numbers="step", only={"momentum_buffer": "momentum", "grad_avg": "centered"})
def rmsprop_rule(
    m: Any, param: Any, grad: Any, square_avg: Any, grad_avg: Any, momentum_buffer: Any, step: Any,
    *, lr: Any, alpha: Any, eps: Any, weight_decay: Any, momentum: Any, centered: bool,
    maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= lr · b with b = μ b + g / (√(v - a²) + ε); v and a are running averages of g² and g."""
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    square_avg = alpha * square_avg + (1 - alpha) * grad * grad
    variance = square_avg
    if centered:
        grad_avg = grad_avg + (1 - alpha) * (grad - grad_avg)
        variance = square_avg - grad_avg * grad_avg
    direction = grad / (m.sqrt(variance) + eps)
    if momentum is not None:
        direction = momentum_buffer = momentum * momentum_buffer + direction
    return {"param": param - lr * direction, "square_avg": square_avg, "step": step + 1,
            "grad_avg": grad_avg if centered else None,
            "momentum_buffer": None if momentum is None else momentum_buffer}  # fmt: skip


def rmsprop(
    params: list[Tensor],
    grads: list[Tensor],
    square_avgs: list[Tensor],
    grad_avgs: list[Tensor],
    momentum_buffer_list: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lr: float | Tensor,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
) -> None:
    """One step of RMSprop on lists of tensors, in place; the arguments are those of the class."""
    check_call(params, state_steps, foreach, differentiable, capturable)
    states: dict[str, list[Any]] = {
        "square_avg": square_avgs,
        "grad_avg": grad_avgs if centered else [],
        "momentum_buffer": momentum_buffer_list if momentum > 0 else [],
        "step": state_steps,
    }
    settings = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": nonzero(weight_decay),
                "momentum": momentum if momentum > 0 else None, "centered": centered,
                "maximize": maximize}  # fmt: skip
    advance(rmsprop_rule, params, grads, states, settings, differentiable)


class RMSprop(RuledOptimizer):
    """RMSprop: param -= lr * gradient / (√v + eps), with the running average v of squares.

    `alpha` is the factor of the average; weight_decay * param is added to the gradient; `centered`
    takes the square of the mean gradient from v; `momentum` averages the steps; `maximize` climbs
    instead. Source: Hinton's lecture 6e, 2012,
    https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf, and for `centered`
    Graves 2013, https://arxiv.org/abs/1308.0850, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach: PyTorch's way to compute the same. There is one way here, an update in place of
            each parameter, which both True and False give.
        capturable: the count of steps is on the parameters' device, and nothing is read from there.
            AssertionError in `step` for parameters on the CPU, as in PyTorch.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative setting.

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.RMSprop([w], lr=0.025).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    _function = staticmethod(rmsprop)
    _rule = rmsprop_rule
    _settings = (
        "lr momentum alpha eps centered weight_decay capturable foreach maximize differentiable"
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        check_setting("epsilon value", eps)
        check_setting("momentum value", momentum)
        check_setting("weight_decay value", weight_decay)
        check_setting("alpha value", alpha)
        super().__init__(params, locals())
