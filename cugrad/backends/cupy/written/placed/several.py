"""What several arrays of indices name together: a kernel finds the places, and others then read or
add up as they do for one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any, NamedTuple

import cupy
import numpy as np

from ....wanted import wanted
from ...fused.launch import dense_strides
from ...fused.layouts import Operand, layout_of
from ...kernels.placed.copies import KERNELS as COPIES
from ...kernels.placed.sums import KERNELS
from ..launch import BLOCK, blocks, dense, int64, kernel, name_of
from ..plans import kept
from ..registry import forward
from .copies import INDICES, STORED, named_by_one, span, taken_along, told_of_rows
from .sums import added_along, with_rows

__all__ = [
    "INDICES_OF", "MOST", "added_at", "added_to_several", "beside", "named_by_several",
    "named_together",
]  # fmt: skip

Array = Any  # cupy.ndarray
Sizes = tuple[int, ...]
ndarray = cupy.ndarray

MOST = 4  # arrays


def named_by_several(indices: Any) -> tuple[Sizes, list[Array | None]] | None:
    """The dims that arrays of indices name, with all of the dims beside them, and the arrays, of
    one dtype, with None for those that are missing; None for other indices.
    """
    if type(indices) is not tuple:
        return None
    whole = slice(None)
    dims = [d for d, i in enumerate(indices) if not (type(i) is slice and i == whole)]
    arrays = [indices[d] for d in dims]
    if not 1 < len(dims) <= MOST or any(type(i) is not ndarray or not i.size for i in arrays):
        return None
    if name_of(arrays[0].dtype) not in INDICES or any(i.dtype != arrays[0].dtype for i in arrays):
        return None
    try:
        np.broadcast_shapes(*[i.shape for i in arrays])
    except ValueError:  # CuPy says what is wrong
        return None
    return tuple(dims), [*arrays, *[None] * (MOST - len(arrays))]


class Named(NamedTuple):
    """The shape of arrays of indices together; they, and the numbers by which kernels read them."""

    shape: Sizes
    arrays: list[Array | None]
    numbers: list[Any]

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def dtype(self) -> str:
        return name_of(self.arrays[0].dtype)  # type: ignore[union-attr]


def named_together(arrays: Sequence[Array], sizes: Sequence[int], steps: Sequence[int]) -> Named:
    """Where arrays of indices, which broadcast, lead: each to its index within a size, times a
    step.
    """
    shape = np.broadcast_shapes(*[i.shape for i in arrays])
    operands = [Operand(i.itemsize, i.shape, i.strides) for i in arrays]
    operands.append(Operand(8, shape, dense_strides(shape, 8)))
    layout = layout_of(shape, operands, packing=False)
    if layout is None or len(layout.shape) > 3:
        return named_together([dense(cupy.broadcast_to(i, shape)) for i in arrays], sizes, steps)
    missing = 3 - len(layout.shape)
    numbers = [*map(int64, ((1,) * missing + layout.shape)[1:])]
    absent = MOST - len(arrays)
    for strides, n, step in [*zip(layout.strides, sizes, steps)] + [((), 1, 0)] * absent:
        numbers += [int64(k) for k in (*(0,) * (3 - len(strides)), *strides, n, step)]
    return Named(shape, [*arrays, *[None] * absent], numbers)


def _places(arrays: Sequence[Array], sizes: Sequence[int], steps: Sequence[int]) -> Array:
    """Those places."""
    named = named_together(arrays, sizes, steps)
    result, name = ndarray(named.shape, np.int64), "places_of_several"
    run = kernel(KERNELS[name], name, "int64", named.dtype)
    run((blocks(result.size),), (BLOCK,),
        (*named.arrays, result, int64(result.size), *named.numbers))  # fmt: skip
    return result


def beside(dims: Sizes, rank: int) -> tuple[Sizes, Sizes]:
    """The dims before those that are named, and behind them, where these stand together; else all
    of the others stand behind.
    """
    if dims[-1] - dims[0] == len(dims) - 1:
        return tuple(range(dims[0])), tuple(range(dims[-1] + 1, rank))
    return (), tuple([d for d in range(rank) if d not in dims])


def _taken(x: Array, *rest: Any) -> Array | None:
    """x at the places that arrays of indices name in some dims."""
    arrays, dims = [i for i in rest[:-1] if i is not None], rest[-1]
    before, behind = beside(dims, x.ndim)
    if not x.size or x.itemsize not in STORED:
        return None
    if any(x.strides[d] < 0 for d in dims) or span(x, before) is None or span(x, behind) is None:
        x = dense(x)
    above, within = span(x, before), span(x, behind)
    if above is None or within is None:
        return None
    if within[0] > 1 and within[1] != x.itemsize and x.itemsize > 8:
        return None
    unit = gcd(*[x.strides[d] for d in dims]) or x.itemsize
    named = named_together(arrays, [x.shape[d] for d in dims], [x.strides[d] // unit for d in dims])
    shape = [x.shape[d] for d in before], named.shape, [x.shape[d] for d in behind]
    result = ndarray(tuple([n for part in shape for n in part]), x.dtype)
    word, numbers, grid = told_of_rows(x, result, named.size, (above, unit, within))
    name = "take_rows_of_several"
    run = kernel(COPIES[name], name, word.stored, named.dtype, word.pack)
    run(grid, (BLOCK,), (x, *named.arrays, result, *numbers, *named.numbers))
    return result


def _added(grad: Array, *rest: Any) -> Array | None:
    """Zeros of a shape, to which grad is added at the places that arrays of indices name."""
    arrays, (shape, dims) = [i for i in rest[:-2] if i is not None], rest[-2:]
    before, behind = beside(dims, len(shape))
    result = _with_rows(None, grad, arrays, shape, dims)
    if result is None:
        return None
    order = *before, *dims, *behind
    result = result.reshape([shape[d] for d in order])
    return dense(result.transpose([order.index(d) for d in range(len(shape))]))


def _with_rows(
    x: Array | None, grad: Array, arrays: Sequence[Array], shape: Sizes, dims: Sizes,
    over: bool = False,
) -> Array | None:  # fmt: skip
    """x, or zeros, and the sums of what grad has, in a shape where the named dims are one."""
    before, behind = beside(dims, len(shape))
    named = [shape[d] for d in dims]
    steps = [prod(named[k + 1 :]) for k in range(len(named))]
    parts = [shape[d] for d in before], [prod(named)], [shape[d] for d in behind]
    if not prod(shape):
        return None
    merged, places = tuple([n for part in parts for n in part]), _places(arrays, named, steps)
    return with_rows(x, grad, places, merged, len(before), over=over)


def _added_over(x: Array, values: Array, *rest: Any) -> Array | None:
    """x, to which values are added at the places that arrays of indices name in some dims."""
    arrays, dims = [i for i in rest[:-1] if i is not None], rest[-1]
    if len(arrays) == 1:
        return with_rows(x, values, arrays[0], x.shape, dims[0], over=True)
    return None if _with_rows(x, values, arrays, x.shape, dims, over=True) is None else x


def _added_to(x: Array, values: Array, *rest: Any) -> Array | None:
    """The same as a new array."""
    arrays, dims = [i for i in rest[:-1] if i is not None], rest[-1]
    result = _with_rows(x, values, arrays, x.shape, dims)
    return None if result is None else result.reshape(x.shape)


def _are_rows(x: Array, values: Array, arrays: Sequence[Array], dims: Sizes) -> bool:
    """Whether values are as many as the places, in dims that stand together."""
    if dims[-1] - dims[0] != len(dims) - 1 or values.dtype != x.dtype:
        return False
    named = np.broadcast_shapes(*[i.shape for i in arrays])
    return bool(values.shape == (*x.shape[: dims[0]], *named, *x.shape[dims[-1] + 1 :]))


INDICES_OF = tuple([f"i{k}" for k in range(MOST)])
_taken_at_several = kept(_taken, ("x", *INDICES_OF), ("dims",), INDICES_OF[2:])
_added_at_several = kept(_added, ("grad", *INDICES_OF), ("shape", "dims"), INDICES_OF[2:])
_over_several = kept(_added_over, ("x", "values", *INDICES_OF), ("dims",), INDICES_OF[1:])
_to_several = kept(_added_to, ("x", "values", *INDICES_OF), ("dims",), INDICES_OF[2:])


def added_to_several(x: Array, values: Array, arrays: list[Array], dims: Sizes) -> Array | None:
    """A copy of x, to which values are added at the places that several arrays name."""
    if not x.size or not _are_rows(x, values, arrays, dims):
        return None
    result: Array | None = _to_several(
        x, values, *arrays, *[None] * (MOST - len(arrays)), dims
    )  # fmt: skip
    return result


def added_at(array: Array, index: Any, values: Any) -> bool:
    """Whether `array[index] += values`, where duplicates add up, has been done in place."""
    one, several = named_by_one(index), named_by_several(index)
    if one is None and several is None or type(array) is not ndarray or not wanted.fused:
        return False
    if type(values) is not ndarray or not array.size or not array._c_contiguous:
        return False
    dims: Sizes = ()
    arrays: list[Array | None] = []
    if several is not None:
        dims, arrays = several
    elif one is not None:
        dims, arrays = (one[0],), [one[1]]
    arrays = [i for i in arrays if i is not None]
    if not _are_rows(array, values, arrays, dims):
        return False
    if any(cupy.may_share_memory(x, array) for x in (values, *arrays)):
        return False
    arrays += [None] * (MOST - len(arrays))
    return _over_several(array, values, *arrays, dims) is not None


@forward("index")
def index(self: Array, indices: Any) -> Array | None:
    """In one kernel."""
    one = named_by_one(indices)
    if one is not None:
        return taken_along(self, one[1], one[0])
    several = named_by_several(indices)
    return None if several is None else _taken_at_several(self, *several[1], several[0])


@forward("index_backward")
def index_backward(grad: Array, shape: tuple[int, ...], indices: Any) -> Array | None:
    """As `embedding_backward`; of several arrays after a kernel that finds the places."""
    one = named_by_one(indices)
    if one is not None:
        return added_along(grad, one[1], tuple(shape), one[0])
    several = named_by_several(indices)
    if several is None:
        return None
    return _added_at_several(grad, *several[1], tuple(shape), several[0])
