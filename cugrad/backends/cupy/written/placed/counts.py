"""histc: how many elements lie in each part of a range."""

from __future__ import annotations

from math import isfinite
from typing import Any

import cupy
import numpy as np

from ...kernels.placed.counts import KERNELS
from ..launch import BLOCK, FLOATS, LIMIT, accumulator, blocks, dense, int32, int64, kernel, name_of
from ..registry import forward
from .sums import begin

__all__: list[str] = []

Array = Any  # cupy.ndarray
BLOCKS = 1024  # that are enough for a GPU


@forward("histc", keeps=True)
def histc(self: Array, bins: int, low: float, high: float) -> Array | None:
    """Zeros, a kernel of atomics of whole numbers, and one that makes floats of them."""
    dtype = name_of(self.dtype)
    if dtype not in FLOATS or not 0 < self.size < LIMIT or not 0 < bins < LIMIT:
        return None
    if not low < high or not (isfinite(low) and isfinite(high)):
        return None  # the row finds a range, or says what is wrong
    counts, result = begin(cupy.ndarray((bins,), np.int32)), cupy.ndarray((bins,), self.dtype)
    told = map(accumulator(self.dtype), (low, high, bins / (high - low)))
    kernel(KERNELS["count_in_bins"], "count_in_bins", dtype)(
        (min(BLOCKS, blocks(self.size)),), (BLOCK,),
        (dense(self), counts, int64(self.size), int32(bins), *told))  # fmt: skip
    kernel(KERNELS["numbers_of_counts"], "numbers_of_counts", dtype)(
        (blocks(bins),), (BLOCK,), (counts, result, int32(bins)))  # fmt: skip
    return result
