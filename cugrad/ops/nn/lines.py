"""Convolutions on a host whose columns are made along all spatial dims but the first.

A column has what one output reads, of which the outputs a line further down read most, too. So
lines of columns are made once, and each position of the kernel along the first dim is a product
with a part of them that begins some lines later: nothing of it is copied. There is a product for
each image, whose result lies where it belongs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...backends.windows import spans
from ...dtypes import is_half
from ..apart import row_products

__all__ = ["by_lines", "by_lines_input", "by_lines_weight", "goes_by_lines"]

Array = Any
Sizes = tuple[int, ...]
Geometry = tuple[Sizes, ...]

FEWEST, MOST = 64, 128  # outputs and channels of an image where the copies that are saved count
ALIKE = 8  # times as many columns as rows, at most, in a matrix that a product is quick with
LONGEST = 16  # positions of a kernel, each a product of its own
AT_ONCE = 1 << 16  # elements of results that stay in a cache while products are added to them


def goes_by_lines(
    xp: Any, x: Array, outputs: Sizes, geometry: Geometry, out_channels: int, groups: int
) -> bool:
    """Whether these functions take a convolution with these outputs for an image."""
    kernel, stride, _, _ = geometry
    if not xp.sums_by_blas or is_half(x.dtype) or stride[0] != 1:
        return False
    each, rows = out_channels // groups, x.shape[1] // groups * prod(kernel[1:])
    few = each <= MOST and kernel[0] <= LONGEST and prod(outputs) >= FEWEST
    return few and each <= rows * ALIKE and rows <= each * 4 * ALIKE


class Lines:
    """The columns of some images, line after line, and what each position of a kernel reads."""

    def __init__(self, x: Array, outputs: Sizes, geometry: Geometry, groups: int) -> None:
        (self.positions, *self.kernel), _, padding, dilation = geometry
        self.geometry, self.outputs, self.groups = geometry, outputs, groups
        self.above, self.step = padding[0], dilation[0]
        self.reach = self.step * (self.positions - 1)
        self.width = prod(outputs[1:])  # of a line
        self.rows = x.shape[1] // groups * prod(self.kernel)  # of the columns of a group
        self.columns: Any = None
        self.inside = slice(0, 0)  # the lines of them that are none of padding

    def batches(self, xp: Any, x: Array, out_channels: int) -> Iterator[tuple[slice, slice]]:
        """Some images, and lines of their outputs, whose columns and results fit a cache."""
        line = max(self.rows * self.groups, out_channels) * self.width * x.dtype.itemsize
        room, height = xp.workspace_bytes, self.outputs[0]
        lines = max(self.reach + 1, room // line - self.reach)
        images = max(1, room // (line * (height + self.reach))) if lines >= height else 1
        for start in range(0, len(x), images):
            for first in range(0, height, lines):
                yield slice(start, start + images), slice(first, min(first + lines, height))

    def of(self, xp: Any, x: Array, lines: slice) -> Array:
        """The columns that lines of outputs read, (images, groups, rows, run).

        They lie in the same memory each time. What reads padding stays 0 there.
        """
        count = lines.stop - lines.start + self.reach
        shape = (*x.shape[:2], *self.kernel, count, *self.outputs[1:])
        first = lines.start - self.above
        low, high = max(0, first), min(x.shape[2], first + count)
        inside = slice(low - first, high - first)
        if self.columns is None or self.columns.shape != shape:
            padded = any(self.geometry[2])
            self.columns, self.inside = (xp.zeros if padded else xp.empty)(shape, x.dtype), inside
        columns, whole = self.columns, slice(None)
        if inside != self.inside:  # lines that were read before are padding now
            for outside in (slice(0, inside.start), slice(inside.stop, count)):
                columns[(whole, whole, *[whole] * len(self.kernel), outside)] = 0
            self.inside = inside
        along = [
            list(spans(size, outputs, *[n[axis] for n in self.geometry]))
            for axis, (size, outputs) in enumerate(zip(x.shape[2:], self.outputs))
        ][1:]
        for places in product(*along):
            at = tuple([i for i, _, _ in places])
            to, read = tuple([p[1] for p in places]), tuple([p[2] for p in places])
            columns[(whole, whole, *at, inside, *to)] = x[(whole, whole, slice(low, high), *read)]
        return columns.reshape(len(x), self.groups, self.rows, count * self.width)

    def parts(self, columns: Array, first: int, count: int) -> Iterator[Array]:
        """What each position of the kernel reads for `count` lines of outputs from the `first`."""
        for i in range(self.positions):
            start = (first + i * self.step) * self.width
            yield columns[..., start : start + count * self.width]


def _kernels(xp: Any, weight: Array, groups: int) -> Array:
    """(positions along the first dim, groups, outputs of a group, rows)."""
    moved = weight.transpose(2, 0, 1, *range(3, weight.ndim))
    rows = prod(weight.shape[1:2] + weight.shape[3:])
    return moved.reshape((weight.shape[2], groups, weight.shape[0] // groups, rows))


def by_lines(
    xp: Any, input: Array, weight: Array, outputs: Sizes, geometry: Geometry, groups: int
) -> Array:
    """The convolution, without a bias."""
    layout, kernels = Lines(input, outputs, geometry, groups), _kernels(xp, weight, groups)
    out_channels, width = weight.shape[0], layout.width
    result = xp.empty((input.shape[0], out_channels, *outputs), input.dtype)
    flat = result.reshape((input.shape[0], groups, kernels.shape[2], prod(outputs)))
    some = max(1, AT_ONCE // (out_channels * width))
    for images, lines in layout.batches(xp, input, out_channels):
        columns = layout.of(xp, input[images], lines)
        for first in range(lines.start, lines.stop, some):
            count = min(some, lines.stop - first)
            sums, term = flat[images, ..., first * width : (first + count) * width], None
            parts = layout.parts(columns, first - lines.start, count)
            for kernel, part in zip(kernels, parts, strict=True):
                if term is None:
                    np.matmul(kernel, part, out=sums)
                    term = xp.empty(sums.shape, sums.dtype)
                else:
                    sums += np.matmul(kernel, part, out=term)
    return result


def by_lines_input(
    xp: Any, grad_output: Array, weight: Array, size: Sizes, geometry: Geometry, groups: int
) -> Array:
    """The adjoint in the input, of strides 1: the convolution with the kernels turned round."""
    kernel, stride, padding, dilation = geometry
    around = tuple([d * (k - 1) - p for k, p, d in zip(kernel, padding, dilation)])
    turned = weight[(..., *[slice(None, None, -1)] * len(kernel))]
    turned = turned.reshape((groups, weight.shape[0] // groups, *weight.shape[1:]))
    turned = turned.swapaxes(1, 2).reshape(weight.shape[1] * groups, -1, *kernel)
    return by_lines(xp, grad_output, turned, size, (kernel, stride, around, dilation), groups)


def by_lines_weight(
    xp: Any, grad_output: Array, input: Array, geometry: Geometry, groups: int
) -> Array:
    """The adjoint in the weight: products of the gradient and the columns, added up."""
    images, out_channels, *outputs = grad_output.shape
    layout, each = Lines(input, tuple(outputs), geometry, groups), out_channels // groups
    flat = grad_output.reshape((images, groups, each, prod(outputs)))
    total = xp.zeros((layout.positions, groups, each, layout.rows), input.dtype)
    for some, lines in layout.batches(xp, input, out_channels):
        columns, width = layout.of(xp, input[some], lines), layout.width
        slopes = flat[some, ..., lines.start * width : lines.stop * width]
        parts = layout.parts(columns, 0, lines.stop - lines.start)
        for sums, part in zip(total, parts, strict=True):
            sums += xp.sum(row_products(xp, slopes, part), axis=0)
    total = total.reshape((layout.positions, out_channels, -1, *geometry[0][1:]))
    return xp.ascontiguousarray(total.transpose(1, 2, 0, *range(3, total.ndim)))
