"""Dropout from kept bits, gather, and the sums that lead back from gather and embedding."""

from __future__ import annotations

from math import prod
from typing import Any

import cupy

from ..kernels.places import KERNELS
from .launch import BLOCK, FLOATS, LIMIT, accumulator, blocks, dense, int32, int64, kernel, pack_of
from .registry import forward

__all__: list[str] = []

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray

INDICES = ("int64", "int32")
FEW = 32  # indices that a thread looks through
SEVERAL = 8192  # indices that a block looks through: more are sorted
STORED_AS = {1: "uint8", 2: "uint16", 4: "int32", 8: "int64"}  # what only moves, by its bytes


def _by_bits(x: Array, bits: Array, scale: float) -> Array | None:
    if x.dtype.name not in FLOATS or not x.size or bits.dtype.name != "uint8":
        return None
    if bits.size * 8 < x.size:
        return None
    x, result = dense(x), ndarray(x.shape, x.dtype)
    pack = pack_of(x.size, x, result)
    run = kernel(KERNELS["keep_by_bits"], "keep_by_bits", x.dtype.name, None, pack)
    run((blocks(x.size // pack),), (BLOCK,),
        (x, dense(bits), result, int64(x.size), accumulator(x.dtype)(scale)))  # fmt: skip
    return result


@forward("native_dropout", keeps=True)
def dropout(self: Array, bits: Array, mask_shape: tuple[int, ...], p: float) -> Array | None:
    """In one kernel, where each element has a bit."""
    if tuple(mask_shape) != self.shape:
        return None
    return _by_bits(self, bits, 1 / (1 - p) if p < 1 else 0.0)


def _lines(x: Array, index: Array, dim: int) -> tuple[int, int, int] | None:
    """How many elements an array has along a dim, and an index; and how many lie behind each.

    None where the index is smaller than the array in another dim than the first.
    """
    if index.dtype.name not in INDICES or x.ndim != index.ndim or not 0 <= dim < x.ndim:
        return None
    start = int(dim > 0)  # of a first dim, the index may have the beginning
    alike = [x.shape[d] == index.shape[d] for d in range(start, x.ndim) if d != dim]
    if not all(alike) or index.shape[0] > x.shape[0] and start or not (x.size and index.size):
        return None
    return x.shape[dim], index.shape[dim], prod(x.shape[dim + 1 :])


@forward("gather", keeps=True)
def gather(self: Array, index: Array, dim: int) -> Array | None:
    """In one kernel, for elements of any dtype."""
    lines, stored = _lines(self, index, dim), STORED_AS.get(self.dtype.itemsize)
    if lines is None or stored is None:
        return None
    result = ndarray(index.shape, self.dtype)
    run = kernel(KERNELS["gather"], "gather", stored, index.dtype.name)
    arrays = [x.view(stored) for x in (dense(self), result)]
    run((blocks(result.size),), (BLOCK,),
        (arrays[0], dense(index), arrays[1], int64(result.size), *map(int64, lines)))  # fmt: skip
    return result


@forward("gather_backward", keeps=True)
def gather_backward(grad: Array, index: Array, shape: tuple[int, ...], dim: int) -> Array | None:
    """In one kernel, in an order that is always the same, where there are few indices."""
    if grad.dtype.name not in FLOATS or grad.shape != index.shape or 0 in shape:
        return None
    result = ndarray(tuple(shape), grad.dtype)
    lines = _lines(result, index, dim)
    if lines is None or lines[1] > FEW:
        return None
    run = kernel(KERNELS["gather_backward"], "gather_backward", grad.dtype.name, index.dtype.name)
    run((blocks(result.size),), (BLOCK,),
        (dense(grad), dense(index), result, int64(result.size), *map(int64, lines),
         int64(prod(index.shape[:dim]))))  # fmt: skip
    return result


@forward("embedding_dense_backward")
def embedding_backward(
    grad_output: Array, indices: Array, num_weights: int, padding_idx: int
) -> Array | None:
    """Zeros, and one kernel that adds up rows in their order: the same bits in each run."""
    width, count = grad_output.shape[-1], indices.size
    if grad_output.dtype.name not in FLOATS or indices.dtype.name not in INDICES:
        return None
    if not 0 < count <= SEVERAL or not 0 < width < LIMIT or not num_weights:
        return None
    result = cupy.zeros((num_weights, width), grad_output.dtype)
    name = "add_rows_by_index"
    run = kernel(KERNELS[name], name, grad_output.dtype.name, indices.dtype.name)
    run((count, blocks(width, 1024)), (BLOCK,),
        (dense(grad_output), dense(indices), result, int32(count), int32(width),
         int64(num_weights), int64(padding_idx)))  # fmt: skip
    return result
