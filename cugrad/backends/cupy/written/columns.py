"""Windows as columns, and back: a kernel each way."""

from __future__ import annotations

from math import prod
from typing import Any

import cupy

from ...windows import Ints
from .launch import FLOATS, LIMIT, dense, int32, int64, name_of
from .placed.sums import STORED_AS
from .registry import forward
from .windows import Windows, launch, windows_over

__all__: list[str] = []

Array = Any  # cupy.ndarray
Sizes = tuple[int, ...]
ndarray = cupy.ndarray


def _steps(windows: Windows, channels: int) -> list[Any]:
    """In columns (images, channels * taps, windows): from one image, channel, tap to the next."""
    places = prod(windows.outputs)
    per_channel = windows.taps * places
    return [int32(channels), *map(int64, (channels * per_channel, per_channel, places))]


@forward("im2col", keeps=True)
def im2col(
    self: Array, kernel_size: Sizes, dilation: Ints, padding: Ints, stride: Ints
) -> Array | None:
    """In one kernel, of elements of any dtype."""
    stored, n = STORED_AS.get(self.dtype.itemsize), len(kernel_size)
    if stored is None or self.ndim != n + 2 or not self.size or self.shape[1] >= LIMIT:
        return None
    windows = windows_over(self.shape[2:], kernel_size, stride, padding, dilation)
    if windows is None:
        return None
    images, channels = self.shape[:2]
    result = ndarray((images, channels * windows.taps, prod(windows.outputs)), self.dtype)
    arrays = [x.view(stored) for x in (dense(self), result)]
    count = images * channels * prod(windows.outputs)
    launch("unfold", windows, count, arrays, *_steps(windows, channels))
    return result


@forward("col2im", keeps=True)
def col2im(
    self: Array, output_size: Sizes, kernel_size: Sizes, dilation: Ints, padding: Ints,
    stride: Ints,
) -> Array | None:  # fmt: skip
    """In one kernel, which adds up in one order."""
    if name_of(self.dtype) not in FLOATS or self.ndim != 3 or not self.size:
        return None
    if 0 in output_size:
        return None
    windows = windows_over(tuple(output_size), kernel_size, stride, padding, dilation)
    if windows is None or self.shape[2] != prod(windows.outputs):
        return None
    channels = self.shape[1] // windows.taps
    if channels * windows.taps != self.shape[1] or channels >= LIMIT:
        return None
    result = ndarray((self.shape[0], channels, *windows.size), self.dtype)
    launch("fold", windows, result.size, [dense(self), result], *_steps(windows, channels))
    return result
