"""Convolutions in which each output channel reads one input channel: one kernel each, for channels
that lie before their planes, and for those that lie last.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy

from ...kernels.windows import KERNELS
from ..launch import (
    BLOCK,
    LIMIT,
    accumulator,
    blocks,
    dense,
    int32,
    int64,
    kernel,
    name_of,
    tickets_of_stream,
)
from .windows import Windows, is_last, laid_last, launch, launch_last, new_last

__all__ = ["convolve", "gradient_of_input", "gradient_of_weight"]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray

LINES, STEPS = 8, 16  # of a block, and that each of them should go at least
MOST_BLOCKS, MOST_PARTS = 1024, 64  # of which each has a ticket, and of a sum


def convolve(x: Array, weight: Array, bias: Array | None, windows: Windows) -> Array:
    """The convolution; its channels lie as those of x."""
    shape = (x.shape[0], weight.shape[0], *windows.outputs)
    times, weight = shape[1] // x.shape[1], dense(weight)
    rest = int32(times), int32(bias is not None)
    first = weight if bias is None else dense(bias)
    if is_last(x):
        result = new_last(shape, x.dtype)
        launch_last("depthwise_last", windows, result, [x, weight, first, result], *rest,
                    packing=times == 1)  # fmt: skip
        return result
    result = ndarray(shape, x.dtype)
    arrays = [dense(x), weight, first, result]
    launch("depthwise", windows, result.size, arrays, int32(shape[1]), *rest)
    return result


def gradient_of_input(g: Array, weight: Array, windows: Windows, groups: int) -> Array:
    """The gradient of the input; its channels lie as those of g."""
    shape, times = (g.shape[0], groups, *windows.size), int32(weight.shape[0] // groups)
    weight = dense(weight)
    if is_last(g):
        result = new_last(shape, g.dtype)
        launch_last("depthwise_input_last", windows, result, [g, weight, result], times,
                    packing=times == 1)  # fmt: skip
        return result
    result = ndarray(shape, g.dtype)
    arrays = [dense(g), weight, result]
    launch("depthwise_input", windows, result.size, arrays, int32(groups), times)
    return result


def gradient_of_weight(g: Array, x: Array, windows: Windows, groups: int) -> Array | None:
    """The gradient of the weight."""
    channels = g.shape[1]
    if x.shape[1] != groups or channels % groups or channels * windows.taps >= LIMIT:
        return None
    result, times = ndarray((channels, 1, *windows.kernel), g.dtype), channels // groups
    if is_last(x) or is_last(g):
        return _weight_last(laid_last(g), laid_last(x), windows, times, result)
    run = kernel(KERNELS["depthwise_weight"], "depthwise_weight", name_of(g.dtype))
    run((result.size,), (BLOCK,), (dense(g), dense(x), result, windows.packed, int32(x.shape[0]),
        int32(channels), int32(times)))  # fmt: skip
    return result


def _weight_last(g: Array, x: Array, windows: Windows, times: int, result: Array) -> Array:
    channels, places = g.shape[1], x.shape[0] * prod(windows.outputs)
    tiles = blocks(channels, 32) * windows.taps
    parts = max(1, min(blocks(places, LINES * STEPS), MOST_BLOCKS // tiles, MOST_PARTS))
    part = blocks(places, parts)
    parts = blocks(places, part)
    partial = ndarray((parts if parts > 1 else 0, result.size), accumulator(g.dtype))
    name = "depthwise_weight_last"
    run = kernel(KERNELS[name], name, name_of(g.dtype))
    run((tiles, parts), (BLOCK,),
        (g, x, result, partial, tickets_of_stream(), windows.packed, int64(places), int64(part),
         int32(channels), int32(times)))  # fmt: skip
    return result
