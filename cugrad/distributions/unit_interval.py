"""Laws on an interval, or on a simplex: Uniform, Beta, Dirichlet, ContinuousBernoulli.

Source of densities, moments and entropies: Johnson, Kotz & Balakrishnan, Continuous Univariate
Distributions, vol. 2, 1995; Kotz et al., Continuous Multivariate Distributions, 2000, chapter 49;
of ContinuousBernoulli's, Loaiza-Ganem & Cunningham 2019, arXiv:1907.06845.
"""

from __future__ import annotations

from math import log, nan
from typing import Any

from ..tensor import Size, Tensor
from . import constraints
from .distribution import ExponentialFamily, Parametrised
from .positive import log_gamma_draws
from .utils import (
    F,
    broadcast_all,
    clamp_probs,
    decided,
    extremes,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    uniform_like,
)

__all__ = ["Beta", "ContinuousBernoulli", "Dirichlet", "Uniform"]


class Uniform(Parametrised):
    """The uniform law on [low, high).

    ValueError unless low < high.

    >>> import cugrad as torch
    >>> torch.distributions.Uniform(0.0, torch.tensor([4.0])).mean
    tensor([2.])
    """

    has_rsample = True
    _parameters = {"low": 0, "high": 0}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.size(), validate_args=validate_args)

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """Each bound is below, or above, the other."""
        return {
            "low": constraints.less_than(self.high),
            "high": constraints.greater_than(self.low),
        }

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """The interval, its end included."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        """The middle."""
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        """nan: every value is as likely."""
        return self.high * nan

    @property
    def stddev(self) -> Tensor:
        """(high - low) / √12."""
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        """(high - low)² / 12."""
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        shape = self._extended_shape(sample_shape)
        return self.low + uniform_like(self.low, shape) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        inside = (self.low <= value) & (self.high > value)
        return F.log(inside.to(self.low.dtype)) - F.log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return F.log(self.high - self.low)


class Dirichlet(Parametrised, ExponentialFamily):
    """The law of probabilities of K classes, of concentrations (..., K).

    A draw is the softmax of logarithms of gamma numbers, and differentiable.

    >>> import cugrad as torch
    >>> torch.distributions.Dirichlet(torch.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _parameters = {"concentration": 1}

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        drawn = log_gamma_draws(self.concentration, self._extended_shape(sample_shape))
        limits = extremes(drawn)
        return F.softmax(drawn, dim=-1).clamp(min=limits.tiny, max=1 - limits.eps / 2)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return F.xlogy(self.concentration - 1, value).sum(-1) + self._log_scale()

    def _log_scale(self) -> Tensor:
        return F.lgamma(self.concentration.sum(-1)) - F.lgamma(self.concentration).sum(-1)

    @property
    def mean(self) -> Tensor:
        """The shares of the concentrations."""
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        """The shares of concentration - 1; a corner where no concentration is above 1."""
        above = (self.concentration - 1).clamp(min=0.0)
        total = above.sum(-1, True)
        classes = F.arange(above.shape[-1], device=above.device)
        corner = (classes == self.concentration.argmax(-1, True)).to(above.dtype)
        flat = (self.concentration < 1).all(-1, True)
        return F.where(flat, corner, above / F.where(flat, 1.0, total))

    @property
    def variance(self) -> Tensor:
        """mean (1 - mean) / (1 + the sum of concentrations)."""
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.shape[-1]
        total = a.sum(-1)
        slopes = (total - k) * F.digamma(total) - ((a - 1) * F.digamma(a)).sum(-1)
        return slopes - self._log_scale()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x = natural_params[0]
        return F.lgamma(x).sum(-1) - F.lgamma(x.sum(-1))


class Beta(Parametrised, ExponentialFamily):
    """The beta law on [0, 1], of density x^(concentration1 - 1) (1 - x)^(concentration0 - 1) / B.

    >>> import cugrad as torch
    >>> torch.distributions.Beta(torch.tensor([1.0]), torch.tensor([3.0])).mean
    tensor([0.2500])
    """

    arg_constraints = {
        "concentration1": constraints.positive, "concentration0": constraints.positive
    }  # fmt: skip
    support = constraints.unit_interval
    has_rsample = True
    _kept = ()

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        both = broadcast_all(concentration1, concentration0)
        self._dirichlet = Dirichlet(F.stack(both, -1), validate_args=validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._dirichlet = self._dirichlet.expand(batch_shape)
        return new

    @property
    def concentration1(self) -> Tensor:
        """The concentration towards 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """The concentration towards 0."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        """concentration1 / (concentration1 + concentration0)."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """(concentration1 - 1) / (their sum - 2); an end where neither is above 1."""
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        """mean (1 - mean) / (1 + the sum of concentrations)."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        powers = F.xlogy(a - 1, value) + F.xlogy(b - 1, 1 - value)
        return powers + F.lgamma(a + b) - F.lgamma(a) - F.lgamma(b)

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        x, y = natural_params
        return F.lgamma(x) + F.lgamma(y) - F.lgamma(x + y)


class ContinuousBernoulli(Parametrised, ExponentialFamily):
    """The law on [0, 1] of density proportional to p^x (1 - p)^(1 - x), of probs or logits.

    Within `lims` of p = 1/2, where the formulas cancel, series take their place.

    >>> import cugrad as torch
    >>> torch.distributions.ContinuousBernoulli(torch.tensor([0.5])).mean
    tensor([0.5000])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample = True
    _parameters = {"probs": 0, "logits": 0}
    _kept = ("_lims",)

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
            if validate_args is not None and not decided(
                self.arg_constraints["probs"].check(self.probs)
            ):
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        else:
            (self.logits,) = broadcast_all(logits)
        self._lims = lims
        shape = (self.probs if probs is not None else self.logits).size()
        super().__init__(shape, validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """The log odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter as a probability."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return vars(self)["probs" if "probs" in vars(self) else "logits"].size()

    def _split(self) -> tuple[Tensor, Tensor]:
        """Where p is outside of `lims`, and p there, else the lower of them."""
        outside = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return outside, F.where(outside, self.probs, self._lims[0])

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of 2 artanh(1 - 2p) / (1 - 2p), around 1/2 of its series."""
        outside, p = self._split()
        ratio = (F.log1p(-p) - F.log(p)) / (1 - 2 * p)
        x = (self.probs - 0.5).square()
        return F.where(outside, F.log(ratio), log(2) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        """p / (2p - 1) + 1 / (2 artanh(1 - 2p))."""
        outside, p = self._split()
        exact = p / (2 * p - 1) + 1 / (F.log1p(-p) - F.log(p))
        x = self.probs - 0.5
        return F.where(outside, exact, 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return F.sqrt(self.variance)

    @property
    def variance(self) -> Tensor:
        """p (p - 1) / (1 - 2p)² + 1 / (2 artanh(1 - 2p))²."""
        outside, p = self._split()
        exact = p * (p - 1) / (1 - 2 * p).square() + (F.log1p(-p) - F.log(p)).pow(-2)
        x = (self.probs - 0.5).square()
        return F.where(outside, exact, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        return self.icdf(uniform_like(self.probs, self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, logits = F.broadcast_tensors(value, self.logits)
        return value * logits - F.softplus(logits) + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        outside, p = self._split()
        exact = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        inside = F.where(outside, exact, value)
        return F.where(value <= 0, 0.0, F.where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        outside, p = self._split()
        step = F.log1p(-p + value * (2 * p - 1)) - F.log1p(-p)
        return F.where(outside, step / (F.log(p) - F.log1p(-p)), value)

    def entropy(self) -> Tensor:
        low, high = F.log1p(-self.probs), F.log(self.probs)
        return self.mean * (low - high) - self._cont_bern_log_norm() - low

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        """log((e^x - 1) / x), around 0 of its series."""
        x = natural_params[0]
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = F.where(outside, x, self._lims[0] - 0.5)
        exact = F.log(F.expm1(cut).abs()) - F.log(cut.abs())
        return F.where(outside, exact, 0.5 * x + x.square() / 24 - x.pow(4) / 2880)
