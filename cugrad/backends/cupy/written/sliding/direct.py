"""Convolutions in one launch each, without columns: where there is so little to compute that
launches would be what takes the time, and where channels come in groups.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy

from ...kernels.convolutions import KERNELS
from ..launch import BLOCK, LIMIT, accumulator, blocks, kernel, name_of, tickets_of_stream
from .windows import Windows

__all__ = ["convolve", "convolve_weight", "fits"]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray

ROWS, COLUMNS = 32, 64  # of a tile
FEW = 1 << 25  # products: they take less than the launches that cuBLAS needs besides
MOST_TICKETS, MOST_Z = 1024, 65535


def fits(windows: Windows, images: int, channels: int, outputs: int, groups: int) -> bool:
    """Whether a convolution is for these kernels; channels and outputs are those of a group."""
    places = images * max(prod(windows.outputs), prod(windows.size))
    depth = max(channels, outputs) * windows.taps
    if max(places + COLUMNS, depth + COLUMNS, outputs * groups, channels * groups) >= LIMIT:
        return False
    if max(blocks(channels, ROWS), blocks(outputs, ROWS), groups) > MOST_Z:
        return False
    products = images * prod(windows.outputs) * windows.taps * channels * outputs
    return groups > 1 or products <= FEW


def convolve(
    x: Array, weight: Array, bias: Array | None, windows: Windows, groups: int, back: bool
) -> Array:
    """The convolution of x, or, `back`, its gradient in the input from that of its result."""
    images = x.shape[0]
    outputs, channels = weight.shape[0] // groups, weight.shape[1]
    rows, others = (channels, outputs) if back else (outputs, channels)
    size = windows.size if back else windows.outputs
    result = ndarray((images, rows * groups, *size), x.dtype)
    columns = images * prod(size)
    run = kernel(KERNELS["convolve"], "convolve", name_of(x.dtype), BACK=int(back))
    grid = blocks(columns, COLUMNS), blocks(rows, ROWS), groups
    run(grid, (BLOCK,), (x, weight, bias, result, windows.packed, columns, rows, others))
    return result


def convolve_weight(
    g: Array, x: Array, windows: Windows, groups: int, shape: tuple[int, ...]
) -> Array:
    """The gradient of a weight of this shape."""
    rows, channels = shape[0] // groups, shape[1]
    result, count = ndarray(shape, g.dtype), x.shape[0] * prod(windows.outputs)
    tiles = blocks(channels * windows.taps, COLUMNS), blocks(rows, ROWS)
    most = min(256 // (tiles[0] * tiles[1] * groups), MOST_Z // groups, blocks(count, BLOCK))
    part = blocks(count, max(1, most))
    parts = blocks(count, part)
    partial = ndarray((parts if parts > 1 else 0, result.size), accumulator(g.dtype))
    run = kernel(KERNELS["convolve_weight"], "convolve_weight", name_of(g.dtype))
    run((*tiles, groups * parts), (BLOCK,),
        (g, x, result, partial, tickets_of_stream(), windows.packed, count, rows, channels, groups,
         part))  # fmt: skip
    return result
