"""Scaled gradients that a fused step takes as they are, and whether it takes place at all."""

from __future__ import annotations

from typing import Any

from ..autograd.mode import no_grad
from ..tensor import Tensor

__all__ = ["unscaled"]


def unscaled(
    grads: list[Tensor], fused: bool | None, grad_scale: Tensor | None, found_inf: Tensor | None
) -> bool:
    """Divides gradients by their scale, in place; False if one is not finite: no step.

    Looking at `found_inf` waits for the device. AssertionError unless the step is a fused one.
    """
    if grad_scale is None and found_inf is None:
        return True
    if not fused:
        raise AssertionError("Expected grad_scale and found_inf to be None")
    if found_inf is not None and found_inf.item():
        return False
    if grad_scale is not None:
        scales: dict[Any, Tensor] = {}
        with no_grad():
            for grad in grads:
                if grad.device not in scales:
                    scales[grad.device] = grad_scale.to(grad.device)
                grad.div_(scales[grad.device])
    return True
