"""Laws on the positive numbers that are no transformed ones: Gamma, Exponential and their like.

Source of densities, moments and entropies: Johnson, Kotz & Balakrishnan, Continuous Univariate
Distributions, 2nd ed. 1994-95; of GeneralizedPareto's also Hosking & Wallis 1987,
doi:10.1080/00401706.1987.10488243.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

from ..autograd.recording.record import recorded
from ..tensor import Size, Tensor
from . import constraints
from .distribution import ExponentialFamily, Parametrised
from .utils import F, broadcast_all, extremes, uniform_like

__all__ = ["Chi2", "Exponential", "FisherSnedecor", "Gamma", "GeneralizedPareto"]


def gamma_draws(concentration: Tensor, shape: Any) -> Tensor:
    """Standard gamma numbers: the quantile of a uniform one, which has a gradient by both."""
    a = concentration.expand(tuple(shape))
    return recorded.gamma_quantile(a, uniform_like(a, shape)).clamp(min=extremes(a).tiny)


def log_gamma_draws(concentration: Tensor, shape: Any) -> Tensor:
    """Logarithms of standard gamma numbers, finite for the smallest concentrations.

    A gamma number is one of concentration a + 1 times U^(1/a). Source: Marsaglia & Tsang 2000,
    doi:10.1145/358407.358414, section 6.
    """
    boosted = gamma_draws(concentration + 1, shape)
    return F.log(boosted) + F.log(uniform_like(concentration, shape)) / concentration


def chi2_draws(df: Tensor, shape: Any) -> Tensor:
    """Numbers of the chi-squared law."""
    return 2 * gamma_draws(0.5 * df, shape)


class Gamma(Parametrised, ExponentialFamily):
    """The gamma law of a shape, `concentration`, and a rate, 1 / scale.

    A draw is the quantile of a uniform number, so that it has gradients of every order.

    >>> import cugrad as torch
    >>> torch.distributions.Gamma(torch.tensor([3.0]), torch.tensor([2.0])).mean
    tensor([1.5000])
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _parameters = {"concentration": 0, "rate": 0}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """concentration / rate."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        """(concentration - 1) / rate, or 0."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """concentration / rate²."""
        return self.concentration / self.rate.square()

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        drawn = gamma_draws(self.concentration, self._extended_shape(sample_shape)) / self.rate
        return drawn.clamp(min=extremes(drawn).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        powers = F.xlogy(a, self.rate) + F.xlogy(a - 1, value)
        return powers - self.rate * value - F.lgamma(a)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - F.log(self.rate) + F.lgamma(a) + (1 - a) * F.digamma(a)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return F.lgamma(x + 1) - (x + 1) * F.log(-y)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return F.igamma(*F.broadcast_tensors(self.concentration, self.rate * value))


class Chi2(Gamma):
    """The chi-squared law: the sum of the squares of `df` standard normal numbers.

    >>> import cugrad as torch
    >>> torch.distributions.Chi2(torch.tensor([4.0])).variance
    tensor([8.])
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (df,) = broadcast_all(df)
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom, twice the concentration."""
        return self.concentration * 2


class Exponential(Parametrised, ExponentialFamily):
    """The law of waiting times of a given rate.

    >>> import cugrad as torch
    >>> torch.distributions.Exponential(torch.tensor([2.0])).mean
    tensor([0.5000])
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _parameters = {"rate": 0}

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """1 / rate."""
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        """0."""
        return F.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        """1 / rate."""
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        """1 / rate²."""
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        return -F.log(uniform_like(self.rate, self._extended_shape(sample_shape))) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return F.log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -F.expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -F.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - F.log(self.rate)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return -F.log(-natural_params[0])


