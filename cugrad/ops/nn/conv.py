"""Convolution rows: the op and its two adjoints, each the derivative of the other two."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ...backends.windows import Ints, numbers, output_size, spans
from ...dtypes import is_half
from ..flops import convolution_flops, convolution_input_flops, convolution_weight_flops
from ..precision import narrow, wide
from ..table import AS_INPUT, CONVOLUTION, LINEAR, SAME, row
from .depthwise import depthwise, depthwise_input, depthwise_weight, is_depthwise
from .lines import by_lines, by_lines_input, by_lines_weight, goes_by_lines

Array = Any
Geometry = tuple[tuple[int, ...], ...]


# Columns: a matrix product does the work ------------------------------------------------------


def _unfold(xp: Any, x: Array, outputs: tuple[int, ...], geometry: Geometry) -> Array:
    """(C, N, *size) -> (C, *kernel, N, *outputs): what each output reads at each kernel position.

    One axis at a time, the last first, so that later axes copy long runs; padding is never stored.
    """
    for axis in reversed(range(len(outputs))):
        kernel, stride, padding, dilation = (numbers[axis] for numbers in geometry)
        at = x.ndim - len(outputs) + axis
        if kernel == 1 and stride == 1 and not padding and outputs[axis] == x.shape[at]:
            x = x[:, None]
            continue
        reach = stride * (outputs[axis] - 1) + dilation * (kernel - 1) - padding
        make = xp.zeros if padding or reach >= x.shape[at] else xp.empty  # an output may be spare
        shape = (x.shape[0], kernel, *x.shape[1:at], outputs[axis], *x.shape[at + 1 :])
        columns = make(shape, x.dtype)
        skip = (slice(None),) * at
        for i, to, read in spans(x.shape[at], outputs[axis], kernel, stride, padding, dilation):
            columns[(slice(None), i, *skip[1:], to)] = x[(*skip, read)]
        x = columns
    return x


def _fold(xp: Any, columns: Array, size: tuple[int, ...], geometry: Geometry) -> Array:
    """The adjoint of `_unfold`: adds every column to where it was read from. Spoils `columns`."""
    for axis in range(len(size)):
        kernel, stride, padding, dilation = (numbers[axis] for numbers in geometry)
        at = columns.ndim - len(size) + axis - 1
        outputs = columns.shape[at + 1]
        if kernel == 1 and stride == 1 and not padding and outputs == size[axis]:
            columns = columns[:, 0]
            continue
        shape = (columns.shape[0], *columns.shape[2 : at + 1], size[axis], *columns.shape[at + 2 :])
        # with the size unchanged, one position maps every output to itself: add to it in place
        same = outputs == size[axis] and stride == 1 and padding % dilation == 0
        start = padding // dilation if same and padding < kernel * dilation else -1
        x = columns[:, start] if start >= 0 else xp.zeros(shape, columns.dtype)
        skip = (slice(None),) * at
        for i, to, write in spans(size[axis], outputs, kernel, stride, padding, dilation):
            if i != start:
                x[(*skip, write)] += columns[(slice(None), i, *skip[1:], to)]
        columns = x
    return columns


def _batches(xp: Any, images: int, elements: int, itemsize: int) -> Iterator[slice]:
    """Runs of images whose columns, `elements` an image, fit the memory that may be borrowed."""
    room = xp.workspace_bytes
    step = max(1, room // max(1, elements * itemsize))
    return (slice(start, start + step) for start in range(0, images, step))


def _geometry(n: int, kernel: Any, stride: Ints, padding: Ints, dilation: Ints) -> Geometry:
    return tuple(kernel), numbers(stride, n), numbers(padding, n), numbers(dilation, n)


def _is_pointwise(geometry: Geometry, groups: int) -> bool:
    kernel, stride, padding, _ = geometry
    return groups == 1 and set(kernel + stride) == {1} and not any(padding)


def _accumulator(xp: Any, x: Array) -> Any:
    """The dtype that sums of `x` are kept in: float32 for half precision."""
    return xp.float32 if is_half(x.dtype) else x.dtype


def _kernels(xp: Any, weight: Array, groups: int) -> Array:
    """The weights as a matrix a group: outputs by what each of them reads."""
    shape = groups, weight.shape[0] // groups, prod(weight.shape[1:])
    return xp.reshape(weight, shape)


def _matrix(xp: Any, values: Array, groups: int, rows: int, n: int) -> Array:
    """A matrix a group of so many rows, of values that end in images and the places in each."""
    return xp.reshape(values, (groups, rows, prod(values.shape[-n - 1 :])))


# Forwards ------------------------------------------------------------------------------------


def _convolution(
    xp: Any, input: Array, weight: Array, bias: Array | None = None, stride: Ints = 1,
    padding: Ints = 0, dilation: Ints = 1, groups: int = 1,
) -> Array:  # fmt: skip
    if bias is not None and xp.cast is not None and is_half(input.dtype):
        result = _convolution(
            xp, wide(xp, input), wide(xp, weight), wide(xp, bias), stride, padding, dilation, groups
        )  # as a host's products are
        return narrow(xp, result, input)
    n = input.ndim - 2
    images, channels, out_channels = input.shape[0], input.shape[1], weight.shape[0]
    geometry = _geometry(n, weight.shape[2:], stride, padding, dilation)
    outputs = _outputs(input.shape[2:], geometry)
    if _is_pointwise(geometry, groups):
        flat = xp.reshape(input, (images, channels, prod(outputs)))
        result = xp.matmul(xp.reshape(weight, (out_channels, channels)), flat)
    elif is_depthwise(xp, channels, out_channels, groups, geometry):
        result = depthwise(xp, input, weight, geometry[2], geometry[3])
    elif goes_by_lines(xp, input, outputs, geometry, out_channels, groups):
        result = by_lines(xp, input, weight, outputs, geometry, groups)
    else:
        result = xp.empty((images, out_channels, *outputs), input.dtype)
        swapped, target = xp.swapaxes(input, 0, 1), xp.swapaxes(result, 0, 1)
        kernels = _kernels(xp, weight, groups)
        per_image = channels * prod(geometry[0]) * prod(outputs)
        for batch in _batches(xp, images, per_image, input.dtype.itemsize):
            columns = _unfold(xp, swapped[:, batch], outputs, geometry)
            columns = _matrix(xp, columns, groups, kernels.shape[2], n)
            product = xp.matmul(kernels, columns)
            target[:, batch] = xp.reshape(product, target[:, batch].shape)
    result = xp.reshape(result, (images, out_channels, *outputs))
    if bias is not None:
        bias = xp.reshape(bias, (-1,) + (1,) * n)
        if is_half(result.dtype):  # not every backend adds bfloat16
            return (result.astype(xp.float32) + bias.astype(xp.float32)).astype(result.dtype)
        result += bias
    return result


def _sizes(size: tuple[int, ...], geometry: Geometry) -> tuple[int, ...]:
    return tuple(map(output_size, size, *geometry))


def _outputs(size: tuple[int, ...], geometry: Geometry) -> tuple[int, ...]:
    kernel, _, padding, dilation = geometry
    outputs = _sizes(size, geometry)
    if any(extent <= 0 for extent in outputs):
        padded = " x ".join(str(s + 2 * p) for s, p in zip(size, padding))
        reach = " x ".join(str(d * (k - 1) + 1) for k, d in zip(kernel, dilation))
        raise RuntimeError(
            f"Calculated padded input size per channel: ({padded}). Kernel size: ({reach}). "
            "Kernel size can't be greater than actual input size"
        )
    return outputs


def _turns(size: tuple[int, ...], outputs: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether the adjoint is a convolution, too: with the kernels turned round."""
    kernel, stride, padding, dilation = geometry
    small = all(p <= d * (k - 1) for k, p, d in zip(kernel, padding, dilation))
    return small and set(stride) == {1} and _sizes(size, geometry) == outputs


