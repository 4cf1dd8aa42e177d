"""SGD: gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from ..autograd.mode import will_change
from ..autograd.recording.views import changed
from ..backends import backend_of
from ..tensor import Tensor, make
from .optimizer import Optimizer, Params, check_range, check_rate, check_ways, scaled


class SGD(Optimizer):
    """Stochastic gradient descent: param -= lr * direction.

    The direction is the gradient, plus `weight_decay` * param; with `momentum` it is
    buffer = momentum * buffer + (1 - dampening) * direction, with `nesterov` it is
    direction + momentum * buffer. `maximize` climbs instead. Source: Sutskever et al. 2013,
    https://proceedings.mlr.press/v28/sutskever13.html, in PyTorch's form.

    Args:
        lr: a number, or a tensor of one element, read in each step.
        foreach, fused: PyTorch's ways to compute the same. There is one way here, an update in
            place of each parameter, which both True and False give.
        differentiable: the step is recorded: gradients flow from the new parameters, which must not
            be leaves, to the gradients, the old parameters, and `lr` if it is a tensor.

    Raises:
        ValueError: for a negative setting, or nesterov without momentum or with dampening.

    >>> import cugrad as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.SGD([w], lr=0.25).step()
    >>> w
    tensor([0.7500, 0.7500], requires_grad=True)
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_rate(lr)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_ways(foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            buffer = None
            if group["momentum"] != 0:
                buffer = self.state[param].get("momentum_buffer")
            way = follow if group["differentiable"] else descend
            used = way(param, buffer, group)
            if used is not None:
                self.state[param]["momentum_buffer"] = used


def descend(param: Tensor, buffer: Tensor | None, group: dict[str, Any]) -> Tensor | None:
    """One step on the arrays of a parameter and its momentum, in place; the momentum, if any."""
    assert param.grad is not None
    array, grad = param._array, param.grad._array
    xp = backend_of(array).xp
    direction = scaled(xp, grad, -1) if group["maximize"] else grad
    if group["weight_decay"] != 0:
        decay = scaled(xp, array, group["weight_decay"])
        decay += direction
        direction = decay
    if group["momentum"] != 0:
        if buffer is None:
            buffer = make(direction.copy())
        else:
            kept = 1 - group["dampening"]
            buffer._array *= group["momentum"]
            buffer._array += direction if kept == 1 else scaled(xp, direction, kept)
        if group["nesterov"]:
            ahead = scaled(xp, buffer._array, group["momentum"])
            ahead += direction
            direction = ahead
        else:
            direction = buffer._array
    will_change(param)
    array -= scaled(xp, direction, float(group["lr"]))
    changed(param)
    return buffer


def follow(param: Tensor, buffer: Tensor | None, group: dict[str, Any]) -> Tensor | None:
    """The same step on tensors, recorded; the momentum is a new tensor, with its history."""
    direction = param.grad
    assert direction is not None
    if group["maximize"]:
        direction = -direction
    if group["weight_decay"] != 0:
        direction = direction + param * group["weight_decay"]
    if group["momentum"] != 0:
        if buffer is None:
            buffer = direction.clone()
        else:
            buffer = buffer * group["momentum"] + direction * (1 - group["dampening"])
        if group["nesterov"]:
            direction = direction + buffer * group["momentum"]
        else:
            direction = buffer
    param.sub_(direction * group["lr"])
    return buffer
