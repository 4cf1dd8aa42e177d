"""SGD: gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from ..autograd.mode import is_grad_enabled
from ..tensor import Tensor
from .checks import check_rate, check_setting, check_ways
from .optimizer import ParamsT
from .ruled import RuledOptimizer
from .rules import advance, nonzero, rule
from .scaling import scaled_by

__all__ = ["SGD", "sgd"]


@rule(begins={"momentum_buffer": None})
def sgd_rule(
    m: Any, param: Any, grad: Any, momentum_buffer: Any, *,
    lr: Any, momentum: Any, dampening: Any, weight_decay: Any, nesterov: bool, maximize: bool,
) -> dict[str, Any]:  # fmt: skip
    """θ -= lr · b, with the momentum b = μ b + (1 - τ) g, which begins as g."""
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    if momentum is None:
        return {"param": param - lr * grad}
    if momentum_buffer is None:
        momentum_buffer = grad
    else:
        new = grad if dampening is None else (1 - dampening) * grad
        momentum_buffer = momentum * momentum_buffer + new
    direction = grad + momentum * momentum_buffer if nesterov else momentum_buffer
    return {"momentum_buffer": momentum_buffer, "param": param - lr * direction}


def sgd(
    params: list[Tensor],
    d_p_list: list[Tensor],
    momentum_buffer_list: list[Tensor | None],
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    *,
    weight_decay: float | Tensor,
    momentum: float,
    lr: float | Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """One step of SGD on lists of tensors, in place; the arguments are those of the class.

    The step is recorded where gradients are recorded. An entry None of `momentum_buffer_list` is
    replaced by the momentum that begins.
    """
    check_ways(foreach, fused, False)
    scaled = scaled_by(fused, grad_scale, found_inf)
    settings = {"lr": lr, "momentum": nonzero(momentum), "dampening": nonzero(dampening),
                "weight_decay": nonzero(weight_decay), "nesterov": nesterov,
                "maximize": maximize}  # fmt: skip
    states = {"momentum_buffer": momentum_buffer_list}
    advance(sgd_rule, params, d_p_list, states, settings, is_grad_enabled(), scaled)


class SGD(RuledOptimizer):
    """Stochastic gradient descent: param -= lr * direction.

    The direction is the gradient, plus `weight_decay` * param; with `momentum` it is
    buffer = momentum * buffer + (1 - dampening) * direction, with `nesterov` it is
    direction + momentum * buffer. `maximize` climbs instead. Source: Sutskever et al. 2013,
    https://proceedings.mlr.press/v28/sutskever13.html, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach, fused: PyTorch's ways to compute the same. There is one way here, an update in
            place, on CUDA in one launch for many parameters, which both True and False give.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and settings that are tensors.

    Raises:
        ValueError: for a negative setting, or nesterov without momentum or with dampening.

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.SGD([w], lr=0.25).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    _function = staticmethod(sgd)
    _rule = sgd_rule
    _sparse_without = ("weight_decay",)
    _dense_with = ("momentum",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_rate(lr)
        check_setting("momentum value", momentum)
        check_setting("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, locals())
        check_ways(foreach, fused, differentiable)
        self._step_supports_amp_scaling = bool(fused)

    def _remembers(self, group: dict[str, Any]) -> bool:
        return bool(group["momentum"] != 0)
