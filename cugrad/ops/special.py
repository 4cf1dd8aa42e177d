"""Rows of special functions and of further arithmetic."""

from __future__ import annotations

from math import inf, log, nan, pi, sqrt
from typing import Any

import numpy as np

from .precision import is_complex, narrow, wide
from .promotion import as_of
from .table import ELEMENTWISE, FLOAT, SAME, WEIGHED, row

Array = Any


def _pair(xp: Any, a: Any, b: Any) -> tuple[Array, Array]:
    """Two operands, of which one may be a Python number, as arrays."""
    if not hasattr(a, "dtype"):
        return xp.full((), a, b.dtype), b
    return a, b if hasattr(b, "dtype") else xp.full((), b, a.dtype)


# Logarithms and exponentials ----------------------------------------------------------------------


def _xlogy(xp: Any, self: Any, other: Any) -> Array:
    x, y = _pair(xp, self, other)
    return xp.where((x == 0) & (y == y), 0, x * xp.log(y)).astype(x.dtype, copy=False)


row("xlogy", "self other", _xlogy, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, other: m.where((self == 0) & (other <= 0), 0, m.xlogy(g, other)),
    other=lambda g, self, other: g * (self / other), refuses="c",
    doc="input * log(other), 0 where input is 0")  # fmt: skip


def _logaddexp(xp: Any, self: Any, other: Any) -> Any:
    if all(getattr(x, "dtype", np.dtype(float)).kind != "c" for x in (self, other)):
        return xp.logaddexp(self, other)
    more = xp.real(self) >= xp.real(other)
    high, low = xp.where(more, self, other), xp.where(more, other, self)
    result = high + xp.log1p(xp.exp(low - high))
    same = xp.isinf(xp.real(self)) & (self == other)  # both infinite: their difference is nan
    return xp.where(same, self, result)


row("logaddexp", "self other", _logaddexp, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, other: g * m.sigmoid(self - other),
    other=lambda m, g, self, other: g * m.sigmoid(other - self),
    doc="log(exp(input) + exp(other)), without overflow")  # fmt: skip
row("logaddexp2", "self other", "logaddexp2", ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, other: g * m.sigmoid((self - other) * log(2)),
    other=lambda m, g, self, other: g * m.sigmoid((other - self) * log(2)),
    doc="log2(2**input + 2**other), without overflow")  # fmt: skip


def _logit(xp: Any, self: Array, eps: float | None = None) -> Array:
    x = wide(xp, self)
    if eps is not None:
        high = 1 - eps  # which may be the lower one: eps counts first
        x = xp.where(x < eps, eps, xp.where(x > high, high, x)).astype(x.dtype, copy=False)
    return narrow(xp, xp.log(x / (1 - x)), self)


def _logit_gradient(m: Any, g: Any, self: Any, eps: float | None) -> Any:
    if eps is None:
        return m.where((self < 0) | (self > 1), nan, g / (self * (1 - self)))
    outside = (self < eps) | (self > 1 - eps)
    inside = m.where(outside, 0.5, self)  # no division by zero, whose derivative would be nan
    return m.where(outside, 0, g / (inside * (1 - inside)))


row("logit", "self", _logit, ELEMENTWISE, promote=FLOAT, self=_logit_gradient, refuses="c",
    doc="log(input / (1 - input)), of input clamped to [eps, 1 - eps] if there is one")  # fmt: skip
row("erfc", "self", "erfc", ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self: g * (m.exp(-(self * self)) * (-2 / sqrt(pi))), refuses="c",
    doc="1 - erf(input), exact also far out")  # fmt: skip


def _xlog1py(xp: Any, self: Any, other: Any) -> Array:
    x, y = _pair(xp, self, other)
    return xp.where((x == 0) & (y == y), 0, x * xp.log1p(y)).astype(x.dtype, copy=False)


row("special_xlog1py", "self other", _xlog1py, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, other: m.where(
        (self == 0) & (other <= -1), 0, m.special_xlog1py(g, other)),
    other=lambda g, self, other: g * (self / (other + 1)), refuses="c")  # fmt: skip


