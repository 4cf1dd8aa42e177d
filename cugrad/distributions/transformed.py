"""Laws of transformed numbers: LogNormal, Gumbel, HalfNormal, Weibull, Pareto and their like.

Source of moments and entropies: Johnson, Kotz & Balakrishnan, Continuous Univariate Distributions,
2nd ed. 1994-95; of Kumaraswamy's, Jones 2009, doi:10.1016/j.stamet.2008.04.001; of LogisticNormal,
Aitchison & Shen 1980, doi:10.1093/biomet/67.2.261.
"""

from __future__ import annotations

from math import inf, log, nan, pi, sqrt
from typing import Any

from ..tensor import Size, Tensor
from . import constraints
from .composite import TransformedDistribution
from .distribution import LIBRARY
from .positive import Exponential, Gamma
from .real_line import Cauchy, Normal
from .transforms import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    StickBreakingTransform,
)
from .unit_interval import Uniform
from .utils import F, broadcast_all, extremes

__all__ = [
    "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma", "Kumaraswamy", "LogNormal",
    "LogisticNormal", "Pareto", "Weibull",
]  # fmt: skip

EULER = 0.5772156649015328606


class _Rebuilt(TransformedDistribution):
    """A law whose `expand` makes it anew of expanded parameters, which its transforms hold."""

    _names: tuple[str, ...] = ()
    base_dist: Any

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        if _instance is None and type(self).__module__.partition(".")[0] == LIBRARY:
            parameters = [getattr(self, name).expand(Size(batch_shape)) for name in self._names]
            law: Any = type(self)
            new = law(*parameters, validate_args=False)
            new._validate_args = self._validate_args
            return new
        return super().expand(batch_shape, _instance)


