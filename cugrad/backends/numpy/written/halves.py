"""Sums and products in half precision: two numbers are a word of 32 bits, which is taken apart.

What is at even places, and then what is at odd ones, becomes float32 by shifts and masks of whole
words, and words again when the result has been rounded: to the nearest, of two the even one.

bfloat16 is the upper half of float32. The bits of float16 are those of float32 in other places,
without what their exponents are counted from: so read, they are numbers 2^112 times smaller, whose
sums are as much smaller. They are rounded there as they are in float16, whose subnormal numbers are
those of float32. So are products, of one such number and one that is as large as it should be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..half import HALF, SINGLE, UP, greatest, is_half

__all__ = ["LEAST", "in_words"]

Array = np.ndarray[Any, Any]

LEAST = 1 << 14  # elements from which on it pays
WORDS = 1 << 17  # that are computed at a time
NUMBERS = (float, int)
GREATEST = float(np.finfo(np.float32).max)
BITS, UNSIGNED = np.dtype(np.int32), np.dtype(np.uint32)
INFINITE = 65520.0  # what is rounded to a number beyond float16
# Arrays of no dims: NumPy takes less time to begin with one than with a number.
ONE, THREE, SIXTEEN = (np.array(n, BITS) for n in (1, 3, 16))
SIXTEEN_PLACES = np.array(16, UNSIGNED)
SIGN, TOP = np.array(-0x80000000, BITS), np.array(-0x10000, BITS)
SMALL = np.array(-0x70002000, BITS)  # the sign, and where float16 has its bits
OF_HALF, HALF_WAY = np.array(0x7F801FFF, BITS), np.array(0x1000, BITS)
PLACES = {
    place: (np.array(place, BITS), np.array((1 << place - 1) - 1, BITS)) for place in (13, 16)
}


def in_words(function: Any, a: Any, b: Any) -> Array | None:
    """The sum, difference or product of arrays of one half precision, by NumPy's `function`; or of
    an array and a number, which is read as float32.

    None for operands that do not lie dense and alike, or are not to be read so.

    >>> x = np.full(LEAST, 2.0**-13 + 2.0**-23, np.float16)
    >>> bool((in_words(np.multiply, x, x * 3) == x * (x * 3)).all())
    True
    """
    if type(a) in NUMBERS:
        return _with_number(lambda x, y, out: function(y, x, out), b, a, function is np.multiply)
    if type(b) in NUMBERS:
        return _with_number(function, a, b, function is np.multiply)
    if not _is_read(a) or not _is_read(b) or a.dtype != b.dtype or a.shape != b.shape:
        return None
    small = a.dtype is HALF
    times = function is np.multiply
    if small:
        most = greatest(a) * greatest(b) if times else greatest(a) + greatest(b)
        if not most < INFINITE:  # or nan
            return None

    def compute(left: Array, right: Array) -> None:
        if small and times:
            np.multiply(right, UP, right)
        function(left, right, left)

    def again(at: Array) -> Array:
        return np.asarray(function(a.reshape(-1)[at], b.reshape(-1)[at]))

    return _by_words(compute, [a, b], again if small and times else None)


def _by_words(
    compute: Callable[..., None], operands: list[Array], again: Callable[[Array], Array] | None
) -> Array:
    """What `compute` makes of the first of operands that are read as float32, in its place.

    With `again`, what would be rounded twice is what that answers for the places of such numbers.
    """
    first, small = operands[0], operands[0].dtype is HALF
    result, places = np.empty(first.shape, first.dtype), []
    words, out = [x.reshape(-1).view(BITS) for x in operands], result.reshape(-1).view(BITS)
    rooms = np.empty((3, min(WORDS, out.size)), BITS)
    widen, narrow = (_widen_small, _narrow_small) if small else (_widen, _narrow)
    for start in range(0, out.size, WORDS):
        part = slice(start, start + WORDS)
        even, odd, other = rooms[:, : out[part].size]
        for odd_ones, bits in enumerate((even, odd)):
            read = (bits, other)[: len(words)]
            for each, room in zip(words, read, strict=True):
                widen(each[part], odd_ones, room)
            compute(*[room.view(SINGLE) for room in read])
            if again is not None:
                places.append(2 * (start + _rounded_to_half(bits, other)) + odd_ones)
            narrow(bits, other)
        _together(even, odd, out[part])
    if places and again is not None:
        at = np.concatenate(places)
        result.reshape(-1)[at] = again(at)
    return result


def _is_read(x: Any) -> bool:
    if type(x) is not np.ndarray or not is_half(x.dtype) or not x.flags.c_contiguous:
        return False
    return bool(x.size % 2 == 0 and x.size >= LEAST)


def _with_number(function: Any, x: Any, number: float, times: bool) -> Array | None:
    """`function(x, number, out)` of half precision, which is a product where it is `times`."""
    if not _is_read(x) or not abs(number) < GREATEST:
        return None
    factor = np.array(number, SINGLE)
    if small := x.dtype is HALF:
        most = greatest(x) * abs(number) if times else greatest(x) + abs(number)
        if not most < INFINITE or not times and 0 < abs(number) < 2.0**-13:
            return (
                None  # or nan; or a sum may have more digits than it would have where it is small
            )
        factor = factor if times else np.asarray(factor / UP)

    def again(at: Array) -> Array:
        return np.asarray(x.reshape(-1)[at].astype(SINGLE) * factor)

    return _by_words(
        lambda left: function(left, factor, left), [x], again if small and times else None
    )


def _together(even: Array, odd: Array, words: Array) -> None:
    np.right_shift(even.view(UNSIGNED), SIXTEEN_PLACES, even.view(UNSIGNED))
    np.bitwise_and(odd, TOP, odd)
    np.bitwise_or(even, odd, words)


def _widen(words: Array, odd: int, out: Array) -> None:
    if odd:
        np.bitwise_and(words, TOP, out)
    else:
        np.left_shift(words, SIXTEEN, out)


def _widen_small(words: Array, odd: int, out: Array) -> None:
    if odd:
        np.right_shift(words, THREE, out)
    else:
        np.left_shift(words, SIXTEEN, out)
        np.right_shift(out, THREE, out)
    np.bitwise_and(out, SMALL, out)


def _round(bits: Array, scratch: Array, place: int) -> None:
    """Adds what carries into the bit at a place if the bits below are more than half of it."""
    shift, below_half = PLACES[place]
    np.right_shift(bits, shift, scratch)
    np.bitwise_and(scratch, ONE, scratch)
    np.add(scratch, below_half, scratch)
    np.add(bits, scratch, bits)


def _narrow(bits: Array, scratch: Array) -> None:
    _round(bits, scratch, 16)


def _rounded_to_half(bits: Array, scratch: Array) -> Array:
    """Where a subnormal product is half of two numbers, and may not have been before it was so
    small: then it cannot be told which is nearer. It takes the 37 bits behind the point.
    """
    np.bitwise_and(bits, OF_HALF, scratch)
    return np.flatnonzero(scratch == HALF_WAY)


def _narrow_small(bits: Array, scratch: Array) -> None:
    _round(bits, scratch, 13)
    np.bitwise_and(bits, SIGN, scratch)
    np.left_shift(bits, THREE, bits)
    np.bitwise_or(bits, scratch, bits)
