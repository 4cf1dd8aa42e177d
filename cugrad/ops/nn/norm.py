"""Rows that standardise: over a batch, a layer, a group of channels, or by the mean square."""

from __future__ import annotations

from math import prod
from typing import Any

from ..apart import by_rows, product_sums
from ..precision import narrow, sum_of, wide
from ..table import AS_INPUT, CAST, CHANNELS_LAST, row

Array = Any


def _times(x: Any, weight: Any) -> Any:
    return x if weight is None else x * weight


# Normalisation ------------------------------------------------------------------------------------
# x̂ = (x - mean) * invstd over some dims. Its Jacobian, invstd * (1 - 11ᵀ/n - x̂x̂ᵀ/n), is symmetric.


def _mean(xp: Any, x: Array, dims: tuple[int, ...]) -> Array:
    """The mean over `dims`, kept as 1; dim 0 goes first, whose sums add long rows on a host."""
    count = prod([x.shape[dim] for dim in dims])
    if dims[0] == 0 and len(dims) > 1:
        x, dims = xp.sum(x, axis=0, keepdims=True), dims[1:]
    return xp.sum(x, axis=dims, keepdims=True) / count


def _mean_product(xp: Any, a: Array, b: Array, dims: tuple[int, ...]) -> Array:
    """The mean of a * b over `dims`, kept as 1; on a host without forming the product of rows."""
    sums = product_sums(xp, a, b, dims)
    return _mean(xp, a * b, dims) if sums is None else sums / a.shape[-1]


def _moments(xp: Any, x: Array, dims: tuple[int, ...], eps: float) -> tuple[Array, Array]:
    """The mean over `dims` and 1 / sqrt(variance + eps), with the dims kept as 1."""
    return _standardised(xp, x, dims, eps)[1:]


def _standardised(
    xp: Any, x: Array, dims: tuple[int, ...], eps: float
) -> tuple[Array, Array, Array]:
    """x less its mean over `dims`, and the two of `_moments`."""
    mean = _mean(xp, x, dims)
    centred = x - mean
    return centred, mean, 1 / xp.sqrt(_mean_product(xp, centred, centred, dims) + eps)


def _project(
    xp: Any, g: Array, x: Array, mean: Array, invstd: Array, dims: tuple[int, ...]
) -> Array:
    """(1 - 11ᵀ/n - x̂x̂ᵀ/n) g: the Jacobian of x̂ without its factor invstd."""
    centred = x - mean
    slope = _mean_product(xp, g, centred, dims)
    offset = _mean(xp, g, dims)
    centred *= -slope * invstd * invstd
    centred += g
    centred -= offset
    return centred


def _curvature(
    m: Any, x: Any, a: Any, b: Any, ja: Any, jb: Any, dims: tuple[int, ...], eps: float
) -> Any:
    """d <a, J b> / dx for constant a and b, where J is the Jacobian of x̂ and ja = J a, jb = J b.

    By J's symmetry it is also d (J a) along b.
    """
    centred = x - m.mean(x, dims, True)
    invstd = 1 / m.sqrt(m.mean(centred * centred, dims, True) + eps)
    normal = centred * invstd
    return -invstd * (
        normal * m.mean(a * jb, dims, True)
        + jb * m.mean(a * normal, dims, True)
        + ja * m.mean(b * normal, dims, True)
    )


def _channel_dims(x: Any) -> tuple[int, ...]:
    return (0, *range(2, len(x.shape)))


def _per_channel(m: Any, value: Any, x: Any) -> Any:
    """(C,) in a shape that broadcasts against x, (N, C, ...)."""
    return m.reshape(value, (-1,) + (1,) * (len(x.shape) - 2))


def _affine(xp: Any, x: Array, weight: Array | None, bias: Array | None, shape: Any) -> Array:
    """`x * weight + bias`, in place."""
    if weight is not None:
        x *= xp.reshape(weight, shape).astype(x.dtype, copy=False)
    if bias is not None:
        x += xp.reshape(bias, shape).astype(x.dtype, copy=False)
    return x


def _batch_norm(
    xp: Any, input: Array, weight: Array | None = None, bias: Array | None = None,
    eps: float = 1e-5,
) -> tuple[Array, Array, Array]:  # fmt: skip
    x, shape = wide(xp, input), (-1,) + (1,) * (input.ndim - 2)
    mean, invstd = _moments(xp, x, _channel_dims(x), eps)
    result = x - mean
    result *= invstd
    result = narrow(xp, _affine(xp, result, weight, bias, shape), input)
    return result, xp.reshape(mean, -1), xp.reshape(invstd, -1)


