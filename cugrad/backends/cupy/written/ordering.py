"""Short lines in order, their largest and their middle elements: a kernel each, or two for the
largest of long lines, of which parts are put in order first.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from ..kernels.ordering import KERNELS
from .launch import BLOCK, FLOATS, blocks, dense, int32, int64, kernel, name_of
from .registry import forward

__all__ = ["MOST", "ORDERED", "places_for"]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray
ORDERED = (*FLOATS, "int64", "int32", "uint8", "bool")
# Of elements that fit a word together with their place: the bits of infinity, 0 of integers.
INFINITE = {"float32": 0x7F800000, "float16": 0x7C00, "bfloat16": 0x7F80, "int32": 0, "uint8": 0,
            "bool": 0}  # fmt: skip
EACH = 8  # places that a thread has
MOST = 1 << 11  # elements of a line that a block puts in order


def places_for(n: int) -> int:
    """How many places a line takes: a power of two."""
    return max(2, 1 << (n - 1).bit_length())


def _line(x: Array, dim: int) -> tuple[int, int, int] | None:
    """Of what x has along a dim: how many lines, elements in each, and the step between these."""
    if type(dim) is not int or not -x.ndim <= dim < x.ndim or name_of(x.dtype) not in ORDERED:
        return None
    dim %= x.ndim
    return None if not x.size else (x.size // x.shape[dim], x.shape[dim],
                                    prod(x.shape[dim + 1 :]))  # fmt: skip


def _ordered(
    x: Array, dim: int, down: bool, first: int, count: int, names: Array | None = None,
    values: bool = True, median: bool = False,
) -> tuple[Array, Array] | None:  # fmt: skip
    """Some of the order of each line, and their indices. Of a line that is longer than a block
    takes, parts are put in order: as many of each.
    """
    line = _line(x, dim)
    if line is None:
        return None
    (lines, n, inner), x = line, dense(x)
    chunk = min(n, MOST)
    chunks, places = blocks(n, chunk), places_for(chunk)
    dtype = name_of(x.dtype)
    shape = (*x.shape[:dim], chunks * count, *x.shape[dim + 1 :])
    result = ndarray(shape, x.dtype) if values else None
    indices = ndarray(shape, np.int64)
    numbers = {"P": places, "DOWN": int(down), "MEDIAN": int(median)}
    if dtype in INFINITE:
        name, each = "order_words", min(places, EACH)
        numbers |= {"EACH": each, "INFINITE": INFINITE[dtype]}
        side = BLOCK * each // places  # lines that a block has
    else:
        name, each, side = "order", 2, max(1, 512 // places)
    run = kernel(KERNELS[name], name, dtype, None, 1, R=side, **numbers)
    run((blocks(lines * chunks, side),), (places * side // each,), (
        x, names, result, indices, int64(lines * chunks), int64(n), int64(inner), int32(chunk),
        int32(chunks), int32(first), int32(count),
    ))  # fmt: skip
    return result, indices


def _turned(x: Array) -> tuple[int, ...] | None:
    """The dims of x as they lie in memory; None where x is not dense."""
    dims = sorted(range(x.ndim), key=lambda d: -x.strides[d])
    return tuple(dims) if x.transpose(dims).flags.c_contiguous else None


def _whole(x: Array, dim: int, down: bool, values: bool) -> tuple[Array, Array] | None:
    """All of the order, in memory of the order that x has."""
    if x.ndim == 0 or not -x.ndim <= dim < x.ndim or x.shape[dim] > MOST:
        return None
    dim %= x.ndim
    if x.flags.c_contiguous:
        return _ordered(x, dim, down, 0, x.shape[dim], values=values)
    dims = _turned(x)
    if dims is None:
        return _ordered(x, dim, down, 0, x.shape[dim], values=values)
    results = _ordered(x.transpose(dims), dims.index(dim), down, 0, x.shape[dim], values=values)
    back = tuple(np.argsort(dims).tolist())
    return None if results is None else tuple(  # type: ignore[return-value]
        [r if r is None else r.transpose(back) for r in results]
    )  # fmt: skip


@forward("sort", keeps=True)
def sort(self: Array, dim: int, descending: bool, stable: bool) -> tuple[Array, Array] | None:
    """In one kernel; of equals the first stays first."""
    return _whole(self, dim, descending, True)


@forward("argsort", keeps=True)
def argsort(self: Array, dim: int, descending: bool, stable: bool) -> Array | None:
    """In one kernel."""
    results = _whole(self, dim, descending, False)
    return None if results is None else results[1]


@forward("topk", keeps=True)
def topk(
    self: Array, k: int, dim: int, largest: bool, sorted: bool
) -> tuple[Array, Array] | None:  # fmt: skip
    """In one kernel; of long lines after those that put parts in order, so that k of each are left:
    half of them, or fewer, each time.
    """
    line = _line(self, dim)
    if line is None or not 0 < k <= line[1]:
        return None
    dim, n = dim % self.ndim, line[1]
    if n > MOST and 2 * k > MOST:
        return None
    values, indices = self, None
    while (n := values.shape[dim]) > MOST:
        some = _ordered(values, dim, largest, 0, k, indices)
        if some is None:
            return None
        values, indices = some
    return _ordered(values, dim, largest, 0, k, indices)


def _picked(
    x: Array, place: int, dim: int, keepdim: bool, median: bool
) -> tuple[Array, Array] | None:
    line = _line(x, dim)
    if line is None or line[1] > MOST:
        return None
    dim %= x.ndim
    results = _ordered(x, dim, False, place, 1, median=median)
    if results is None or keepdim:
        return results
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    return results[0].reshape(shape), results[1].reshape(shape)


@forward("kthvalue", keeps=True)
def kthvalue(self: Array, k: int, dim: int, keepdim: bool) -> tuple[Array, Array] | None:
    """In one kernel, of short lines."""
    return _picked(self, k - 1, dim, keepdim, False)


@forward("median", keeps=True)
def median(self: Array, dim: int, keepdim: bool) -> tuple[Array, Array] | None:
    """In one kernel, of short lines: the first nan, where there is one."""
    if self.ndim == 0 or not -self.ndim <= dim < self.ndim:
        return None
    return _picked(self, (self.shape[dim] - 1) // 2, dim, keepdim, True)
