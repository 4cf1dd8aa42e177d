"""Dropout from kept bits, gather, and sums where indices say."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import cupy
import numpy as np

from ....wanted import wanted
from ...fused.copies import copy_into
from ...kernels.ordering import KERNELS as ORDER
from ...kernels.placed.sums import KERNELS
from ..launch import (
    BLOCK,
    FLOATS,
    LIMIT,
    accumulator,
    blocks,
    dense,
    int32,
    int64,
    kernel,
    name_of,
    pack_of,
)
from ..ordering import MOST, places_for
from ..plans import kept
from ..registry import NodeCall, backward, forward
from .copies import INDICES, MOST_Y, span, team_for

__all__ = [
    "STORED_AS", "NamedLines", "added_along", "added_over", "added_to", "begin", "beginning_of",
    "lines_of",
    "put_over", "with_rows",
]  # fmt: skip

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray

FEW = 32  # indices that a thread looks through
SEVERAL = 8192  # indices that a block looks through: more are counted, and listed by row
NARROW = 16  # elements of a row: fewer are added by atomics
MANY = 64  # rows that are added up one after another: more by several
STORED_AS = {1: "uint8", 2: "uint16", 4: "int32", 8: "int64"}  # what only moves, by its bytes


@forward("native_dropout", keeps=True)
def dropout(self: Array, bits: Array, mask_shape: tuple[int, ...], p: float) -> Array | None:
    """In one kernel, where each element has a bit, or all of the last dims have one together."""
    shape, count = self.shape, prod(mask_shape)
    first = next((d for d, n in enumerate(mask_shape) if n != shape[d]), len(shape))
    if len(mask_shape) != len(shape) or any(n != 1 for n in mask_shape[first:]):
        return None
    if name_of(self.dtype) not in FLOATS or not self.size or name_of(bits.dtype) != "uint8":
        return None
    if bits.size * 8 < count:
        return None
    x, result, inner = dense(self), ndarray(shape, self.dtype), self.size // count
    pack = pack_of(self.size if inner == 1 else inner, x, result)
    scale = accumulator(x.dtype)(1 / (1 - p) if p < 1 else 0.0)
    run = kernel(KERNELS["keep_by_bits"], "keep_by_bits", name_of(x.dtype), None, pack,
                 CHANNELS=int(inner > 1))  # fmt: skip
    run((blocks(x.size // pack),), (BLOCK,),
        (x, dense(bits), result, int64(x.size), int64(inner), scale))  # fmt: skip
    return result


class NamedLines(NamedTuple):
    """How many elements an array has along a dim, and an index; and how many lie behind each, of
    the index and of the array. The index, and the steps in it from the one to the next: before the
    dim, along it, and behind.
    """

    n: int
    many: int
    inner: int
    wide: int
    indices: Array
    steps: tuple[int, int, int]

    @property
    def told(self) -> tuple[Any, ...]:
        return (*map(int64, self[:4]), *map(int64, self.steps))


def lines_of(x: Array, index: Array, dim: int) -> NamedLines | None:
    """Of an array and an index of as many dims; None where the index is smaller than the array in
    another dim than the first, and the one behind `dim`.
    """
    if name_of(index.dtype) not in INDICES or x.ndim != index.ndim or not 0 <= dim < x.ndim:
        return None
    for d, (n, m) in enumerate(zip(x.shape, index.shape)):
        # of the first, and the one behind, the index may have the beginning
        if d != dim and (m > n or m < n and d not in (0, dim + 1)):
            return None
    if not (x.size and index.size):
        return None
    inner, wide = prod(index.shape[dim + 1 :]), prod(x.shape[dim + 1 :])
    above, within = span(index, range(dim)), span(index, range(dim + 1, index.ndim))
    if above is None or within is None:
        index = dense(index)
        above, within = span(index, range(dim)), span(index, range(dim + 1, index.ndim))
        assert above is not None and within is not None
    steps = [step // index.itemsize for step in (above[1], index.strides[dim], within[1])]
    along, behind = (x.shape[dim], index.shape[dim]), (inner, wide)
    return NamedLines(*along, *behind, index, (steps[0], steps[1], steps[2]))


def beginning_of(src: Array, index: Array) -> Array:
    """The part of src that has values for an index."""
    return src if src.shape == index.shape else src[tuple(map(slice, index.shape))]


@forward("gather", keeps=True)
def gather(self: Array, index: Array, dim: int) -> Array | None:
    """In one kernel, for elements of any dtype; of a part of self after a copy of that."""
    if self.ndim == index.ndim:
        part = tuple([slice(n if d != dim else None) for d, n in enumerate(index.shape)])
        self = self if lines_of(self, index, dim) else self[part]
    lines, stored = lines_of(self, index, dim), STORED_AS.get(self.dtype.itemsize)
    if lines is None or stored is None:
        return None
    result = ndarray(index.shape, self.dtype)
    run = kernel(KERNELS["gather"], "gather", stored, name_of(index.dtype))
    arrays = [x.view(stored) for x in (dense(self), result)]
    run((blocks(result.size),), (BLOCK,),
        (arrays[0], lines.indices, arrays[1], int64(result.size), *lines.told))  # fmt: skip
    return result


@forward("gather_backward", keeps=True)
def gather_backward(grad: Array, index: Array, shape: tuple[int, ...], dim: int) -> Array | None:
    """In one kernel, in an order that is always the same, where there are few indices; by zeros and
    a kernel of atomic sums, where there are many.
    """
    if name_of(grad.dtype) not in FLOATS or grad.shape != index.shape or 0 in shape:
        return None
    result = ndarray(tuple(shape), grad.dtype)
    lines = lines_of(result, index, dim)
    if lines is None:
        return _in_a_part(grad, index, result, dim)
    if lines.many > FEW:
        return added_over(None, grad, index, result, dim, lines)
    run = kernel(
        KERNELS["gather_backward"], "gather_backward", name_of(grad.dtype), name_of(index.dtype)
    )
    run((blocks(result.size),), (BLOCK,),
        (dense(grad), lines.indices, result, int64(result.size), *lines.told,
         int64(prod(index.shape[:dim]))))  # fmt: skip
    return result


def _in_a_part(grad: Array, index: Array, result: Array, dim: int) -> Array | None:
    """Zeros, but where an index reaches that is smaller in other dims, too."""
    if grad.ndim != result.ndim or not index.size or not 0 <= dim < index.ndim:
        return None
    shape = tuple([result.shape[d] if d == dim else n for d, n in enumerate(index.shape)])
    sums = None if shape == result.shape else gather_backward(grad, index, shape, dim)
    if sums is None or copy_into(begin(result)[tuple(map(slice, shape))], sums) is None:
        return None
    return result


@forward("scatter_add", keeps=True)
def scatter_add(self: Array, index: Array, src: Array, dim: int) -> Array | None:
    """As `gather_backward`, to what is there."""
    src = beginning_of(src, index)
    if name_of(self.dtype) not in FLOATS or src.dtype != self.dtype or src.shape != index.shape:
        return None
    lines = lines_of(self, index, dim)
    if lines is None:
        return None
    return added_over(dense(self), src, index, ndarray(self.shape, self.dtype), dim, lines)


def begin(y: Array, x: Array | None = None) -> Array:
    """`y`, into which x is written, or zeros."""
    pack = pack_of(y.size, y, *([] if x is None else [x]))
    kernel(KERNELS["begin_with"], "begin_with", name_of(y.dtype), None, pack)(
        (blocks(y.size // pack),), (BLOCK,), (x, y, int64(y.size)))  # fmt: skip
    return y


def _put(self: Array, index: Array, src: Array | None, dim: int) -> Array | None:
    """A copy of self, in which src, or 0, stands where indices say; of elements of any dtype."""
    lines, stored = lines_of(self, index, dim), STORED_AS.get(self.dtype.itemsize)
    if lines is None or stored is None:
        return None
    result = ndarray(self.shape, self.dtype)
    begin(result.view(stored), dense(self).view(stored))
    put_over(result, index, src, lines)
    return result


def put_over(y: Array, index: Array, src: Array | None, lines: NamedLines) -> None:
    """Puts src, which may be one number for all, or 0 into y, whose elements only move."""
    stored, step = STORED_AS[y.dtype.itemsize], 1
    if src is not None and not any(s for s, n in zip(src.strides, src.shape) if n > 1):
        src, step = src[(slice(1),) * src.ndim], 0
    values = None if src is None else dense(src).view(stored)
    run = kernel(KERNELS["put_by_index"], "put_by_index", stored, name_of(index.dtype))
    run((blocks(index.size),), (BLOCK,), (
        values, lines.indices, y.view(stored), int64(index.size), int64(step), *lines.told
    ))  # fmt: skip


@forward("scatter", keeps=True)
def scatter(self: Array, index: Array, src: Array, dim: int) -> Array | None:
    """A copy, and one kernel; of two values for a place one stays, unless it has to be the last."""
    src = beginning_of(src, index)
    if src.dtype != self.dtype or src.shape != index.shape or wanted.deterministic:
        return None
    return _put(self, index, src, dim)


@forward("named_by")
def named_by(index: Array, size: int) -> Array | None:
    """Zeros, and one kernel. What is answered is a part of them, so no launches are kept."""
    if name_of(index.dtype) not in INDICES or not (index.size and size):
        return None
    marks = begin(ndarray((blocks(size, 4),), np.int32))
    run = kernel(KERNELS["mark_named"], "mark_named", "int32", name_of(index.dtype))
    run((blocks(index.size),), (BLOCK,), (dense(index), marks, int64(index.size), int64(size)))
    return marks.view(bool)[:size]


@forward("one_hot", keeps=True)
def one_hot(self: Array, num_classes: int) -> Array | None:
    """In one kernel."""
    if name_of(self.dtype) not in INDICES or not (self.size and num_classes):
        return None
    result = ndarray((*self.shape, num_classes), np.int64)
    run = kernel(KERNELS["one_hot"], "one_hot", "int64", name_of(self.dtype))
    run((blocks(result.size),), (BLOCK,),
        (dense(self), result, int64(result.size), int64(num_classes)))  # fmt: skip
    return result


@forward("scatter_zero", keeps=True)
def scatter_zero(self: Array, index: Array, dim: int) -> Array | None:
    """A copy, and one kernel."""
    return _put(self, index, None, dim)


@backward("sort", keeps=True)
def gradient_of_order(call: NodeCall) -> tuple[Array | None, ...] | None:
    """What came from each place goes back there: each index is there once in a line."""
    g, index, shape = call.g, call["indices"], call.shape("self")
    if index is None or not shape or g.dtype.itemsize not in STORED_AS or 0 in g.shape:
        return None
    result = ndarray(shape, g.dtype)
    lines = lines_of(result, index, call.params["dim"] % len(shape))
    if lines is None:
        return None
    put_over(result, index, g, lines)
    return call.answer(self=result)


def added_over(
    x: Array | None, g: Array, index: Array, result: Array, dim: int, lines: NamedLines
) -> Array | None:
    """`result`, into which x and the sums of g are written, where it is not x; without x there are
    zeros.
    """
    (n, count, _, _, named, _), dtype = lines, name_of(result.dtype)
    if count <= MOST:
        places, name = places_for(count), "add_in_order"
        run = kernel(ORDER[name], name, dtype, name_of(index.dtype), 1, P=places, R=1)
        run((result.size // n,), (max(1, places // 2),),
            (x, dense(g), named, result, int64(n), int32(count), *lines.told[2:],
             int64(prod(index.shape[:dim]))))  # fmt: skip
        return result
    if dtype not in ("float32", "float64") or wanted.deterministic:
        return None
    if result is not x:
        begin(result, x)
    run = kernel(KERNELS["add_by_index"], "add_by_index", dtype, name_of(index.dtype))
    run((blocks(g.size),), (BLOCK,),
        (dense(g), named, result, int64(g.size), *lines.told))  # fmt: skip
    return result


# Rows of planes -----------------------------------------------------------------------------------


def with_rows(
    x: Array | None, g: Array, index: Array, shape: tuple[int, ...], dim: int,
    factor: float = 1.0, left_out: int = -1, others: tuple[Array, Array] | None = None,
    over: bool = False,
) -> Array | None:  # fmt: skip
    """x, or zeros, and the sums of what g has where indices name a place along a dim: `over` x,
    which is dense, or as a new array.

    Indices stand for slices of g in their order, or for those that `others` has, times shares.
    """
    planes, n, count = prod(shape[:dim]), shape[dim], index.size
    width = prod(shape[dim + 1 :])
    if (
        name_of(g.dtype) not in FLOATS
        or name_of(index.dtype) not in INDICES
        or not planes * n * width
    ):
        return None
    if not 0 < count < LIMIT or n >= LIMIT or planes > MOST_Y or width > MOST_Y * 1024:
        return None
    if count > SEVERAL and (wanted.deterministic or width < NARROW):
        return None
    g, index, factor = dense(g), dense(index.reshape(-1)), accumulator(g.dtype)(factor)
    if count > SEVERAL:
        rows = NamedRows(g, index, planes, n, width, factor, left_out, others)
        return _in_ranges(rows, x, x if over else ndarray(shape, g.dtype))
    result = x if over else begin(ndarray(shape, g.dtype), None if x is None else dense(x))
    name = "add_rows_by_index"
    run = kernel(KERNELS[name], name, name_of(g.dtype), name_of(index.dtype),
                 OTHERS=int(others is not None))  # fmt: skip
    run((count, blocks(width, 1024), planes), (BLOCK,),
        (g, index, *(others or (None, None)), result, int32(count), int64(width), int64(n),
         int64(left_out), int32(x is not None), factor))  # fmt: skip
    return result


class NamedRows(NamedTuple):
    """Planes of rows g, (planes, count, width), to be added to planes of n where an index says; or
    other rows, times shares.
    """

    g: Array
    index: Array
    planes: int
    n: int
    width: int
    factor: Any
    left_out: int
    others: tuple[Array, Array] | None


def _in_ranges(rows: NamedRows, x: Array | None, result: Array) -> Array:
    """`result`, which may be x, each row of which is written once: what is added to it is listed
    before.
    """
    g, index, planes, n, width, factor, left_out, others = rows
    count, x = index.size, None if x is None else dense(x)
    counts = begin(ndarray((n + 2,), np.int32))
    ranks, starts, order = (ndarray((size,), np.int32) for size in (count, n, count))
    long_rows = ndarray((count // MANY + 1,), np.int32)
    run = kernel(KERNELS["count_indices"], "count_indices", "int32", name_of(index.dtype))
    run((blocks(count),), (BLOCK,),
        (index, counts, ranks, int32(count), int64(n), int64(left_out)))  # fmt: skip
    kernel(KERNELS["begin_ranges"], "begin_ranges", "int32")(
        (blocks(n),), (BLOCK,), (counts, starts, long_rows, int64(n), int32(MANY)))  # fmt: skip
    run = kernel(KERNELS["fill_ranges"], "fill_ranges", "int32", name_of(index.dtype))
    run((blocks(count),), (BLOCK,), (index, starts, ranks, order, int32(count), int64(n)))
    pack = pack_of(width, *[a for a in (g, x, result) if a is not None])
    team = team_for(width // pack)
    of, numbers = others or (None, None), {"OTHERS": int(others is not None)}
    run = kernel(KERNELS["sum_ranges"], "sum_ranges", name_of(g.dtype), None, pack, **numbers)
    run((blocks(n, BLOCK // team), min(MOST_Y, blocks(width, team * pack)), planes), (BLOCK,),
        (g, x, counts, starts, order, *of, result, int64(n), int32(count), int64(width),
         int32(team), int32(MANY), factor))  # fmt: skip
    if count > MANY:
        name = "sum_long_ranges"
        run = kernel(KERNELS[name], name, name_of(g.dtype), None, pack, **numbers)
        run((count // MANY, min(MOST_Y, blocks(width, 32 * pack)), planes), (BLOCK,),
            (g, x, counts, starts, order, long_rows, *of, result, int64(n), int32(count),
             int64(width), factor))  # fmt: skip
    return result


@forward("embedding_dense_backward", keeps=True)
def embedding_backward(
    grad_output: Array, indices: Array, num_weights: int, padding_idx: int
) -> Array | None:
    """Of few indices sums in their order, the same bits in each run; else rows are listed first."""
    shape = num_weights, grad_output.shape[-1]
    return with_rows(None, grad_output, indices, shape, 0, left_out=padding_idx)


@forward("index_select_backward", keeps=True)
def index_select_backward(
    grad: Array, index: Array, shape: tuple[int, ...], dim: int
) -> Array | None:
    """As `embedding_backward`."""
    if index.ndim > 1 or not 0 <= dim < len(shape):
        return None
    return with_rows(None, grad, index, tuple(shape), dim)


@forward("index_add", keeps=True)
def index_add(
    self: Array, index: Array, source: Array, dim: int, alpha: Any = 1
) -> Array | None:  # fmt: skip
    """As `embedding_backward`, to what is there."""
    if type(alpha) not in (int, float) or source.dtype != self.dtype or index.ndim > 1:
        return None
    if not 0 <= dim < self.ndim or source.ndim != self.ndim:
        return None
    return with_rows(self, source, index, self.shape, dim, float(alpha))


added_to = kept(
    lambda self, source, index, dim: with_rows(self, source, index, self.shape, dim),
    ("self", "source", "index"), ("dim",),
)  # fmt: skip
added_along = kept(
    lambda grad, index, shape, dim: with_rows(None, grad, index, shape, dim),
    ("grad", "index"), ("shape", "dim"),
)  # fmt: skip