def _channel_moments(
    xp: Any, x: Array, mean: Array | None, invstd: Array | None, eps: float
) -> tuple[Array, Array]:
    if mean is None or invstd is None:
        return _moments(xp, x, _channel_dims(x), eps)
    return _per_channel(xp, mean, x), _per_channel(xp, invstd, x)


def _batch_norm_backward(
    xp: Any, grad_output: Array, input: Array, weight: Array | None = None,
    mean: Array | None = None, invstd: Array | None = None, eps: float = 1e-5,
) -> Array:  # fmt: skip
    g, x = wide(xp, grad_output), wide(xp, input)
    mean, invstd = _channel_moments(xp, x, mean, invstd, eps)
    result = _project(xp, g, x, mean, invstd, _channel_dims(x))
    result *= invstd
    return narrow(xp, _affine(xp, result, weight, None, (-1,) + (1,) * (x.ndim - 2)), grad_output)


def _batch_norm_backward_weight(
    xp: Any, grad_output: Array, input: Array, mean: Array | None = None,
    invstd: Array | None = None, eps: float = 1e-5,
) -> Array:  # fmt: skip
    g, x = wide(xp, grad_output), wide(xp, input)
    mean, invstd = _channel_moments(xp, x, mean, invstd, eps)
    dims = _channel_dims(x)
    total = _mean(xp, g * (x - mean), dims) * invstd * prod([x.shape[dim] for dim in dims])
    return narrow(xp, xp.reshape(total, -1), grad_output)


def _batch_norm_jvp(
    m: Any, input: Any, weight: Any, mean: Any, invstd: Any, input_t: Any, weight_t: Any,
    bias_t: Any, eps: float,
) -> Any:  # fmt: skip
    tangent = sum_of(
        None if input_t is None
        else m.native_batch_norm_backward(input_t, input, weight, mean, invstd, eps),
        None if weight_t is None else m.native_batch_norm(input, weight_t, None, eps)[0],
        None if bias_t is None else m.expand(_per_channel(m, bias_t, input), input.shape),
    )  # fmt: skip
    return tangent, None, None


def _batch_norm_backward_input(
    m: Any, g: Any, grad_output: Any, input: Any, weight: Any, mean: Any, invstd: Any, eps: float
) -> Any:
    if weight is not None:
        g = g * _per_channel(m, weight, input)
    jacobian = lambda v: m.native_batch_norm_backward(v, input, None, mean, invstd, eps)
    dims = _channel_dims(input)
    return _curvature(m, input, grad_output, g, jacobian(grad_output), jacobian(g), dims, eps)


def _batch_norm_backward_jvp(
    m: Any, grad_output: Any, input: Any, weight: Any, mean: Any, invstd: Any, grad_output_t: Any,
    input_t: Any, weight_t: Any, eps: float,
) -> Any:  # fmt: skip
    backward = lambda v, w: m.native_batch_norm_backward(v, input, w, mean, invstd, eps)
    bent = None
    if input_t is not None:
        straight, turned = backward(grad_output, None), backward(input_t, None)
        dims = _channel_dims(input)
        bent = _curvature(m, input, grad_output, input_t, straight, turned, dims, eps)
        bent = bent if weight is None else bent * _per_channel(m, weight, input)
    return sum_of(
        bent,
        None if grad_output_t is None else backward(grad_output_t, weight),
        None if weight_t is None else backward(grad_output, weight_t),
    )


row(
    "native_batch_norm", "input weight? bias?", _batch_norm, promote=CAST, dense=CHANNELS_LAST,
    outputs="result mean invstd", nondifferentiable="mean invstd", jvp=_batch_norm_jvp,
    input=lambda m, g, input, weight, mean, invstd, eps: (
        m.native_batch_norm_backward(g, input, weight, mean, invstd, eps)),
    weight=lambda m, g, input, mean, invstd, eps: (
        m.native_batch_norm_backward_weight(g, input, mean, invstd, eps)),
    bias=lambda m, g: m.sum(g, _channel_dims(g)),
    kernels=(2, 2),
    doc="(N, C, ...) standardised by each channel's own statistics, which are returned too",
    refuses="biuc",
)  # fmt: skip