def _entr(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    entropy = xp.where(x == 0, 0, -x * xp.log(x))
    return narrow(xp, xp.where(x < 0, -inf, entropy), self)


row("special_entr", "self", _entr, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self: -g * (m.log(self) + 1), refuses="c")  # fmt: skip

# Angles and lengths -------------------------------------------------------------------------------


def _sinc(xp: Any, self: Array) -> Array:
    x = wide(xp, self) * pi
    zero = x == 0
    return narrow(xp, xp.where(zero, 1, xp.sin(x) / xp.where(zero, 1, x)), self)


def _sinc_gradient(m: Any, g: Any, self: Any) -> Any:
    zero = self == 0
    x = m.where(zero, 1, self)  # no nan in the branch not taken
    bend = self * (-pi * pi / 3)  # what the slope is near zero, for the second derivative there
    return g * m.where(zero, bend, (m.cos(x * pi) - m.sinc(x)) / x)


row("sinc", "self", _sinc, ELEMENTWISE, promote=FLOAT, self=_sinc_gradient,
    doc="sin(πx) / (πx), 1 at 0")  # fmt: skip
row("deg2rad", "self", lambda xp, self: narrow(xp, self * (pi / 180), self), ELEMENTWISE,
    promote=FLOAT, self=lambda g: g * (pi / 180), refuses="c",
    doc="degrees in radians")  # fmt: skip
row("rad2deg", "self", lambda xp, self: narrow(xp, self * (180 / pi), self), ELEMENTWISE,
    promote=FLOAT, self=lambda g: g * (180 / pi), refuses="c",
    doc="radians in degrees")  # fmt: skip
row("hypot", "self other", "hypot", ELEMENTWISE,
    self=lambda g, self, result: g * (self / result),
    other=lambda g, other, result: g * (other / result), refuses="biuc",
    doc="√(input² + other²), without overflow")  # fmt: skip

# Between operands ---------------------------------------------------------------------------------


def _lerp(xp: Any, self: Array, end: Array, weight: Any) -> Array:
    """From the nearer end, so that a weight of 1 gives exactly `end`."""
    way = end - self
    if type(weight) is float and way.dtype.kind in "fc":  # in one array, where three have no room
        near = abs(weight) < 0.5
        way *= weight if near else weight - 1
        way += self if near else end
        return narrow(xp, way, self)
    if not hasattr(weight, "dtype") or isinstance(weight, np.generic):
        near = abs(weight) < 0.5
        return narrow(xp, self + way * weight if near else end - way * (1 - weight), self)
    near = self + way * weight
    return narrow(xp, xp.where(xp.abs(weight) < 0.5, near, end - way * (1 - weight)), self)


row("lerp", "self end weight", _lerp, ELEMENTWISE, promote=WEIGHED,
    demands=lambda self, end, weight: _demand_tensors("lerp", input=self, end=end),
    self=lambda g, weight: g * (1 - weight), end=lambda g, weight: g * weight,
    weight=lambda g, self, end: g * (end - self), refuses="biu", fits="weight",
    doc="input + weight * (end - input)")  # fmt: skip


def _addcmul(xp: Any, self: Array, tensor1: Array, tensor2: Array, value: Any = 1) -> Array:
    value = as_of(self, value)
    product = tensor1 * tensor2
    return narrow(xp, self + (product if value == 1 else product * value), self)


def _scaled_sum(name: str, node: str, sign: int, doc: str) -> None:
    """A row of `add`, or `sub`, with a factor of the second operand: a pass less than two ops."""

    def forward(xp: Any, self: Array, other: Array, alpha: Any = 1) -> Any:
        product = other * as_of(self, alpha)
        return narrow(xp, self + product if sign > 0 else self - product, self)

    row(name, "self other", forward, ELEMENTWISE, self=lambda g: g,
        other=lambda g, alpha: g * alpha if sign > 0 else g * -alpha,
        promote=SAME, refuses="b", fits="alpha", node=node, public=False, doc=doc)  # fmt: skip


_scaled_sum("add_scaled", "AddBackward0", 1, "input + alpha * other")
_scaled_sum("sub_scaled", "SubBackward0", -1, "input - alpha * other")
row("weighted_sum", "self other",
    lambda xp, self, other, alpha=1.0, beta=1.0: narrow(
        xp, wide(xp, self) * alpha + wide(xp, other) * beta, self),
    ELEMENTWISE, promote=SAME, self=lambda g, alpha: g * alpha, other=lambda g, beta: g * beta,
    public=False, doc="alpha * self + beta * other, rounded once")  # fmt: skip
row("addcmul", "self tensor1 tensor2", _addcmul, ELEMENTWISE, refuses="b",
    demands=lambda self, tensor1, tensor2: _demand_tensors(
        "addcmul", input=self, tensor1=tensor1, tensor2=tensor2),
    self=lambda g: g, tensor1=lambda g, tensor2, value: g * (tensor2 * value),
    tensor2=lambda g, tensor1, value: g * (tensor1 * value),
    fits="value", number_first="value", doc="input + value * tensor1 * tensor2")  # fmt: skip


def _demand_tensors(function: str, **operands: Any) -> None:
    for place, (name, x) in enumerate(operands.items(), 1):
        if not hasattr(x, "dtype"):
            kind = type(x).__name__
            raise TypeError(
                f"{function}(): argument '{name}' (position {place}) must be Tensor, not {kind}"
            )


def _demand_fractions(self: Any, tensor1: Any, tensor2: Any) -> None:
    _demand_tensors("addcdiv", input=self, tensor1=tensor1, tensor2=tensor2)
    if tensor1.dtype.kind in "biu" and tensor2.dtype.kind in "biu":
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future release addcdiv "
            "will perform a true division of tensor1 and tensor2; want one of them in floating "
            "point, such as tensor1.to(torch.float), or add div(rounding_mode='trunc')"
        )


