"""Rows whose every output element depends on one element of each input."""

from __future__ import annotations

import cmath
from math import inf, log, nan, pi, sqrt
from typing import Any

from ..backends import backend_of, get
from ..backends.copies import copied_as_it_lies
from ..dtypes import is_floating
from .dims import keeps_order
from .flops import each_flops
from .precision import is_complex, narrow, wide
from .promotion import SCALARS, as_of
from .table import ELEMENTWISE, LINEAR, in_order, row

# Arithmetic ---------------------------------------------------------------------------------------

row("add", "self other", "add", ELEMENTWISE, self=lambda g: g, other=lambda g: g, flops=each_flops,
    number_first="alpha", doc="input + other")  # fmt: skip
row("sub", "self other", "subtract", ELEMENTWISE, self=lambda g: g, other=lambda g: -g,
    number_first="alpha", doc="input - other")  # fmt: skip
row("mul", "self other", "multiply", ELEMENTWISE,
    self=lambda g, other: g * other, other=lambda g, self: g * self, flops=each_flops,
    exact="other", doc="input * other")  # fmt: skip
row("div", "self other", "true_divide", ELEMENTWISE, promote="float", exact="other",
    self=lambda g, other: g / other,
    other=lambda g, self, other: -g * (self / other) / other, doc="input / other")  # fmt: skip
row("neg", "self", "negative", ELEMENTWISE, widens=False, self=lambda g: -g, doc="-input")
row("square", "self", "square", ELEMENTWISE, self=lambda g, self: g * (self * 2), doc="input²")
row("reciprocal", "self", "reciprocal", ELEMENTWISE, promote="float",
    self=lambda g, result: -g * (result * result), doc="1 / input")  # fmt: skip


def _flat(m: Any, g: Any) -> Any:
    """The gradient of steps: 0, for any g, and a function of g (`g * 0` would make nan of inf)."""
    return m.where(m.abs(g) < 0, g, 0)


def _pow_self(m: Any, g: Any, self: Any, exponent: Any) -> Any:
    if isinstance(exponent, (bool, int, float, complex)):
        return _flat(m, g) if exponent == 0 else g * (self ** (exponent - 1) * exponent)
    return m.where(exponent == 0, 0, g * (exponent * self ** (exponent - 1)))


def _pow_exponent(m: Any, g: Any, self: Any, exponent: Any, result: Any) -> Any:
    power = m.real(exponent) if is_complex(exponent) else exponent
    if isinstance(self, (bool, int, float, complex)):
        if self == 0:
            return m.where(power >= 0, 0, g * (result * -inf))
        return g * (result * _log(complex(self) if is_complex(result) else self))
    flat = m.logical_and(self == 0, power >= 0)  # d 0^x = 0, though log 0 = -inf
    return m.where(flat, 0, g * (result * m.log(self)))


def _log(base: complex) -> complex:
    """The logarithm of a Python number; nan for negative real ones."""
    if isinstance(base, complex):
        return cmath.log(base)
    return log(base) if base > 0 else nan


def _pow(xp: Any, self: Any, exponent: Any) -> Any:
    if type(exponent) in (int, float) and exponent in (-2, 2, 3, 4) and _is_wide_float(self):
        square = self * self  # NumPy's power takes 40 times as long where the base is negative
        if exponent == 2:
            return square
        return 1 / square if exponent == -2 else square * (self if exponent == 3 else square)
    power = _power(xp, self, exponent)
    if type(self) in SCALARS:
        power = in_order(xp, power)
    return power.astype(bool) if _is_bool(self) and _is_bool(exponent) else power


def _power(xp: Any, self: Any, exponent: Any) -> Any:
    """self ** exponent, where integers to negative powers are cut to 0, 1 or -1."""
    signed = getattr(getattr(exponent, "dtype", None), "kind", "") == "i"
    base = getattr(getattr(self, "dtype", None), "kind", "f" if type(self) is float else "i")
    if not signed or base not in "iub" or isinstance(self, complex):
        return self**exponent
    whole = self ** xp.maximum(exponent, 0)
    odd = xp.where(exponent % 2 == 1, -1, 1)
    cut = xp.where(self == 1, 1, xp.where(self == -1, odd, 0)).astype(whole.dtype)
    return xp.where(exponent < 0, cut, whole)


def _is_wide_float(x: Any) -> bool:
    return x.dtype.kind in "fc" and x.dtype.itemsize > 2