class FisherSnedecor(Parametrised):
    """The F law: the ratio of two chi-squared numbers, each over its degrees of freedom.

    >>> import cugrad as torch
    >>> torch.distributions.FisherSnedecor(torch.tensor([2.0]), torch.tensor([4.0])).mean
    tensor([2.])
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _parameters = {"df1": 0, "df2": 0}

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """df2 / (df2 - 2), and nan where df2 <= 2."""
        df2 = F.where(self.df2 > 2, self.df2, nan)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        """(df1 - 2) / df1 · df2 / (df2 + 2), and nan where df1 <= 2."""
        shape = F.where(self.df1 > 2, (self.df1 - 2) / self.df1, nan)
        return shape * self.df2 / (self.df2 + 2)

    @property
    def variance(self) -> Tensor:
        """2 df2² (df1 + df2 - 2) / (df1 (df2 - 2)² (df2 - 4)), and nan where df2 <= 4."""
        df1, df2 = self.df1, F.where(self.df2 > 4, self.df2, nan)
        return 2 * df2.square() * (df1 + df2 - 2) / (df1 * (df2 - 2).square() * (df2 - 4))

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        shape = self._extended_shape(sample_shape)
        tiny = extremes(self.df1).tiny
        above = chi2_draws(self.df1, shape) / self.df1
        below = (chi2_draws(self.df2, shape) / self.df2).clamp(min=tiny)
        return (above / below).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        half1, half2, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        beta = F.lgamma(half1 + half2) - F.lgamma(half1) - F.lgamma(half2)
        powers = half1 * F.log(ratio) + (half1 - 1) * F.log(value)
        return beta + powers - (half1 + half2) * F.log1p(ratio * value)


class GeneralizedPareto(Parametrised):
    """The law of excesses over a threshold `loc`, of a scale and a shape, `concentration`.

    Its support ends at loc - scale / concentration where the concentration is negative.

    >>> import cugrad as torch
    >>> torch.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
    tensor(2.)
    """

    arg_constraints = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real
    }  # fmt: skip
    has_rsample = True
    _parameters = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.size(), validate_args=validate_args)

    def _limited(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is 0, at which the law is exponential; and it, or 1 there."""
        k = self.concentration
        flat = k.abs() < extremes(k).eps * 10
        return flat, F.where(flat, 1.0, k)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        u = uniform_like(self.loc, self._extended_shape(sample_shape))
        return self._quantile_of_survival(F.log(u))

    def _quantile_of_survival(self, log_survival: Tensor) -> Tensor:
        flat, k = self._limited()
        return self.loc + self.scale * F.where(flat, -log_survival, F.expm1(-k * log_survival) / k)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log(1 - cdf)."""
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        flat, k = self._limited()
        return F.where(flat, -z, -F.log1p(k * F.where(flat, 0.0, z)) / k)

    def log_prob(self, value: Tensor) -> Tensor:
        log_survival = self.log_survival_function(value)
        return (1 + self.concentration) * log_survival - F.log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        return -F.expm1(self.log_survival_function(value))

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`."""
        return F.log(self.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._quantile_of_survival(F.log1p(-value))

    @property
    def mean(self) -> Tensor:
        """loc + scale / (1 - concentration), and inf from a concentration of 1."""
        k = self.concentration
        heavy = k >= 1
        return F.where(heavy, inf, self.loc + self.scale / (1 - F.where(heavy, 0.0, k)))

    @property
    def variance(self) -> Tensor:
        """scale² / ((1 - k)² (1 - 2k)) of the concentration k, and inf from 1/2."""
        heavy = self.concentration >= 0.5
        k = F.where(heavy, 0.0, self.concentration)
        return F.where(heavy, inf, self.scale.square() / ((1 - k).square() * (1 - 2 * k)))

    @property
    def mode(self) -> Tensor:
        """`loc`."""
        return self.loc

    def entropy(self) -> Tensor:
        return F.log(self.scale) + self.concentration + 1

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `loc`, up to the end that a negative concentration has."""
        end = F.where(self.concentration < 0, self.loc - self.scale / self.concentration, inf)
        return constraints.interval(self.loc, end)
