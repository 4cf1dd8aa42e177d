"""Convolutions of each channel with a kernel of its own, on a host: products of shifted planes.

A padded plane is one run of numbers. The elements that a position of the kernel reads, one for each
output, are a part of that run, which begins later by as much as the position is behind the first.
So each position is one product and one sum of long runs. What they compute between two lines of
outputs is thrown away. Strides are 1. Images of short lines are computed in another way, by bands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...dtypes import is_half
from ..apart import dots
from .bands import by_bands, by_bands_weight, goes_by_bands

__all__ = ["depthwise", "depthwise_input", "depthwise_weight", "is_depthwise"]

Array = Any
Geometry = tuple[tuple[int, ...], ...]
Sizes = tuple[int, ...]


def is_depthwise(xp: Any, channels: int, out_channels: int, groups: int, how: Geometry) -> bool:
    """Whether these functions take a convolution: as a host, of one channel in and out a group."""
    kernel, stride, padding, dilation = how
    apart = groups == channels == out_channels and groups > 1 and set(stride) == {1}
    small = all(p <= d * (k - 1) for k, p, d in zip(kernel, padding, dilation))
    return apart and small and xp.sums_by_blas


class Runs:
    """Planes of some images as runs of numbers with `padding` around, and what each position of
    the kernel reads of them.
    """

    def __init__(self, size: Sizes, kernel: Sizes, padding: Sizes, dilation: Sizes) -> None:
        self.padded = tuple([s + 2 * p for s, p in zip(size, padding)])
        self.inner = tuple([slice(p, p + s) for s, p in zip(size, padding)])
        reach = [d * (k - 1) for k, d in zip(kernel, dilation)]
        self.outputs = tuple([s - r for s, r in zip(self.padded, reach)])
        steps = [prod(self.padded[axis + 1 :]) for axis in range(len(size))]
        self.length = 1 + sum((n - 1) * step for n, step in zip(self.outputs, steps))
        self.starts = [
            sum(i * d * step for i, d, step in zip(at, dilation, steps))
            for at in product(*map(range, kernel))
        ]

    def written(self, runs: Array) -> Array:
        """The outputs in runs of the padded size."""
        planes = runs.reshape(*runs.shape[:2], *self.padded)
        return planes[(..., *[slice(n) for n in self.outputs])]

    def pieces(self, xp: Any, images: Array) -> Iterator[tuple[slice, slice]]:
        """Some images, and some channels of them, whose runs fit a cache beside their factors."""
        room, elements = xp.block_elements, prod(self.padded)
        channels = max(1, room // (elements * len(self.starts)))
        count = max(1, room // (2 * elements * channels))
        for first in range(0, images.shape[1], channels):
            for start in range(0, len(images), count):
                yield slice(start, start + count), slice(first, first + channels)

    def runs_of(self, xp: Any, images: Array) -> Array:
        runs = xp.zeros((*images.shape[:2], prod(self.padded)), _wide(images))
        runs.reshape(*images.shape[:2], *self.padded)[(..., *self.inner)] = images
        return runs


def _wide(x: Array) -> Any:
    return np.dtype(np.float32) if is_half(x.dtype) else x.dtype


def depthwise(xp: Any, input: Array, weight: Array, padding: Sizes, dilation: Sizes) -> Array:
    """The convolution, without a bias."""
    if goes_by_bands(input, weight.shape[2:], dilation):
        return by_bands(xp, input, weight, padding, dilation)
    layout = Runs(input.shape[2:], weight.shape[2:], padding, dilation)
    elements = prod(layout.padded)
    factors = weight.reshape(len(weight), -1).T.astype(_wide(input))
    result = xp.empty((*input.shape[:2], *layout.outputs), input.dtype)
    kernels: Any = None
    those = slice(0, 0)
    for images, channels in layout.pieces(xp, input):
        runs = layout.runs_of(xp, input[images, channels])
        sums, total = xp.empty_like(runs), None
        long = runs.reshape(len(runs), -1)
        count = long.shape[1] - elements + layout.length  # the channels are one run, too
        if channels != those:
            each = factors[:, channels, None]
            each = xp.broadcast_to(each, (*each.shape[:2], elements))
            those, kernels = channels, each.reshape(len(each), -1)[:, :count]
        for start, kernel in zip(layout.starts, kernels, strict=True):
            part = long[:, start : start + count]
            if total is None:
                total = xp.multiply(part, kernel, out=sums.reshape(len(runs), -1)[:, :count])
                term = xp.empty_like(part)
            else:
                total += xp.multiply(part, kernel, out=term)
        result[images, channels] = layout.written(sums)
    return result


def depthwise_input(
    xp: Any, grad_output: Array, weight: Array, padding: Sizes, dilation: Sizes
) -> Array:
    """The adjoint in the input: the convolution with the kernels turned round."""
    turned = weight[(..., *[slice(None, None, -1)] * len(padding))]
    around = tuple([d * (k - 1) - p for k, p, d in zip(weight.shape[2:], padding, dilation)])
    return depthwise(xp, grad_output, turned, around, dilation)


def depthwise_weight(
    xp: Any, grad_output: Array, input: Array, kernel: Sizes, padding: Sizes, dilation: Sizes
) -> Array:
    """The adjoint in the weight: products of the runs of the gradient and of the input."""
    if goes_by_bands(input, kernel, dilation):
        return by_bands_weight(xp, grad_output, input, kernel, padding, dilation)
    layout = Runs(input.shape[2:], kernel, padding, dilation)
    total = xp.zeros((len(layout.starts), input.shape[1]), _wide(input))
    for images, channels in layout.pieces(xp, input):
        runs = layout.runs_of(xp, input[images, channels])
        slopes = xp.zeros_like(runs)
        layout.written(slopes)[...] = grad_output[images, channels]
        slopes = slopes[..., : layout.length]
        for i, start in enumerate(layout.starts):
            part = runs[..., start : start + layout.length]
            total[i, channels] += dots(xp, slopes, part).sum(0)
    return total.T.reshape(-1, 1, *kernel).astype(input.dtype, copy=False)
