"""Rows that reduce: sums, means, products, variances, and norms.

`dim` is a tuple of dims counted from the front, or None for all; an int where it says so.
"""

from __future__ import annotations

from math import inf, prod
from typing import Any

from ...dtypes import is_half
from ..precision import is_complex, narrow, of_dtype_of, sum_of, wide
from ..table import ELEMENTWISE, FLOAT, LINEAR, NONE, in_order, row

Shape = tuple[int, ...]
Dims = tuple[int, ...] | None


# What formulas share ------------------------------------------------------------------------------


def kept(m: Any, g: Any, shape: Shape, dim: Any, keepdim: bool) -> Any:
    """`g`, the shape of a reduction of `shape` over `dim`, with the reduced dims back as 1."""
    if keepdim or dim is None or not shape:
        return g
    dims = (dim,) if isinstance(dim, int) else dim
    return m.reshape(g, tuple([1 if i in dims else n for i, n in enumerate(shape)]))


def spread(m: Any, g: Any, shape: Shape, dim: Any, keepdim: bool) -> Any:
    """`g` of a reduction, given to each element of `shape` that was reduced."""
    return m.expand(kept(m, g, shape, dim, keepdim), shape)


def count(shape: Shape, dim: Dims) -> int:
    """How many elements go into one element of the result."""
    return prod(shape) if dim is None else prod([shape[d] for d in dim])


def mean_vjp(m: Any, g: Any, shape: Shape, dim: Dims, keepdim: bool) -> Any:
    return spread(m, g / (count(shape, dim) or 1), shape, dim, keepdim)


def sum_dtype(array: Any) -> str | None:
    """Integers and bools add up in int64."""
    return "int64" if array.dtype.kind in "biu" else None


# Sums, means, products ----------------------------------------------------------------------------


def _by_overload(name: str) -> Any:
    """PyTorch numbers the nodes of a full reduction 0, and of one over dims 1."""
    return lambda params: f"{name}Backward{0 if params.get('dim') is None else 1}"


