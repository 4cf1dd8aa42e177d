"""Half precision by NumKong, an optional dependency: by the processor's own instructions.

NumPy converts and computes it number by number. NumKong has loops for what a processor can; it is
imported when the first large array of half precision is cast or computed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

__all__ = ["cast_quickly", "sum_or_product"]

Array = np.ndarray[Any, Any]

LEAST = 1 << 10  # elements from which on it pays
# The greatest bits of nan of either sign that bfloat16 rounds to a nan, not beyond it.
LAST_NAN, LAST_NEGATIVE_NAN = 0x7FFF7FFF, 0xFFFF7FFF
SIGNS: dict[Any, float] = {np.add: 1.0, np.subtract: -1.0}
BLOCK = 1 << 16  # elements of a product: so many zeros stay in a cache


@cache
def _numkong() -> Any:
    try:
        import numkong
    except ImportError:
        return None
    return numkong


@cache
def _name(dtype: np.dtype[Any]) -> str:
    return dtype.name


@cache
def _negative_zeros(dtype: np.dtype[Any]) -> Array:
    """What changes no number that it is added to, not even the sign of a zero."""
    return np.full(BLOCK, -0.0, dtype).view(np.uint16)


def cast_quickly(out: Array, x: Array, computed: bool = False) -> bool:
    """Writes `x` to `out`, one of half precision and the other of float32; whether it did.

    What was `computed` has no nan with bits that rounding would carry over. It does not where
    arrays do not lie dense and alike, or where NumKong is not installed.

    >>> half = np.empty(2, np.float16)
    >>> not cast_quickly(half, np.float32([1.5, np.inf])) or half.tolist() == [1.5, np.inf]
    True
    """
    numkong = _numkong()
    if numkong is None or x.shape != out.shape or type(x) is not np.ndarray:
        return False
    if not x.flags.c_contiguous or not out.flags.c_contiguous:
        return False
    name = _name(out.dtype)
    if name == "bfloat16" and not computed and x.size:
        most, least = (np.maximum.reduce(x.view(t), None) for t in (np.int32, np.uint32))
        if most > LAST_NAN or least > LAST_NEGATIVE_NAN:
            return False
    numkong.astype(x, name, out=out)
    return True


def sum_or_product(function: np.ufunc, a: Any, b: Any) -> Array | None:
    """NumPy's `add`, `subtract` or `multiply` of arrays of one half precision, rounded once.

    None for arrays that do not lie dense and alike, or where NumKong is not installed.

    >>> x = np.full(LEAST, 3, np.float16)
    >>> result = sum_or_product(np.multiply, x, x)
    >>> result is None or bool((result == 9).all())
    True
    """
    numkong = _numkong()
    if numkong is None or type(a) is not np.ndarray or type(b) is not np.ndarray:
        return None
    if a.dtype != b.dtype or a.shape != b.shape or a.size < LEAST:
        return None
    if not a.flags.c_contiguous or not b.flags.c_contiguous:
        return None
    result = np.empty(a.shape, a.dtype)
    name = _name(a.dtype)  # NumKong reads the bits: it takes longer to ask for what NumPy has not
    x, y, out = (each.reshape(-1).view(np.uint16) for each in (a, b, result))
    if function is not np.multiply:
        numkong.blend(x, y, name, alpha=1.0, beta=SIGNS[function], out=out)
        return result
    zeros = _negative_zeros(a.dtype)
    for start in range(0, x.size, BLOCK):
        part = slice(start, start + BLOCK)
        some = x[part]
        numkong.fma(some, y[part], zeros[: some.size], name, alpha=1.0, beta=1.0, out=out[part])
    return result
