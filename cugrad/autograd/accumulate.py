"""How a gradient becomes a leaf's `.grad`: its layout, and when it is added in place."""

from __future__ import annotations

from typing import Any

from ..backends import backend_of
from ..tensor import Tensor, make

__all__ = ["accumulate", "is_dense"]


def accumulate(leaf: Tensor, g: Any, exclusive: bool) -> None:
    """Adds an array to `leaf.grad`: in place if there is one, else with the layout of the leaf.

    An `exclusive` array is seen by nobody else, so it may become the gradient itself.
    """
    array = leaf._array
    backend = backend_of(array)
    if type(g) is not type(array):
        g = backend.asarray(g) if backend_of(g) is not backend else backend.wrap(g)
    known = leaf._grad
    if known is not None:
        if known._requires_grad:
            leaf._grad = make(known._array + g)
        else:
            known._array += g
            known.counter[0] += 1
        return
    if exclusive and g.base is None and g.strides == array.strides and g.dtype == array.dtype:
        leaf._grad = make(g)
        return
    kept = backend.xp.empty_like(array) if is_dense(array) else backend.xp.empty(
        array.shape, array.dtype
    )
    backend.xp.copyto(kept, g)
    leaf._grad = make(kept)


def is_dense(array: Any) -> bool:
    """Whether the elements fill one block of memory with no overlap, in whatever order."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return True
    extent = array.itemsize
    for stride, n in sorted(zip(array.strides, array.shape, strict=True)):
        if n == 1:
            continue
        if stride != extent:
            return False
        extent *= n
    return True
