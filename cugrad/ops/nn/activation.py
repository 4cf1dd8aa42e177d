"""Rows of the activation functions of neural networks, and of a loss that acts on elements."""

from __future__ import annotations

from math import inf, pi, sqrt
from typing import Any

from ..precision import narrow, wide
from ..promotion import as_of
from ..table import ELEMENTWISE, FLOAT, SAME, row

Array = Any

# Smooth -------------------------------------------------------------------------------------------

# tanh(√(2/π) (x + 0.044715 x³)) is close to erf(x / √2): https://arxiv.org/abs/1606.08415.
_GELU_SLOPE, _GELU_CUBE = sqrt(2 / pi), 0.044715


def _gelu(xp: Any, self: Array, approximate: str = "none") -> Array:
    x = wide(xp, self)
    if approximate == "tanh":
        below = xp.tanh((x + x * x * x * _GELU_CUBE) * _GELU_SLOPE)
        below += 1
        below *= 0.5
    else:
        below = xp.normal_cdf(x)
    below *= x
    return narrow(xp, below, self)


def _gelu_gradient(m: Any, g: Any, self: Any, approximate: str) -> Any:
    if approximate != "tanh":  # d x Φ(x) = Φ(x) + x φ(x)
        return g * (m.normal_cdf(self) + self * m.normal_density(self))
    square = self * self
    inner = m.tanh((self + self * square * _GELU_CUBE) * _GELU_SLOPE)
    bend = (square * (3 * _GELU_CUBE) + 1) * (0.5 * _GELU_SLOPE)
    return g * ((inner + 1) * 0.5 + self * (1 - inner * inner) * bend)


row(
    "gelu",
    "self",
    _gelu,
    ELEMENTWISE,
    promote=FLOAT,
    self=_gelu_gradient,
    public=False,
    refuses="c",
)


