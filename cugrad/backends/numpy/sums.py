"""Sums and products in the ways in which NumPy and BLAS add and multiply most numbers at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from .half import SINGLE, cast, is_half

__all__ = [
    "MANY", "multiplied_in_lanes", "reduced", "summed_at_once", "summed_at_the_end",
    "summed_by_blas",
]  # fmt: skip

Array = np.ndarray[Any, Any]

LANES = 256
MANY = 1 << 12  # elements


def summed_by_blas(a: Array, keepdims: bool) -> Array:
    """Sums along the last axis, as a product with ones: BLAS adds more numbers at once."""
    total: Array = np.matmul(a, np.ones(a.shape[-1], a.dtype))
    return total[..., None] if keepdims else total


def summed_at_once(a: Array, keepdims: bool) -> Array:
    """The sum of all elements: of so many at a time by BLAS, whose sums are added in pairs."""
    flat = a.reshape(-1)
    rest = a.size % MANY
    parts = summed_by_blas(flat[: a.size - rest].reshape(-1, MANY), False)
    total: Array = np.add.reduce(parts) + np.add.reduce(flat[a.size - rest :])
    return total.reshape((1,) * a.ndim) if keepdims else total


def summed_at_the_end(a: Array, axis: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """The sums over as many of the last axes as have few elements, kept as 1, and `axis`."""
    first, count = a.ndim, 1
    while first > 0 and first - 1 in axis and count * a.shape[first - 1] <= MANY:
        first -= 1
        count *= a.shape[first]
    kept = a.shape[:first] + (1,) * (a.ndim - first)
    return summed_by_blas(a.reshape(-1, count), False).reshape(kept), axis


def multiplied_in_lanes(a: Array, flat: bool) -> Array:
    """Fewer elements along the last axis with the same product, if they are many.

    NumPy multiplies the elements of one row one by one, but whole rows with one another at once.
    """
    if not a.flags.c_contiguous:
        return a
    rows = a.reshape(-1) if flat else a
    n = rows.shape[-1] if rows.ndim else 0
    if n < 8 * LANES or n % LANES:
        return a
    return np.multiply.reduce(rows.reshape(*rows.shape[:-1], n // LANES, LANES), -2)


def reduced(reduce: Any, a: Array, axis: Any, dtype: Any, keepdims: bool) -> Array:
    if is_half(a.dtype) and dtype is None:
        return np.asarray(reduce(cast(a, SINGLE), axis, keepdims=keepdims)).astype(a.dtype)
    return reduce(a, axis, dtype, keepdims=keepdims)
