"""Views of CuPy arrays by any strides, which remember whose memory they show."""

from __future__ import annotations

from typing import Any

import cupy

from ..owners import OWNER_OF, root_of

__all__ = ["as_strided", "owner_of"]

Array = Any  # cupy.ndarray

# CuPy's `as_strided` makes an array without a `base`: nothing says that it is a view, though it
# holds the block of memory. Here it holds, as its memory, a stretch that belongs to the array that
# owns it. For CuPy that is memory of another owner, which is freed with that owner.


def as_strided(x: Array, shape: Any = None, strides: Any = None) -> Array:
    """The view of `x` that has this shape and these strides, in bytes, from its first element."""
    owner = root_of(x)
    start, memory = owner.data.ptr, owner.data.mem
    stretch = cupy.cuda.UnownedMemory(start, owner.nbytes, owner, memory.device_id)
    return cupy.ndarray(
        x.shape if shape is None else tuple(shape), x.dtype,
        cupy.cuda.MemoryPointer(stretch, x.data.ptr - start),
        x.strides if strides is None else tuple(strides),
    )  # fmt: skip


def owner_of(array: Array) -> Array | None:
    """The array whose memory one without a base shows; None, where it is its own."""
    owner = getattr(array.data.mem, "_owner", None)
    return owner if type(owner) is cupy.ndarray else None


OWNER_OF[cupy.ndarray] = owner_of
