"""Windows as columns: im2col and its adjoint col2im, behind unfold and fold."""

from __future__ import annotations

from typing import Any

from ...backends.windows import Ints
from ...dtypes import is_half
from ..table import CAST, LINEAR, row
from .conv import _fold, _geometry, _outputs, _unfold

Array = Any


def _im2col(
    xp: Any, self: Array, kernel_size: tuple[int, ...], dilation: Ints, padding: Ints,
    stride: Ints,
) -> Array:  # fmt: skip
    n = len(kernel_size)
    geometry = _geometry(n, kernel_size, stride, padding, dilation)
    images, channels = self.shape[:2]
    outputs = _outputs(self.shape[2:], geometry)
    columns = _unfold(xp, xp.swapaxes(self, 0, 1), outputs, geometry)
    columns = xp.moveaxis(columns, n + 1, 0)
    rows, places = channels, 1
    for kernel, count in zip(kernel_size, outputs):
        rows, places = rows * kernel, places * count
    return xp.array(xp.reshape(columns, (images, rows, places)), order="C", copy=True)


def _col2im(
    xp: Any, self: Array, output_size: tuple[int, ...], kernel_size: tuple[int, ...],
    dilation: Ints, padding: Ints, stride: Ints,
) -> Array:  # fmt: skip
    n = len(kernel_size)
    geometry = _geometry(n, kernel_size, stride, padding, dilation)
    outputs = _outputs(tuple(output_size), geometry)
    cells = 1
    for kernel in kernel_size:
        cells *= kernel
    channels = self.shape[1] // cells
    columns = xp.reshape(self, (self.shape[0], channels, *kernel_size, *outputs))
    wide = xp.float32 if is_half(self.dtype) else self.dtype
    columns = xp.array(xp.moveaxis(columns, 0, n + 1), wide, copy=True)  # _fold spoils it
    result = xp.swapaxes(_fold(xp, columns, tuple(output_size), geometry), 0, 1)
    return xp.ascontiguousarray(result.astype(self.dtype, copy=False))


row(
    "im2col", "self", _im2col, LINEAR, promote=CAST,
    self=lambda m, g, self_shape, kernel_size, dilation, padding, stride: (
        m.col2im(g, self_shape[2:], kernel_size, dilation, padding, stride)),
    kernels=(1, 0),
    doc="the windows of (N, C, *size) as (N, C * kernel, windows)",
)  # fmt: skip

row(
    "col2im", "self", _col2im, LINEAR, promote=CAST,
    self=lambda m, g, kernel_size, dilation, padding, stride: (
        m.im2col(g, kernel_size, dilation, padding, stride)),
    kernels=(1, 0),
    doc="the adjoint of im2col: adds (N, C * kernel, windows) to where they were read",
)  # fmt: skip