def _is_bool(x: Any) -> bool:  # NumPy's power of booleans is int8, PyTorch's is bool
    return isinstance(x, bool) or getattr(getattr(x, "dtype", x), "kind", "") == "b"


row("pow", "self exponent", _pow, ELEMENTWISE, passes=1,
    self=_pow_self, exponent=_pow_exponent, fits="exponent",
    doc="input to the power `exponent`")  # fmt: skip


row("floor_divide", "self other", "floor_divide", ELEMENTWISE,
    self=_flat, other=_flat, refuses="b",
    doc="the quotient, rounded down")  # fmt: skip


def _div_trunc(xp: Any, self: Any, other: Any) -> Any:
    """Tensors of half precision have a quotient that is rounded before it is cut."""
    if hasattr(other, "dtype"):
        return xp.trunc(xp.true_divide(self, other))
    return narrow(xp, xp.trunc(wide(xp, self) / other), self)


row("div_trunc", "self other", _div_trunc, ELEMENTWISE, promote="float", widens=False, passes=1,
    self=_flat, other=_flat, public=False, refuses="c", node="DivBackward1")  # fmt: skip
row("remainder", "self other", "remainder", ELEMENTWISE,
    self=lambda g: g, other=lambda m, g, self, other: -g * m.floor_divide(self, other),
    refuses="b", doc="input - other * floor(input / other), with the sign of `other`")  # fmt: skip
row("fmod", "self other", "fmod", ELEMENTWISE,
    self=lambda g: g, other=lambda m, g, self, other: -g * m.div_trunc(self, other),
    refuses="b", doc="the remainder of the division, with the sign of `input`")  # fmt: skip

# Exponentials and logarithms ----------------------------------------------------------------------

row("exp", "self", "exp", ELEMENTWISE, promote="float", self=lambda g, result: g * result,
    doc="e to the power `input`")  # fmt: skip
row("exp2", "self", "exp2", ELEMENTWISE, promote="float",
    self=lambda g, result: g * (result * log(2)), doc="2 to the power `input`")  # fmt: skip
row("expm1", "self", "expm1", ELEMENTWISE, promote="float", self=lambda g, result: g * (result + 1),
    doc="exp(input) - 1, exact also near 0")  # fmt: skip
row("log", "self", "log", ELEMENTWISE, promote="float", self=lambda g, self: g / self,
    doc="the natural logarithm")  # fmt: skip
row("log2", "self", "log2", ELEMENTWISE, promote="float", self=lambda g, self: g / (self * log(2)),
    doc="the logarithm to the base 2")  # fmt: skip
row("log10", "self", "log10", ELEMENTWISE, promote="float",
    self=lambda g, self: g / (self * log(10)), doc="the logarithm to the base 10")  # fmt: skip
row("log1p", "self", "log1p", ELEMENTWISE, promote="float", self=lambda g, self: g / (self + 1),
    doc="log(1 + input), exact also near 0")  # fmt: skip
row("sqrt", "self", "sqrt", ELEMENTWISE, promote="float", self=lambda g, result: g / (result * 2),
    doc="the square root, nan below 0")  # fmt: skip
row("rsqrt", "self", lambda xp, self: 1 / xp.sqrt(self), ELEMENTWISE, promote="float",
    self=lambda g, result: g * (result * result * result * -0.5), doc="1 / √input")  # fmt: skip

# Trigonometric and hyperbolic ---------------------------------------------------------------------

row("sin", "self", "sin", ELEMENTWISE, promote="float", self=lambda m, g, self: g * m.cos(self),
    doc="the sine of radians")  # fmt: skip
row("cos", "self", "cos", ELEMENTWISE, promote="float", self=lambda m, g, self: -g * m.sin(self),
    doc="the cosine of radians")  # fmt: skip
row("tan", "self", "tan", ELEMENTWISE, promote="float",
    self=lambda g, result: g * (result * result + 1), doc="the tangent of radians")  # fmt: skip
row("asin", "self", "arcsin", ELEMENTWISE, promote="float",
    self=lambda m, g, self: g * m.rsqrt(1 - self * self),
    doc="the inverse of the sine, in radians")  # fmt: skip
row("acos", "self", "arccos", ELEMENTWISE, promote="float",
    self=lambda m, g, self: -g * m.rsqrt(1 - self * self),
    doc="the inverse of the cosine, in radians")  # fmt: skip
row("atan", "self", "arctan", ELEMENTWISE, promote="float",
    self=lambda g, self: g / (self * self + 1),
    doc="the inverse of the tangent, in radians")  # fmt: skip


