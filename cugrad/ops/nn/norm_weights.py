"""Rows of the gradients of the weights by which normalised rows, or channels, are multiplied."""

from __future__ import annotations

from math import prod
from typing import Any

from ..apart import summed_by_rows
from ..precision import narrow, sum_of, wide
from ..table import CAST, row
from .norm import _channel_dims, _from_the_end, _group_norm_slope, _moments, _per_channel

Array = Any


def _layer_norm_backward_weight(
    xp: Any, grad_output: Array, input: Array, mean: Array | None, rstd: Array | None,
    normalized_shape: tuple[int, ...], eps: float = 1e-5,
) -> Array:  # fmt: skip
    dims, size = _from_the_end(normalized_shape), prod(normalized_shape)

    def of_rows(grad_output: Array, input: Array, mean: Any, rstd: Any) -> Array:
        g, x = wide(xp, grad_output), wide(xp, input)
        if mean is None or rstd is None:
            mean, rstd = _moments(xp, x, dims, eps)
        products = x - mean
        products *= g
        count = prod(x.shape[: x.ndim - len(dims)])
        return xp.matmul(xp.reshape(rstd, (1, count)), xp.reshape(products, (count, size)))

    total = summed_by_rows(xp, of_rows, len(dims), grad_output, input, mean, rstd)
    return narrow(xp, xp.reshape(total, normalized_shape), grad_output)


row(
    "native_layer_norm_backward_weight", "grad_output input mean? rstd?",
    _layer_norm_backward_weight, promote=CAST,
    grad_output=lambda m, g, input, normalized_shape, eps: (
        m.native_layer_norm(input, g, None, normalized_shape, eps)[0]),
    input=lambda m, g, grad_output, input, mean, rstd, normalized_shape, eps: (
        m.native_layer_norm_backward(grad_output, input, g, mean, rstd, normalized_shape, eps)),
    jvp=lambda m, grad_output, input, mean, rstd, grad_output_t, input_t, normalized_shape, eps: (
        sum_of(
            None if grad_output_t is None else m.native_layer_norm_backward_weight(
                grad_output_t, input, mean, rstd, normalized_shape, eps),
            None if input_t is None else m.sum_to_shape(
                grad_output * m.native_layer_norm_backward(
                    input_t, input, None, mean, rstd, normalized_shape, eps),
                normalized_shape))),
    doc="the adjoint of native_layer_norm in its weight",
)  # fmt: skip


def _group_norm_backward_weight(
    xp: Any, grad_output: Array, input: Array, mean: Array | None, rstd: Array | None,
    num_groups: int, eps: float = 1e-5,
) -> Array:  # fmt: skip
    channels = input.shape[1]

    def of_images(grad_output: Array, input: Array, mean: Any, rstd: Any) -> Array:
        g, x = wide(xp, grad_output), wide(xp, input)
        count, size = x.shape[0], prod(x.shape[2:])
        x = xp.reshape(x, (count, num_groups, channels // num_groups * size))
        if mean is None or rstd is None:
            mean, rstd = _moments(xp, x, (2,), eps)
        else:
            mean, rstd = mean[..., None], rstd[..., None]
        products = x - mean
        products *= xp.reshape(g, x.shape)
        products = xp.reshape(products, (count, num_groups, channels // num_groups, size))
        return xp.sum(xp.sum(products, axis=-1) * rstd, axis=0, keepdims=True)

    arrays, run = (grad_output, input, mean, rstd), prod(input.shape[1:]) // num_groups
    total = summed_by_rows(xp, of_images, input.ndim - 1, *arrays, run=run)
    return narrow(xp, xp.reshape(total, (channels,)), grad_output)


row(
    "native_group_norm_backward_weight", "grad_output input mean? rstd?",
    _group_norm_backward_weight, promote=CAST,
    grad_output=lambda m, g, input, num_groups, eps: (
        m.native_group_norm(input, g, None, num_groups, eps)[0]),
    input=lambda m, g, grad_output, input, mean, rstd, num_groups, eps: _group_norm_slope(
        m, grad_output * _per_channel(m, g, input), input, mean, rstd, num_groups, eps),
    jvp=lambda m, grad_output, input, mean, rstd, grad_output_t, input_t, num_groups, eps: sum_of(
        None if grad_output_t is None else m.native_group_norm_backward_weight(
            grad_output_t, input, mean, rstd, num_groups, eps),
        None if input_t is None else m.sum(
            grad_output * _group_norm_slope(m, input_t, input, mean, rstd, num_groups, eps),
            _channel_dims(input))),
    doc="the adjoint of native_group_norm in its weight",
)  # fmt: skip
