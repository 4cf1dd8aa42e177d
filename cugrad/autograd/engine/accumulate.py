"""How a gradient becomes a leaf's `.grad`: its layout, and when it is added in place."""

from __future__ import annotations

from typing import Any

from ...backends import backend_of
from ...backends.owners import root_of
from ...tensor import Tensor, make
from ..mode import will_change
from ..recording.recorded import recorded

__all__ = ["accumulate", "accumulate_recorded", "is_dense"]


def accumulate(leaf: Tensor, g: Any, exclusive: bool) -> None:
    """Adds an array to `leaf.grad`: in place if there is one, else with the layout of the leaf.

    An `exclusive` array has no other reference, so it may become the gradient itself.
    """
    array = leaf._array
    backend = backend_of(array)
    if type(g) is not type(array) and backend_of(g) is not backend:
        g = backend.asarray(g)
    known = leaf._grad
    if known is not None:
        will_change(known)
        try:
            known._array += g
        except ValueError:  # NumPy refuses to write to expanded arrays
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the "
                f"operation. (the .grad of shape {list(known.shape)} to which backward adds)"
            ) from None
        known.counter[0] += 1
        return
    if exclusive and root_of(g) is g and g.strides == array.strides and g.dtype == array.dtype:
        leaf._grad = make(g)
    else:
        leaf._grad = make(_laid_out(g, array))


def accumulate_recorded(leaf: Tensor, g: Tensor) -> None:
    """Sets `leaf.grad` to a copy of `g` with the layout of the leaf, or to a new sum; recorded."""
    known = leaf._grad
    kept = recorded.copy(make(leaf._array), g) if known is None else known + g
    like = (leaf if known is None else known)._array
    if type(kept._array) is type(like) and kept._array.strides != like.strides:
        if known is None or is_dense(like):
            kept._array = _laid_out(kept._array, like)  # no one else has a reference yet
    leaf._grad = kept


def _laid_out(g: Any, like: Any) -> Any:
    """A copy of an array with the strides of a dense one, and else row by row."""
    xp = backend_of(like).xp
    kept = xp.empty_like(like) if is_dense(like) else xp.empty(like.shape, like.dtype)
    try:
        xp.copyto(kept, g)
    except ValueError:
        raise RuntimeError(
            f"the gradient of shape {list(g.shape)} does not fit the leaf, which was used in that "
            f"shape and is of {list(like.shape)} now: give it its shape back before backward"
        ) from None
    return kept


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