def _sum(xp: Any, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    total = xp.sum(self, dim, sum_dtype(self), keepdim)
    return total if dim is None else in_order(xp, total)


def _mean(xp: Any, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    mean = xp.mean(self, dim, None, keepdim)
    return mean if dim is None else in_order(xp, mean)


row(
    "sum", "self",
    _sum,
    LINEAR, node=_by_overload("Sum"),
    self=lambda m, g, self_shape, dim, keepdim: spread(m, g, self_shape, dim, keepdim),
)  # fmt: skip

row(
    "mean", "self",
    _mean,
    LINEAR, node=_by_overload("Mean"),
    self=lambda m, g, self_shape, dim, keepdim: mean_vjp(m, g, self_shape, dim, keepdim),
)  # fmt: skip


def _sum_to_shape(xp: Any, self: Any, shape: Shape) -> Any:
    lead = self.ndim - len(shape)
    if lead and 1 not in shape and self.shape[0] > 1:  # the common case, such as a bias
        return xp.sum(self, tuple(range(lead)), None, False)
    axes = tuple(range(lead)) + tuple(
        [i + lead for i, n in enumerate(shape) if n == 1 and self.shape[i + lead] != 1]
    )
    if all(self.shape[i] == 1 for i in axes):  # nothing to add up
        return self.reshape(shape).copy()
    return xp.sum(self, axes, None, False).reshape(shape)


row(
    "sum_to_shape", "self", _sum_to_shape, LINEAR, node="SumToSizeBackward0",
    self=lambda m, g, self_shape: m.expand(g, self_shape),
    doc="the adjoint of expand: sums what broadcasting repeated",
)  # fmt: skip


def _prod(xp: Any, self: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return xp.prod(self, dim, sum_dtype(self), keepdim)


def _products_of_others(m: Any, x: Any, n: int, dim: int) -> Any:
    """For each of the `n` elements along `dim` the product of all the others, in O(n).

    No division, so exact at zeros, and differentiable again: elements are multiplied in pairs, and
    each gets its partner times the product of all other pairs.
    """
    if n == 2:
        return m.flip(x, (dim,))
    half = n // 2

    def part(array: Any, start: int, stop: int) -> Any:
        return m.slice_view(array, (slice(None),) * dim + (slice(start, stop, 1),))

    a, b = part(x, 0, half), part(x, half, 2 * half)
    pairs = a * b
    if n % 2:
        pairs = m.cat([pairs, part(x, n - 1, n)], dim)
    others = _products_of_others(m, pairs, n - half, dim)
    shared = part(others, 0, half)
    pieces = [shared * b, shared * a]
    if n % 2:
        pieces.append(part(others, half, half + 1))
    return m.cat(pieces, dim)


def _prod_slope(m: Any, self: Any, shape: Shape, dim: int | None) -> Any:
    """d prod / d self, or None where it is one."""
    n = prod(shape) if dim is None else shape[dim] if shape else 1
    if n < 2:
        return None
    if dim is None:
        return m.reshape(_products_of_others(m, m.reshape(self, (n,)), n, 0), shape)
    return _products_of_others(m, self, n, dim)


def _prod_vjp(m: Any, g: Any, self: Any, self_shape: Shape, dim: int | None, keepdim: bool) -> Any:
    slope = _prod_slope(m, self, self_shape, dim)
    if slope is None:
        return spread(m, g, self_shape, dim, keepdim)
    return kept(m, g, self_shape, dim, keepdim) * slope


def _prod_jvp(
    m: Any, self: Any, self_t: Any, self_shape: Shape, dim: int | None, keepdim: bool
) -> Any:
    slope = _prod_slope(m, self, self_shape, dim)
    dims = None if dim is None or not self_shape else (dim,)
    return m.sum(self_t if slope is None else self_t * slope, dims, keepdim)


row("prod", "self", _prod, NONE, dense=True, node=_by_overload("Prod"), self=_prod_vjp,
    jvp=_prod_jvp, kernels=(0, 1),
    doc="dim is one int or None")  # fmt: skip


# Variance -----------------------------------------------------------------------------------------


def _freedom(shape: Shape, dim: Dims, correction: float) -> float:
    """Degrees of freedom; none at all divides to nan or inf, as in PyTorch."""
    many = count(shape, dim)
    return max(many - correction, 0) if many else 0


def _var_mean(
    xp: Any, self: Any, dim: Dims = None, correction: float = 1, keepdim: bool = False
) -> tuple[Any, Any]:
    x = wide(xp, self)
    mean = xp.mean(x, dim, None, True)
    d = x - mean
    square = (d * d.conj()).real if d.dtype.kind == "c" else d * d
    total = xp.sum(square, dim, None, keepdim)
    total = total / _freedom(self.shape, dim, correction)
    mean = mean if keepdim else mean.reshape(total.shape)
    if is_half(self.dtype):
        return total.astype(self.dtype), mean.astype(self.dtype)
    return total, mean


def _var(xp: Any, self: Any, dim: Dims = None, correction: float = 1, keepdim: bool = False) -> Any:
    return _var_mean(xp, self, dim, correction, keepdim)[0]


def _centred(m: Any, self: Any, self_shape: Shape, dim: Dims, correction: float) -> Any:
    """(x - mean) / degrees of freedom: half the slope of the variance."""
    centred = self - m.mean(self, dim, True)
    return of_dtype_of(m, self, centred / _freedom(self_shape, dim, correction))


def _var_vjp(
    m: Any, g: Any, self: Any, self_shape: Shape, dim: Dims, correction: float, keepdim: bool
) -> Any:
    slope = _centred(m, self, self_shape, dim, correction)
    return (2 * kept(m, g, self_shape, dim, keepdim)) * slope


def _var_jvp(
    m: Any, self: Any, self_t: Any, self_shape: Shape, dim: Dims, correction: float, keepdim: bool
) -> Any:
    slope = _centred(m, self, self_shape, dim, correction)
    return m.sum(_inner(m, slope, self_t), dim, keepdim) * 2


def _inner(m: Any, x: Any, y: Any) -> Any:
    """Re(conj(x) y), elementwise: what a real function's slope does to a tangent."""
    return m.real(m.conj(x) * y) if is_complex(x) else x * y


row(
    "var", "self", _var, NONE, dense=True, holomorphic=False, self=_var_vjp, jvp=_var_jvp,
    kernels=(1, 1),
    doc="dim before correction, which is the number taken off the count",
)  # fmt: skip


def _std_scale(m: Any, x: Any, result: Any) -> Any:
    """x / (2 std), where the derivative of the square root at 0 is taken to be 0."""
    return m.masked_fill(x / (result * 2), m.eq(result, 0), 0)


def _std_vjp(
    m: Any, g: Any, self: Any, result: Any, self_shape: Shape, dim: Dims, correction: float,
    keepdim: bool,
) -> Any:  # fmt: skip
    return _var_vjp(m, _std_scale(m, g, result), self, self_shape, dim, correction, keepdim)


row(
    "std", "self",
    lambda xp, self, dim=None, correction=1, keepdim=False: xp.sqrt(
        _var(xp, self, dim, correction, keepdim)
    ),
    NONE, dense=True, holomorphic=False, self=_std_vjp,
    jvp=lambda m, self, self_t, result, self_shape, dim, correction, keepdim: _std_scale(
        m, _var_jvp(m, self, self_t, self_shape, dim, correction, keepdim), result
    ),
    kernels=(1, 1),
)  # fmt: skip


def _std_mean(xp: Any, *args: Any) -> tuple[Any, Any]:
    var, mean = _var_mean(xp, *args)
    return xp.sqrt(var), mean


def _with_mean(m: Any, g: Any, slope: Any, self_shape: Shape, dim: Dims, keepdim: bool) -> Any:
    """The gradient of a variance or deviation, by its `slope(g)`, and of the mean beside it."""
    parts = slope, lambda x: mean_vjp(m, x, self_shape, dim, keepdim)
    return sum_of(*[None if x is None else part(x) for x, part in zip(g, parts, strict=True)])


row(
    "var_mean", "self", _var_mean, NONE, dense=True, outputs="result0 result1", holomorphic=False,
    self=lambda m, g, self, self_shape, dim, correction, keepdim: _with_mean(
        m, g, lambda x: _var_vjp(m, x, self, self_shape, dim, correction, keepdim),
        self_shape, dim, keepdim,
    ),
    jvp=lambda m, self, self_t, self_shape, dim, correction, keepdim: (
        _var_jvp(m, self, self_t, self_shape, dim, correction, keepdim),
        m.mean(self_t, dim, keepdim),
    ),
    kernels=(1, 0),
    doc="the variance, as by var, and the mean",
)  # fmt: skip
row(
    "std_mean", "self",
    lambda xp, self, dim=None, correction=1, keepdim=False: _std_mean(
        xp, self, dim, correction, keepdim
    ),
    NONE, dense=True, outputs="result0 result1", holomorphic=False,
    self=lambda m, g, self, result0, self_shape, dim, correction, keepdim: _with_mean(
        m, g, lambda x: _std_vjp(m, x, self, result0, self_shape, dim, correction, keepdim),
        self_shape, dim, keepdim,
    ),
    jvp=lambda m, self, self_t, result0, self_shape, dim, correction, keepdim: (
        _std_scale(m, _var_jvp(m, self, self_t, self_shape, dim, correction, keepdim), result0),
        m.mean(self_t, dim, keepdim),
    ),
    kernels=(1, 0),
    doc="the standard deviation, as by std, and the mean",
)  # fmt: skip


# Others -------------------------------------------------------------------------------------------


def _logsumexp(xp: Any, self: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    x = wide(xp, self)
    if not self.size:
        return xp.log(xp.sum(x, dim, None, keepdim)).astype(self.dtype)
    top = xp.max(x.real, dim, keepdims=True)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    out = xp.log(xp.sum(xp.exp(x - top), dim, None, True)) + top
    if not keepdim:
        out = out.squeeze(dim)
    return out.astype(self.dtype)


def _softmax_of(m: Any, self: Any, result: Any, self_shape: Shape, dim: Dims, keepdim: bool) -> Any:
    return m.exp(self - kept(m, result, self_shape, dim, keepdim))


row(
    "logsumexp", "self", _logsumexp, NONE, dense=True, promote="float",
    self=lambda m, g, self, result, self_shape, dim, keepdim: (
        kept(m, g, self_shape, dim, keepdim)
        * _softmax_of(m, self, result, self_shape, dim, keepdim)
    ),
    jvp=lambda m, self, self_t, result, self_shape, dim, keepdim: m.sum(
        self_t * _softmax_of(m, self, result, self_shape, dim, keepdim), dim, keepdim
    ),
    kernels=(1, 1),
)  # fmt: skip


def _vector_norm(
    xp: Any, self: Any, ord: float = 2, dim: Dims = None, keepdim: bool = False
) -> Any:
    if ord != 0 and count(self.shape, dim) == 1:
        ord = 1  # of one element all are its size, and no power of that is too large
    if ord == 2:
        x = wide(xp, self)
        square = x.real**2 + x.imag**2 if x.dtype.kind == "c" else x * x
        return xp.sqrt(xp.sum(square, dim, None, keepdim)).astype(self.real.dtype, copy=False)
    size = wide(xp, abs(self))
    if ord == 1:
        out = xp.sum(size, dim, None, keepdim)
    elif ord == inf:
        out = xp.max(size, dim, keepdims=keepdim)
    elif ord == -inf:
        out = xp.min(size, dim, keepdims=keepdim)
    elif ord == 0:
        out = xp.sum((size != 0).astype(size.dtype), dim, None, keepdim)
    else:
        out = xp.sum(size**ord, dim, None, keepdim) ** (1 / ord)
    return out.astype(self.real.dtype)


def _norm_slope(
    m: Any, self: Any, result: Any, self_shape: Shape, ord: float, dim: Dims, keepdim: bool
) -> Any:
    """d|x| / dx = sign(x) (|x| / norm) ** (p - 1), taken to be 0 where it has no derivative."""
    result = kept(m, result, self_shape, dim, keepdim)
    if ord == 0:
        return m.zero_like(self)
    if ord == 1:
        return m.sgn(self)
    size, direction = m.abs(self), m.sgn(self)
    if ord in (inf, -inf):
        return direction * m.tie_share(size, result, dim)
    origin = m.eq(result, 0)
    norm = m.masked_fill(result, origin, 1)
    if ord == 2:
        return m.masked_fill(self / norm, origin, 0)
    ratio = m.masked_fill(size / norm, m.eq(size, 0), 1)  # direction is 0 there
    slope = of_dtype_of(m, size, ratio ** (ord - 1))
    return m.masked_fill(direction * slope, origin, 0)


def _along(xp: Any, grad: Any, self: Any, norm: Any) -> Any:
    g, x, size = (wide(xp, y) for y in (grad, self, norm))
    at_origin = size == 0
    return narrow(xp, g * xp.where(at_origin, 0, x / xp.where(at_origin, 1, size)), self)


# x / |x| is taken to be 0 at the origin.
row("along", "grad self norm", _along, ELEMENTWISE, promote=FLOAT,
    grad=lambda m, g, self, norm: m.along(g, self, norm),
    self=lambda m, g, grad, norm: m.along(g, grad, norm),
    norm=lambda m, g, grad, self, norm: -m.along(m.along(g, grad, norm), self, norm),
    public=False, refuses="c",
    doc="grad * self / norm, and 0 where norm is 0: the gradient of a vector's length")  # fmt: skip


def _vector_norm_vjp(
    m: Any, g: Any, self: Any, result: Any, self_shape: Shape, ord: float, dim: Dims, keepdim: bool
) -> Any:
    if ord == 0:
        return None  # a count has no gradient, not one of zero
    whole = kept(m, g, self_shape, dim, keepdim)
    if ord == 2 and not is_complex(self):
        return m.along(whole, self, kept(m, result, self_shape, dim, keepdim))
    return whole * _norm_slope(m, self, result, self_shape, ord, dim, keepdim)


row(
    "linalg_vector_norm", "self", _vector_norm, NONE, dense=True, holomorphic=False,
    self=_vector_norm_vjp, kernels=(1, 1),
    jvp=lambda m, self, self_t, result, self_shape, ord, dim, keepdim: m.sum(
        _inner(m, _norm_slope(m, self, result, self_shape, ord, dim, keepdim), self_t),
        dim, keepdim,
    ),
)  # fmt: skip


def _square_total(xp: Any, self: Any, mean: bool = False) -> Any:
    x = wide(xp, self)
    total = xp.sum(x * x, None, None, False)
    return narrow(xp, total / count(self.shape, None) if mean else total, self)


def _of_squares(self_shape: Shape, mean: bool) -> float:
    """What an element times the gradient is multiplied by."""
    return 2 / (count(self_shape, None) or 1) if mean else 2


row(
    "square_total", "self", _square_total, NONE, node="MseLossBackward0", public=False,
    self=lambda m, g, self, self_shape, mean: m.scaled_product(
        g, self, _of_squares(self_shape, mean)
    ),
    jvp=lambda m, self, self_t, self_shape, mean: (
        m.sum(self * self_t) * _of_squares(self_shape, mean)
    ),
    refuses="biuc", kernels=(1, 1),
    doc="the sum of the squares of all elements, or their mean",
)  # fmt: skip
row("scaled_product", "self other",
    lambda xp, self, other, factor=1.0: narrow(
        xp, wide(xp, self) * wide(xp, other) * factor, self),
    ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, other, factor: m.scaled_product(g, other, factor),
    other=lambda m, g, self, factor: m.scaled_product(g, self, factor),
    public=False, doc="self * other * factor, rounded once")  # fmt: skip


def _truth(which: str) -> Any:
    def forward(xp: Any, self: Any, dim: Dims = None, keepdim: bool = False) -> Any:
        truth = self if self.dtype.kind == "b" else self != 0
        out = getattr(xp, which)(truth, dim, keepdims=keepdim)
        return out.astype(self.dtype) if self.dtype.name == "uint8" else out

    return forward


row("any", "self", _truth("any"), dense=True, doc="uint8 stays uint8, everything else gives bool")
row("all", "self", _truth("all"), dense=True, doc="uint8 stays uint8, everything else gives bool")
row("count_nonzero", "self", lambda xp, self, dim=None: xp.sum(self != 0, dim, "int64", False))
