"""The nearest elements of a grid for the places of another, and their adjoint: a kernel each."""

from __future__ import annotations

from math import gcd, prod
from typing import Any

import cupy
import numpy as np

from ...kernels.placed.grids import KERNELS
from ..launch import BLOCK, FLOATS, blocks, dense, int32, int64, kernel, name_of
from ..registry import forward
from .windows import is_last, laid_last, new_last

__all__: list[str] = []

Array = Any  # cupy.ndarray
Sizes = tuple[int, ...]
ndarray = cupy.ndarray

WORDS = {1: "uint8", 2: "uint16", 4: "int32", 8: "int64"}  # what only moves, by its bytes
LARGEST = 1 << 24  # of a dim, beyond which float32 leaves numbers out
MANY = 64  # places that read an element, beyond which threads that share them are quicker


def _told(elements: Sizes, places: Sizes, steps: tuple[float, ...], half: float) -> tuple[Any, ...]:
    """What a kernel is told of grids of at most three dims; those that are missing are before."""
    missing = (1,) * (3 - len(steps))
    return (
        *map(int32, (*missing, *elements, *missing, *places)), np.float32(half),
        *map(np.float32, (*missing, *steps)),
    )  # fmt: skip


def _grids(x: Array, sizes: Sizes, steps: Sizes) -> tuple[bool, Sizes, Sizes] | None:
    """Whether channels lie last, and the sizes of x and of the result; None for what is left."""
    n = len(sizes)
    if not 0 < n <= 3 or n >= x.ndim or not x.size or len(steps) != n or min(steps) <= 0:
        return None
    own = tuple(x.shape[x.ndim - n :])
    if min(sizes) < 1 or max(*own, *sizes) >= LARGEST:
        return None
    return x.ndim == n + 2 and is_last(x), own, (*x.shape[: x.ndim - n], *sizes)


@forward("upsample_nearest", keeps=True)
def upsample_nearest(self: Array, sizes: Sizes, steps: Any, half: float) -> Array | None:
    """In one kernel, of elements of any dtype."""
    grids = _grids(self, sizes, steps)
    if grids is None:
        return None
    last, own, shape = grids
    x = self if last else dense(self)
    result = new_last(shape, x.dtype) if last else ndarray(shape, x.dtype)
    inner = (x.shape[1] if last else 1) * x.itemsize
    word = gcd(8, inner, x.data.ptr, result.data.ptr)
    count, name = result.size * x.itemsize // word, "upsample_nearest"
    run = kernel(KERNELS[name], name, WORDS[word])
    run((blocks(count),), (BLOCK,),
        (x, result, int64(count), int64(inner // word),
         *_told(own, sizes, steps, half)))  # fmt: skip
    return result


@forward("upsample_nearest_backward", keeps=True)
def upsample_nearest_backward(
    grad_output: Array, sizes: Sizes, steps: Any, half: float
) -> Array | None:
    """In one kernel, in an order that is always the same; of many places to an element as sums."""
    grids = _grids(grad_output, sizes, steps)
    if grids is None or name_of(grad_output.dtype) not in FLOATS:
        return None
    last, own, shape = grids
    if prod(own) > MANY * prod(sizes):
        return None
    g = laid_last(grad_output) if last else dense(grad_output)
    result = new_last(shape, g.dtype) if last else ndarray(shape, g.dtype)
    inner, name = g.shape[1] if last else 1, "upsample_nearest_backward"
    run = kernel(KERNELS[name], name, name_of(g.dtype))
    run((blocks(result.size),), (BLOCK,),
        (g, result, int64(result.size), int64(inner), *_told(sizes, own, steps, half)))  # fmt: skip
    return result
