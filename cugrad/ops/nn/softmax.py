"""Rows of scores of classes: softmax, its logarithm, and the losses over them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ...dtypes import is_half
from ..apart import by_rows, product_sums
from ..dims import canonical_dim
from ..precision import narrow, sum_of, wide
from ..table import CAST, FLOAT, SAME, row

Array = Any
Dims = tuple[int, ...] | None


def _along(x: Any, dim: int) -> Dims:
    """`dim` for a reduction; a 0-d tensor counts as one element along dim 0."""
    n = len(x.shape)
    if type(dim) is not int or not -n <= dim < n:
        dim = canonical_dim(dim, n)  # which says what is wrong with it
    return (dim % n,) if n else None


# Softmax ------------------------------------------------------------------------------------------


def _shifted(xp: Any, self: Array, dims: Dims) -> Array:
    """`self` less its maximum along `dims`, so that exp cannot overflow; wide."""
    x = wide(xp, self)
    if x.size == 0:
        return x + 0
    return x - xp.max(x, axis=dims, keepdims=True)


def _by_rows(xp: Any, function: Callable[..., Any], dim: int, *arrays: Array) -> Array:
    """`function(dims, *arrays)` of rows that begin with `dim`, which is the first of them."""
    dims, n = _along(arrays[0], dim), arrays[0].ndim
    if dims is None:
        return function(dims, *arrays)
    back = dims[0] - n
    return by_rows(xp, lambda *parts: function((back,), *parts), -back, *arrays)


def _softmax(xp: Any, self: Array, dim: int) -> Array:
    def of_rows(dims: Dims, self: Array) -> Array:
        x = _shifted(xp, self, dims)
        x = xp.quick_exp(x, out=x if x.ndim else None)  # the number of no dims is no array
        x /= xp.sum(x, axis=dims, keepdims=True)
        return narrow(xp, x, self)

    return _by_rows(xp, of_rows, dim, self)


def _log_softmax(xp: Any, self: Array, dim: int) -> Array:
    def of_rows(dims: Dims, self: Array) -> Array:
        x = _shifted(xp, self, dims)
        x -= xp.log(xp.sum(xp.quick_exp(x), axis=dims, keepdims=True))
        return narrow(xp, x, self)

    return _by_rows(xp, of_rows, dim, self)


def _softmax_backward(xp: Any, grad_output: Array, output: Array, dim: int) -> Array:
    def of_rows(dims: Dims, grad_output: Array, output: Array) -> Array:
        g, y = wide(xp, grad_output), wide(xp, output)
        total = product_sums(xp, g, y, dims)
        g = g - (xp.sum(g * y, axis=dims, keepdims=True) if total is None else total)
        g *= y
        return narrow(xp, g, grad_output)

    return _by_rows(xp, of_rows, dim, grad_output, output)


def _log_softmax_backward(xp: Any, grad_output: Array, output: Array, dim: int) -> Array:
    def of_rows(dims: Dims, grad_output: Array, output: Array) -> Array:
        g = wide(xp, grad_output)
        slope = xp.quick_exp(wide(xp, output))
        slope *= -xp.sum(g, axis=dims, keepdims=True)
        slope += g
        return narrow(xp, slope, grad_output)

    return _by_rows(xp, of_rows, dim, grad_output, output)


def _total(m: Any, x: Any, dim: int) -> Any:
    return m.sum(x, _along(x, dim), True)


row(
    "softmax", "self", _softmax, promote=FLOAT, dense=True,
    self=lambda m, g, result, dim: m.softmax_backward(g, result, dim),
    jvp=lambda m, self_t, result, dim: m.softmax_backward(self_t, result, dim),
    kernels=(1, 0),
    doc="exp(self) / sum of it along dim",
    refuses="c",
)  # fmt: skip

# The Jacobian is diag(y) - y yᵀ: symmetric, so this row is its own adjoint in grad_output.
row(
    "softmax_backward", "grad_output output", _softmax_backward, promote=SAME,
    grad_output=lambda m, g, output, dim: m.softmax_backward(g, output, dim),
    output=lambda m, g, grad_output, output, dim: (
        g * (grad_output - _total(m, grad_output * output, dim))
        - grad_output * _total(m, g * output, dim)),
    jvp=lambda m, grad_output, output, grad_output_t, output_t, dim: sum_of(
        None if grad_output_t is None else m.softmax_backward(grad_output_t, output, dim),
        None if output_t is None else (
            output_t * (grad_output - _total(m, grad_output * output, dim))
            - output * _total(m, grad_output * output_t, dim))),
    kernels=(1, 0),
    doc="the product of the Jacobian of softmax, at the result output, with grad_output",
)  # fmt: skip

row(
    "log_softmax", "self", _log_softmax, promote=FLOAT, dense=True,
    self=lambda m, g, result, dim: m.log_softmax_backward(g, result, dim),
    jvp=lambda m, self_t, result, dim: self_t - _total(m, self_t * m.exp(result), dim),
    kernels=(1, 0),
    doc="the logarithm of softmax, without forming it",
    refuses="c",
)  # fmt: skip

row(
    "log_softmax_backward", "grad_output output", _log_softmax_backward, promote=SAME,
    grad_output=lambda m, g, output, dim: g - _total(m, g * m.exp(output), dim),
    output=lambda m, g, grad_output, output, dim: (
        -(g * m.exp(output) * _total(m, grad_output, dim))),
    jvp=lambda m, grad_output, output, grad_output_t, output_t, dim: sum_of(
        None if grad_output_t is None else m.log_softmax_backward(grad_output_t, output, dim),
        None if output_t is None else (
            -(output_t * m.exp(output) * _total(m, grad_output, dim)))),
    kernels=(1, 0),
    doc="the product of the transposed Jacobian of log_softmax, at output, with grad_output",
)  # fmt: skip


# Negative log likelihood --------------------------------------------------------------------------


def _picks(
    xp: Any, shape: Any, target: Array, weight: Array | None, ignore_index: int, dtype: Any
) -> tuple[tuple[Array, Array, Array], Array, Array]:
    """Of (N, C, R) log-probabilities the elements that `target` names, what each weighs, and
    whether it counts: an ignored one does not, whatever it is, and one that weighs nothing does.
    """
    images, rest = (1, 1) if len(shape) == 1 else (shape[0], prod(shape[2:]))
    flat = xp.reshape(target, (images, rest)).astype(xp.int64, copy=False)
    kept = flat != ignore_index
    label = xp.where(kept, flat, 0)
    scale = kept.astype(dtype)
    if weight is not None:
        scale = scale * weight[label].astype(dtype, copy=False)
    return (xp.reshape(xp.arange(images), (-1, 1)), label, xp.arange(rest)), scale, kept


def _planes(xp: Any, x: Array) -> Array:
    """(C,) or (N, C, ...) as (N, C, R)."""
    if x.ndim == 1:
        return xp.reshape(x, (1, -1, 1))
    return xp.reshape(x, (*x.shape[:2], prod(x.shape[2:])))


def _nll_loss(
    xp: Any, self: Array, target: Array, weight: Array | None = None, reduction: str = "mean",
    ignore_index: int = -100,
) -> tuple[Array, Array]:  # fmt: skip
    dtype = xp.dtype(xp.float32) if is_half(self.dtype) else self.dtype
    picks, scale, kept = _picks(xp, self.shape, target, weight, ignore_index, dtype)
    chosen = _planes(xp, self)[picks].astype(dtype, copy=False)
    loss = xp.where(kept, -chosen * scale, 0)  # an ignored -inf is no nan
    if reduction == "none":
        return narrow(xp, xp.reshape(loss, target.shape), self), xp.zeros((), self.dtype)
    loss, total = xp.sum(loss), xp.sum(scale)
    if reduction == "mean":
        loss = loss / total
    return loss.astype(self.dtype), total.astype(self.dtype)


def _nll_loss_backward(
    xp: Any, grad_output: Array, target: Array, weight: Array | None, total_weight: Array,
    input_shape: tuple[int, ...], reduction: str = "mean", ignore_index: int = -100,
) -> Array:  # fmt: skip
    dtype = xp.dtype(xp.float32) if is_half(grad_output.dtype) else grad_output.dtype
    picks, scale, kept = _picks(xp, input_shape, target, weight, ignore_index, dtype)
    g = wide(xp, grad_output)
    g = xp.reshape(g, scale.shape) if reduction == "none" else g
    if reduction == "mean":
        g = g / total_weight.astype(dtype)
    result = xp.zeros(input_shape, grad_output.dtype)
    _planes(xp, result)[picks] = xp.where(kept, -g * scale, 0).astype(result.dtype)
    return result


row(
    "nll_loss", "self target weight?", _nll_loss, promote=CAST,
    outputs="result total_weight", nondifferentiable="total_weight",
    self=lambda m, g, self_shape, target, weight, total_weight, reduction, ignore_index: (
        m.nll_loss_backward(
            g, target, weight, total_weight, self_shape, reduction, ignore_index)),
    jvp=lambda m, self_t, target, weight, reduction, ignore_index: (
        m.nll_loss(self_t, target, weight, reduction, ignore_index)[0], None),
    kernels=(1, 0),
    doc="-weight[target] * self[target] of (N, C, ...) or (C,), and the weights' sum",
    refuses="c",
)  # fmt: skip

row(
    "nll_loss_backward", "grad_output target weight? total_weight", _nll_loss_backward,
    promote=CAST,
    grad_output=lambda m, g, target, weight, total_weight, reduction, ignore_index: (
        m.nll_loss(g, target, weight, "sum", ignore_index)[0] / total_weight
        if reduction == "mean" else m.nll_loss(g, target, weight, reduction, ignore_index)[0]),
    jvp=lambda m, grad_output_t, target, weight, total_weight, input_shape, reduction,
        ignore_index: m.nll_loss_backward(
            grad_output_t, target, weight, total_weight, input_shape, reduction, ignore_index),
    kernels=(1, 0),
    doc="the adjoint of nll_loss",
)  # fmt: skip


# Cross entropy ------------------------------------------------------------------------------------
# nll_loss of log_softmax in one: of a row of scores x backward needs x, its maximum and the
# logarithm of Σ exp(x - maximum), where log_softmax would keep as much again as x. Not the
# sum of both, the log-sum-exp: one number, that loses digits of probabilities among large scores.


def _class_dim(x: Any) -> int:
    return 0 if len(x.shape) == 1 else 1


def _normaliser(xp: Any, x: Array) -> tuple[Array, Array]:
    """The maximum of (N, C, R) over C, and log Σ exp(x - maximum), both (N, 1, R)."""
    if x.size == 0:
        empty = xp.zeros((x.shape[0], 1, x.shape[2]), x.dtype)
        return empty, empty

    apart = x.shape[2] == 1  # the sums of rows are those that a host is quickest at
    axis = -1 if apart else -2

    def of_rows(x: Array) -> tuple[Array, Array]:
        top = xp.max(x, axis=axis, keepdims=True)
        below = x - top
        below = xp.quick_exp(below, out=below)
        return top, xp.log(xp.sum(below, axis=axis, keepdims=True))

    top, log_sum = by_rows(xp, of_rows, -axis, x[:, :, 0] if apart else x)
    return (top[..., None], log_sum[..., None]) if apart else (top, log_sum)


def _cross_entropy(
    xp: Any, self: Array, target: Array, weight: Array | None = None, reduction: str = "mean",
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> tuple[Array, ...]:  # fmt: skip
    x = _planes(xp, wide(xp, self))
    top, log_sum = _normaliser(xp, x)
    picks, scale, kept = _picks(xp, self.shape, target, weight, ignore_index, x.dtype)
    chosen = x[picks] - top[:, 0] - log_sum[:, 0]
    loss = xp.where(kept, -chosen * scale, 0)
    if label_smoothing:
        share, spread = _smoothing(xp, x, weight, label_smoothing)
        smooth = share * (top + log_sum)[:, 0] - xp.sum(x * spread, axis=1)
        ignored = xp.reshape(target == ignore_index, scale.shape)
        loss = (1 - label_smoothing) * loss + xp.where(ignored, 0, smooth)
    if reduction == "none":
        loss = narrow(xp, xp.reshape(loss, target.shape), self)
        return loss, xp.zeros((), self.dtype), top, log_sum
    loss, total = xp.sum(loss), xp.sum(scale)
    if reduction == "mean":
        loss = xp.where(total == 0, total, loss) / total  # nan, smoothed or not
    return loss.astype(self.dtype), total.astype(self.dtype), top, log_sum


def _smoothing(xp: Any, x: Array, weight: Array | None, label_smoothing: float) -> tuple[Any, Any]:
    """What all classes of (N, C, R) weigh together in the loss, and each, (C, 1) or a number."""
    each = label_smoothing / x.shape[1]
    if weight is None:
        return label_smoothing, each
    weight = weight.astype(x.dtype, copy=False) * each
    return xp.sum(weight), xp.reshape(weight, (-1, 1))


def _cross_entropy_backward(
    xp: Any, grad_output: Array, self: Array, target: Array, weight: Array | None,
    total_weight: Array, top: Array | None, log_sum: Array | None, reduction: str = "mean",
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> Array:  # fmt: skip
    x = _planes(xp, wide(xp, self))
    if top is None or log_sum is None:
        top, log_sum = _normaliser(xp, x)
    picks, scale, kept = _picks(xp, self.shape, target, weight, ignore_index, x.dtype)
    g = wide(xp, grad_output)
    g = xp.reshape(g, scale.shape) if reduction == "none" else g
    if reduction == "mean":
        g = g / total_weight.astype(x.dtype)
    slope = xp.where(kept, g * scale, 0)
    factor = slope
    if label_smoothing:
        share, spread = _smoothing(xp, x, weight, label_smoothing)
        slope *= 1 - label_smoothing
        smooth = xp.where(xp.reshape(target == ignore_index, scale.shape), 0, g)
        factor = slope + share * smooth

    def of_rows(x: Array, top: Array, log_sum: Array, factor: Array) -> Array:
        result = x - top
        result = xp.quick_exp(result, out=result)
        result *= factor * xp.exp(-log_sum)
        return result

    result = by_rows(xp, of_rows, 2, x, top, log_sum, factor[:, None])
    if label_smoothing:
        result -= spread * smooth[:, None]
    result[picks] = result[picks] - slope
    return narrow(xp, xp.reshape(result, self.shape), grad_output)


def _per_class(m: Any, weight: Any, x: Any) -> Any:
    return weight if len(x.shape) == 1 else m.reshape(weight, (-1,) + (1,) * (len(x.shape) - 2))


def _cross_entropy_tangent(
    m: Any, v: Any, self: Any, target: Any, weight: Any, reduction: str, ignore_index: int,
    label_smoothing: float,
) -> Any:  # fmt: skip
    """The derivative of the loss along `v`, of the shape of self."""
    dim = _class_dim(self)
    v = v - _total(m, v * m.softmax(self, dim), dim)
    loss, total = m.nll_loss(v, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return loss
    spread = v if weight is None else v * _per_class(m, weight, v)
    smooth = m.where(m.eq(target, ignore_index), 0, -m.mean(spread, (dim,), False))
    if reduction != "none":
        smooth = m.sum(smooth, None, False)
    if reduction == "mean":
        smooth = smooth / total
    return loss * (1 - label_smoothing) + smooth * label_smoothing


def _cross_entropy_bend(
    m: Any, g: Any, grad_output: Any, self: Any, target: Any, weight: Any, total_weight: Any,
    reduction: str, ignore_index: int, label_smoothing: float,
) -> Any:  # fmt: skip
    """The second derivative in self along `g`; symmetric, as each Hessian is."""
    dim, shape = _class_dim(self), tuple(self.shape)
    how = (target, weight, total_weight, shape, reduction, ignore_index)
    slope = -_total(m, m.nll_loss_backward(grad_output, *how), dim)
    if label_smoothing:
        smooth = grad_output / total_weight if reduction == "mean" else grad_output
        smooth = m.unsqueeze(m.where(m.eq(target, ignore_index), 0, smooth), dim)
        if weight is not None:
            smooth = smooth * m.mean(weight, None, False)
        slope = slope * (1 - label_smoothing) + smooth * label_smoothing
    return m.softmax_backward(slope * g, m.softmax(self, dim), dim)


row(
    "cross_entropy", "self target weight?", _cross_entropy, promote=CAST, node="NllLossBackward0",
    outputs="result total_weight top log_sum", nondifferentiable="total_weight top log_sum",
    self=lambda m, g, self, target, weight, total_weight, top, log_sum, reduction, ignore_index,
        label_smoothing: m.cross_entropy_backward(
            g, self, target, weight, total_weight, top, log_sum, reduction, ignore_index,
            label_smoothing),
    jvp=lambda m, self_t, self, target, weight, reduction, ignore_index, label_smoothing: (
        _cross_entropy_tangent(
            m, self_t, self, target, weight, reduction, ignore_index, label_smoothing),
        None, None, None),
    kernels=(1, 0),
    doc="nll_loss of log_softmax of scores (N, C, ...) or (C,); keeps the scores and two per row",
    refuses="c",
)  # fmt: skip

# As for batch_norm: top and log_sum are those of self, computed here when absent.
row(
    "cross_entropy_backward", "grad_output self target weight? total_weight top? log_sum?",
    _cross_entropy_backward, promote=CAST,
    grad_output=lambda m, g, self, target, weight, total_weight, reduction, ignore_index,
        label_smoothing: _over(total_weight, reduction, _cross_entropy_tangent(
            m, g, self, target, weight, "sum" if reduction == "mean" else reduction,
            ignore_index, label_smoothing)),
    self=_cross_entropy_bend,
    jvp=lambda m, grad_output, self, target, weight, total_weight, top, log_sum, grad_output_t,
        self_t, reduction, ignore_index, label_smoothing: sum_of(
            None if grad_output_t is None else m.cross_entropy_backward(
                grad_output_t, self, target, weight, total_weight, top, log_sum, reduction,
                ignore_index, label_smoothing),
            None if self_t is None else _cross_entropy_bend(
                m, self_t, grad_output, self, target, weight, total_weight, reduction,
                ignore_index, label_smoothing)),
    kernels=(1, 0),
    doc="the gradient of cross_entropy in its scores",
)  # fmt: skip


def _over(total_weight: Any, reduction: str, loss: Any) -> Any:
    return loss / total_weight if reduction == "mean" else loss
