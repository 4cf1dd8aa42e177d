"""Rows that run along a dim and keep its length: running sums, products and extrema.

`dim` is an int counted from the front, and the tensor has at least one dim.
"""

from __future__ import annotations

from typing import Any

from ...dtypes import is_half
from ..precision import is_complex, wide
from ..table import LINEAR, NONE, row
from .reduce import sum_dtype

row(
    "cumsum", "self",
    lambda xp, self, dim: xp.cumsum(self, dim, sum_dtype(self)),
    LINEAR, dense=True,
    self=lambda m, g, dim: m.flip(m.cumsum(m.flip(g, (dim,)), dim), (dim,)), kernels=(0, 1),
)  # fmt: skip


# A running product --------------------------------------------------------------------------------


def _along(m: Any, x: Any, dim: int, start: int, stop: int) -> Any:
    return m.slice_view(x, (slice(None),) * dim + (slice(start, stop, 1),))


def _backward_recurrence(m: Any, b: Any, a: Any, n: int, dim: int) -> Any:
    """s, where s[k] = b[k] + a[k] s[k + 1] along dim and s[n] = 0; `a` has n - 1 entries.

    It joins spans of 1, 2, 4, ... entries: log2(n) passes of products and sums, no division, so
    that zeros are as good as other numbers.
    """
    span = 1
    while span < n:
        rest = n - span
        joined = _along(m, b, dim, 0, rest) + a * _along(m, b, dim, span, n)
        b = m.cat([joined, _along(m, b, dim, rest, n)], dim)
        if 2 * span < n:  # a[k] becomes the product over twice the span
            a = _along(m, a, dim, 0, rest - span) * _along(m, a, dim, span, rest)
        span *= 2
    return b


def _before(m: Any, result: Any, n: int, dim: int) -> Any:
    """The products of all entries in front of each, 1 in front of the first."""
    one = m.zero_like(_along(m, result, dim, 0, 1)) + 1
    return one if n == 1 else m.cat([one, _along(m, result, dim, 0, n - 1)], dim)


def _cumprod_vjp(m: Any, g: Any, self: Any, result: Any, self_shape: Any, dim: int) -> Any:
    n = self_shape[dim]
    if n < 2:
        return g
    behind = _backward_recurrence(m, g, _along(m, self, dim, 1, n), n, dim)
    return _before(m, result, n, dim) * behind


def _cumprod_jvp(m: Any, self: Any, self_t: Any, result: Any, self_shape: Any, dim: int) -> Any:
    n = self_shape[dim]
    if n < 2:
        return self_t
    turned = m.flip(self_t * _before(m, result, n, dim), (dim,))
    factors = m.flip(_along(m, self, dim, 1, n), (dim,))
    return m.flip(_backward_recurrence(m, turned, factors, n, dim), (dim,))


row("cumprod", "self", lambda xp, self, dim: xp.cumprod(self, dim, sum_dtype(self)), NONE,
    dense=True, self=_cumprod_vjp, jvp=_cumprod_jvp, kernels=(0, 1))  # fmt: skip


# Running extrema ----------------------------------------------------------------------------------


def _running_extreme(function: str) -> Any:
    """The extreme up to each element, and the index of the last element that equals it."""

    def forward(xp: Any, self: Any, dim: int) -> tuple[Any, Any]:
        x = wide(xp, self)
        values = xp.accumulate(function, x, dim)
        reached = x == values
        if x.dtype.kind == "f":
            reached = reached | xp.isnan(x)
        ends = (1,) * dim + (-1,) + (1,) * (self.ndim - dim - 1)
        here = xp.arange(self.shape[dim]).reshape(ends)
        indices = xp.accumulate("maximum", xp.where(reached, here, 0), dim)
        return values.astype(self.dtype, copy=False), indices

    return forward


for _name, _function in (("cummax", "maximum"), ("cummin", "minimum")):
    row(
        _name, "self", _running_extreme(_function), NONE, dense=True,
        outputs="values indices", nondifferentiable="indices",
        self=lambda m, g, indices, self_shape, dim: m.gather_backward(g, indices, self_shape, dim),
        jvp=lambda m, self_t, indices, dim: (m.gather(self_t, indices, dim), None),
        kernels=(1, 0),
        doc="of equals the last is named",
    )  # fmt: skip


# A running log of a sum of exponentials -----------------------------------------------------------


def _log_add(xp: Any, a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)) of complex numbers, by the larger of the two."""
    first = a.real >= b.real
    big, small = xp.where(first, a, b), xp.where(first, b, a)
    nothing = xp.isneginf(big.real)  # exp of both is 0, and their difference nan
    return xp.where(nothing, big, big + xp.log(1 + xp.exp(small - xp.where(nothing, 0, big))))


def _logcumsumexp(xp: Any, self: Any, dim: int) -> Any:
    if self.dtype.kind != "c":
        out = xp.accumulate("logaddexp", wide(xp, self), dim)
        return out.astype(self.dtype) if is_half(self.dtype) else out
    out, span, n, lead = self.copy(), 1, self.shape[dim], (slice(None),) * dim
    while span < n:  # as many passes as n has bits
        late = (*lead, slice(span, n))
        out[late] = _log_add(xp, out[(*lead, slice(0, n - span))], out[late])
        span *= 2
    return out


def _signed_log(m: Any, x: Any, sign: int) -> Any:
    """log of the positive (or negated negative) elements of x, -inf for the others."""
    other = m.le(x, 0) if sign > 0 else m.ge(x, 0)
    return m.masked_fill(m.log(m.masked_fill(x * sign, other, 1)), other, _NOTHING)


_NOTHING = float("-inf")


def _weighted(m: Any, x: Any, other: Any, turn: Any) -> Any:
    """`turn(log x + other)` brought back from logs, for x of either sign."""
    if is_complex(x):
        return m.exp(turn(m.log(x) + other))
    return m.exp(turn(_signed_log(m, x, 1) + other)) - m.exp(turn(_signed_log(m, x, -1) + other))


def _logcumsumexp_vjp(m: Any, g: Any, self: Any, result: Any, dim: int) -> Any:
    """The sum over later i of g[i] exp(self - result[i]), in logs: exp(-result) may overflow."""
    empty = m.eq(result, _NOTHING)  # nothing but -inf so far, which no small change alters

    def turn(logs: Any) -> Any:
        logs = m.masked_fill(logs, empty, _NOTHING)
        return m.flip(m.logcumsumexp(m.flip(logs, (dim,)), dim), (dim,)) + self

    return _weighted(m, g, -m.masked_fill(result, empty, 0), turn)


def _logcumsumexp_jvp(m: Any, self: Any, self_t: Any, result: Any, dim: int) -> Any:
    empty = m.eq(result, _NOTHING)
    shift = m.masked_fill(result, empty, 0)
    return _weighted(m, self_t, self, lambda logs: m.logcumsumexp(logs, dim) - shift)


row(
    "logcumsumexp", "self", _logcumsumexp, NONE, promote="float", dense=True,
    self=_logcumsumexp_vjp, jvp=_logcumsumexp_jvp, kernels=(0, 1),
)  # fmt: skip
