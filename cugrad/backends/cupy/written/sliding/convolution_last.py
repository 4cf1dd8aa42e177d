"""Convolutions of channels that lie last: rows of columns times a matrix of the weight.

An image is a matrix as it lies, with a row for each place, so no operand is copied: rows of
columns are what outputs read, and a product's rows are outputs. A weight whose channels lie last is
a matrix as it is, too. Where windows have one element there are no columns.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy

from ...gemm import matmul
from ...kernels.windows import KERNELS
from ..launch import BLOCK, blocks, dense, int32, int64, kernel, name_of, pack_of
from .biases import add_bias
from .windows import Windows, images_at_once, laid_last, new_last, strides_last

__all__ = ["convolve", "gradient_of_input", "gradient_of_weight"]

Array = Any  # cupy.ndarray
Sizes = tuple[int, ...]
ndarray = cupy.ndarray


def _matrix(weight: Array) -> Array:
    """(outputs, positions and channels)."""
    return dense(weight.transpose(0, *range(2, weight.ndim), 1)).reshape(weight.shape[0], -1)


def _rows(x: Array) -> Array:
    """(places of all images, channels), as they lie."""
    return ndarray((x.size // x.shape[1], x.shape[1]), x.dtype, x.data)


def _shaped(product: Array, shape: Sizes) -> Array:
    """A new product whose rows are places: not a view, which a gradient would be copied from."""
    return ndarray(shape, product.dtype, product.data, strides_last(shape, product.itemsize))


def _step(images: int, windows: Windows, channels: int, itemsize: int) -> int:
    """How many images have columns at a time."""
    return images_at_once(images, prod(windows.outputs) * windows.taps * channels, itemsize)


def _launch(name: str, windows: Windows, whole: Array, channels: int, arrays: list[Array]) -> None:
    """Starts a kernel with a thread for each pack of channels in one of the arrays."""
    pack = pack_of(channels, *arrays)
    count = whole.size // pack
    run = kernel(KERNELS[name], name, name_of(whole.dtype), None, pack)
    run(
        (blocks(count),), (BLOCK,), (*arrays, windows.packed, int64(count), int32(channels // pack))
    )


def _columns(x: Array, windows: Windows) -> Array:
    """What each output of some images reads: a row for each."""
    images, channels = x.shape[:2]
    columns = ndarray((images * prod(windows.outputs), windows.taps * channels), x.dtype)
    _launch("unfold_last", windows, columns, channels, [x, columns])
    return columns


def convolve(
    input: Array, weight: Array, bias: Array | None, windows: Windows, pointwise: bool
) -> Array:  # fmt: skip
    """The convolution, whose channels lie last."""
    x, matrix = laid_last(input), _matrix(weight).T
    images, channels = x.shape[:2]
    shape = (images, weight.shape[0], *windows.outputs)
    step = images if pointwise else _step(images, windows, channels, x.itemsize)
    if step == images:
        result = _shaped(matmul(_rows(x) if pointwise else _columns(x, windows), matrix), shape)
    else:
        result = new_last(shape, x.dtype)
        for start in range(0, images, step):
            some = slice(start, start + step)
            part = result[some]
            part[...] = _shaped(matmul(_columns(x[some], windows), matrix), part.shape)
    if bias is not None:
        add_bias(result, dense(bias))
    return result


def gradient_of_input(
    g: Array, weight: Array, shape: Sizes, windows: Windows, pointwise: bool
) -> Array:
    """The gradient of an input of that shape."""
    g, matrix = laid_last(g), _matrix(weight)
    if pointwise:
        return _shaped(matmul(_rows(g), matrix), shape)
    images, channels = shape[:2]
    result = new_last(shape, g.dtype)
    step = _step(images, windows, channels, g.itemsize)
    for start in range(0, images, step):
        some = slice(start, start + step)
        columns = matmul(_rows(g[some]), matrix)
        _launch("fold_last", windows, result[some], channels, [columns, result[some]])
    return result


def gradient_of_weight(
    g: Array, input: Array, shape: Sizes, windows: Windows, pointwise: bool
) -> Array:
    """The gradient of a weight of that shape, whose channels lie last; one of one place lies in the
    order of its dims, which is the same memory.
    """
    g, x = laid_last(g), laid_last(input)
    images = x.shape[0]
    step = images if pointwise else _step(images, windows, x.shape[1], x.itemsize)
    total: Array = None
    for start in range(0, images, step):
        some = slice(start, start + step)
        columns = _rows(x) if pointwise else _columns(x[some], windows)
        product = matmul(_rows(g[some]).T, columns)
        if step < images and g.dtype.itemsize == 2:
            product = product.astype(cupy.float32)
        total = product if total is None else total + product
    total = total.astype(g.dtype, copy=False)
    if windows.taps == 1:
        return ndarray(shape, total.dtype, total.data)
    return _shaped(total, shape)
