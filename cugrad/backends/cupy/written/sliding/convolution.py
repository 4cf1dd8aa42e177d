"""Convolutions: one kernel that makes columns, and one product of matrices; or one kernel alone,
see `direct.py`, or where each channel is on its own. Channels that lie last have others, see
`convolution_last.py`. im2col and col2im are columns alone.

Planes that a product reads as they are, those of windows of one element, need no columns.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import cupy

from ....wanted import wanted
from ....windows import Ints
from ...gemm import matmul
from ...kernels.windows import KERNELS
from ..launch import BLOCK, FLOATS, LIMIT, blocks, dense, int32, int64, kernel, name_of
from ..placed.sums import STORED_AS
from ..registry import forward
from . import convolution_last as last
from . import depthwise, direct
from .biases import add_bias
from .windows import Windows, images_at_once, is_last, launch, windows_over

__all__: list[str] = []

Array = Any  # cupy.ndarray
Sizes = tuple[int, ...]
ndarray = cupy.ndarray


def _windows(
    size: tuple[int, ...], weight_size: tuple[int, ...], dtype: Any, stride: Ints, padding: Ints,
    dilation: Ints,
) -> Windows | None:  # fmt: skip
    if name_of(dtype) not in FLOATS or not size or 0 in (*size, *weight_size):
        return None
    return windows_over(size, weight_size, stride, padding, dilation)


def _is_pointwise(windows: Windows) -> bool:
    return set(windows.kernel + windows.stride) == {1} and not any(windows.padding)


def _columns(name: str, x: Array, columns: Array, windows: Windows, steps: tuple[int, ...]) -> None:
    """Starts `unfold` of planes x, or `fold` to them."""
    shape = x.shape[:2]
    count = prod(shape) * prod(windows.outputs if name == "unfold" else windows.size)
    arrays = [x, columns] if name == "unfold" else [columns, x]
    launch(name, windows, count, arrays, int32(shape[1]), *map(int64, steps))


@forward("convolution", keeps=True)
def convolution(
    input: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Array | None:  # fmt: skip
    """Columns of images, as many as the workspace has room for, times the weight."""
    if input.ndim != weight.ndim or not input.shape[0] or not _fits(input, weight, groups):
        return None
    size, kernel_size = tuple(input.shape[2:]), tuple(weight.shape[2:])
    windows = _windows(size, kernel_size, input.dtype, stride, padding, dilation)
    if windows is None or (bias is not None and bias.dtype != input.dtype):
        return None
    if wanted.cudnn.used:
        from ...cudnn import convolutions as cudnn

        result = cudnn.convolve(input, weight, bias, windows)
        if result is not None:
            return result
    if groups > 1 and weight.shape[1] == 1:
        return depthwise.convolve(input, weight, bias, windows)
    if groups == 1 and (is_last(input) or is_last(weight)):
        return last.convolve(input, weight, bias, windows, _is_pointwise(windows))
    x, weight = dense(input), dense(weight)
    shape = (input.shape[0], weight.shape[0], *windows.outputs)
    if _is_direct(windows, weight.shape, shape[0], groups):
        return direct.convolve(
            x, weight, None if bias is None else dense(bias), windows, groups, False
        )  # fmt: skip
    if groups > 1:
        return None
    matrix = weight.reshape(weight.shape[0], -1)
    if _is_pointwise(windows):
        result = _shaped(matmul(matrix, x.reshape(*x.shape[:2], -1)), shape)
    else:
        result = _by_columns(x, windows, lambda columns: matmul(matrix, columns), shape)
    if bias is not None:
        add_bias(result, dense(bias))
    return result


def _shaped(x: Array, shape: tuple[int, ...]) -> Array:
    """A new product in another shape: not a view, which a gradient would be copied from."""
    return ndarray(shape, x.dtype, x.data)


def _is_direct(windows: Windows, weight: tuple[int, ...], images: int, groups: int) -> bool:
    return direct.fits(windows, images, weight[1], weight[0] // groups, groups)


def _fits(input: Array, weight: Array, groups: int) -> bool:
    """Whether each output has a group, and each group its channels."""
    shares = input.shape[1] == weight.shape[1] * groups and weight.shape[0] % groups == 0
    return bool(input.dtype == weight.dtype and shares)


def _by_columns(
    x: Array, windows: Windows, product: Callable[[Array], Array], shape: tuple[int, ...]
) -> Array:
    images, channels = x.shape[:2]
    length, rows = prod(windows.outputs), channels * windows.taps
    step = images_at_once(images, rows * length, x.dtype.itemsize)
    columns = ndarray((step, rows, length), x.dtype)
    result = None if step == images else ndarray(shape, x.dtype)
    for start in range(0, images, step):
        some = x[start : start + step]
        _columns("unfold", some, columns, windows, (rows * length, windows.taps * length, length))
        part = _shaped(product(columns[: len(some)]), (len(some), *shape[1:]))
        if result is None:
            return part
        result[start : start + step] = part
    return result


@forward("convolution_input", keeps=True)
def convolution_input(
    grad_output: Array, weight: Array, input_size: tuple[int, ...], stride: Ints, padding: Ints,
    dilation: Ints, groups: int,
) -> Array | None:  # fmt: skip
    """The product with the weight, and each element adds up what of it was read there."""
    if grad_output.dtype != weight.dtype or grad_output.ndim != weight.ndim:
        return None
    size = tuple(input_size)
    windows = _windows(size, tuple(weight.shape[2:]), weight.dtype, stride, padding, dilation)
    images, channels = grad_output.shape[0], weight.shape[1] * groups
    if windows is None or not images or tuple(grad_output.shape[2:]) != windows.outputs:
        return None
    if grad_output.shape[1] != weight.shape[0] or 0 in weight.shape:
        return None
    if weight.shape[0] % groups:
        return None
    if wanted.cudnn.used:
        from ...cudnn import convolutions as cudnn

        by_cudnn = cudnn.gradient_of_input(grad_output, weight, (images, channels, *size), windows)
        if by_cudnn is not None:
            return by_cudnn
    if groups > 1 and weight.shape[1] == 1:
        return depthwise.gradient_of_input(grad_output, weight, windows, groups)
    if groups == 1 and (is_last(grad_output) or is_last(weight)):
        shape = images, channels, *size
        return last.gradient_of_input(grad_output, weight, shape, windows, _is_pointwise(windows))
    g, weight = dense(grad_output), dense(weight)
    if _is_direct(windows, weight.shape, images, groups):
        return direct.convolve(g, weight, None, windows, groups, True)
    if groups > 1:
        return None
    matrix, length = weight.reshape(weight.shape[0], -1).T, prod(windows.outputs)
    if _is_pointwise(windows):
        return _shaped(matmul(matrix, g.reshape(images, -1, length)), (images, channels, *size))
    result = ndarray((images, channels, *size), g.dtype)
    rows = channels * windows.taps
    step = images_at_once(images, rows * length, g.dtype.itemsize)
    for start in range(0, images, step):
        columns = matmul(matrix, g[start : start + step].reshape(-1, g.shape[1], length))
        _columns("fold", result[start : start + step], columns, windows,
                 (rows * length, windows.taps * length, length))  # fmt: skip
    return result


@forward("convolution_weight", keeps=True)
def convolution_weight(
    grad_output: Array, input: Array, kernel_size: tuple[int, ...], stride: Ints, padding: Ints,
    dilation: Ints, groups: int,
) -> Array | None:  # fmt: skip
    """The product of the gradient and the columns, both in rows of all images."""
    if grad_output.dtype != input.dtype or grad_output.ndim != input.ndim:
        return None
    size, (images, channels) = tuple(input.shape[2:]), input.shape[:2]
    windows = _windows(size, tuple(kernel_size), input.dtype, stride, padding, dilation)
    if windows is None or not images or tuple(grad_output.shape[2:]) != windows.outputs:
        return None
    outputs = grad_output.shape[1]
    if not outputs or not channels:
        return None
    if outputs % groups or channels % groups:
        return None
    shape = outputs, channels // groups, *windows.kernel
    if wanted.cudnn.used:
        from ...cudnn import convolutions as cudnn

        by_cudnn = cudnn.gradient_of_weight(grad_output, input, shape, windows)
        if by_cudnn is not None:
            return by_cudnn
    if groups > 1 and shape[1] == 1:
        return depthwise.gradient_of_weight(grad_output, input, windows, groups)
    if groups == 1 and (is_last(grad_output) or is_last(input)):
        return last.gradient_of_weight(grad_output, input, shape, windows, _is_pointwise(windows))
    g, x = dense(grad_output), dense(input)
    if _is_direct(windows, shape, images, groups):
        return direct.convolve_weight(g, x, windows, groups, shape)
    if groups > 1:
        return None
    length, rows = prod(windows.outputs), channels * windows.taps
    total: Array = None
    step = images_at_once(images, (rows + outputs) * length, g.dtype.itemsize)
    for start in range(0, images, step):
        columns, slopes = _rows_of_places(x[start : start + step], g[start : start + step], windows)
        product = matmul(slopes, columns.T)
        if step < images:
            product = product.astype(cupy.float32 if g.dtype.itemsize == 2 else g.dtype, copy=False)
        total = product if total is None else total + product
    return _shaped(total.astype(g.dtype, copy=False), (outputs, channels, *kernel_size))


def _rows_of_places(x: Array, g: Array, windows: Windows) -> tuple[Array, Array]:
    """Columns of images, and slopes of their outputs, whose rows have the places of all images."""
    (images, channels), outputs = x.shape[:2], g.shape[1]
    width = images * prod(windows.outputs)
    columns = ndarray((channels * windows.taps, width), g.dtype)
    slopes, count = ndarray((outputs, width), g.dtype), channels * width
    name = "unfold_beside"
    run = kernel(KERNELS[name], name, name_of(g.dtype))
    run((blocks(count + g.size),), (BLOCK,),
        (x, g, columns, slopes, windows.packed, int64(count), int64(g.size), int32(channels),
         int32(outputs), int64(width)))  # fmt: skip
    return columns, slopes


# Columns for the user ----------------------------------------------------------------------------


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
