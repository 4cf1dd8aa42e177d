"""Borders that are made of the tensor itself, where maxima of windows lie, what is put there, and
windows that are added where they were: a kernel each, behind zeros where not all is written.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from ....wanted import wanted
from ....windows import Ints
from ...kernels.placed.borders import KERNELS, MODES
from ..launch import BLOCK, FLOATS, blocks, dense, int64, kernel, name_of
from ..placed.copies import INDICES
from ..placed.sums import STORED_AS, begin, gather, gather_backward, lines_of, put_over
from ..registry import forward
from .windows import windows_over

__all__: list[str] = []

Array = Any  # cupy.ndarray
Pad = tuple[tuple[int, int], ...]
Sizes = tuple[int, ...]
ndarray = cupy.ndarray


def _launched(
    name: str, x: Array, y: Array, inner: Sizes, outer: Sizes, pad: Pad, mode: str
) -> bool:
    """Whether a kernel has been started from x to y; one of them is as large as `inner`, the other
    has the border.
    """
    first = next((d for d, sides in enumerate(pad) if sides != (0, 0)), len(pad) - 1)
    first = min(first, len(pad) - 1)
    if len(pad) - first > 3 or mode not in MODES:
        return False
    missing = 3 - (len(pad) - first)
    n, m = ((1,) * missing + sizes[first:] for sizes in (inner, outer))
    before = (0,) * missing + tuple([sides[0] for sides in pad[first:]])
    dtype = STORED_AS[x.itemsize] if name == "pad_edges" else name_of(x.dtype)
    arrays = [a.view(dtype) if name == "pad_edges" else a for a in (x, y)]
    run = kernel(KERNELS[name], name, dtype, MODE=MODES[mode])
    run((blocks(y.size),), (BLOCK,),
        (*arrays, int64(y.size), *map(int64, n), *map(int64, m), *map(int64, before)))  # fmt: skip
    return True


@forward("pad_edges", keeps=True)
def pad_edges(self: Array, pad: Pad, mode: str) -> Array | None:
    """In one kernel, for elements of any dtype."""
    shape = tuple([a + n + b for (a, b), n in zip(pad, self.shape)])
    if not prod(shape) or not self.size or self.itemsize not in STORED_AS:
        return None
    result = ndarray(shape, self.dtype)
    done = _launched("pad_edges", dense(self), result, self.shape, shape, pad, mode)
    return result if done else None


@forward("pad_edges_backward", keeps=True)
def pad_edges_backward(grad: Array, pad: Pad, mode: str) -> Array | None:
    """In one kernel, in an order that is always the same."""
    shape = tuple([n - a - b for (a, b), n in zip(pad, grad.shape)])
    if not prod(shape) or name_of(grad.dtype) not in FLOATS:
        return None
    result = ndarray(shape, grad.dtype)
    done = _launched("pad_edges_backward", dense(grad), result, shape, grad.shape, pad, mode)
    return result if done else None


@forward("max_pool_indices", keeps=True)
def max_pool_indices(
    offsets: Array, input_size: Sizes, kernel_size: Ints, stride: Ints | None, padding: Ints,
    dilation: Ints,
) -> Array | None:  # fmt: skip
    """In one kernel."""
    n = len(input_size)
    windows = windows_over(tuple(input_size), kernel_size, stride, padding, dilation)
    if windows is None or not offsets.size or offsets.ndim < n:
        return None
    windows = windows._replace(outputs=tuple(offsets.shape[-n:]))  # one more with ceil_mode
    result = ndarray(offsets.shape, np.int64)
    name = "max_pool_indices"
    run = kernel(KERNELS[name], name, "int64", name_of(offsets.dtype))
    run((blocks(result.size),), (BLOCK,),
        (dense(offsets), result, windows.packed, int64(result.size)))  # fmt: skip
    return result


@forward("unfold_backward", keeps=True)
def unfold_backward(
    grad: Array, shape: Sizes, dimension: int, size: int, step: int
) -> Array | None:
    """In one kernel, in an order that is always the same."""
    if not grad.size or not prod(shape) or name_of(grad.dtype) not in FLOATS or grad.ndim < 2:
        return None
    g, result, name = dense(grad), ndarray(tuple(shape), grad.dtype), "unfold_backward"
    n, inner, count = shape[dimension], prod(shape[dimension + 1 :]), grad.shape[dimension]
    run = kernel(KERNELS[name], name, name_of(grad.dtype), MODE=0)
    run((blocks(result.size),), (BLOCK,),
        (g, result, *map(int64, (result.size, n, inner, count, size, step))))  # fmt: skip
    return result


# What lies at places in planes --------------------------------------------------------------------


def _in_lines(x: Array, n: int) -> Array:
    """Planes of n dims as lines."""
    return dense(x).reshape(prod(x.shape[:-n]), prod(x.shape[-n:]))


@forward("max_pool_gather", keeps=True)
def max_pool_gather(self: Array, indices: Array, n: int) -> Array | None:
    """In one kernel."""
    if name_of(indices.dtype) not in INDICES or not (self.size and indices.size):
        return None
    result = gather(_in_lines(self, n), _in_lines(indices, n), 1)
    return None if result is None else result.reshape(indices.shape)


@forward("max_pool_backward", keeps=True)
def max_pool_backward(
    self: Array, indices: Array, input_size: Sizes, overlap: bool
) -> Array | None:
    """Zeros, and one kernel; sums where several may go to one place."""
    n = len(input_size)
    shape = *self.shape[: self.ndim - n], *input_size
    if name_of(indices.dtype) not in INDICES or not (self.size and prod(shape)):
        return None
    if self.shape != indices.shape or name_of(self.dtype) not in FLOATS:
        return None
    g, index = _in_lines(self, n), _in_lines(indices, n)
    lines = len(g), prod(input_size)
    if overlap:
        sums = gather_backward(g, index, lines, 1)
        return None if sums is None else sums.reshape(shape)
    result = ndarray(lines, self.dtype)
    named = lines_of(result, index, 1)
    if named is None or wanted.deterministic:  # of several for one place the last is to stay
        return None
    put_over(begin(result), index, g, named)
    return result.reshape(shape)