# In the next two rows mean and invstd are those of input, computed here when absent: not further
# arguments, so the formulas of input differentiate through them.
row(
    "native_batch_norm_backward", "grad_output input weight? mean? invstd?", _batch_norm_backward,
    promote=CAST,
    grad_output=lambda m, g, input, weight, mean, invstd, eps: (
        m.native_batch_norm_backward(g, input, weight, mean, invstd, eps)),
    input=_batch_norm_backward_input,
    weight=lambda m, g, grad_output, input, mean, invstd, eps: m.sum(
        g * m.native_batch_norm_backward(grad_output, input, None, mean, invstd, eps),
        _channel_dims(g)),
    jvp=_batch_norm_backward_jvp,
    doc="the adjoint of native_batch_norm in its input",
)  # fmt: skip

row(
    "native_batch_norm_backward_weight", "grad_output input mean? invstd?",
    _batch_norm_backward_weight, promote=CAST,
    grad_output=lambda m, g, input, eps: m.native_batch_norm(input, g, None, eps)[0],
    input=lambda m, g, grad_output, input, mean, invstd, eps: (
        m.native_batch_norm_backward(grad_output, input, g, mean, invstd, eps)),
    jvp=lambda m, grad_output, input, mean, invstd, grad_output_t, input_t, eps: sum_of(
        None if grad_output_t is None else (
            m.native_batch_norm_backward_weight(grad_output_t, input, mean, invstd, eps)),
        None if input_t is None else m.sum(
            grad_output * m.native_batch_norm_backward(input_t, input, None, mean, invstd, eps),
            _channel_dims(input))),
    doc="the adjoint of native_batch_norm in its weight",
)  # fmt: skip


def _batch_norm_inference(
    xp: Any, input: Array, weight: Array | None, bias: Array | None, running_mean: Array,
    running_var: Array, eps: float = 1e-5,
) -> Array:  # fmt: skip
    x = wide(xp, input)
    scale = 1 / xp.sqrt(running_var.astype(x.dtype, copy=False) + eps)
    result = x - _per_channel(xp, running_mean, x).astype(x.dtype, copy=False)
    if weight is not None:
        scale = scale * weight.astype(x.dtype, copy=False)
    result *= _per_channel(xp, scale, x)
    return narrow(xp, _affine(xp, result, None, bias, (-1,) + (1,) * (x.ndim - 2)), input)


def _inference_slope(m: Any, input: Any, weight: Any, running_var: Any, eps: float) -> Any:
    slope = 1 / m.sqrt(running_var + eps)
    return _per_channel(m, slope if weight is None else slope * weight, input)


row(
    "batch_norm_inference", "input weight? bias? running_mean running_var", _batch_norm_inference,
    node="NativeBatchNormBackward0", promote=CAST, dense=CHANNELS_LAST,
    input=lambda m, g, weight, running_var, eps: (
        g * _inference_slope(m, g, weight, running_var, eps)),
    weight=lambda m, g, input, running_mean, running_var, eps: m.sum(
        g * m.batch_norm_inference(input, None, None, running_mean, running_var, eps),
        _channel_dims(g)),
    bias=lambda m, g: m.sum(g, _channel_dims(g)),
    jvp=lambda m, input, weight, running_mean, running_var, input_t, weight_t, bias_t, eps: sum_of(
        None if input_t is None else (
            input_t * _inference_slope(m, input, weight, running_var, eps)),
        None if weight_t is None else m.batch_norm_inference(
            input, weight_t, None, running_mean, running_var, eps),
        None if bias_t is None else m.expand(_per_channel(m, bias_t, input), input.shape)),
    kernels=(1, 2),
    doc="(N, C, ...) standardised by given statistics, which get no gradient",
    refuses="biuc",
)  # fmt: skip


def _last_dims(x: Any, normalized_shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(len(x.shape) - len(normalized_shape), len(x.shape)))


def _from_the_end(normalized_shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(-len(normalized_shape), 0))


