"""Laws on the whole line, and on the circle: Normal, Laplace, Cauchy, StudentT, VonMises.

Source of densities, moments and entropies: Johnson, Kotz & Balakrishnan, Continuous Univariate
Distributions, 2nd ed. 1994-95; of StudentT's and VonMises' also Lange, Little & Taylor 1989, Mardia
& Jupp 2000.
"""

from __future__ import annotations

from math import inf, log, nan, pi, sqrt
from typing import Any

from ..autograd import no_grad
from ..autograd.recording.record import recorded
from ..functions.creation.random import bernoulli
from ..tensor import Size, Tensor
from . import constraints
from .distribution import ExponentialFamily, Parametrised
from .positive import chi2_draws
from .utils import F, broadcast_all, normal_like, uniform_like

__all__ = ["Cauchy", "Laplace", "Normal", "StudentT", "VonMises"]


class LocationScale(Parametrised):
    """A law of `loc + scale * z`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _parameters = {"loc": 0, "scale": 0}
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The expected value, `loc`."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """The most likely value, `loc`."""
        return self.loc

    def _z(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (value - self.loc) / self.scale


class Normal(LocationScale, ExponentialFamily):
    """The normal law of mean `loc` and standard deviation `scale`.

    A step of a variational autoencoder: a gradient flows through the draw.

    >>> import cugrad as torch
    >>> from cugrad.distributions import Normal
    >>> mean, scale = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> q, prior = Normal(mean, scale), Normal(torch.zeros(2), torch.ones(2))
    >>> z = q.rsample()
    >>> loss = (z - 1).square().sum() + (q.log_prob(z) - prior.log_prob(z)).sum()
    >>> loss.backward()
    >>> torch.allclose(mean.grad, 2 * (z - 1).detach() + z.detach())
    True
    """

    _mean_carrier_measure = 0

    @property
    def stddev(self) -> Tensor:
        """The standard deviation, `scale`."""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """scale²."""
        return self.scale.square()

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        noise = normal_like(self.loc, self._extended_shape(sample_shape))
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return self._z(value).square() * -0.5 - F.log(self.scale) - 0.5 * log(2 * pi)

    def cdf(self, value: Tensor) -> Tensor:
        return (1 + F.erf(self._z(value) * sqrt(0.5))) * 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * F.erfinv(2 * value - 1) * sqrt(2)

    def entropy(self) -> Tensor:
        return F.log(self.scale) + (0.5 + 0.5 * log(2 * pi))

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.loc / self.scale.square(), -0.5 * self.scale.square().reciprocal()

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return -0.25 * x.square() / y + 0.5 * F.log(-pi / y)


class Laplace(LocationScale):
    """The law of density exp(-|x - loc| / scale) / (2 scale).

    >>> import cugrad as torch
    >>> torch.distributions.Laplace(0.0, 1.0).cdf(torch.tensor(0.0))
    tensor(0.5000)
    """

    @property
    def variance(self) -> Tensor:
        """2 scale²."""
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Tensor:
        """√2 scale."""
        return sqrt(2) * self.scale

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        # An exponential number with a random sign: exact in the tails, and never infinite.
        u = uniform_like(self.loc, self._extended_shape(sample_shape))
        sign = 2 * bernoulli(u * 0 + 0.5) - 1
        return self.loc - self.scale * sign * F.log(u)

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._z(value).abs() - F.log(2 * self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        z = self._z(value)
        return 0.5 - 0.5 * z.sign() * F.expm1(-z.abs())

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * F.log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + F.log(2 * self.scale)


class Cauchy(LocationScale):
    """The law of median `loc` and half width `scale` at half its height; it has no mean.

    >>> import cugrad as torch
    >>> torch.distributions.Cauchy(0.0, 1.0).icdf(torch.tensor(0.75))
    tensor(1.)
    """

    @property
    def mean(self) -> Tensor:
        """nan: there is none."""
        return self.loc.new_full(tuple(self._extended_shape()), nan)

    @property
    def variance(self) -> Tensor:
        """inf."""
        return self.loc.new_full(tuple(self._extended_shape()), inf)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        u = uniform_like(self.loc, self._extended_shape(sample_shape))
        return self.loc + self.scale * F.tan(pi * (u - 0.5))

    def log_prob(self, value: Tensor) -> Tensor:
        return -log(pi) - F.log(self.scale) - F.log1p(self._z(value).square())

    def cdf(self, value: Tensor) -> Tensor:
        return F.atan(self._z(value)) / pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return F.tan(pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return log(4 * pi) + F.log(self.scale)


class StudentT(Parametrised):
    """Student's law of `df` degrees of freedom, moved by `loc` and stretched by `scale`.

    >>> import cugrad as torch
    >>> torch.distributions.StudentT(torch.tensor([3.0])).variance
    tensor([3.])
    """

    arg_constraints = {
        "df": constraints.positive, "loc": constraints.real, "scale": constraints.positive
    }  # fmt: skip
    support = constraints.real
    has_rsample = True
    _parameters = {"df": 0, "loc": 0, "scale": 0}

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """`loc`, and nan for one degree of freedom or less."""
        return F.where(self.df > 1, self.loc, nan)

    @property
    def mode(self) -> Tensor:
        """`loc`."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """scale² df / (df - 2); inf for df in (1, 2], nan for 1 and below."""
        heavy = self.df <= 2
        kept = F.where(heavy, 3.0, self.df)
        finite = self.scale.square() * kept / (kept - 2)
        return F.where(heavy, F.where(self.df > 1, inf, nan).to(finite.dtype), finite)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        shape = self._extended_shape(sample_shape)
        noise, squares = normal_like(self.df, shape), chi2_draws(self.df, shape)
        return self.loc + self.scale * noise * F.rsqrt(squares / self.df)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        half = 0.5 * self.df
        constant = F.log(self.scale) + 0.5 * F.log(pi * self.df)
        constant = constant + F.lgamma(half) - F.lgamma(half + 0.5)
        return -(half + 0.5) * F.log1p(z.square() / self.df) - constant

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        log_beta = F.lgamma(half) + F.lgamma(half * 0 + 0.5) - F.lgamma(half + 0.5)
        slope = F.digamma(half + 0.5) - F.digamma(half)
        return F.log(self.scale) + (half + 0.5) * slope + 0.5 * F.log(self.df) + log_beta


class VonMises(Parametrised):
    """The law on the circle of density proportional to exp(concentration · cos(x - loc)).

    Draws lie in [-π, π). Source: Best & Fisher 1979, doi:10.2307/2346732.

    >>> import cugrad as torch
    >>> torch.distributions.VonMises(torch.tensor([1.0]), torch.tensor([4.0])).mean
    tensor([1.])
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _parameters = {"loc": 0, "concentration": 0}

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.size(), validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        # log I₀(k) = log(I₀(k) e^-k) + k, so that large concentrations do not overflow.
        k = self.concentration
        return k * (F.cos(value - self.loc) - 1) - log(2 * pi) - F.log(recorded.special_i0e(k))

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            shape = self._extended_shape(sample_shape)
            angle = _best_fisher(self.concentration.double().expand(shape))
            turned = angle + self.loc.double()
            return (F.remainder(turned + pi, 2 * pi) - pi).to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """The direction `loc`."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """`loc`."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance, 1 - I₁(concentration) / I₀(concentration)."""
        k = self.concentration
        return 1 - recorded.special_i1e(k) / recorded.special_i0e(k)


def _best_fisher(k: Tensor) -> Tensor:
    """Angles around 0 of concentrations `k`: a wrapped Cauchy law's, of which some are refused.

    Below 1e-5 the parameter of that law is its series 1 / k + k, for 1 - ρ² cancels.
    """
    tau = 1 + F.sqrt(1 + 4 * k.square())
    rho = (tau - F.sqrt(2 * tau)) / (2 * k)
    r = F.where(k < 1e-5, k.reciprocal() + k, (1 + rho.square()) / (2 * rho))
    angle, done = k * 0, k < 0
    while not bool(done.all()):
        u1, u2, u3 = (uniform_like(k, k.shape) for _ in range(3))
        z = F.cos(pi * u1)
        f = ((1 + r * z) / (r + z)).clamp(-1, 1)
        c = k * (r - f)
        kept = (c * (2 - c) > u2) | (F.log(c / u2) + 1 - c >= 0)
        angle = F.where(kept & ~done, (u3 - 0.5).sign() * F.acos(f), angle)
        done = done | kept
    return angle
