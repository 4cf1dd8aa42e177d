"""Transforms of each element alone: exponentials, powers, affine maps, distribution functions."""

from __future__ import annotations

from math import log
from typing import Any

from ...tensor import Tensor
from .. import constraints
from ..utils import F, extremes, is_number, sum_rightmost
from .transform import Fixed, Transform, widened

__all__ = [
    "AbsTransform", "AffineTransform", "CumulativeDistributionTransform", "ExpTransform",
    "PowerTransform", "SigmoidTransform", "SoftplusTransform", "TanhTransform",
]  # fmt: skip


class ExpTransform(Fixed):
    """y = exp(x)."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x: Any) -> Any:
        return F.exp(x)

    def _inverse(self, y: Any) -> Any:
        return F.log(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return x


class PowerTransform(Transform):
    """y = x^exponent, of positive x."""

    domain, codomain, bijective = constraints.positive, constraints.positive, True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        """The exponent's."""
        return self.exponent.sign()

    def with_cache(self, cache_size: int = 1) -> Any:
        same = self._cache_size == cache_size
        return self if same else PowerTransform(self.exponent, cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _same(self.exponent, other.exponent)

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return F.log((self.exponent * y / x).abs())

    def forward_shape(self, shape: Any) -> Any:
        return F.broadcast_shapes(shape, getattr(self.exponent, "shape", ()))

    inverse_shape = forward_shape


def _clipped_sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), kept inside of (0, 1); programs import it by PyTorch's name."""
    limits = extremes(x)
    return F.sigmoid(x).clamp(min=limits.tiny, max=1 - limits.eps)


class SigmoidTransform(Fixed):
    """y = 1 / (1 + exp(-x)), kept inside of (0, 1)."""

    domain, codomain = constraints.real, constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        limits = extremes(y)
        y = y.clamp(min=limits.tiny, max=1 - limits.eps)
        return F.log(y) - F.log1p(-y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(Fixed):
    """y = log(1 + exp(x))."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x: Any) -> Any:
        return F.softplus(x)

    def _inverse(self, y: Any) -> Any:
        return F.log(-F.expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return -F.softplus(-x)


class TanhTransform(Fixed):
    """y = tanh(x)."""

    domain, codomain = constraints.real, constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return F.tanh(x)

    def _inverse(self, y: Any) -> Any:
        return F.atanh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return 2 * (log(2.0) - x - F.softplus(-2 * x))  # log(1 - tanh²), without cancellation


class AbsTransform(Transform):
    """y = |x|, whose inverse takes the positive branch."""

    domain, codomain = constraints.real, constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = object.__hash__

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(Transform):
    """y = loc + scale · x; `event_dim` is 0, or 1 for vectors, and so on."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """All numbers, or vectors of them."""
        return widened(constraints.real, self.event_dim)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """All numbers, or vectors of them."""
        return widened(constraints.real, self.event_dim)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self.event_dim, cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        return _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = object.__hash__

    @property
    def sign(self) -> Any:
        """The scale's."""
        if is_number(self.scale):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        scale = self.scale if isinstance(self.scale, Tensor) else x.new_tensor(float(self.scale))
        each = F.log(scale.abs())
        shape = F.broadcast_shapes(x.shape, each.shape)
        return sum_rightmost(each.expand(shape), self.event_dim)

    def forward_shape(self, shape: Any) -> Any:
        return F.broadcast_shapes(
            shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ())
        )

    inverse_shape = forward_shape


def _same(a: Any, b: Any) -> bool:
    if is_number(a) and is_number(b):
        return a == b
    return a is b or bool((a == b).all())


class CumulativeDistributionTransform(Transform):
    """y = the cdf of a distribution at x: its draws become uniform, and the inverse undoes that."""

    bijective, codomain, sign = True, constraints.unit_interval, 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        """The distribution's support."""
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Any:
        same = self._cache_size == cache_size
        return self if same else CumulativeDistributionTransform(self.distribution, cache_size)
