"""Products of vectors of three elements: a kernel."""

from __future__ import annotations

from math import prod
from typing import Any

import cupy

from ..kernels.vectors import KERNELS
from .launch import BLOCK, FLOATS, blocks, dense, int64, kernel, name_of
from .registry import forward

__all__: list[str] = []

Array = Any  # cupy.ndarray


@forward("linalg_cross", keeps=True)
def cross(self: Array, other: Array, dim: int) -> Array | None:
    """In one kernel, of operands of one shape."""
    if self.shape != other.shape or self.dtype != other.dtype or not self.size:
        return None
    if name_of(self.dtype) not in FLOATS:
        return None
    result, inner = cupy.ndarray(self.shape, self.dtype), prod(self.shape[dim % self.ndim + 1 :])
    run = kernel(KERNELS["cross"], "cross", name_of(self.dtype))
    vectors = self.size // 3
    run((blocks(vectors),), (BLOCK,),
        (dense(self), dense(other), result, int64(vectors), int64(inner)))  # fmt: skip
    return result