row("addcdiv", "self tensor1 tensor2",
    lambda xp, self, tensor1, tensor2, value=1: narrow(xp, self + tensor1 / tensor2 * value, self),
    ELEMENTWISE, promote=FLOAT, demands=_demand_fractions,
    self=lambda g: g, tensor1=lambda g, tensor2, value: g / tensor2 * value,
    tensor2=lambda g, tensor1, tensor2, value: -g * (tensor1 / tensor2) / tensor2 * value,
    fits="value", number_first="value", doc="input + value * tensor1 / tensor2")  # fmt: skip
row("copysign", "self other", "copysign", ELEMENTWISE, promote=FLOAT, widens=False,
    self=lambda m, g, self, result: g * (m.sign(self) * m.sign(result)),
    other=lambda m, g: m.zero_like(g),
    doc="the size of `input` with the sign of `other`")  # fmt: skip

# A NaN counts as missing, and a tie goes to self, as in PyTorch.
row("fmax", "self other", "fmax", ELEMENTWISE,
    self=lambda m, g, self, other: m.where((self >= other) | (other != other), g, 0),
    other=lambda m, g, self, other: m.where((self >= other) | (other != other), 0, g),
    refuses="c",
    doc="the larger of two; the other if one is nan")  # fmt: skip
row("fmin", "self other", "fmin", ELEMENTWISE,
    self=lambda m, g, self, other: m.where((self <= other) | (other != other), g, 0),
    other=lambda m, g, self, other: m.where((self <= other) | (other != other), 0, g),
    refuses="c",
    doc="the smaller of two; the other if one is nan")  # fmt: skip
row("clamp_min", "self min", "maximum", ELEMENTWISE,
    self=lambda m, g, self, min: m.where(self >= min, g, 0),
    min=lambda m, g, self, min: m.where(self < min, g, 0), refuses="c", fits="min",
    doc="`input`, at least `min`")  # fmt: skip
row("clamp_max", "self max", "minimum", ELEMENTWISE,
    self=lambda m, g, self, max: m.where(self <= max, g, 0),
    max=lambda m, g, self, max: m.where(self > max, g, 0), refuses="c", fits="max",
    doc="`input`, at most `max`")  # fmt: skip

# Parts and bits -----------------------------------------------------------------------------------

row("frac", "self", lambda xp, self: self - xp.trunc(self), ELEMENTWISE, self=lambda g: g,
    refuses="biuc", doc="what is behind the point, with the sign of `input`")  # fmt: skip


def _largest(dtype: Any) -> float:
    """The largest finite number of a floating-point dtype; NumPy knows no bfloat16."""
    return float(np.finfo(dtype).max) if dtype.kind == "f" else (2 - 2**-7) * 2.0**127


def _nan_to_num(
    xp: Any, self: Array, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Array:  # fmt: skip
    if self.dtype.kind in "biu":
        return self.copy()
    if type(self) is np.ndarray and self.flags.c_contiguous and np.isfinite(self).all():
        return self.copy()
    if self.dtype.kind == "c":  # each part by itself
        parts = [_nan_to_num(xp, x, nan, posinf, neginf) for x in (self.real, self.imag)]
        pairs = xp.stack(parts, -1)
        return pairs.view(self.dtype).reshape(self.shape)
    top = _largest(self.dtype)
    high, low = top if posinf is None else posinf, -top if neginf is None else neginf
    number = xp.where(self != self, 0.0 if nan is None else nan, self)
    return narrow(xp, xp.where(number == inf, high, xp.where(number == -inf, low, number)), self)


def _where_finite(m: Any, g: Any, self: Any) -> Any:
    if not is_complex(self):
        return m.where(m.isfinite(self), g, 0)
    parts = [m.where(m.isfinite(part(self)), part(g), 0) for part in (m.real, m.imag)]
    return m.complex(*parts)


row("nan_to_num", "self", _nan_to_num, ELEMENTWISE, widens=False,
    self=_where_finite,
    doc="with numbers for nan, +inf and -inf")  # fmt: skip
row("heaviside", "self values",
    lambda xp, self, values: xp.where(self == 0, values, self > 0).astype(self.dtype, copy=False),
    promote=SAME, doc="0 where self < 0, 1 where self > 0, values where self == 0",
    public=True, in_place=False, refuses="c")  # fmt: skip
row("signbit", "self", lambda xp, self: xp.signbit(self) if self.dtype.kind not in "biu" else
    self < 0, public=True, doc="whether the sign is minus, that of -0.0 too")  # fmt: skip
row("isposinf", "self", lambda xp, self: self == inf, public=True, refuses="c",
    doc="whether it is +inf")  # fmt: skip
row("isneginf", "self", lambda xp, self: self == -inf, public=True, refuses="c",
    doc="whether it is -inf")  # fmt: skip
row("bitwise_left_shift", "self other", "left_shift", promote="common", refuses="b", public=True,
    doc="bits moved up by `other`")  # fmt: skip
row("bitwise_right_shift", "self other", "right_shift", promote="common", refuses="b", public=True,
    doc="bits moved down by `other`")  # fmt: skip
row("gcd", "self other", "gcd", promote="common", public=True,
    doc="the greatest common divisor of integers")  # fmt: skip
row("lcm", "self other", "lcm", promote="common", public=True,
    doc="the least common multiple of integers")  # fmt: skip