def _convolution_input(
    xp: Any, grad_output: Array, weight: Array, input_size: tuple[int, ...], stride: Ints = 1,
    padding: Ints = 0, dilation: Ints = 1, groups: int = 1,
) -> Array:  # fmt: skip
    images, out_channels, *rest = grad_output.shape
    outputs, channels = tuple(rest), weight.shape[1] * groups
    geometry = _geometry(len(outputs), weight.shape[2:], stride, padding, dilation)
    if _is_pointwise(geometry, groups) and outputs == tuple(input_size):
        flat = xp.reshape(grad_output, (images, out_channels, prod(outputs)))
        result = xp.matmul(xp.reshape(weight, (out_channels, channels)).T, flat)
        return xp.reshape(result, (images, channels, *input_size))
    if _turns(tuple(input_size), outputs, geometry):
        if is_depthwise(xp, channels, out_channels, groups, geometry):
            return depthwise_input(xp, grad_output, weight, geometry[2], geometry[3])
        size = tuple(input_size)
        if goes_by_lines(xp, grad_output, size, geometry, channels, groups):
            return by_lines_input(xp, grad_output, weight, size, geometry, groups)
    result = xp.empty((images, channels, *input_size), grad_output.dtype)
    swapped, target = xp.swapaxes(grad_output, 0, 1), xp.swapaxes(result, 0, 1)
    kernels = _kernels(xp, weight, groups)
    transposed, wide = xp.swapaxes(kernels, 1, 2), _accumulator(xp, result)
    per_image = channels * prod(geometry[0]) * prod(outputs)
    for batch in _batches(xp, images, per_image, result.dtype.itemsize):
        flat = _matrix(xp, swapped[:, batch], groups, out_channels // groups, len(outputs))
        columns = xp.matmul(transposed, flat).astype(wide, copy=False)
        columns = xp.reshape(
            columns, (channels, *geometry[0], swapped[:, batch].shape[1], *outputs)
        )
        target[:, batch] = _fold(xp, columns, tuple(input_size), geometry)
    return result


def _convolution_weight(
    xp: Any, grad_output: Array, input: Array, kernel_size: tuple[int, ...], stride: Ints = 1,
    padding: Ints = 0, dilation: Ints = 1, groups: int = 1,
) -> Array:  # fmt: skip
    images, out_channels, *rest = grad_output.shape
    outputs, channels = tuple(rest), input.shape[1]
    geometry = _geometry(len(outputs), kernel_size, stride, padding, dilation)
    whole = _sizes(input.shape[2:], geometry) == outputs  # none to spare, as of an output padding
    if whole and is_depthwise(xp, channels, out_channels, groups, geometry):
        return depthwise_weight(xp, grad_output, input, *geometry[:1], *geometry[2:])
    if whole and goes_by_lines(xp, input, outputs, geometry, out_channels, groups):
        return by_lines_weight(xp, grad_output, input, geometry, groups)
    rows, wide = channels // groups * prod(kernel_size), _accumulator(xp, input)
    total: Any = None
    swapped, swapped_grad = xp.swapaxes(input, 0, 1), xp.swapaxes(grad_output, 0, 1)
    per_image = channels * prod(kernel_size) * prod(outputs)
    for batch in _batches(xp, images, per_image, input.dtype.itemsize):
        columns = _unfold(xp, swapped[:, batch], outputs, geometry)
        columns = _matrix(xp, columns, groups, rows, len(outputs))
        flat = _matrix(xp, swapped_grad[:, batch], groups, out_channels // groups, len(outputs))
        product = xp.matmul(flat, xp.swapaxes(columns, 1, 2)).astype(wide, copy=False)
        if total is None:
            total = product
        else:
            total += product
    shape = (out_channels, channels // groups, *kernel_size)
    if total is None:
        return xp.zeros(shape, input.dtype)
    return xp.reshape(total, shape).astype(input.dtype, copy=False)


# Rows ----------------------------------------------------------------------------------------


def _convolution_jvp(
    m: Any, input: Any, weight: Any, input_t: Any, weight_t: Any, bias_t: Any, result: Any,
    stride: Ints, padding: Ints, dilation: Ints, groups: int,
) -> Any:  # fmt: skip
    how = (stride, padding, dilation, groups)
    tangent = None
    if input_t is not None:
        tangent = m.convolution(input_t, weight, bias_t, *how)
    if weight_t is not None:
        term = m.convolution(input, weight_t, None if input_t is not None else bias_t, *how)
        tangent = term if tangent is None else tangent + term
    if tangent is None:
        shape = (-1,) + (1,) * (len(result.shape) - 2)
        tangent = m.expand(m.reshape(bias_t, shape), result.shape)
    return tangent


row(
    "convolution", "input weight bias?", _convolution, promote=SAME, jvp=_convolution_jvp,
    dense=AS_INPUT,
    input=lambda m, g, weight, input_shape, stride, padding, dilation, groups: (
        m.convolution_input(g, weight, input_shape[2:], stride, padding, dilation, groups)),
    weight=lambda m, g, input, weight_shape, stride, padding, dilation, groups: (
        m.convolution_weight(g, input, weight_shape[2:], stride, padding, dilation, groups)),
    bias=lambda m, g: m.sum(g, (0, *range(2, len(g.shape)))),
    kernels=(1, 0),
    doc="cross-correlation of (N, C, *size) with (O, C / groups, *kernel)",
    cost=CONVOLUTION, flops=convolution_flops, also="conv1d conv2d conv3d",
)  # fmt: skip


def _again(
    m: Any, g: Any, weight: Any, grad_output_shape: tuple[int, ...], stride: Ints, padding: Ints,
    dilation: Ints, groups: int,
) -> Any:  # fmt: skip
    """The adjoint of the adjoint; an output padding beyond the stride has outputs to spare."""
    result = m.convolution(g, weight, None, stride, padding, dilation, groups)
    if result.shape[2:] == grad_output_shape[2:]:
        return result
    cut = [(0, size - got) for size, got in zip(grad_output_shape, result.shape)]
    return m.constant_pad_nd(result, tuple(cut), 0)


row(
    "convolution_input", "grad_output weight", _convolution_input, LINEAR, promote=SAME,
    dense=AS_INPUT,
    node="ConvolutionBackward0",
    grad_output=_again,
    weight=lambda m, g, grad_output, weight_shape, stride, padding, dilation, groups: (
        m.convolution_weight(grad_output, g, weight_shape[2:], stride, padding, dilation, groups)),
    kernels=(1, 0),
    doc="the adjoint of convolution in its input, of spatial size input_size: conv_transpose",
    cost=CONVOLUTION, flops=convolution_input_flops,
)  # fmt: skip

row(
    "convolution_weight", "grad_output input", _convolution_weight, LINEAR, promote=SAME,
    node="ConvolutionBackward0",
    grad_output=lambda m, g, input, grad_output_shape, stride, padding, dilation, groups: (
        _again(m, input, g, grad_output_shape, stride, padding, dilation, groups)),
    input=lambda m, g, grad_output, input_shape, stride, padding, dilation, groups: (
        m.convolution_input(grad_output, g, input_shape[2:], stride, padding, dilation, groups)),
    kernels=(1, 0),
    doc="the adjoint of convolution in its weight, of spatial size kernel_size",
    cost=CONVOLUTION, flops=convolution_weight_flops,
)  # fmt: skip
