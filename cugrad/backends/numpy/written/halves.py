"""Sums and products in half precision: two numbers are a word of 32 bits, which is taken apart.

What is at even places, and what is at odd ones, become float32 by shifts and masks of whole words,
and words again when the result has been rounded: to the nearest, of two the even one.

bfloat16 is the upper half of float32. The bits of float16 are those of float32 in other places,
without what their exponents are counted from: so read, they are numbers 2^112 times smaller, whose
sums are as much smaller. They are rounded there as they are in float16, whose subnormal numbers are
those of float32. So are products, of one such number and one that is as large as it should be.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..half import HALF, SINGLE, UP, greatest, is_half

__all__ = ["LEAST", "in_words"]

Array = np.ndarray[Any, Any]

LEAST = 1 << 14  # elements from which on it pays
WORDS = 1 << 17  # that are computed at a time
BITS = np.dtype(np.int32)
SIGN, TOP, SIZE = np.int32(-0x80000000), np.int32(-0x10000), np.int32(0x7FFF0000)
SMALL = np.int32(-0x70002000)  # the sign, and where float16 has its bits
INFINITE = 65520.0  # what is rounded to a number beyond float16


def in_words(function: Any, a: Any, b: Any) -> Array | None:
    """The sum, difference or product of arrays of one half precision, by NumPy's `function`.

    None for operands that do not lie dense and alike, or are not to be read so.
    """
    for x in (a, b):
        if type(x) is not np.ndarray or not is_half(x.dtype) or not x.flags.c_contiguous:
            return None
    if a.dtype != b.dtype or a.shape != b.shape or a.size % 2 or a.size < LEAST:
        return None
    small = a.dtype is HALF
    times = function is np.multiply
    if small:
        most = greatest(a) * greatest(b) if times else greatest(a) + greatest(b)
        if not most < INFINITE:  # or nan
            return None
    result = np.empty(a.shape, a.dtype)
    x, y, out = (v.reshape(-1).view(BITS) for v in (a, b, result))
    left, right = np.empty((2, 2 * min(WORDS, x.size)), BITS)
    widen, narrow = (_widen_small, _narrow_small) if small else (_widen, _narrow)
    for start in range(0, x.size, WORDS):
        part = slice(start, start + WORDS)
        count = 2 * x[part].size
        p, q = left[:count], right[:count]
        widen(x[part], p)
        widen(y[part], q)
        left_one, right_one = p.view(SINGLE), q.view(SINGLE)
        if small and times:
            right_one *= UP
        function(left_one, right_one, left_one)
        if small and times and _were_rounded_to_half(p, q):
            return None
        narrow(p, q, out[part])
    return result


def _widen(words: Array, out: Array) -> None:
    even, odd = out.reshape(2, -1)
    np.left_shift(words, 16, even)
    np.bitwise_and(words, TOP, odd)


def _round(bits: Array, scratch: Array, place: int) -> None:
    """Adds what carries into the bit at a place if the bits below are more than half of it."""
    np.right_shift(bits, place, scratch)
    scratch &= 1
    scratch += (1 << place - 1) - 1
    bits += scratch


def _together(bits: Array, words: Array) -> None:
    even, odd = bits.reshape(2, -1)
    np.right_shift(even.view(np.uint32), 16, even.view(np.uint32))
    odd &= TOP
    np.bitwise_or(even, odd, words)


def _narrow(bits: Array, scratch: Array, words: Array) -> None:
    _round(bits, scratch, 16)
    _together(bits, words)


def _widen_small(words: Array, out: Array) -> None:
    even, odd = out.reshape(2, -1)
    np.left_shift(words, 16, even)
    even >>= 3
    np.right_shift(words, 3, odd)
    out &= SMALL


def _were_rounded_to_half(bits: Array, scratch: Array) -> bool:
    """Whether a subnormal product is half of two numbers, and may not have been before it was so
    small: then it cannot be told which is nearer. It takes the 37 bits behind the point.
    """
    np.bitwise_and(bits, 0x7F801FFF, scratch)
    return bool((scratch == 0x1000).any())


def _narrow_small(bits: Array, scratch: Array, words: Array) -> None:
    _round(bits, scratch, 13)
    np.bitwise_and(bits, SIGN, scratch)
    bits <<= 3
    bits |= scratch
    _together(bits, words)