def _normal_density(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    density = xp.quick_exp(x * x, -0.5)
    density *= 1 / sqrt(2 * pi)
    return narrow(xp, density, self)


row("normal_cdf", "self", "normal_cdf", ELEMENTWISE, promote=FLOAT, public=False, refuses="c",
    self=lambda m, g, self: g * m.normal_density(self),
    doc="Φ, the probability of a number below, in the standard normal distribution")  # fmt: skip
row("normal_density", "self", _normal_density, ELEMENTWISE, promote=FLOAT, public=False,
    self=lambda g, self, result: -g * (self * result), refuses="c",
    doc="φ, the density of the standard normal distribution")  # fmt: skip


def _silu(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    below = xp.quick_exp(x, -1)
    below += 1
    return narrow(xp, x / below, self)


def _silu_gradient(m: Any, g: Any, self: Any) -> Any:
    s = m.sigmoid(self)
    return g * (s * (self * (1 - s) + 1))


row("silu", "self", _silu, ELEMENTWISE, promote=FLOAT, self=_silu_gradient, public=False)


def _gate(xp: Any, self: Array, other: Array) -> Array:
    return narrow(xp, wide(xp, self) / (xp.quick_exp(wide(xp, other), -1) + 1), self)


def _gate_gradient(m: Any, g: Any, self: Any, other: Any) -> Any:
    s = m.sigmoid(other)
    return g * self * (s * (1 - s))


row("gate", "self other", _gate, ELEMENTWISE, promote=FLOAT, node="GluBackward0",
    self=lambda m, g, other: g * m.sigmoid(other), other=_gate_gradient,
    doc="self * sigmoid(other); keeps no sigmoid", public=False)  # fmt: skip


def _softplus(xp: Any, self: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    x = wide(xp, self)
    scaled = x * beta
    return narrow(xp, xp.where(scaled > threshold, x, xp.log1p(xp.exp(scaled)) / beta), self)


row("softplus", "self", _softplus, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, beta, threshold: m.where(
        self * beta > threshold, g, g * m.sigmoid(self * beta)), public=False,
    refuses="c")  # fmt: skip


def _mish(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    return narrow(xp, x * xp.tanh(xp.logaddexp(x, 0)), self)


def _mish_gradient(m: Any, g: Any, self: Any) -> Any:
    t = m.tanh(m.softplus(self))  # tanh of softplus is 1 beyond softplus's threshold
    return g * (t + self * m.sigmoid(self) * (1 - t * t))


row("mish", "self", _mish, ELEMENTWISE, promote=FLOAT, self=_mish_gradient, public=False,
    refuses="c")  # fmt: skip


# Losses of a difference, which is not kept: its operands are.


def _difference(xp: Any, self: Array, other: Array) -> Array:
    return wide(xp, self) - wide(xp, other)


def _huber(xp: Any, self: Array, other: Array, delta: float = 1.0) -> Array:
    d = _difference(xp, self, other)
    return narrow(xp, _bent(xp, xp.abs(d), delta), self)


def _bent(xp: Any, size: Array, bend: float) -> Array:
    """Half the square up to `bend`, and from there on the line that goes on as it ends."""
    least = xp.minimum(size, bend)
    return least * (size - 0.5 * least)


# hardtanh, not clamp: its derivative at delta itself is that of the line, as in PyTorch
row("huber", "self other", _huber, ELEMENTWISE, promote=FLOAT,
    node="HuberLossBackward0",
    self=lambda m, g, self, other, delta: g * m.hardtanh(self - other, -delta, delta),
    other=lambda m, g, self, other, delta: g * m.hardtanh(other - self, -delta, delta),
    public=False, doc="half the square of a difference within delta, and from there on a line",
    refuses="c")  # fmt: skip


def _smooth_l1(xp: Any, self: Array, other: Array, beta: float = 1.0) -> Array:
    d = _difference(xp, self, other)
    size = xp.abs(d)
    return narrow(xp, _bent(xp, size, beta) / beta if beta else size, self)


row("smooth_l1", "self other", _smooth_l1, ELEMENTWISE, promote=FLOAT,
    node="SmoothL1LossBackward0",
    self=lambda m, g, self, other, beta: g * m.hardtanh((self - other) / beta, -1.0, 1.0),
    other=lambda m, g, self, other, beta: g * m.hardtanh((other - self) / beta, -1.0, 1.0),
    public=False, doc="huber, over beta", refuses="c")  # fmt: skip


def _log_sigmoid(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    return narrow(xp, xp.minimum(x, 0) - xp.log1p(xp.exp(-xp.abs(x))), self)


row("log_sigmoid", "self", _log_sigmoid, ELEMENTWISE, dense=True, promote=FLOAT,
    self=lambda m, g, self: g * m.sigmoid(-self), public=False, refuses="c")  # fmt: skip

# Smooth on either side of zero --------------------------------------------------------------------


def _elu(
    xp: Any, self: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Array:
    x = wide(xp, self)
    bent = xp.expm1(x * input_scale) * (alpha * scale)
    return narrow(xp, xp.where(x > 0, x * scale, bent), self)


def _below_zero(m: Any, x: Any) -> Any:
    """What the exponential is of, without inf in the branch not taken; at 0 it is flat, so that
    the second derivative is that of the line, as in PyTorch.
    """
    return m.hardtanh(x, -inf, 0.0)


row("elu", "self", _elu, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, alpha, scale, input_scale: m.where(
        self <= 0,
        g * (m.exp(_below_zero(m, self) * input_scale) * (alpha * scale * input_scale)),
        g * scale),
    public=False,
    refuses="c",
)  # fmt: skip


def _celu(xp: Any, self: Array, alpha: float = 1.0) -> Array:
    x = wide(xp, self)
    return narrow(xp, xp.where(x > 0, x, xp.expm1(x / alpha) * alpha), self)


row("celu", "self", _celu, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, alpha: m.where(
        self <= 0, g * m.exp(_below_zero(m, self) / alpha), g), public=False,
    refuses="c")  # fmt: skip

# Piecewise linear ---------------------------------------------------------------------------------
# The result tells the piece as well as the input does, and is what the next layer keeps anyway. For
# PyTorch, which keeps the input, the result may be changed in place: these rows are `spared`.

row("leaky_relu", "self",
    lambda xp, self, negative_slope=0.01: narrow(xp,
        xp.where(self > 0, self, self * negative_slope), self),
    ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, result, negative_slope: m.where(result > 0, g, g * negative_slope),
    spared=True,
    doc="self where positive, else negative_slope, which is not negative, times self",
    public=False, refuses="c")  # fmt: skip
row("prelu_kernel", "self weight",
    lambda xp, self, weight: xp.where(self > 0, self, self * weight), ELEMENTWISE, promote=SAME,
    self=lambda m, g, self, weight: m.where(self > 0, g, g * weight),
    weight=lambda m, g, self: m.where(self > 0, 0, g * self),
    doc="self where positive, else weight * self; weight broadcasts", public=False,
    refuses="biuc")  # fmt: skip


def _rounded(value: float, x: Any) -> float:
    """`value` in the dtype of `x`, to which a comparison with bfloat16 would not round it."""
    kind = getattr(x.dtype, "numpy", x.dtype)
    return float(kind.type(value))


row("hardtanh", "self",
    lambda xp, self, min_val=-1.0, max_val=1.0: narrow(xp, xp.clip(self, min_val, max_val), self),
    ELEMENTWISE, widens=False,
    self=lambda m, g, result, min_val, max_val: m.where(
        (result <= _rounded(min_val, result)) | (result >= _rounded(max_val, result)), 0, g),
    public=False, spared=True,
    refuses="bc", fits="min_val max_val",
)  # fmt: skip
row("hardsigmoid", "self",
    lambda xp, self: narrow(xp, xp.clip(wide(xp, self) + 3, 0, 6) / 6, self),
    ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, result: m.where((result > 0) & (result < 1), g / 6, 0),
    public=False, spared=True, refuses="c")  # fmt: skip


def _hardswish(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    return narrow(xp, x * xp.clip(x + 3, 0, 6) / 6, self)


row("hardswish", "self", _hardswish, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self: m.where(
        self <= -3, 0, m.where(self < 3, g * (self / 3 + 0.5), g)), public=False,
    refuses="c")  # fmt: skip
row("hardshrink", "self",
    lambda xp, self, lambd=0.5: xp.where((self >= -lambd) & (self <= lambd), 0, self),
    ELEMENTWISE, widens=False,
    self=lambda m, g, result: m.where(m.eq(result, 0), 0, g), refuses="biuc", spared=True,
    doc="0 where |input| <= lambd")  # fmt: skip
row("softshrink", "self",
    lambda xp, self, lambd=0.5: narrow(xp, self - xp.clip(self, -lambd, lambd), self),
    ELEMENTWISE, widens=False,
    self=lambda m, g, result: m.where(m.eq(result, 0), 0, g), public=False, spared=True,
    refuses="biuc")  # fmt: skip


def _threshold(xp: Any, self: Array, threshold: Any, value: Any) -> Array:
    return narrow(xp, xp.where(self <= as_of(self, threshold), as_of(self, value), self), self)


row("threshold", "self", _threshold, ELEMENTWISE, widens=False,
    self=lambda m, g, self, threshold: m.where(self <= threshold, 0, g), public=False,
    refuses="bc", fits="threshold value")  # fmt: skip

# Binary cross entropy -----------------------------------------------------------------------------


def _binary_cross_entropy(xp: Any, input: Array, target: Array) -> Array:
    x, t = wide(xp, input), wide(xp, target)
    yes, no = xp.maximum(xp.log(x), -100), xp.maximum(xp.log1p(-x), -100)
    return narrow(xp, -(t * yes + (1 - t) * no), input)


# The logarithms are at least -100, as in PyTorch: 0 and 1 have finite losses, and gradients.
row("binary_cross_entropy_each", "input target", _binary_cross_entropy, ELEMENTWISE, promote=SAME,
    node="BinaryCrossEntropyBackward0",
    input=lambda m, g, input, target: (
        g * (input - target) / m.clamp(input * (1 - input), 1e-12, None)),
    target=lambda m, g, input: -g * m.logit(input),
    doc="-(target * log(input) + (1 - target) * log(1 - input)), for probabilities",
    public=False, refuses="c")  # fmt: skip


def _with_logits(xp: Any, input: Array, target: Array) -> Array:
    x, t = wide(xp, input), wide(xp, target)
    log_sigmoid = xp.minimum(x, 0) - xp.log1p(xp.exp(-xp.abs(x)))
    return narrow(xp, (1 - t) * x - log_sigmoid, input)


row("binary_cross_entropy_with_logits_each", "input target", _with_logits, ELEMENTWISE,
    promote=FLOAT, node="BinaryCrossEntropyWithLogitsBackward0",
    input=lambda m, g, input, target: g * (m.sigmoid(input) - target),
    target=lambda g, input: -g * input,
    doc="binary_cross_entropy_each of sigmoid(input), in log space",
    public=False, refuses="c")  # fmt: skip
