"""Checks of what an optimizer is given, in PyTorch's words."""

from __future__ import annotations

import math
from typing import Any

from ..tensor import Tensor

__all__ = [
    "check_adam", "check_betas", "check_call", "check_capturable", "check_fused_param",
    "check_rate", "check_setting", "check_steps", "check_ways",
]  # fmt: skip


def check_setting(name: str, value: Any, *, below: float = math.inf) -> None:
    """ValueError unless 0 <= `value` < `below`."""
    if not 0.0 <= value < below:
        raise ValueError(f"Invalid {name}: {value}")


def check_rate(lr: Any, message: str = "Invalid learning rate: {}") -> None:
    """ValueError unless a learning rate is a number, or a tensor of one, and not negative."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not (lr.item() if isinstance(lr, Tensor) else lr) >= 0.0:
        raise ValueError(message.format(lr))


def check_betas(betas: Any) -> None:
    """ValueError unless the two factors of running averages are in [0, 1)."""
    for at in (0, 1):
        check_setting(f"beta parameter at index {at}", betas[at], below=1.0)


def check_adam(lr: Any, betas: Any, eps: Any, weight_decay: Any) -> None:
    """ValueError for a setting out of range, of those that Adam and its relatives share."""
    check_rate(lr)
    check_setting("epsilon value", eps)
    check_betas(betas)
    check_setting("weight_decay value", weight_decay)


def check_ways(foreach: Any, fused: Any, differentiable: bool) -> None:
    """Raises for what is no way to compute an update."""
    for name, value in (("foreach", foreach), ("fused", fused)):
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool or None, not {type(value).__name__}")
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def check_fused_param(param: Tensor) -> None:
    """RuntimeError unless `fused=True` can have the parameter."""
    if not param.is_floating_point():
        raise RuntimeError(
            "`fused=True` requires all the params to be floating point Tensors of supported "
            f"devices: ['cpu', 'cuda', 'simulated'] but {param.dtype} and {param.device.type}"
        )


def check_steps(state_steps: Any, what: str = "state_steps") -> None:
    """RuntimeError unless a function of this room is given the counts of steps as tensors."""
    if not all(isinstance(step, Tensor) for step in state_steps):
        raise RuntimeError(
            f"API has changed, `{what}` argument must contain a list of singleton tensors"
        )


def check_capturable(params: Any, state_steps: Any) -> None:
    """AssertionError unless parameters and counts of steps are on one device that is no CPU."""
    for param, step in zip(params, state_steps):
        if param.device.type != step.device.type or param.device.type == "cpu":
            raise AssertionError(
                "If capturable=True, params and state_steps must be on supported devices: "
                f"['cuda', 'simulated'], got {param.device.type} and {step.device.type}."
            )


def check_call(
    params: Any, state_steps: Any, foreach: Any, differentiable: bool, capturable: bool,
    fused: Any = None,
) -> None:  # fmt: skip
    """Raises for what a function of this room cannot be asked for, whatever its rule."""
    check_ways(foreach, fused, differentiable)
    check_steps(state_steps)
    if capturable:
        check_capturable(params, state_steps)