class LogNormal(TransformedDistribution):
    """The law of exp of normal numbers, of mean `loc` and standard deviation `scale`.

    >>> import cugrad as torch
    >>> torch.distributions.LogNormal(torch.tensor([0.0]), torch.tensor([1.0])).mean
    tensor([1.6487])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True
    base_dist: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        """exp(loc + scale² / 2)."""
        return F.exp(self.loc + self.scale.square() / 2)

    @property
    def mode(self) -> Tensor:
        """exp(loc - scale²)."""
        return F.exp(self.loc - self.scale.square())

    @property
    def variance(self) -> Tensor:
        """(exp(scale²) - 1) exp(2 loc + scale²)."""
        square = self.scale.square()
        return F.expm1(square) * F.exp(2 * self.loc + square)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class _OfScale(TransformedDistribution):
    """|x|, of a law that is symmetric around 0."""

    arg_constraints = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    base_dist: Any
    _law: Any

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        base = type(self)._law(0, scale, validate_args=False)
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the whole law."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        """0."""
        return F.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return F.where(value >= 0, self.base_dist.log_prob(value) + log(2), -inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - log(2)


class HalfNormal(_OfScale):
    """The law of the size of a normal number of mean 0.

    >>> import cugrad as torch
    >>> torch.distributions.HalfNormal(torch.tensor([1.0])).mean
    tensor([0.7979])
    """

    _law = Normal

    @property
    def mean(self) -> Tensor:
        """scale √(2 / π)."""
        return self.scale * sqrt(2 / pi)

    @property
    def variance(self) -> Tensor:
        """scale² (1 - 2 / π)."""
        return self.scale.square() * (1 - 2 / pi)


class HalfCauchy(_OfScale):
    """The law of the size of a Cauchy number of median 0.

    >>> import cugrad as torch
    >>> torch.distributions.HalfCauchy(torch.tensor([1.0])).mean
    tensor([inf])
    """

    _law = Cauchy

    @property
    def mean(self) -> Tensor:
        """inf."""
        return self.scale.new_full(tuple(self._extended_shape()), inf)

    @property
    def variance(self) -> Tensor:
        """inf."""
        return self.base_dist.variance


class Gumbel(_Rebuilt):
    """The law of the largest of many numbers: of loc - scale log(-log u).

    >>> import cugrad as torch
    >>> torch.distributions.Gumbel(torch.tensor([1.0]), torch.tensor([2.0])).mean
    tensor([2.1544])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    _names = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = extremes(self.loc)
        base = Uniform(
            F.full_like(self.loc, limits.tiny), 1 - limits.eps, validate_args=validate_args
        )
        falls = AffineTransform(0, -F.ones_like(self.scale))
        transforms = [ExpTransform().inv, falls, ExpTransform().inv,
                      AffineTransform(self.loc, -self.scale)]  # fmt: skip
        super().__init__(base, transforms, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (self.loc - value) / self.scale
        return z - F.exp(z) - F.log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return F.exp(-F.exp((self.loc - value) / self.scale))

    @property
    def mean(self) -> Tensor:
        """loc + γ scale, of Euler's constant γ."""
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        """`loc`."""
        return self.loc

    @property
    def stddev(self) -> Tensor:
        """π / √6 scale."""
        return pi / sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        """π² / 6 scale²."""
        return self.stddev.square()

    def entropy(self) -> Tensor:
        return F.log(self.scale) + (1 + EULER)


class Weibull(_Rebuilt):
    """The law of scale · e^(1 / concentration), of exponential e.

    >>> import cugrad as torch
    >>> torch.distributions.Weibull(torch.tensor([2.0]), torch.tensor([1.0])).mean
    tensor([2.])
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support: Any = constraints.positive
    _names = ("scale", "concentration")

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(F.ones_like(self.scale), validate_args=validate_args)
        transforms = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, order: int) -> Tensor:
        return F.exp(F.lgamma(1 + order * self.concentration_reciprocal))

    @property
    def mean(self) -> Tensor:
        """scale Γ(1 + 1 / concentration)."""
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        """scale ((concentration - 1) / concentration)^(1 / concentration)."""
        r = self.concentration_reciprocal
        return self.scale * (1 - r).pow(r)

    @property
    def variance(self) -> Tensor:
        """scale² (Γ(1 + 2 / concentration) - Γ(1 + 1 / concentration)²)."""
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    def entropy(self) -> Tensor:
        r = self.concentration_reciprocal
        return EULER * (1 - r) + F.log(self.scale * r) + 1


class Pareto(_Rebuilt):
    """The law of a tail from `scale` on, of density falling as x^-(alpha + 1).

    >>> import cugrad as torch
    >>> torch.distributions.Pareto(torch.tensor([1.0]), torch.tensor([2.0])).mean
    tensor([2.])
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    _names = ("scale", "alpha")

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        transforms = [ExpTransform(), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """alpha scale / (alpha - 1), and inf where alpha <= 1."""
        a = F.where(self.alpha > 1, self.alpha, 2.0)
        return F.where(self.alpha > 1, a * self.scale / (a - 1), inf)

    @property
    def mode(self) -> Tensor:
        """`scale`."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """scale² alpha / ((alpha - 1)² (alpha - 2)), and inf where alpha <= 2."""
        a = F.where(self.alpha > 2, self.alpha, 3.0)
        finite = self.scale.square() * a / ((a - 1).square() * (a - 2))
        return F.where(self.alpha > 2, finite, inf)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `scale` on."""
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Tensor:
        return F.log(self.scale / self.alpha) + (1 + self.alpha.reciprocal())


class Kumaraswamy(_Rebuilt):
    """The law on [0, 1] of cdf 1 - (1 - x^concentration1)^concentration0.

    >>> import cugrad as torch
    >>> torch.distributions.Kumaraswamy(torch.tensor([1.0]), torch.tensor([1.0])).mean
    tensor([0.5000])
    """

    arg_constraints = {
        "concentration1": constraints.positive, "concentration0": constraints.positive
    }  # fmt: skip
    support: Any = constraints.unit_interval
    has_rsample = True
    _names = ("concentration1", "concentration0")

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(
            F.zeros_like(self.concentration0), F.ones_like(self.concentration0),
            validate_args=validate_args,
        )  # fmt: skip
        transforms = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(1.0, -1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, order: int) -> Tensor:
        """b B(1 + n / a, b)."""
        a, b = 1 + order / self.concentration1, self.concentration0
        return F.exp(F.log(b) + F.lgamma(a) + F.lgamma(b) - F.lgamma(a + b))

    @property
    def mean(self) -> Tensor:
        """b B(1 + 1 / a, b)."""
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """((a - 1) / (ab - 1))^(1 / a), and nan where one of them is below 1."""
        a, b = self.concentration1, self.concentration0
        logs = (F.log1p(-a.reciprocal()) - F.log1p(-(a * b).reciprocal())) / a + F.log(b) * -1 / a
        return F.where((a < 1) | (b < 1), nan, F.exp(logs))

    @property
    def variance(self) -> Tensor:
        """The second moment without the square of the mean."""
        return self._moment(2) - self.mean.square()

    def entropy(self) -> Tensor:
        a, b = self.concentration1.reciprocal(), self.concentration0.reciprocal()
        harmonic = F.digamma(self.concentration0 + 1) + EULER
        return (1 - b) + (1 - a) * harmonic + F.log(a) + F.log(b)


class InverseGamma(TransformedDistribution):
    """The law of 1 / x of a gamma number.

    >>> import cugrad as torch
    >>> torch.distributions.InverseGamma(torch.tensor([2.0]), torch.tensor([3.0])).mean
    tensor([3.])
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True
    base_dist: Any

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        inverse = PowerTransform(-base.rate.new_ones(()))
        super().__init__(base, inverse, validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """The shape of the gamma law."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The rate of the gamma law."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        """rate / (concentration - 1), and inf where the concentration is 1 or less."""
        finite = self.rate / (self.concentration - 1)
        return F.where(self.concentration > 1, finite, inf)

    @property
    def mode(self) -> Tensor:
        """rate / (concentration + 1)."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """mean² / (concentration - 2), and inf where the concentration is 2 or less."""
        a = self.concentration
        finite = self.rate.square() / ((a - 1).square() * (a - 2))
        return F.where(a > 2, finite, inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + F.log(self.rate) + F.lgamma(a) - (1 + a) * F.digamma(a)


class LogisticNormal(TransformedDistribution):
    """The law on K-simplexes of K - 1 normal numbers, by stick breaking.

    >>> import cugrad as torch
    >>> torch.distributions.LogisticNormal(torch.zeros(2), torch.ones(2)).event_shape
    torch.Size([3])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex
    has_rsample = True
    base_dist: Any

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal numbers."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Their standard deviations."""
        return self.base_dist.base_dist.scale
