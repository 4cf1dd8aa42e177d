"""Chooses between arrays by a condition: NumPy decides element by element, which is slow."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["where"]

Array = np.ndarray[Any, Any]
BOOL = np.dtype(bool)
BITS = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def where(condition: Any, x: Any, y: Any) -> Array:
    """NumPy's `where`; a 0 beside an array is chosen by a product of bits, several times as fast.

    A product of the numbers themselves would make nan of inf.

    >>> where(np.array([True, False]), np.array([1.5, np.inf]), 0).tolist()
    [1.5, 0.0]
    """
    if type(y) is int and y == 0 and _has_bits(condition, x):
        return (x.view(BITS[x.itemsize]) * condition).view(x.dtype)
    if type(x) is int and x == 0 and _has_bits(condition, y):
        return (y.view(BITS[y.itemsize]) * ~condition).view(y.dtype)
    return np.where(condition, x, y)


def _has_bits(condition: Any, x: Any) -> bool:
    """Whether a product of the bits of `x` and a condition is an array of the same dtype."""
    return (
        type(x) is np.ndarray
        and type(condition) is np.ndarray
        and condition.dtype is BOOL
        and x.itemsize in BITS
        and x.dtype.kind in "fV"
        and x.dtype.isnative
        and x.ndim + condition.ndim > 0
    )
