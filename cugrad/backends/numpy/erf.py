"""The error function of single precision in NumPy, which has none: tanh of a polynomial, in blocks.

erf x = tanh(x P(x²)), with P fitted to artanh(erf x) / x on [0, 3.9] so that the greatest relative
error of the result is least, 1e-7; with rounding it is at most 3e-7, some two units in the last
place. Beyond 3.9 both sides are 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["erf_float32"]

Array = np.ndarray[Any, Any]

BLOCK = 1 << 15  # elements whose intermediate values stay in a processor's cache
END = np.float32(3.9**2)
P = np.array([
    1.41852506e-07, -5.66848117e-06, 8.76373658e-05, -6.19784774e-04, -1.91830651e-04,
    1.02769056e-01, 1.12837927,
], np.float32)  # fmt: skip


def erf_float32(x: Array) -> Array:
    """erf of an array of float32; nan stays nan.

    >>> erf_float32(np.array([0.0, 0.5, -9.0], np.float32)).round(4).tolist()
    [0.0, 0.5205000042915344, -1.0]
    """
    if x.size <= BLOCK:
        return _erf(x)
    flat = np.ravel(x)
    out = np.empty_like(flat)
    for start in range(0, flat.size, BLOCK):
        part = slice(start, start + BLOCK)
        out[part] = _erf(flat[part])
    return out.reshape(x.shape)


def _erf(x: Array) -> Array:
    square = np.square(x, out=np.empty_like(x))
    square.clip(0, END, square)  # a third of the time of NumPy's minimum
    y = square * P[0]
    for c in P[1:-1]:
        y += c
        y *= square
    y += P[-1]
    y *= x
    result: Array = np.tanh(y)
    return result
