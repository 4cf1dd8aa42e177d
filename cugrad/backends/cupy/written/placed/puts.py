"""What is put where arrays of indices say: by one kernel, in a copy that another one made, or in
place.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import cupy

from ....wanted import wanted
from ...kernels.placed.copies import KERNELS
from ..launch import BLOCK, blocks, dense, int64, kernel
from ..plans import kept
from ..registry import forward
from .copies import STORED, named_by_one, span, word_of
from .several import INDICES_OF, MOST, added_to_several, beside, named_by_several, named_together
from .sums import added_to, begin

__all__ = ["put_at"]

Array = Any  # cupy.ndarray
Sizes = tuple[int, ...]
Steps = tuple[int, ...]
ndarray = cupy.ndarray


def put_at(array: Array, index: Any, values: Any) -> None:
    """`array[index] = values`, in place; they must not share memory."""
    named, is_zero = _named(index), type(values) is int and values == 0
    if named is not None and (is_zero or type(values) is ndarray and values.dtype == array.dtype):
        if _put(array, None if is_zero else values, *named):
            return
    array[index] = values


def _named(indices: Any) -> tuple[list[Array], Sizes] | None:
    """Arrays of indices, and the dims in which they name places."""
    one = named_by_one(indices)
    if one is not None:
        return [one[1]], (one[0],)
    several = named_by_several(indices)
    return None if several is None else ([i for i in several[1] if i is not None], several[0])


def _put(array: Array, values: Array | None, arrays: list[Array], dims: Sizes) -> bool:
    """Whether values, or zeros, have been put where arrays of indices name places in some dims.

    Of two values for a place one stays.
    """
    if not wanted.fused or not array.size or array.itemsize not in STORED:
        return False
    before, behind = beside(dims, array.ndim)
    above, within = span(array, before), span(array, behind)
    if above is None or within is None or any(array.strides[d] < 0 for d in dims):
        return False
    unit = gcd(*[array.strides[d] for d in dims]) or array.itemsize
    named = named_together(
        arrays, [array.shape[d] for d in dims], [array.strides[d] // unit for d in dims]
    )
    parts = [array.shape[d] for d in before], named.shape, [array.shape[d] for d in behind]
    planes, width, count = above[0], within[0], named.size
    if not count:
        return True
    steps: Steps = (above[1], unit, within[1])
    g_steps: Steps = (0, 0, array.itemsize)
    if values is not None:
        values, g_steps = _spread(values, parts)
    apart = width > 1 and (steps[2] != array.itemsize or g_steps[2] != array.itemsize)
    if apart and array.itemsize > 8:
        return False
    nbytes = array.itemsize if apart else width * array.itemsize
    far = [step for n, step in zip((planes, count), (steps[0], unit)) if n > 1]
    far += [step for n, step in zip((planes, count), g_steps) if n > 1]
    word = word_of(nbytes, *far, unit, *[x.data.ptr for x in (array, values) if x is not None])
    size = planes * count * width * array.itemsize // word.size
    row = width * array.itemsize // word.size
    told = [word.of(s) for s in (*steps[:2], steps[2] if apart else word.size)]
    told += [word.of(s) for s in (*g_steps[:2], g_steps[2] if apart else word.size)]
    run = kernel(KERNELS["put_rows"], "put_rows", word.stored, named.dtype, word.pack)
    run((blocks(size // word.pack),), (BLOCK,),
        (values, *named.arrays, array, int64(size), int64(count), int64(row), *map(int64, told),
         *named.numbers))  # fmt: skip
    return True


def _spread(values: Array, parts: Any) -> tuple[Array, Steps]:
    """Values, and the bytes from one to the next in each part of a shape that they broadcast to."""
    shape = tuple([n for part in parts for n in part])
    lead = values.ndim - len(shape)
    if lead > 0:
        values = values.reshape(values.shape[lead:])  # ValueError unless there is one of each
    wide = cupy.broadcast_to(values, shape)
    spans, d = [], 0
    for part in parts:
        spans.append(span(wide, range(d, d + len(part))))
        d += len(part)
    if None in spans:
        return _spread(dense(wide), parts)
    return wide, tuple([step for _, step in filter(None, spans)])


def _copy_put(self: Array, values: Array | None, *rest: Any) -> Array | None:
    """A copy, in the order of self in memory, in which values, or zeros, have been put."""
    arrays, dims = [i for i in rest[:-1] if i is not None], rest[-1]
    if self.itemsize not in STORED or not self.size:
        return None
    order = sorted(range(self.ndim), key=lambda d: -self.strides[d])
    if not self.transpose(order).flags.c_contiguous:
        order = [*range(self.ndim)]
    source, stored = dense(self.transpose(order)), STORED[self.itemsize][0]
    result = ndarray(source.shape, self.dtype)
    begin(result.view(stored), source.view(stored))
    result = result.transpose([order.index(d) for d in range(self.ndim)])
    return result if _put(result, values, arrays, dims) else None


_values_put = kept(_copy_put, ("self", "values", *INDICES_OF), ("dims",), INDICES_OF[1:])
_zeros_put = kept(
    lambda self, *rest: _copy_put(self, None, *rest), ("self", *INDICES_OF), ("dims",),
    INDICES_OF[1:],
)  # fmt: skip


@forward("index_put")
def index_put(self: Array, values: Array, indices: Any, accumulate: bool) -> Array | None:
    """A copy, and one kernel; of two values for a place one stays, unless it has to be the last."""
    named = _named(indices)
    if named is None or wanted.deterministic or values.dtype != self.dtype:
        return None
    arrays, dims = named
    if accumulate:
        if len(dims) > 1:
            return added_to_several(self, values, arrays, dims)
        return _added(self, values, arrays[0], dims[0])
    return _values_put(self, values, *arrays, *[None] * (MOST - len(arrays)), dims)


def _added(self: Array, values: Array, index: Array, dim: int) -> Array | None:
    shape = (*self.shape[:dim], *index.shape, *self.shape[dim + 1 :])
    if values.shape != shape:
        return None
    return added_to(self, values, index, dim)


@forward("index_zero")
def index_zero(self: Array, indices: Any) -> Array | None:
    """A copy, and one kernel."""
    named = _named(indices)
    if named is None:
        return None
    return _zeros_put(self, *named[0], *[None] * (MOST - len(named[0])), named[1])
