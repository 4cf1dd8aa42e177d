"""Gradients of two halves of an array, which lie side by side as the halves do: `split` has the
gradient of the whole then without joining them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy

from ..windows import as_strided

__all__ = ["Halves", "halves_like"]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray


class Halves(NamedTuple):
    """Two arrays of one form, the second so many elements behind the first, that fill a piece of
    memory together.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    step: int
    dtype: Any

    def make(self) -> list[Array]:
        size = 2
        for n in self.shape:
            size *= n
        whole = ndarray((size,), self.dtype)
        return [as_strided(part, self.shape, self.strides) for part in (whole, whole[self.step :])]


def halves_like(x: Array) -> Halves | None:
    """Halves that lie as one does; None for an array with other gaps, or none."""
    size, step = x.itemsize, 0
    for stride, n in sorted([(s, n) for s, n in zip(x.strides, x.shape) if n > 1]):
        if stride != size:
            if step or stride != 2 * size:
                return None
            step, size = size, 2 * size
        size *= n
    return Halves(x.shape, x.strides, step // x.itemsize, x.dtype) if step else None
