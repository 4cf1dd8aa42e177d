"""Half precision as float32 and back: NumPy converts float16 element by element, this does not."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

__all__ = ["SINGLE", "cast", "greatest", "is_half", "narrowed_into", "positive_part", "widened"]

Array = np.ndarray[Any, Any]

SINGLE, HALF = np.dtype(np.float32), np.dtype(np.float16)
FEW = 1 << 10  # elements that NumPy converts as quickly
# Arrays of no dims: NumPy takes less time to begin with one than with a number.
UP = np.array(2.0**112, SINGLE)  # from the one bias of an exponent, 15, to the other, 127
TOO_LARGE = int(np.float32(65520).view(np.int32))  # inf when it is rounded
LEAST_NORMAL = int(np.float32(2.0**-14).view(np.int32))
MANY = 1 << 17  # elements that are rounded at a time
AT_ONCE = 1 << 20  # that are widened at a time, in place: fewer would cost more calls
NEGATIVE_INFINITY = {"float16": 0xFC00, "bfloat16": 0xFF80}  # and of either
PLACES = np.array(13, np.int32)
SIGNED = np.array(-0x70000001, np.int32)  # all bits but three, that a shifted sign has spilt into


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether products and sums of this dtype accumulate in float32."""
    return dtype.itemsize == 2 and (dtype.kind == "f" or dtype.name == "bfloat16")


def widened(x: Array) -> Array:
    """A copy of half precision in float32.

    The bits of float16 are those of float32 in other places. A shift puts them there; a product
    makes the exponent right, that of subnormal numbers too.

    >>> widened(np.array([-1.5, 2**-24, np.inf], np.float16)).tolist() == [-1.5, 2**-24, np.inf]
    True
    """
    if x.dtype is not HALF or x.size < FEW:
        return x.astype(SINGLE)
    wide = np.empty_like(x, SINGLE)
    widened_into(wide, x)
    return wide


def widened_into(wide: Array, x: Array) -> None:
    """Writes float16 to an array of float32."""
    if not greatest(x) < np.inf:
        wide[...] = x
        return
    bits = wide.view(np.int32)
    bits[...] = x.view(np.int16)
    np.left_shift(bits, PLACES, bits)
    np.bitwise_and(bits, SIGNED, bits)
    np.multiply(wide, UP, wide)


def greatest(x: Array) -> float:
    """The greatest size of numbers of float16; inf or nan if there is either.

    >>> greatest(np.array([1.5, -2], np.float16))
    2.0
    """
    if not x.size:
        return 0.0
    above = int(np.maximum.reduce(x.view(np.int16), None))
    below = int(np.maximum.reduce(x.view(np.uint16), None))
    return float(np.uint16(max(above, below & 0x7FFF)).view(HALF))


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x.astype(dtype)`: from and to float16 some at a time, as above and below."""
    kinds = x.dtype, np.dtype(dtype)
    if kinds not in ((HALF, SINGLE), (SINGLE, HALF)) or not x.flags.c_contiguous:
        return x.astype(dtype)
    result = np.empty(x.shape, dtype)
    source, target = x.reshape(-1), result.reshape(-1)
    step = AT_ONCE if dtype == SINGLE else MANY
    for start in range(0, x.size, step):
        part = slice(start, start + step)
        if dtype == SINGLE:
            widened_into(target[part], source[part])
        else:
            narrowed_into(target[part], source[part])
    return result


def positive_part(x: Array) -> Array:
    """The numbers above 0, 0 for others; nan stays nan. It compares their bits as integers.

    >>> positive_part(np.array([-1.5, 2.0, np.nan], np.float16)).tolist()
    [0.0, 2.0, nan]
    """
    bits = x.view(np.int16)
    part = np.asarray(
        bits & ~(bits >> 15)
    )  # NumPy's maximum with a number takes three times as long
    unsigned, minus_inf = bits.view(np.uint16), NEGATIVE_INFINITY[x.dtype.name]
    if unsigned.max(initial=0) > minus_inf:  # there is a nan with a sign
        np.copyto(part, bits, where=unsigned > minus_inf)
    return part.view(x.dtype)


def narrowed_into(out: Array, x: Array) -> None:
    """Writes float32 to an array of half precision, rounded to the nearest, of two the even one.

    A number and a power of two, 13 bits above it, have a sum in which the number's last bits are
    rounded away, those of subnormal numbers too. What is left of them counts from that power on.
    """
    if out.dtype is not HALF or x.dtype is not SINGLE or x.size < FEW or x.shape != out.shape:
        out[...] = x
        return
    bits = x.view(np.int32)
    size = bits & 0x7FFFFFFF
    if size.max() >= TOO_LARGE:  # or inf, or nan
        out[...] = x
        return
    power = size & 0x7F800000
    few = x.ndim == 1 and x.size <= MANY  # with one number NumPy takes four times as long
    np.maximum(power, _least_powers()[: x.size] if few else LEAST_NORMAL, out=power)
    power += 13 << 23
    total = size.view(SINGLE)
    total += power.view(SINGLE)
    size -= power
    power >>= 13
    size += power
    size -= 126 << 10
    np.right_shift(bits, 16, out=power)
    power &= -0x8000
    size |= power
    out.view(np.int16)[...] = size


@cache
def _least_powers() -> Array:
    return np.full(MANY, LEAST_NORMAL, np.int32)
