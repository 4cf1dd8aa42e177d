"""Half precision as float32 and back: NumPy converts float16 element by element, this does not."""

from __future__ import annotations

from typing import Any

import numpy as np

from .numkong import cast_quickly

__all__ = [
    "SINGLE",
    "cast",
    "greatest",
    "has_nan",
    "is_half",
    "narrowed_into",
    "positive_part",
    "widened",
    "widened_into",
]

Array = np.ndarray[Any, Any]

SINGLE, HALF = np.dtype(np.float32), np.dtype(np.float16)
FEW = 1 << 10  # elements that NumPy converts as quickly
# Arrays of no dims: NumPy takes less time to begin with one than with a number.
UP = np.array(2.0**112, SINGLE)  # from the one bias of an exponent, 15, to the other, 127
TOO_LARGE = int(np.float32(65520).view(np.int32))  # inf when it is rounded
LEAST_NORMAL, INFINITY = np.array(2.0**-14, SINGLE), np.array(np.inf, SINGLE)
EXPONENT, THIRTEEN_ABOVE = np.array(0x7F800000, np.int32), np.array(13 << 23, np.int32)
ONE = np.array(0x3C00, np.int16)  # the bits of 1
SIXTEEN, SIGN = np.array(16, np.int32), np.array(-0x80000000, np.int32)
TOGETHER = np.array((1 << 16) + (1 << 3), np.int32)  # moves 11 last bits, and an exponent, next
BIASES = np.array((15 - 127 - 13 - 1) * (1 << 10) % (1 << 16), np.int16)  # of what is above
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
    wide = np.empty_like(x, SINGLE)
    widened_into(wide, x)
    return wide


def widened_into(wide: Array, x: Array) -> None:
    """Writes half precision to an array of float32."""
    if x.dtype is not HALF or x.size < FEW:
        wide[...] = x
        return
    if cast_quickly(wide, x):
        return
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


def has_nan(x: Array) -> bool:
    """Whether there is a nan among numbers of half precision.

    >>> has_nan(np.array([1, -np.inf], np.float16)), has_nan(np.array([-np.nan], np.float16))
    (False, True)
    """
    if not x.size:
        return False
    below = NEGATIVE_INFINITY[x.dtype.name]
    signed, unsigned = (np.maximum.reduce(x.view(t), None) for t in (np.int16, np.uint16))
    return bool(unsigned > below or signed > below - 0x8000)


def cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x.astype(dtype)`: from and to float16 some at a time, as above and below; other numbers
    become float32 before they become float16, and float16 does before it becomes whole.

    >>> cast(np.array([True, False]), HALF).tolist(), cast(np.array([5, -3]), HALF).tolist()
    ([1.0, 0.0], [5.0, -3.0])
    """
    dtype = np.dtype(dtype)
    if x.dtype is SINGLE and dtype is not HALF and is_half(dtype) and type(x) is np.ndarray:
        result = np.empty_like(x, dtype)
        narrowed_into(result, x)
        return result
    if type(x) is not np.ndarray or HALF not in (x.dtype, dtype) or not x.flags.c_contiguous:
        return x.astype(dtype)
    if x.dtype.kind == "b":
        return (x.astype(np.int16) * ONE).view(HALF)
    if x.dtype.kind in "iu":
        x = x.astype(SINGLE)
    if dtype.kind == "i" and x.size >= FEW:
        return cast(x, SINGLE).astype(dtype)
    if SINGLE not in (x.dtype, dtype):
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


def narrowed_into(out: Array, x: Array, computed: bool = False) -> None:
    """Writes float32 to an array of half precision, rounded to the nearest, of two the even one.

    A number and a power of two, 13 bits above it, have a sum in which the number's last bits are
    rounded away, those of subnormal numbers too. What is left of them, 11 bits, are the sum's last;
    its exponent counts from elsewhere. A product puts both where the upper half of a word has them.
    """
    if x.dtype is not SINGLE or x.size < FEW or x.shape != out.shape:
        out[...] = x
        return
    if cast_quickly(out, x, computed):
        return
    if out.dtype is not HALF:
        out[...] = x
        return
    sum_, power = np.empty(x.shape, SINGLE), np.empty(x.shape, SINGLE)
    np.abs(x, sum_)
    bits, scratch, total = x.view(np.int32), power.view(np.int32), sum_.view(np.int32)
    if np.maximum.reduce(total, None) >= TOO_LARGE:  # or inf, or nan
        out[...] = x
        return
    np.bitwise_and(total, EXPONENT, scratch)
    np.clip(power, LEAST_NORMAL, INFINITY, power)  # a quarter of the time of NumPy's maximum
    np.add(scratch, THIRTEEN_ABOVE, scratch)
    np.add(sum_, power, sum_)
    np.multiply(total, TOGETHER, total)
    np.bitwise_and(bits, SIGN, scratch)
    np.add(total, scratch, total)
    np.right_shift(total, SIXTEEN, total)
    halves = out.view(np.int16)
    np.copyto(halves, total, casting="unsafe")
    np.add(halves, BIASES, halves)
