"""Adds values to NumPy arrays, or reduces them into, at indices that may repeat."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

__all__ = ["index_add", "index_reduce"]

Array = np.ndarray[Any, Any]
FULL = slice(None)


def index_add(array: Array, index: Any, values: Any) -> None:
    """`array[index] += values` in place, where duplicates in `index` add up."""
    index_reduce(array, index, values, "add")


def index_reduce(array: Array, index: Any, values: Any, how: str) -> None:
    """`array[index] = how(array[index], values)` in place, for every duplicate in `index`.

    `how` names a ufunc of two operands, or is "last" for the last of several values. NumPy's `at`
    is several times quicker on one dim, so indices become positions in the flat array. Half
    precision accumulates in float32.
    """
    if how == "last":
        array[index] = values
        return
    if array.itemsize == 2 and array.dtype.kind not in "iu":
        wide = array.astype(np.float32)
        index_reduce(wide, index, values, how)
        array[...] = wide
        return
    at = getattr(np, how).at
    if not array.flags.c_contiguous or not array.size:
        at(array, index, values)
        return
    where = positions(array.shape, index if isinstance(index, tuple) else (index,))
    flat = np.asarray(values, array.dtype)
    if flat.shape != where.shape:
        flat = np.broadcast_to(flat, where.shape)
    at(array.reshape(-1), where.reshape(-1), flat.reshape(-1))


def positions(shape: tuple[int, ...], index: tuple[Any, ...]) -> Array:
    """Where the elements of `array[index]` stand in a flat row-major array of `shape`."""
    arrays = [i for i, item in enumerate(index) if hasattr(item, "dtype")]
    full = [item for item in index if item.__class__ is slice and item == FULL]
    if len(arrays) == 1 and len(full) == len(index) - 1 and index[arrays[0]].dtype.kind != "b":
        dim = arrays[0]
        ends = (1,) * (len(shape) - dim - 1)
        picks = _checked(index[dim], shape[dim], dim)
        tail = prod(shape[dim + 1 :])
        places = (picks * tail).reshape(picks.shape + ends)
        if tail > 1:
            places = places + np.arange(tail).reshape(shape[dim + 1 :])
        if dim:
            step = shape[dim] * tail
            heads = np.arange(0, prod(shape[:dim]) * step, step)
            places = heads.reshape(shape[:dim] + (1,) * places.ndim) + places
        return places
    if len(arrays) == len(index) == len(shape) and not _has_masks(index):
        total, step = np.zeros((), np.int64), 1
        for dim in reversed(range(len(shape))):
            term = _checked(index[dim], shape[dim], dim)
            term = term if step == 1 else term * step
            total = total + term
            step *= shape[dim]
        return total
    return np.arange(prod(shape)).reshape(shape)[index]


def _has_masks(index: tuple[Any, ...]) -> bool:
    return any(item.dtype.kind == "b" for item in index)


def _checked(picks: Array, size: int, dim: int) -> Array:
    """Indices counted from the front; IndexError for one that is not there."""
    if not picks.size:
        return picks.astype(np.int64, copy=False)
    low, high = int(picks.min()), int(picks.max())
    if low < -size or high >= size:
        raise IndexError(
            f"index {low if low < -size else high} is out of bounds for axis {dim} with size {size}"
        )
    picks = picks.astype(np.int64, copy=False)
    return np.where(picks < 0, picks + size, picks) if low < 0 else picks