def _layer_norm(
    xp: Any, input: Array, weight: Array | None, bias: Array | None,
    normalized_shape: tuple[int, ...], eps: float = 1e-5,
) -> tuple[Array, Array, Array]:  # fmt: skip
    input = input if input.flags.c_contiguous else input.copy("C")  # the result is in rows, too
    dims = _from_the_end(normalized_shape)

    def of_rows(input: Array) -> tuple[Array, Array, Array]:
        result, mean, rstd = _standardised(xp, wide(xp, input), dims, eps)
        result *= rstd
        return narrow(xp, _affine(xp, result, weight, bias, normalized_shape), input), mean, rstd

    results: tuple[Array, Array, Array] = by_rows(xp, of_rows, len(dims), input)
    return results


def _layer_norm_backward(
    xp: Any, grad_output: Array, input: Array, weight: Array | None, mean: Array | None,
    rstd: Array | None, normalized_shape: tuple[int, ...], eps: float = 1e-5,
) -> Array:  # fmt: skip
    dims = _from_the_end(normalized_shape)

    def of_rows(grad_output: Array, input: Array, mean: Any, rstd: Any) -> Array:
        g, x = wide(xp, grad_output), wide(xp, input)
        if mean is None or rstd is None:
            mean, rstd = _moments(xp, x, dims, eps)
        if weight is not None:
            g = g * weight.astype(g.dtype, copy=False)
        result = _project(xp, g, x, mean, rstd, dims)
        result *= rstd
        return narrow(xp, result, grad_output)

    return by_rows(xp, of_rows, len(dims), grad_output, input, mean, rstd)


def _layer_norm_jvp(
    m: Any, input: Any, weight: Any, mean: Any, rstd: Any, input_t: Any, weight_t: Any,
    bias_t: Any, normalized_shape: tuple[int, ...], eps: float,
) -> Any:  # fmt: skip
    how, turned = (normalized_shape, eps), None
    if input_t is not None:
        turned = m.native_layer_norm_backward(input_t, input, None, mean, rstd, *how)
        turned = _times(turned, weight)
    tangent = sum_of(
        turned,
        None if weight_t is None else m.native_layer_norm(input, weight_t, None, *how)[0],
        None if bias_t is None else m.expand(bias_t, input.shape),
    )
    return tangent, None, None


def _layer_norm_backward_input(
    m: Any, g: Any, grad_output: Any, input: Any, weight: Any, mean: Any, rstd: Any,
    normalized_shape: tuple[int, ...], eps: float,
) -> Any:  # fmt: skip
    how = (input, None, mean, rstd, normalized_shape, eps)
    a = _times(grad_output, weight)
    ja, jg = (m.native_layer_norm_backward(v, *how) for v in (a, g))
    return _curvature(m, input, a, g, ja, jg, _last_dims(input, normalized_shape), eps)


def _layer_norm_backward_jvp(
    m: Any, grad_output: Any, input: Any, weight: Any, mean: Any, rstd: Any, grad_output_t: Any,
    input_t: Any, weight_t: Any, normalized_shape: tuple[int, ...], eps: float,
) -> Any:  # fmt: skip
    backward = lambda v, w: m.native_layer_norm_backward(
        v, input, w, mean, rstd, normalized_shape, eps
    )
    return sum_of(
        None if grad_output_t is None else backward(grad_output_t, weight),
        None if weight_t is None else backward(grad_output, weight_t),
        None if input_t is None else _layer_norm_backward_input(
            m, input_t, grad_output, input, weight, mean, rstd, normalized_shape, eps),
    )  # fmt: skip


row(
    "native_layer_norm", "input weight? bias?", _layer_norm, promote=CAST,
    outputs="result mean rstd", nondifferentiable="mean rstd", jvp=_layer_norm_jvp,
    input=lambda m, g, input, weight, mean, rstd, normalized_shape, eps: (
        m.native_layer_norm_backward(g, input, weight, mean, rstd, normalized_shape, eps)),
    weight=lambda m, g, input, mean, rstd, normalized_shape, eps: (
        m.native_layer_norm_backward_weight(g, input, mean, rstd, normalized_shape, eps)),
    bias=lambda m, g, bias_shape: m.sum_to_shape(g, bias_shape),
    kernels=(1, 2),
    doc="input standardised over its last dims, of normalized_shape",
    refuses="biuc",
)  # fmt: skip

