"""SGD: gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from ..backends import backend_of
from ..tensor import Tensor, make
from .optimizer import Optimizer, Params, check_range, scaled


class SGD(Optimizer):
    """Stochastic gradient descent: param -= lr * direction.

    The direction is the gradient, plus `weight_decay` * param; with `momentum` it is
    buffer = momentum * buffer + (1 - dampening) * direction, with `nesterov` it is
    direction + momentum * buffer. `maximize` climbs instead. Source: Sutskever et al. 2013,
    https://proceedings.mlr.press/v28/sutskever13.html, in PyTorch's form.

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
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        check_range("learning rate", lr)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        settings = {key: group[key] for key in self.defaults}
        for param in params:
            assert param.grad is not None
            buffer = None
            if group["momentum"] != 0:
                buffer = self.state[param].get("momentum_buffer")
            used = descend(
                param._array,
                param.grad._array,
                None if buffer is None else buffer._array,
                **settings,
            )
            if used is not None and buffer is None:
                self.state[param]["momentum_buffer"] = make(used)
            param.counter[0] += 1


def descend(
    param: Any,
    grad: Any,
    buffer: Any | None,
    *,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
) -> Any | None:
    """One step on the array `param` in place; returns the momentum buffer, made if absent."""
    xp = backend_of(param).xp
    direction = scaled(xp, grad, -1) if maximize else grad
    if weight_decay != 0:
        decay = scaled(xp, param, weight_decay)
        decay += direction
        direction = decay
    if momentum != 0:
        if buffer is None:
            buffer = direction.copy()
        else:
            buffer *= momentum
            buffer += direction if dampening == 0 else scaled(xp, direction, 1 - dampening)
        if nesterov:
            ahead = scaled(xp, buffer, momentum)
            ahead += direction
            direction = ahead
        else:
            direction = buffer
    param -= scaled(xp, direction, lr)
    return buffer
