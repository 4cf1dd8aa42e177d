"""Quotients of float32 rounded down, and what they leave: NumPy asks C's `fmod` for each alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import registry
from .registry import are_plain, forward

__all__: list[str] = []

Array = np.ndarray[Any, Any]

BLOCK = 1 << 15  # elements, of which some arrays of float64 stay in a cache
# Quotients below these are exact, as are their products with 24 bits in float64, and what they
# leave; below 2^22 NumPy has the same quotients, which it rounds to float32 on its way.
OF_PRODUCTS, OF_SINGLE = float(1 << 29), float(1 << 22)


@forward("remainder", few=True)
def _remainder(x: Any, y: Any) -> Array | None:
    return _by_blocks(_leave, np.remainder, x, y)


@forward("floor_divide", few=True)
def _floor_divide(x: Any, y: Any) -> Array | None:
    return _by_blocks(_divide, np.floor_divide, x, y)


def _by_blocks(function: Any, general: Any, x: Any, y: Any) -> Array | None:
    """`function(x, y, out)` for blocks, and `general` for those where it answers False."""
    number = type(y) in (int, float)
    if type(x) is not np.ndarray or x.size < registry.LEAST:
        return None
    if not are_plain(x, None if number else y):
        return None
    if not number and x.shape != y.shape:
        return None
    result = np.empty_like(x)
    values = x.reshape(-1), None if number else y.reshape(-1), result.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, x.size, BLOCK):
            a, b, out = (None if v is None else v[start : start + BLOCK] for v in values)
            b = np.float32(y) if b is None else b
            if not function(a, b, out):
                general(a, b, out)
    return result


def _leave(x: Array, y: Any, out: Array) -> bool:
    whole, left = _parts(x, y)
    if not np.abs(whole).max() < OF_PRODUCTS:
        return False
    np.add(left, y, left, where=_is_beyond(left, y))
    np.copysign(left, y, out, casting="same_kind")  # nothing left has the sign of y, too
    return True


def _divide(x: Array, y: Any, out: Array) -> bool:
    whole, left = _parts(x, y)
    if not np.abs(whole).max() < OF_SINGLE:
        return False
    np.subtract(whole, _is_beyond(left, y), out, casting="same_kind")
    return True


def _parts(x: Array, y: Any) -> tuple[Array, Array]:
    """The quotient, rounded down, or 1 more, and what that leaves."""
    left = x.astype(np.float64)
    whole = left / y
    np.floor(whole, whole)
    left -= whole * y
    return whole, left


def _is_beyond(left: Array, y: Any) -> Array:
    """Where a quotient was rounded up to a whole number, so that what it leaves is not y's sign."""
    return left * y < 0
