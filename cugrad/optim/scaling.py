"""Scaled gradients that a fused step takes as they are, and whether it takes place at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..autograd.mode import no_grad
from ..dtypes import float32
from ..functions.creation.factories import full
from ..tensor import Tensor

__all__ = ["Scaled", "scaled_by"]


class Scaled(NamedTuple):
    """What a GradScaler knows of gradients: by how much they are too large, if they are finite."""

    grad_scale: Tensor | None
    found_inf: Tensor | None

    def unscale(self, grads: Sequence[Tensor]) -> bool:
        """Divides gradients by their scale, in place; False if one is not finite: no step.

        Looking at `found_inf` waits for the device.
        """
        if self.found_inf is not None and self.found_inf.item():
            return False
        if self.grad_scale is not None:
            scales: dict[Any, Tensor] = {}
            with no_grad():
                for grad in grads:
                    if grad.device not in scales:
                        scales[grad.device] = self.grad_scale.to(grad.device)
                    grad.div_(scales[grad.device])
        return True

    def numbers(self, like: Tensor) -> list[Tensor]:
        """The scale, 1 for none, and 1 or 0 for gradients that are not finite, or are; where a
        tensor is.
        """
        defaults = (self.grad_scale, 1.0), (self.found_inf, 0.0)
        return [
            full((), value, dtype=float32, device=like.device) if x is None
            else x.detach().to(like.device, float32).reshape(())
            for x, value in defaults
        ]  # fmt: skip


def scaled_by(
    fused: bool | None, grad_scale: Tensor | None, found_inf: Tensor | None
) -> Scaled | None:
    """What a step is told of its gradients' scale. AssertionError unless it is a fused one."""
    if grad_scale is None and found_inf is None:
        return None
    if not fused:
        raise AssertionError("Expected grad_scale and found_inf to be None")
    return Scaled(grad_scale, found_inf)