def _squared_length(m: Any, x: Any, y: Any) -> Any:
    """Of a point; 1 for that where no angle is, so that its gradient is zero."""
    square = x * x + y * y
    return m.where(square == 0, 1.0, square)


row("atan2", "self other", "arctan2", ELEMENTWISE, promote="float",
    self=lambda m, g, self, other: g * (other / _squared_length(m, self, other)),
    other=lambda m, g, self, other: -g * (self / _squared_length(m, self, other)),
    doc="the angle of the point (other, input), in [-π, π]")  # fmt: skip
row("sinh", "self", "sinh", ELEMENTWISE, promote="float", self=lambda m, g, self: g * m.cosh(self),
    doc="the hyperbolic sine")  # fmt: skip
row("cosh", "self", "cosh", ELEMENTWISE, promote="float", self=lambda m, g, self: g * m.sinh(self),
    doc="the hyperbolic cosine")  # fmt: skip
row("tanh", "self", "tanh", ELEMENTWISE, promote="float",
    self=lambda m, g, result: m.tanh_backward(g, result),
    doc="the hyperbolic tangent")  # fmt: skip


def _tanh_backward(xp: Any, grad_output: Any, output: Any) -> Any:
    y = wide(xp, output)
    return narrow(xp, wide(xp, grad_output) * (1 - y * y), grad_output)


row("tanh_backward", "grad_output output", _tanh_backward, ELEMENTWISE, promote="same",
    grad_output=lambda m, g, output: m.tanh_backward(g, output),
    output=lambda g, grad_output, output: g * (grad_output * output * -2),
    doc="the product of the derivative of tanh, at the result output, with grad_output",
    public=False, refuses="biu",
)  # fmt: skip
row("asinh", "self", "arcsinh", ELEMENTWISE, promote="float",
    self=lambda m, g, self: g * m.rsqrt(self * self + 1),
    doc="the inverse of the hyperbolic sine")  # fmt: skip
row("acosh", "self", "arccosh", ELEMENTWISE, promote="float",
    self=lambda m, g, self: g * (m.rsqrt(self - 1) * m.rsqrt(self + 1)),
    doc="the inverse of the hyperbolic cosine")  # fmt: skip
row("atanh", "self", "arctanh", ELEMENTWISE, promote="float",
    self=lambda g, self: g / (1 - self * self),
    doc="the inverse of the hyperbolic tangent")  # fmt: skip

# Activations and special functions ----------------------------------------------------------------


def _sigmoid(xp: Any, self: Any) -> Any:
    below = xp.quick_exp(self, -1)
    below += 1
    return 1 / below


row("sigmoid", "self", _sigmoid, ELEMENTWISE, promote="float",
    self=lambda g, result: g * (result * (1 - result)),  # dσ = σ(1-σ)
    doc="1 / (1 + exp(-input))")  # fmt: skip


row("relu", "self", "positive_part", ELEMENTWISE, out=False,
    self=lambda m, g, result: m.where(result != 0, g, 0),  # not > 0: a nan lets it pass
    refuses="bc", doc="input where it is above 0, else 0")  # fmt: skip
row("erf", "self", "erf", ELEMENTWISE, promote="float",
    self=lambda m, g, self: g * (m.exp(-(self * self)) * (2 / sqrt(pi))), refuses="c",
    doc="the error function")  # fmt: skip

# Rounding and signs -------------------------------------------------------------------------------

row("abs", "self", "abs", ELEMENTWISE, holomorphic=False, widens=False,
    self=lambda m, g, self: g * m.sgn(self),
    jvp=lambda m, self, self_t: m.real(m.conj(m.sgn(self)) * self_t),
    doc="the absolute value")  # fmt: skip


def _sign(xp: Any, self: Any) -> Any:
    """NumPy's sign, but of booleans too, and 0 where there is none, as PyTorch has it."""
    if _is_bool(self):
        return self.copy()
    sign = xp.sign(self)
    return xp.where(self == self, sign, 0) if is_floating(self.dtype) else sign


row("sgn", "self", _sign, ELEMENTWISE, holomorphic=False,
    self=lambda m, g, self, result: _tangential(m, g, self, result),
    jvp=lambda m, self, self_t, result: _tangential(m, self_t, self, result),
    doc="the sign; of a complex number, that of length 1 in its direction")  # fmt: skip


