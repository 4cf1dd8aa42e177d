"""Sums, means, extremes and lengths over dims: a kernel each way."""

from __future__ import annotations

from math import inf, prod
from typing import Any

import cupy

from ...wanted import wanted
from ..fused.rows import mean_of, sum_of
from ..kernels.statistics import KERNELS, TOTALS
from .launch import (
    FLOATS,
    accumulator,
    blocks,
    dense,
    int32,
    int64,
    kernel,
    name_of,
    pack_of,
    tickets_of_stream,
)
from .registry import NodeCall, backward, forward
from .scores import Dims, Scores, many_rows, rows_along

__all__ = ["sum_over"]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray
LONG = 1 << 14  # elements of a row that several blocks share, where rows are few
FEW = 256  # rows
SHORT, LANES = 4096, 32  # elements of a row that a few threads add up; rows of a block
PARTS = 1024  # blocks that are enough for a GPU
ORDERS = {2: "norm", 1: "sizes", inf: "largest", -inf: "smallest"}  # of vector norms
THREADS, STEPS = 512, 8  # of a block that has a part of a row, and that a thread should do


def _total(kind: str, x: Array, dim: Dims, keepdim: bool) -> Array | None:
    """Of neighbouring dims: the last ones, or those before many others."""
    lines = rows_along(x.shape, dim)
    if lines is None or name_of(x.dtype) not in FLOATS:
        return None
    rows, dims = lines
    is_long = rows.inner == 1 and rows.number < FEW and rows.n > LONG
    if not is_long and not (rows.fits and (rows.inner == 1 or rows.number >= 32 * FEW)):
        return None
    shape = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    result = ndarray(tuple(shape), x.dtype)
    last = _with_channels_last(x, dims)
    if last is not None and (rows.n <= SHORT or rows.number >= 32 * LANES):
        x, is_long, rows = last, False, rows._replace(inner=x.shape[1])
    else:
        x = dense(x)
    if is_long:
        _of_long_rows(kind, x, result, rows)
        return result
    pack = rows.pack(x)
    grid, block, team = rows.grid(pack)
    run = kernel(KERNELS["row_total"], "row_total", name_of(x.dtype), None, pack,
                 ACROSS=int(rows.inner > 1), KIND=TOTALS[kind])  # fmt: skip
    run((grid,), (block,),
        (x, result, int64(rows.number), int32(rows.n), int32(rows.inner), int32(team)))  # fmt: skip
    return result


def _with_channels_last(x: Array, dims: tuple[int, ...]) -> Array | None:
    """x in the order of memory, where its channels lie last and dims are all that they lie at."""
    if x.ndim < 3 or x._c_contiguous or dims != tuple(range(2, x.ndim)):
        return None
    turned = x.transpose(0, *dims, 1)
    return turned if turned._c_contiguous else None


def _of_long_rows(kind: str, x: Array, result: Array, rows: Scores) -> None:
    """Of few rows: several blocks have one together."""
    whole = 16 // x.itemsize
    pack = pack_of(whole if rows.number == 1 else rows.n, x)
    parts = max(1, min(PARTS // rows.number, blocks(rows.n, THREADS * STEPS * pack)))
    partial = ndarray((rows.number, parts), accumulator(x.dtype))
    run = kernel(KERNELS["long_total"], "long_total", name_of(x.dtype), None, pack,
                 KIND=TOTALS[kind])  # fmt: skip
    run((parts, rows.number), (THREADS,),
        (x, result, partial, tickets_of_stream(), int64(rows.n)))  # fmt: skip


@forward("sum", keeps=True)
def total(self: Array, dim: Dims, keepdim: bool) -> Array | None:
    """In one kernel: of rows, of columns, or of all."""
    of_columns = dim is not None and 0 in dim and len(dim) < self.ndim
    rows = None if of_columns else _total("sum", self, dim, keepdim)
    return sum_of(self, dim, keepdim) if rows is None else rows


@forward("mean", keeps=True)
def mean(self: Array, dim: Dims, keepdim: bool) -> Array | None:
    """In one kernel."""
    of_columns = dim is not None and 0 in dim and len(dim) < self.ndim
    rows = None if of_columns else _total("mean", self, dim, keepdim)
    return mean_of(self, dim, keepdim) if rows is None else rows


@forward("linalg_vector_norm", keeps=True)
def vector_norm(self: Array, ord: float, dim: Dims, keepdim: bool) -> Array | None:
    """In one kernel; but the length of one element is its size, however large its square."""
    others = prod(n for d, n in enumerate(self.shape) if dim and d not in dim)
    if ord not in ORDERS or dim == () or not self.size or self.size == others:
        return None
    return _total(ORDERS[ord], self, dim, keepdim)


@forward("square_total", keeps=True)
def square_total(self: Array, mean: bool) -> Array | None:
    """In one kernel."""
    return _total("mean square" if mean else "squares", self, None, False)


def sum_over(a: Array, axis: Any, keepdims: bool) -> Array | None:
    """`total` for any axis; None for what CuPy is to add up."""
    if type(a) is not ndarray or not wanted.fused or not a.ndim:
        return None
    return total(a, axis if axis is None or type(axis) is tuple else (axis,), keepdims)


def _extreme(kind: str) -> Any:
    return lambda self, dim, keepdim: _total(kind, self, dim, keepdim)


for _kind in ("amax", "amin"):
    forward(_kind, f"{_kind[1:]}_all", keeps=True)(_extreme(_kind))


@backward("amax", "amin", "max_all", "min_all", keeps=True)
def gradient_of_extremes(call: NodeCall) -> tuple[Array | None, ...] | None:
    """In one kernel, which counts those that share a gradient."""
    x, y = call["self"], call["result"]
    if x is None or y is None or call.g.dtype != x.dtype:
        return None
    out = _shared(call.g, x, y, call.params["dim"])
    return None if out is None else call.answer(self=out)


@forward("tie_share", keeps=True)
def tie_share(self: Array, extreme: Array, dim: Dims) -> Array | None:
    """In one kernel."""
    return _shared(None, self, extreme, dim)


def _shared(g: Array | None, x: Array, y: Array, dim: Dims) -> Array | None:
    """g, or 1, by the elements of x that equal their extreme y."""
    lines = many_rows(x.shape, dim)
    if lines is None or name_of(x.dtype) not in FLOATS or y.dtype != x.dtype:
        return None
    if y.size * lines[0].n != x.size:
        return None
    rows, x = lines[0], dense(x)
    out = ndarray(x.shape, x.dtype)
    pack = rows.pack(x, out)
    grid, block, team = rows.grid(pack)
    name = "row_extreme_backward"
    run = kernel(KERNELS[name], name, name_of(x.dtype), None, pack, ACROSS=int(rows.inner > 1))
    run((grid,), (block,), (
        None if g is None else dense(g), x, dense(y), out, int64(rows.number), int32(rows.n),
        int32(rows.inner), int32(team),
    ))  # fmt: skip
    return out
