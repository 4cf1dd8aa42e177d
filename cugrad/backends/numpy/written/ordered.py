"""Half precision compared, bounded and turned round, as integers: NumPy takes many at once.

The bits of numbers from 0 on are integers in the order of the numbers. Those of numbers below are
in the reverse order, and in that of the numbers when all but the sign are turned. nan has no place
in it. What is not taken here, by None, NumPy computes number by number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..half import HALF, SINGLE, cast, has_nan, is_half
from .registry import forward

Array = np.ndarray[Any, Any]
BITS = np.dtype(np.int16)
SIGN, SIZE, PLACES = (np.array(n, BITS) for n in (-0x8000, 0x7FFF, 15))
ENDS = np.iinfo(BITS)

of_halves = partial(forward, halves=True)


def _places(x: Any, dtype: np.dtype[Any]) -> Array | None:
    """The integers that are ordered as numbers of half precision, or as one that is rounded to it;
    None for others.
    """
    if type(x) in (float, int):
        x = np.asarray(x, dtype)
    if type(x) is not np.ndarray or x.dtype != dtype or not is_half(dtype) or has_nan(x):
        return None
    return _turned(x.view(BITS))


def _turned(bits: Array) -> Array:
    below = np.asarray(np.right_shift(bits, PLACES))
    np.bitwise_and(below, SIZE, below)
    return np.bitwise_xor(below, bits, below)


def _extreme(function: Any, a: Any, b: Any) -> Array | None:
    dtype = a.dtype if type(a) is np.ndarray else b.dtype
    first = _places(a, dtype)
    second = None if first is None else _places(b, dtype)
    if first is None or second is None:
        return None
    return _turned(np.asarray(function(first, second))).view(dtype)


@of_halves("maximum")
def _maximum(a: Any, b: Any) -> Array | None:
    return _extreme(np.maximum, a, b)


@of_halves("minimum")
def _minimum(a: Any, b: Any) -> Array | None:
    return _extreme(np.minimum, a, b)


@of_halves("clamp")
def _clamp(x: Array, min: Any = None, max: Any = None) -> Array | None:
    return _between(x, min, max)


@of_halves("hardtanh")
def _hardtanh(x: Array, min_val: Any = -1.0, max_val: Any = 1.0) -> Array | None:
    return _between(x, min_val, max_val)


def _between(x: Array, low: Any, high: Any) -> Array | None:
    if not all(bound is None or type(bound) in (float, int) for bound in (low, high)):
        return None
    places = _places(x, x.dtype)
    ends = [None if bound is None else _places(bound, x.dtype) for bound in (low, high)]
    if places is None or any(b is not None and e is None for b, e in zip((low, high), ends)):
        return None
    first, last = (n if e is None else int(e) for n, e in zip((ENDS.min, ENDS.max), ends))
    return _turned(np.clip(places, first, last, places)).view(x.dtype)


def _greatest(function: Any, x: Array, dim: Any = None, keepdim: bool = False) -> Array | None:
    places = _places(x, x.dtype)
    if places is None:
        return None
    return _turned(np.asarray(function(places, dim, keepdims=keepdim))).view(x.dtype)


for _name, _function in (("amax", np.max), ("amin", np.min), ("max_all", np.max),
                         ("min_all", np.min)):  # fmt: skip
    of_halves(_name)(partial(_greatest, _function))


@of_halves("neg")
def _neg(x: Array) -> Array | None:
    if type(x) is not np.ndarray or not is_half(x.dtype):
        return None
    return np.bitwise_xor(x.view(BITS), SIGN).view(x.dtype)


@of_halves("abs")
def _abs(x: Array) -> Array | None:
    if type(x) is not np.ndarray or not is_half(x.dtype):
        return None
    return np.bitwise_and(x.view(BITS), SIZE).view(x.dtype)


def _compared(function: Callable[..., Array], a: Any, b: Any) -> Array | None:
    """Of float16, which is widened faster than it is compared."""
    wide: list[Any] = []
    for x in (a, b):
        if type(x) in (float, int):
            wide.append(float(HALF.type(x)))
        elif type(x) is np.ndarray and x.dtype is HALF:
            wide.append(cast(x, SINGLE))
        else:
            return None
    return function(*wide)


for _name, _compare in (("lt", np.less), ("le", np.less_equal), ("gt", np.greater),
                        ("ge", np.greater_equal)):  # fmt: skip
    of_halves(_name)(partial(_compared, _compare))
