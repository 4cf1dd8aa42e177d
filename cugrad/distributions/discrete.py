"""Laws of events that happen or not, and of counts: Bernoulli, Binomial, Poisson, Geometric.

Source of probabilities, moments and entropies: Johnson, Kemp & Kotz, Univariate Discrete
Distributions, 3rd ed. 2005. Relaxed ones: Maddison, Mnih & Teh 2017, arXiv:1611.00712.
"""

from __future__ import annotations

from math import nan
from typing import Any

from ..autograd import no_grad
from ..functions.creation import drawing
from ..functions.creation.random import bernoulli
from ..tensor import Size, Tensor
from . import constraints
from .composite import TransformedDistribution
from .distribution import ExponentialFamily, Parametrised
from .positive import gamma_draws
from .transforms import SigmoidTransform
from .utils import (
    F,
    broadcast_all,
    clamp_probs,
    decided,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    uniform_like,
)

__all__ = [
    "Bernoulli", "Binomial", "Geometric", "LogitRelaxedBernoulli", "NegativeBinomial", "Poisson",
    "RelaxedBernoulli",
]  # fmt: skip


class OfChance(Parametrised):
    """A law of `probs`, or of their log odds, `logits`, of which one is given."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    _parameters = {"probs": 0, "logits": 0}

    def _take(self, probs: Any, logits: Any, *others: Any) -> tuple[Tensor, ...]:
        """Sets the one that is given, and broadcasts others with it; ValueError unless one is."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            *rest, self.probs = broadcast_all(*others, probs)
        else:
            *rest, self.logits = broadcast_all(*others, logits)
        return tuple(rest)

    @lazy_property
    def logits(self) -> Tensor:
        """The log odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def _given(self) -> Tensor:
        return vars(self)["probs"] if "probs" in vars(self) else vars(self)["logits"]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._given.size()

    def _log_likelihood(self, value: Tensor) -> Tensor:
        """x log p + (1 - x) log(1 - p), of the log odds."""
        logits, value = F.broadcast_tensors(self.logits, value)
        return value * logits - F.softplus(logits)

    def _binary_entropy(self) -> Tensor:
        return F.softplus(self.logits) - self.probs * self.logits


class Bernoulli(OfChance, ExponentialFamily):
    """The law of 1 with probability `probs`, else 0.

    >>> import cugrad as torch
    >>> torch.distributions.Bernoulli(torch.tensor([0.25])).log_prob(torch.ones(1)).exp()
    tensor([0.2500])
    """

    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take(probs, logits)
        super().__init__(self._given.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """`probs`."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """0 or 1, and nan where they are as likely."""
        return F.where(self.probs == 0.5, nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._log_likelihood(value)

    def entropy(self) -> Tensor:
        return self._binary_entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = F.arange(2, dtype=self._given.dtype, device=self._given.device)
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (F.logit(self.probs),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return F.softplus(natural_params[0])


class Geometric(OfChance):
    """The law of the number of failures before the first success.

    >>> import cugrad as torch
    >>> torch.distributions.Geometric(torch.tensor([0.25])).mean
    tensor([3.])
    """

    support = constraints.nonnegative_integer

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take(probs, logits)
        super().__init__(self._given.size(), validate_args=validate_args)
        if self._validate_args and probs is not None and not decided(self.probs > 0):
            raise ValueError(
                f"Expected parameter probs (Tensor of shape {tuple(self.probs.shape)}) of "
                f"distribution {self!r} to be positive but found invalid values:\n{self.probs}"
            )

    @property
    def mean(self) -> Tensor:
        """1 / probs - 1."""
        return self.probs.reciprocal() - 1

    @property
    def mode(self) -> Tensor:
        """0."""
        return F.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        """(1 / probs - 1) / probs."""
        return (self.probs.reciprocal() - 1) / self.probs

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            u = uniform_like(self.probs, self._extended_shape(sample_shape))
            return F.floor(F.log(u) / F.log1p(-self.probs))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = F.broadcast_tensors(value, self.probs)
        certain = (probs == 1) & (value == 0)
        return value * F.log1p(-F.where(certain, 0.0, probs)) + F.log(self.probs)

    def entropy(self) -> Tensor:
        return self._binary_entropy() / self.probs


class Binomial(OfChance):
    """The law of the number of successes in `total_count` trials.

    >>> import cugrad as torch
    >>> torch.distributions.Binomial(4, torch.tensor([0.25])).mean
    tensor([1.])
    """

    arg_constraints = {"total_count": constraints.nonnegative_integer, **OfChance.arg_constraints}
    has_enumerate_support = True
    _parameters = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (total,) = self._take(probs, logits, total_count)
        self.total_count = total.to(self._given.dtype)
        super().__init__(self._given.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """0 to `total_count`."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        """total_count · probs."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        """The integer part of (total_count + 1) probs, at most total_count."""
        return F.minimum(F.floor((self.total_count + 1) * self.probs), self.total_count)

    @property
    def variance(self) -> Tensor:
        """total_count · probs (1 - probs)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            shape = self._extended_shape(sample_shape)
            return drawing.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        ways = F.lgamma(n + 1) - F.lgamma(value + 1) - F.lgamma(n - value + 1)
        return ways + value * self.logits - n * F.softplus(self.logits)

    def entropy(self) -> Tensor:
        counts = self._counts("Inhomogeneous total count not supported by `entropy`.")
        counts = counts.reshape(-1, *[1] * len(self._batch_shape))
        log_prob = self.log_prob(counts)
        return -(F.exp(log_prob) * log_prob).sum(0)

    def _counts(self, refusal: str) -> Tensor:
        top = int(self.total_count.max())
        if not bool((self.total_count == top).all()):
            raise NotImplementedError(refusal)
        return F.arange(1 + top, dtype=self._given.dtype, device=self._given.device)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = self._counts("Inhomogeneous total count not supported by `enumerate_support`.")
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class NegativeBinomial(OfChance):
    """The law of the number of successes, each of `probs`, before `total_count` failures.

    A draw is Poisson, of a rate that is a gamma number; `total_count` may be no integer.

    >>> import cugrad as torch
    >>> torch.distributions.NegativeBinomial(3, torch.tensor([0.5])).mean
    tensor([3.])
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _parameters = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        (total,) = self._take(probs, logits, total_count)
        self.total_count = total.to(self._given.dtype)
        super().__init__(self._given.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """total_count · exp(logits)."""
        return self.total_count * F.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        """The integer part of (total_count - 1) exp(logits), or 0."""
        return F.floor((self.total_count - 1) * F.exp(self.logits)).clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        """mean / (1 - probs)."""
        return self.mean / F.sigmoid(-self.logits)

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            shape = self._extended_shape(sample_shape)
            drawn = gamma_draws(self.total_count, shape)
            return drawing.poisson(drawn * F.exp(self.logits))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        chance = -n * F.softplus(self.logits) - value * F.softplus(-self.logits)
        ways = F.lgamma(n + value) - F.lgamma(value + 1) - F.lgamma(n)
        return chance + F.where(n + value == 0, 0.0, ways)


class Poisson(Parametrised, ExponentialFamily):
    """The law of counts of a given rate.

    >>> import cugrad as torch
    >>> torch.distributions.Poisson(torch.tensor([4.0])).variance
    tensor([4.])
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    _parameters = {"rate": 0}

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """`rate`."""
        return self.rate

    @property
    def mode(self) -> Tensor:
        """The integer part of the rate."""
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        """`rate`."""
        return self.rate

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            return drawing.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return F.xlogy(value, rate) - rate - F.lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (F.log(self.rate),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return F.exp(natural_params[0])


class LogitRelaxedBernoulli(OfChance):
    """Log odds of the draws of RelaxedBernoulli, of which logistic noise makes them.

    >>> import cugrad as torch
    >>> from cugrad.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
    >>> LogitRelaxedBernoulli(torch.tensor(0.5), torch.tensor([0.5])).log_prob(torch.zeros(1))
    tensor([-2.0794])
    """

    support = constraints.real
    has_rsample = True
    _kept = ("temperature",)

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self.temperature = temperature
        self._take(probs, logits)
        super().__init__(self._given.size(), validate_args=validate_args)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        noise = clamp_probs(uniform_like(probs, shape))
        odds = F.log(noise) - F.log1p(-noise) + F.log(probs) - F.log1p(-probs)
        return odds / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = F.broadcast_tensors(self.logits, value)
        t = self.temperature
        difference = logits - value * t
        scale = F.log(t if isinstance(t, Tensor) else logits.new_tensor(t))
        return scale + difference - 2 * F.softplus(difference)


class RelaxedBernoulli(TransformedDistribution):
    """A softened 0 or 1 (Concrete), whose draws are differentiable; see the file.

    >>> import cugrad as torch
    >>> torch.distributions.RelaxedBernoulli(torch.tensor(0.5), torch.tensor([0.5])).support
    Interval(lower_bound=0.0, upper_bound=1.0)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample = True
    base_dist: Any

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How soft the choice is; near 0 a draw is nearly 0 or 1."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.base_dist.probs