def _tangential(m: Any, g: Any, self: Any, sgn: Any) -> Any:
    """The part of `g` across z, over |z|: zero for real numbers and at the origin."""
    size = m.abs(self)
    radial = m.real(m.conj(sgn) * g)
    return m.where(size == 0, 0, (g - sgn * radial) / m.where(size == 0, 1, size))


row("sign", "self", _sign, ELEMENTWISE, self=_flat, refuses="c", doc="-1, 0 or 1")
row("floor", "self", "floor", ELEMENTWISE, self=_flat, refuses="bc", doc="rounded down")
row("ceil", "self", "ceil", ELEMENTWISE, self=_flat, refuses="bc", doc="rounded up")
row("round", "self", "round", ELEMENTWISE, self=_flat, refuses="bc",
    doc="rounded to the nearest, of two the even one, to `decimals` digits")  # fmt: skip
row("trunc", "self", "trunc", ELEMENTWISE, self=_flat, refuses="bc", doc="rounded towards 0")

# Choosing -----------------------------------------------------------------------------------------

row("where", "condition self other",
    lambda xp, condition, self, other: xp.where(condition, self, other), ELEMENTWISE,
    self=lambda m, g, condition: m.where(condition, g, 0),
    other=lambda m, g, condition: m.where(condition, 0, g), fits="self other", public=False,
    widens=False)  # fmt: skip
row("maximum", "self other", "maximum", ELEMENTWISE,
    self=lambda m, g, self, other: m.where(self == other, g / 2, m.where(self < other, 0, g)),
    other=lambda m, g, self, other: m.where(self == other, g / 2, m.where(other < self, 0, g)),
    refuses="c",
    doc="the larger of two; nan if one is")  # fmt: skip
row("minimum", "self other", "minimum", ELEMENTWISE,
    self=lambda m, g, self, other: m.where(self == other, g / 2, m.where(self > other, 0, g)),
    other=lambda m, g, self, other: m.where(self == other, g / 2, m.where(other > self, 0, g)),
    refuses="c",
    doc="the smaller of two; nan if one is")  # fmt: skip


def _clamp_gradient(m: Any, g: Any, self: Any, min: Any, max: Any) -> Any:
    if min is not None and max is not None:
        return m.where((self >= min) & (self <= max), g, 0)
    return m.where(self >= min if min is not None else self <= max, g, 0)


def _clamp(xp: Any, self: Any, min: Any = None, max: Any = None) -> Any:
    return narrow(xp, xp.clip(self, as_of(self, min), as_of(self, max)), self)


row("clamp", "self", _clamp, ELEMENTWISE, widens=False,
    passes=1,  # the cast: NumPy makes float32 of bfloat16 and a float
    node="ClampBackward1", self=_clamp_gradient, fits="min max", public=False)  # fmt: skip

# Comparison and logic -----------------------------------------------------------------------------

for _name, _function, _doc in (
    ("eq", "equal", "input == other"), ("ne", "not_equal", "input != other"),
    ("lt", "less", "input < other"), ("le", "less_equal", "input <= other"),
    ("gt", "greater", "input > other"), ("ge", "greater_equal", "input >= other"),
    ("logical_and", "logical_and", "whether both are not 0"),
    ("logical_or", "logical_or", "whether one is not 0"),
    ("logical_xor", "logical_xor", "whether just one is not 0"),
    ("bitwise_and", "bitwise_and", "the bits that both have"),
    ("bitwise_or", "bitwise_or", "the bits that one has"),
    ("bitwise_xor", "bitwise_xor", "the bits that just one has"),
):  # fmt: skip
    refused = "c" if _name in ("lt", "le", "gt", "ge") else ""  # complex numbers have no order
    row(_name, "self other", _function, promote="common", public=True, refuses=refused, doc=_doc)
for _name, _function, _doc in (
    ("logical_not", "logical_not", "whether it is 0"), ("bitwise_not", "invert", "all bits turned"),
    ("isnan", "isnan", "whether it is nan"), ("isinf", "isinf", "whether it is infinite"),
    ("isfinite", "isfinite", "whether it is neither infinite nor nan"),
):  # fmt: skip
    row(_name, "self", _function, public=True, out=not _name.startswith("is"), doc=_doc)

# Complex parts ------------------------------------------------------------------------------------

row("real", "self", lambda xp, self: xp.real(self).copy(), ELEMENTWISE, holomorphic=False,
    self=lambda g: g, jvp=lambda m, self_t: m.real(self_t), public=False, widens=False,
    passes=1)  # fmt: skip
