"""Compiles written kernels, once for each kind of operands, and says with how many threads."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ..fused.expressions import name_of
from ..fused.reductions import tickets_of_stream
from ..kernels import code

__all__ = [
    "BLOCK", "FLOATS", "LIMIT", "accumulator", "blocks", "dense", "int32", "int64", "kernel",
    "name_of", "pack_of", "team_of", "tickets_of_stream",
]  # fmt: skip

Array = Any  # cupy.ndarray

FLOATS = ("float32", "float16", "bfloat16", "float64")
BLOCK = 256  # threads
LIMIT = 2**31 - 2**20  # below it an int counts on for a block or two
int32, int64 = np.int32, np.int64


_kernels: dict[Any, Any] = {}


def kernel(
    text: str, name: str, dtype: str, weight: str | None = None, pack: int = 1, **numbers: int
) -> Any:
    """The kernel of a name from `kernels`, for elements and weights of these dtypes."""
    key = name, dtype, weight, pack, tuple(numbers.values())
    ready = _kernels.get(key)
    if ready is None:
        ready = _kernels[key] = cupy.RawKernel(code(text, dtype, weight, pack, **numbers), name)
    return ready


def accumulator(dtype: Any) -> Any:
    """The NumPy type in which sums of a dtype are kept."""
    return np.float64 if name_of(dtype) == "float64" else np.float32


def dense(x: Array) -> Array:
    """An array whose elements lie one after another, in order."""
    return x if x.flags.c_contiguous else cupy.ascontiguousarray(x)


def pack_of(n: int, *arrays: Array) -> int:
    """How many neighbours fit 16 bytes, where rows of n elements begin at multiples of that."""
    pack = 16 // arrays[0].dtype.itemsize
    while pack > 1 and (n % pack or any(x.data.ptr % (pack * x.dtype.itemsize) for x in arrays)):
        pack //= 2
    return pack


def team_of(work: int) -> int:
    """How many threads share a row of so much work: four pieces each, or more."""
    team = 8
    while team < 1024 and team * 4 < work:
        team *= 2
    return team


def blocks(threads: int, block: int = BLOCK) -> int:
    """How many blocks have so many threads."""
    return -(-threads // block)
