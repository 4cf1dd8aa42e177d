"""Convolutions of each channel of images by itself, on a host: products of lines and a matrix.

What an image's line of outputs reads is as many lines of the padded image as the kernel has, which
are one run of numbers. The matrix makes a line of outputs of it: in its columns the kernel lies
where the output reads, 0 elsewhere. Every third run that begins with a line, of a kernel of three,
is a row of one matrix that is there already, without a copy. So each channel takes three products.
Padding along a line takes no room: a kernel that reaches over the end is cut off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backends.windows import spans
from ...dtypes import is_half

__all__ = ["by_bands", "by_bands_weight", "goes_by_bands"]

Array = Any
Sizes = tuple[int, ...]

BLOCKS = 8  # of a host's cache at a time: fewer would cost more products of smaller matrices
WIDEST = 16  # times as long as the kernel, at most, is a line: most of a wider matrix would be 0


def goes_by_bands(x: Array, kernel: Sizes, dilation: Sizes) -> bool:
    """Whether these functions take images: of short lines, of which outputs read adjacent ones."""
    plain = x.ndim == 4 and dilation[0] == 1 and not is_half(x.dtype)
    return plain and x.shape[3] <= WIDEST * kernel[1]


class Bands:
    """Lines of images with lines of padding around, channel by channel, and what outputs read."""

    def __init__(self, x: Array, kernel: Sizes, padding: Sizes, dilation: Sizes) -> None:
        (self.images, self.channels, self.height, self.width), self.kernel = x.shape, kernel
        self.above, self.lines = padding[0], x.shape[2] + 2 * padding[0]
        self.outputs = self.width + 2 * padding[1] - dilation[1] * (kernel[1] - 1)
        along = kernel[1], 1, padding[1], dilation[1]
        self.places = list(spans(self.width, self.outputs, *along))

    def pieces(self, xp: Any) -> Iterator[tuple[slice, slice]]:
        """Some images, and some channels of them, whose lines are so many blocks."""
        room, image = BLOCKS * xp.block_elements, self.lines * max(self.width, self.outputs)
        images = max(1, room // image)
        channels = max(1, room // (image * max(1, min(images, self.images))))
        for first in range(0, self.channels, channels):
            for start in range(0, self.images, images):
                yield slice(start, start + images), slice(first, first + channels)

    def runs(self, xp: Any, x: Array, width: int, above: int) -> Array:
        """Lines of (images, channels, lines, width) as (channels, lines of all images, width)."""
        runs = xp.zeros((x.shape[1], x.shape[0], self.lines, width), x.dtype)
        runs[:, :, above : above + x.shape[2]] = x.swapaxes(0, 1)
        return runs.reshape((x.shape[1], -1, width))

    def rows(self, xp: Any, runs: Array) -> Iterator[tuple[Array, slice]]:
        """Runs that begin with every k-th line as rows, of each first line, and those lines."""
        channels, lines, width = runs.shape
        flat, k = runs.reshape((channels, -1)), self.kernel[0]
        for first in range(min(k, lines - k + 1)):
            count = (lines - first) // k
            part = flat[:, first * width : (first + k * count) * width]
            yield part.reshape((channels, count, k * width)), slice(first, first + k * count, k)

    def diagonals(self) -> Iterator[tuple[int, Any]]:
        """Where each column of a kernel lies in (channels, lines of it, width, outputs)."""
        for i, to, read in self.places:
            yield i, (..., [*range(read.start, read.stop)], [*range(to.start, to.stop)])


def by_bands(xp: Any, x: Array, weight: Array, padding: Sizes, dilation: Sizes) -> Array:
    """The convolution, of strides 1, without a bias."""
    layout = Bands(x, weight.shape[2:], padding, dilation)
    high, channels = layout.lines - layout.kernel[0] + 1, layout.channels
    matrix = xp.zeros((channels, layout.kernel[0], layout.width, layout.outputs), x.dtype)
    for i, at in layout.diagonals():
        matrix[at] = weight[:, 0, :, i, None]
    matrix = matrix.reshape((channels, -1, layout.outputs))
    result = xp.empty((layout.images, channels, high, layout.outputs), x.dtype)
    for images, some in layout.pieces(xp):
        runs = layout.runs(xp, x[images, some], layout.width, layout.above)
        sums = xp.empty((*runs.shape[:2], layout.outputs), x.dtype)
        for rows, lines in layout.rows(xp, runs):
            np.matmul(rows, matrix[some], out=sums[:, lines])
        sums = sums.reshape((runs.shape[0], -1, layout.lines, layout.outputs))
        result[images, some] = sums[:, :, :high].swapaxes(0, 1)
    return result


def by_bands_weight(
    xp: Any, grad_output: Array, x: Array, kernel: Sizes, padding: Sizes, dilation: Sizes
) -> Array:
    """The adjoint in the weight: that in the matrix, along its diagonals."""
    layout = Bands(x, kernel, padding, dilation)
    total = xp.zeros((layout.channels, kernel[0] * layout.width, layout.outputs), x.dtype)
    for images, some in layout.pieces(xp):
        runs = layout.runs(xp, x[images, some], layout.width, layout.above)
        slopes = layout.runs(xp, grad_output[images, some], layout.outputs, 0)
        for rows, lines in layout.rows(xp, runs):
            total[some] += xp.matmul(rows.swapaxes(1, 2), slopes[:, lines])
    total = total.reshape((layout.channels, kernel[0], layout.width, layout.outputs))
    result = xp.zeros((layout.channels, 1, *kernel), x.dtype)
    for i, at in layout.diagonals():
        result[:, 0, :, i] = xp.sum(total[at], axis=-1)
    return result
