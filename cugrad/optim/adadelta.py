"""Adadelta: steps whose unit is that of the parameter, by running means of both squares."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .checks import check_call, check_rate, check_setting
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule

__all__ = ["Adadelta", "adadelta"]


@rule(numbers="step")
def adadelta_rule(
    m: Any, param: Any, grad: Any, square_avg: Any, acc_delta: Any, step: Any, *,
    lr: Any, rho: Any, eps: Any, weight_decay: Any, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= lr · Δ with Δ = √(u + ε) / √(v + ε) · g; v and u are running averages of g² and Δ²."""
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    square_avg = rho * square_avg + (1 - rho) * grad * grad
    delta = m.sqrt(acc_delta + eps) / m.sqrt(square_avg + eps) * grad
    acc_delta = rho * acc_delta + (1 - rho) * delta * delta
    return {"param": param - lr * delta, "square_avg": square_avg, "acc_delta": acc_delta,
            "step": step + 1}  # fmt: skip


def adadelta(
    params: list[Tensor],
    grads: list[Tensor],
    square_avgs: list[Tensor],
    acc_deltas: list[Tensor],
    state_steps: list[Tensor],
    capturable: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: float | Tensor,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of Adadelta on lists of tensors, in place; the arguments are those of the class."""
    check_call(params, state_steps, foreach, differentiable, capturable)
    states: dict[str, list[Any]] = {"square_avg": square_avgs, "acc_delta": acc_deltas,
                                    "step": state_steps}  # fmt: skip
    settings = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": nonzero(weight_decay),
                "maximize": maximize}  # fmt: skip
    advance(adadelta_rule, params, grads, states, settings, differentiable)


class Adadelta(RuledOptimizer):
    """Adadelta: param -= lr * delta, with delta = √(u + eps) / √(v + eps) * gradient.

    v and u are running averages, with the factor `rho`, of the squares of the gradient (to which
    weight_decay * param is added) and of delta; `maximize` climbs instead. Source: Zeiler 2012,
    https://arxiv.org/abs/1212.5701, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach: PyTorch's way to compute the same. There is one way here, an update in place of
            each parameter, which both True and False give.
        capturable: the count of steps is on the parameters' device, and nothing is read from there.
            AssertionError in `step` for parameters on the CPU, as in PyTorch.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative setting, or a rho outside [0, 1].

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.Adadelta([w], lr=100.0).step()
    >>> w
    tensor([0.6838, 0.6838], requires_grad=True)
    """

    _function = staticmethod(adadelta)
    _rule = adadelta_rule
    _settings = "lr rho eps weight_decay maximize capturable foreach differentiable"

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_setting("epsilon value", eps)
        check_setting("weight_decay value", weight_decay)
        super().__init__(params, locals())
