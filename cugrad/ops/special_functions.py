"""Rows of the gamma, error and Bessel functions and of the orthogonal polynomials.

`xp.special` is scipy.special or cupyx.scipy.special. Derivatives: DLMF, chapters 5, 7, 8, 10, 25.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb, exp, factorial, inf, pi, sqrt
from typing import Any

from ..backends.batched.arrays import BatchedArray
from ..backends.copies import in_its_order
from .precision import narrow, wide
from .special import _pair
from .table import ELEMENTWISE, FLOAT, row

TINY = 2.0**-1022  # the smallest normal number

Array = Any


def _of(name: str) -> Callable[..., Array]:
    """A function of one variable of `xp.special`, computed in float32 for half precision."""
    return lambda xp, self: narrow(xp, getattr(xp.special, name)(wide(xp, self)), self)


def _first_of(name: str) -> Callable[..., Array]:
    """As `_of`, of a function with several results; SciPy has the only one, airy."""
    return lambda xp, self: narrow(xp, getattr(xp.special, name)(wide(xp, self))[0], self)


def _of_two(name: str) -> Callable[..., Array]:
    """As `_of`, of two variables, of which one may be a number."""

    def call(xp: Any, self: Any, other: Any) -> Array:
        x, y = _pair(xp, self, other)
        return narrow(xp, getattr(xp.special, name)(wide(xp, x), wide(xp, y)), x)

    return call


# The gamma function and its relatives ------------------------------------------------------------


def _lgamma(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    value = xp.where(x == -inf, inf, xp.special.gammaln(x))
    size = xp.abs(x)  # SciPy's is inf at denormal numbers
    return narrow(xp, xp.where((size < TINY) & (size > 0), -xp.log(size), value), self)


def _polygamma(xp: Any, self: Array, n: int) -> Array:
    x = wide(xp, self)
    if n == 0:
        return narrow(xp, xp.special.digamma(x), self)
    order = xp.full((), n + 1, x.dtype)
    return narrow(xp, xp.special.zeta(order, x) * float((-1) ** (n + 1) * factorial(n)), self)


row("lgamma", "self", _lgamma, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self: g * m.digamma(self), refuses="c", doc="log |Γ(input)|")  # fmt: skip
row("digamma", "self", _of("digamma"), ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self: g * m.polygamma(self, 1), refuses="c",
    doc="the derivative of log Γ")  # fmt: skip
row("polygamma", "self", _polygamma, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, n: g * m.polygamma(self, n + 1), refuses="c",
    doc="the derivative of digamma, n times")  # fmt: skip
row("special_zeta", "self other", _of_two("zeta"), ELEMENTWISE, promote=FLOAT,
    other=lambda m, g, self, other: g * (-self * m.special_zeta(self + 1, other)),
    refuses="c")  # fmt: skip


def _gamma_density(m: Any, self: Any, other: Any) -> Any:
    """The density at `other` of the gamma distribution of shape `self`."""
    return m.exp((self - 1) * m.log(other) - other - m.lgamma(self))


row("igamma", "self other", _of_two("gammainc"), ELEMENTWISE, promote=FLOAT, in_place=False,
    other=lambda m, g, self, other: g * _gamma_density(m, self, other),
    doc="the lower regularised incomplete gamma function")  # fmt: skip
row("igammac", "self other", _of_two("gammaincc"), ELEMENTWISE, promote=FLOAT, in_place=False,
    other=lambda m, g, self, other: -g * _gamma_density(m, self, other),
    doc="the upper regularised incomplete gamma function")  # fmt: skip

# Draws of the gamma distribution ------------------------------------------------------------------

NODES, STEP = 70, 0.11  # a trapezoidal rule, whose sum has 12 digits


def _bell(order: int, terms: list[Any]) -> Any:
    """The complete Bell polynomial: the derivative of `order` of exp(h), over exp(h).

    `terms` are the derivatives of h. Source: Comtet 1974, Advanced Combinatorics, 3.3.
    """
    values: list[Any] = [1.0]
    for n in range(order):
        values.append(sum(comb(n, i) * values[n - i] * terms[i] for i in range(n + 1)))
    return values[order]


def _gamma_cdf_slope(xp: Any, self: Array, other: Array, order: int = 1) -> Array:
    """∂ⁿP(a, x) / ∂aⁿ over the density p(x), by the integral of ∂ⁿp / ∂aⁿ on the shorter side of x.

    With t = x exp(∓w) the integrand decays; the double exponential substitution is Takahasi &
    Mori's of 1974, doi:10.2977/prims/1195192451, for decay like exp(-w).
    """
    a, x = (v.astype(xp.float64) for v in (wide(xp, self), wide(xp, other)))
    x = xp.maximum(x, 1e-300)
    log_x = xp.log(x)
    constants = [-_polygamma(xp, a, n) for n in range(order)]
    below = x < xp.maximum(a, 1.0)
    root = xp.sqrt(x)
    scale = xp.where(below, 1 / xp.minimum(a, xp.maximum(a - x, 0) + root),
                     xp.minimum(1 / (xp.maximum(x - a, 0) + root), 1.0))  # fmt: skip
    side = xp.where(below, -1.0, 1.0)
    total = a * 0
    for i in range(NODES):
        at = i * STEP - 3.4
        node = exp(at - exp(-at))
        w = scale * node
        term = [log_x + side * w + constants[0], *constants[1:]]
        weight = xp.exp(side * (a * w) - x * xp.expm1(side * w))
        total = total + weight * _bell(order, term) * (node * (1 + exp(-at)) * STEP)
    return narrow(xp, -side * total * scale * x, self)


def _gamma_log_slope(m: Any, self: Any, other: Any, order: int) -> Any:
    terms = [m.log(other) - m.digamma(self), *(-m.polygamma(self, n) for n in range(1, order))]
    return _bell(order, terms)


row("gamma_cdf_slope", "self other", _gamma_cdf_slope, ELEMENTWISE, promote=FLOAT, public=False,
    self=lambda m, g, self, other, result, order: g * (
        m.gamma_cdf_slope(self, other, order + 1)
        - result * (m.log(other) - m.digamma(self))),
    other=lambda m, g, self, other, result, order: g * (
        _gamma_log_slope(m, self, other, order) - result * ((self - 1) / other - 1)),
    doc="the n-th derivative by `self` of `igamma(self, other)`, over that by `other`",
    refuses="c")  # fmt: skip
row("gamma_quantile", "self other", _of_two("gammaincinv"), ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, result: -g * m.gamma_cdf_slope(self, result, 1),
    other=lambda m, g, self, result: g / _gamma_density(m, self, result), public=False,
    doc="the x of which `igamma(self, x)` is `other`: a draw of the gamma distribution",
    refuses="c")  # fmt: skip

# The error function and the normal distribution ---------------------------------------------------


def _erfinv(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    return narrow(xp, xp.copysign(xp.special.erfinv(x), x), self)  # SciPy's of -0.0 is 0.0


row("erfinv", "self", _erfinv, ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, result: g * (m.exp(result * result) * (sqrt(pi) / 2)), spared=True,
    doc="the inverse of the error function")  # fmt: skip
row("special_erfcx", "self", _of("erfcx"), ELEMENTWISE, promote=FLOAT,
    self=lambda g, self, result: g * (self * result * 2 - 2 / sqrt(pi)), refuses="c")  # fmt: skip
row("special_log_ndtr", "self", _of("log_ndtr"), ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, result: m.where(
        self < 0,  # the clamps: no inf in the branch not taken
        g * sqrt(2 / pi) / m.special_erfcx(m.clamp(self, None, 0) * -sqrt(0.5)),
        g * m.exp(m.square(m.clamp(self, 0, None)) * -0.5 - m.clamp(result, -0.7, None))
        / sqrt(2 * pi)), refuses="c")  # fmt: skip
row("special_ndtri", "self", _of("ndtri"), ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, result: g * (m.exp(result * result * 0.5) * sqrt(2 * pi)))  # fmt: skip

# Bessel functions ---------------------------------------------------------------------------------


def _over(m: Any, value: Any, self: Any) -> Any:
    """value / self for an odd function of slope 1/2 at zero, where it is 1/2."""
    zero = self == 0
    return m.where(zero, 0.5, value / m.where(zero, 1, self))


row("i0", "self", _of("i0"), ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self: g * m.special_i1(self), doc="the Bessel function I₀")  # fmt: skip
row("special_i0e", "self", _of("i0e"), ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, result: g * (m.special_i1e(self) - m.sgn(self) * result))  # fmt: skip
row("special_i1", "self", _of("i1"), ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, result: g * (m.i0(self) - _over(m, result, self)))  # fmt: skip
row("special_i1e", "self", _of("i1e"), ELEMENTWISE, promote=FLOAT,
    self=lambda m, g, self, result: g * (
        m.special_i0e(self) - m.sgn(self) * result - _over(m, result, self)))  # fmt: skip

# PyTorch differentiates none of the rows below.
for _name, _function in (
    ("bessel_j0", "j0"), ("bessel_j1", "j1"), ("bessel_y0", "y0"), ("bessel_y1", "y1"),
    ("modified_bessel_i0", "i0"), ("modified_bessel_i1", "i1"), ("modified_bessel_k0", "k0"),
    ("modified_bessel_k1", "k1"), ("scaled_modified_bessel_k0", "k0e"),
    ("scaled_modified_bessel_k1", "k1e"),
):  # fmt: skip
    row("special_" + _name, "self", _of(_function), promote=FLOAT)


def _spherical_j0(xp: Any, self: Array) -> Array:
    x = wide(xp, self)
    at = xp.where((x == 0) | (xp.abs(x) == inf), 1, x)
    ratio = xp.where(x == 0, 1, xp.sin(at) / at)
    return narrow(xp, xp.where(xp.abs(x) == inf, 0, ratio), self)


row("special_airy_ai", "self", _first_of("airy"), promote=FLOAT, refuses="c")  # CuPy has none
row("special_spherical_bessel_j0", "self", _spherical_j0, promote=FLOAT, refuses="c")

# Orthogonal polynomials ---------------------------------------------------------------------------

# name -> the polynomial of degree 1, and that of degree k + 1 from those of degree k - 1 and k
POLYNOMIALS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "chebyshev_polynomial_t": (lambda x: x, lambda x, k, p, q: 2 * x * q - p),
    "chebyshev_polynomial_u": (lambda x: 2 * x, lambda x, k, p, q: 2 * x * q - p),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, lambda x, k, p, q: 2 * x * q - p),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, lambda x, k, p, q: 2 * x * q - p),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda x, k, p, q: 2 * x * q - 2 * k * p),
    "hermite_polynomial_he": (lambda x: x, lambda x, k, p, q: x * q - k * p),
    "laguerre_polynomial_l": (
        lambda x: 1 - x, lambda x, k, p, q: ((2 * k + 1 - x) * q - k * p) / (k + 1)),
    "legendre_polynomial_p": (
        lambda x: x, lambda x, k, p, q: ((2 * k + 1) * x * q - k * p) / (k + 1)),
}  # fmt: skip


def _polynomial(name: str, shifted: bool = False) -> Callable[..., Array]:
    """The polynomial of degree n at x; 0 for a degree that is negative or not finite."""
    first, following = POLYNOMIALS[name]

    def call(xp: Any, self: Any, n: Any) -> Array:
        degrees = n
        while isinstance(degrees, BatchedArray):  # of vmap: the highest of the whole batch
            degrees = degrees.values
        degrees = xp.where(xp.isfinite(degrees), degrees, 0)  # there, too, nothing is counted up to
        highest = degrees.max() if degrees.size else 0
        self, n = _pair(xp, self, n)
        x, degree = wide(xp, self), xp.trunc(n)
        x = 2 * x - 1 if shifted else x
        p, q = xp.ones_like(x), first(x)
        out = xp.where(degree == 0, p, xp.where(degree == 1, q, 0))
        for k in range(1, int(highest)):  # waits for a GPU where the degrees are a tensor
            p, q = q, following(x, k, p, q)
            out = xp.where(degree == k + 1, q, out)
        return narrow(xp, out, self)

    def forward(xp: Any, self: Any, n: Any) -> Array:
        if getattr(n, "ndim", 0):
            return call(xp, self, n)
        return in_its_order(self, lambda x: call(xp, x, n))

    return forward


for _name in POLYNOMIALS:
    row("special_" + _name, "self n", _polynomial(_name), promote=FLOAT)
    if _name.startswith("chebyshev"):
        row("special_shifted_" + _name, "self n", _polynomial(_name, True), promote=FLOAT)
