"""Runs an update on arrays: by blocks on the CPU, whole elsewhere; halves in single precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["as_reals", "computing_dtype", "run"]

BLOCK = 1 << 19  # bytes of each array: few enough for the caches, enough to be worth the calls
SINGLE = np.dtype(np.float32)


def computing_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which arrays of another are updated."""
    if dtype.itemsize < 4:
        return SINGLE
    return np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype


def as_reals(arrays: Sequence[Any]) -> list[list[Any]]:
    """Arrays as real ones that share their memory: a complex number is two independent reals."""
    if arrays[0].dtype.kind != "c":
        return [list(arrays)]
    return [[array.real for array in arrays], [array.imag for array in arrays]]


def run(
    update: Callable[..., None],
    arrays: list[Any],
    constants: Sequence[Any],
    scratch: int,
    writes: Sequence[int],
    xp: Any,
    on_host: bool,
) -> None:
    """`update(*arrays, *constants, *scratch arrays)` on real arrays of one shape, in place.

    `writes` are the positions of the arrays that it changes.
    """
    first = arrays[0]
    dtype = computing_dtype(first.dtype)
    alike = all(array.dtype == dtype for array in arrays)
    length = BLOCK // dtype.itemsize if on_host else first.size
    if length >= first.size or not all(array.flags.c_contiguous for array in arrays):
        spare = [xp.empty_like(first, dtype=dtype) for _ in range(scratch)]
        _part(update, arrays, (*constants, *spare), None if alike else dtype, writes)
        return
    arrays = [array.reshape(-1) for array in arrays]
    spare = [xp.empty(length, dtype=dtype) for _ in range(scratch)]
    for start in range(0, first.size, length):
        parts = [array[start : start + length] for array in arrays]
        if parts[0].size < length:
            spare = [array[: parts[0].size] for array in spare]
        _part(update, parts, (*constants, *spare), None if alike else dtype, writes)


def _part(
    update: Callable[..., None],
    arrays: list[Any],
    others: tuple[Any, ...],
    dtype: np.dtype[Any] | None,
    writes: Sequence[int],
) -> None:
    """An update of arrays as they are, or, where a dtype is said, of copies in that."""
    if dtype is None:
        update(*arrays, *others)
        return
    copies = [array.astype(dtype) for array in arrays]
    update(*copies, *others)
    for at in writes:
        arrays[at][...] = copies[at]