row("imag", "self", lambda xp, self: xp.imag(self).copy(), ELEMENTWISE, holomorphic=False,
    self=lambda g: g * 1j, jvp=lambda m, self_t: m.imag(self_t), public=False)  # fmt: skip
row("conj", "self", "conj", ELEMENTWISE, holomorphic=False, out=False, widens=False,
    node="ConjPhysicalBackward0",
    self=lambda m, g: m.conj(g), jvp=lambda m, self_t: m.conj(self_t),
    doc="the complex conjugate")  # fmt: skip


def _angle(xp: Any, self: Any) -> Any:
    """Of a real number 0 or π, nan for nan; NumPy has π for -0.0 as well."""
    if self.dtype.kind == "c":
        return in_order(xp, xp.angle(self))
    return xp.where(self < 0, self.dtype.type(pi), xp.where(self == self, self.dtype.type(0), self))


def _turn(m: Any, g: Any, self: Any) -> Any:
    """arg z turns across z; that of 0, which has no direction, and of real numbers not at all."""
    if not is_complex(self):
        return g * m.zero_like(self)
    return g * (self * 1j) / (m.square(m.abs(self)) + (self == 0))


row("angle", "self", _angle, ELEMENTWISE, holomorphic=False, promote="float", in_place=False,
    self=_turn,
    jvp=lambda m, self, self_t: (
        m.imag(m.conj(self) * self_t) / (m.square(m.abs(self)) + (self == 0))
        if is_complex(self) else self_t * m.zero_like(self)),
    doc="the angle of a complex number, in radians")  # fmt: skip

# Copies to another dtype or device ----------------------------------------------------------------


def _to_dtype(xp: Any, self: Any, dtype: Any) -> Any:
    source, cast = self if keeps_order(self) else self.copy("C"), xp.cast
    return source.astype(dtype) if cast is None else cast(source, dtype)


row("to_dtype", "self", _to_dtype, ELEMENTWISE,
    node="ToCopyBackward0", holomorphic=False, widens=False, passes=1,
    self=lambda g: g, jvp=lambda m, self_t, dtype: m.to_dtype(self_t, dtype),
    public=False)  # fmt: skip


def _to_device(xp: Any, self: Any, device_type: str, index: int | None, home: Any) -> Any:
    backend = get(device_type)
    host = backend_of(self).to_host(self)
    if not host.flags.c_contiguous:
        host = copied_as_it_lies(host)
    with backend.use_device(index):
        array = backend.asarray(host)
    return array.copy() if array is self else array


row("to_device", "self", _to_device, LINEAR, node="ToCopyBackward0",
    self=lambda m, g, device_type, index, home: m.to_device(
        g, home[0], home[1], (device_type, index)))  # fmt: skip


def _copy(xp: Any, self: Any, src: Any) -> Any:
    if not hasattr(src, "dtype"):
        return xp.full(self.shape, src, self.dtype)
    cast = xp.cast if src.shape == self.shape and src.dtype != self.dtype else None
    if cast is not None:
        return cast(src, self.dtype)
    return xp.broadcast_to(src, self.shape).astype(self.dtype)


row("copy", "self src", _copy, node="torch::autograd::CopyBackwards", promote="cast",
    inplace=lambda xp, self, src: xp.copyto(self, src, casting="unsafe"),
    self=lambda m, g: m.zero_like(g), src=lambda g: g,
    jvp=lambda m, self, src_t: (
        m.zero_like(self) if src_t is None else m.copy(m.zero_like(self), src_t))
    )  # fmt: skip

# Floating-point numbers by their parts ------------------------------------------------------------

row("nextafter", "self other", "nextafter", ELEMENTWISE, widens=False, refuses="biuc",
    self=lambda m, g, self, other: m.masked_fill(g, m.eq(self, other), 0),
    other=lambda m, g: m.zero_like(g),
    doc="the next number of the dtype after `input` towards `other`")  # fmt: skip


def _less_two_to(m: Any, g: Any, exponent: Any) -> Any:
    """g / 2^exponent, by a power that no dtype overflows at."""
    return g / m.exp2(m.copy(m.zero_like(g), exponent - 1)) / 2


row("frexp", "self", lambda xp, self: tuple(xp.frexp(self)), outputs="mantissa exponent",
    nondifferentiable="exponent",
    self=lambda m, g, exponent: _less_two_to(m, g, exponent),
    jvp=lambda m, self_t, exponent: (_less_two_to(m, self_t, exponent), None))  # fmt: skip