# As for batch_norm: mean and rstd are those of input, not further arguments.
row(
    "native_layer_norm_backward", "grad_output input weight? mean? rstd?", _layer_norm_backward,
    promote=CAST,
    grad_output=lambda m, g, input, weight, mean, rstd, normalized_shape, eps: _times(
        m.native_layer_norm_backward(g, input, None, mean, rstd, normalized_shape, eps), weight),
    input=_layer_norm_backward_input,
    weight=lambda m, g, grad_output, input, weight_shape, mean, rstd, normalized_shape, eps: (
        m.sum_to_shape(
            grad_output * m.native_layer_norm_backward(
                g, input, None, mean, rstd, normalized_shape, eps),
            weight_shape)),
    jvp=_layer_norm_backward_jvp,
    kernels=(1, 0),
    doc="the adjoint of native_layer_norm in its input",
)  # fmt: skip


# Groups of channels: layer_norm of (N, groups, size), scaled and shifted per channel. -------------


def _grouped(m: Any, x: Any, num_groups: int) -> Any:
    return m.reshape(x, (x.shape[0], num_groups, prod(x.shape[1:]) // num_groups))


def _group_norm(
    xp: Any, input: Array, weight: Array | None, bias: Array | None, num_groups: int,
    eps: float = 1e-5,
) -> tuple[Array, Array, Array]:  # fmt: skip
    def of_images(input: Array) -> tuple[Array, Array, Array]:
        x = _grouped(xp, wide(xp, input), num_groups)
        result, mean, rstd = _standardised(xp, x, (2,), eps)
        if weight is None:
            result *= rstd
        else:  # a factor for each channel of each image
            channels = input.shape[1]
            result = xp.reshape(result, (len(x), channels, prod(input.shape[2:])))
            each = xp.reshape(weight, (num_groups, -1)).astype(x.dtype, copy=False)
            result *= xp.reshape(rstd * each, (len(x), channels, 1))
        result = xp.reshape(result, input.shape)
        result = _affine(xp, result, None, bias, (-1,) + (1,) * (input.ndim - 2))
        return narrow(xp, result, input), mean[..., 0], rstd[..., 0]

    run = prod(input.shape[1:]) // num_groups
    results: tuple[Array, Array, Array] = by_rows(xp, of_images, input.ndim - 1, input, run=run)
    return results


def _group_norm_slope(
    m: Any, g: Any, input: Any, mean: Any, rstd: Any, num_groups: int, eps: float
) -> Any:
    """The Jacobian, which is symmetric, of the norm without weight and bias, times `g`."""
    x, g = _grouped(m, input, num_groups), _grouped(m, g, num_groups)
    moments = [None if each is None else m.unsqueeze(each, 2) for each in (mean, rstd)]
    how = ((x.shape[2],), eps)
    return m.reshape(m.native_layer_norm_backward(g, x, None, *moments, *how), tuple(input.shape))


def _group_norm_jvp(
    m: Any, input: Any, weight: Any, mean: Any, rstd: Any, input_t: Any, weight_t: Any,
    bias_t: Any, num_groups: int, eps: float,
) -> Any:  # fmt: skip
    turned, how = None, (num_groups, eps)
    if input_t is not None:
        turned = _group_norm_slope(m, input_t, input, mean, rstd, *how)
        turned = turned if weight is None else turned * _per_channel(m, weight, input)
    tangent = sum_of(
        turned,
        None if weight_t is None else m.native_group_norm(input, weight_t, None, *how)[0],
        None if bias_t is None else m.expand(_per_channel(m, bias_t, input), input.shape),
    )
    return tangent, None, None


row(
    "native_group_norm", "input weight? bias?", _group_norm, promote=CAST, dense=AS_INPUT,
    outputs="result mean rstd", nondifferentiable="mean rstd", jvp=_group_norm_jvp,
    input=lambda m, g, input, weight, mean, rstd, num_groups, eps: _group_norm_slope(
        m, g if weight is None else g * _per_channel(m, weight, input), input, mean, rstd,
        num_groups, eps),
    weight=lambda m, g, input, mean, rstd, num_groups, eps: (
        m.native_group_norm_backward_weight(g, input, mean, rstd, num_groups, eps)),
    bias=lambda m, g: m.sum(g, _channel_dims(g)),
    kernels=(1, 2),
    doc="each of num_groups groups of the channels of (N, C, ...) standardised for each sample",
    refuses="biuc",
)  # fmt: skip


# Mean square --------------------------------------------------------------------------------------
# x r over some dims, with r = 1 / sqrt(mean(x²) + eps). Its Jacobian, r - r³ x xᵀ/n, is symmetric.


def _rms_norm(
    xp: Any, input: Array, weight: Array | None, normalized_shape: tuple[int, ...],
    eps: float = 1e-5,
) -> tuple[Array, Array]:  # fmt: skip
    x = wide(xp, input)
    rstd = 1 / xp.sqrt(_mean_product(xp, x, x, _last_dims(x, normalized_shape)) + eps)
    return narrow(xp, _affine(xp, x * rstd, weight, None, normalized_shape), input), rstd


def _rms_norm_backward(
    xp: Any, grad_output: Array, input: Array, weight: Array | None, rstd: Array | None,
    normalized_shape: tuple[int, ...], eps: float = 1e-5,
) -> Array:  # fmt: skip
    g, x = wide(xp, grad_output), wide(xp, input)
    dims = _last_dims(x, normalized_shape)
    if rstd is None:
        rstd = 1 / xp.sqrt(_mean_product(xp, x, x, dims) + eps)
    if weight is not None:
        g = g * weight.astype(g.dtype, copy=False)
    slope = _mean_product(xp, g, x, dims)
    slope *= -rstd * rstd * rstd
    result = x * slope
    result += g * rstd
    return narrow(xp, result, grad_output)


def _rms_norm_bend(
    m: Any, g: Any, grad_output: Any, input: Any, weight: Any, normalized_shape: tuple[int, ...],
    eps: float,
) -> Any:  # fmt: skip
    """d <a, J g> / dx for constant a = grad_output * weight and g."""
    mean = lambda v: m.mean(v, _last_dims(input, normalized_shape), True)
    a, r = _times(grad_output, weight), m.rsqrt(mean(input * input) + eps)
    a_x, g_x, cube = mean(a * input), mean(g * input), r * r * r
    return cube * (input * (a_x * g_x * r * r * 3 - mean(a * g)) - a * g_x - g * a_x)


row(
    "rms_norm", "input weight?", _rms_norm, promote=CAST, dense=CHANNELS_LAST,
    node="FusedRmsNormBackward0", outputs="result rstd", nondifferentiable="rstd",
    input=lambda m, g, input, weight, rstd, normalized_shape, eps: (
        m.rms_norm_backward(g, input, weight, rstd, normalized_shape, eps)),
    weight=lambda m, g, input, weight_shape, normalized_shape, eps: m.sum_to_shape(
        g * m.rms_norm(input, None, normalized_shape, eps)[0], weight_shape),
    jvp=lambda m, input, weight, rstd, input_t, weight_t, normalized_shape, eps: (sum_of(
        None if input_t is None else _times(
            m.rms_norm_backward(input_t, input, None, rstd, normalized_shape, eps), weight),
        None if weight_t is None else m.rms_norm(input, weight_t, normalized_shape, eps)[0]),
        None),
    kernels=(1, 2),
    refuses="biu",
    doc="input over the root of the mean of its squares over its last dims, of normalized_shape",
)  # fmt: skip

# As for batch_norm: rstd is that of input, not a further argument.
row(
    "rms_norm_backward", "grad_output input weight? rstd?", _rms_norm_backward, promote=CAST,
    grad_output=lambda m, g, input, weight, rstd, normalized_shape, eps: _times(
        m.rms_norm_backward(g, input, None, rstd, normalized_shape, eps), weight),
    input=_rms_norm_bend,
    weight=lambda m, g, grad_output, input, weight_shape, rstd, normalized_shape, eps: (
        m.sum_to_shape(
            grad_output * m.rms_norm_backward(g, input, None, rstd, normalized_shape, eps),
            weight_shape)),
    jvp=lambda m, grad_output, input, weight, rstd, grad_output_t, input_t, weight_t,
        normalized_shape, eps: sum_of(
            None if grad_output_t is None else m.rms_norm_backward(
                grad_output_t, input, weight, rstd, normalized_shape, eps),
            None if weight_t is None else m.rms_norm_backward(
                grad_output, input, weight_t, rstd, normalized_shape, eps),
            None if input_t is None else _rms_norm_bend(
                m, input_t, grad_output, input, weight, normalized_shape, eps)),
    kernels=(1, 0),
    doc="the adjoint of rms_norm in its input",
)  # fmt: skip
