"""Laws of a choice among K classes: Categorical, its one-hot forms, Multinomial, relaxations.

Source of the relaxed ones: Maddison, Mnih & Teh 2017, arXiv:1611.00712; Jang, Gu & Poole 2017,
arXiv:1611.01144. The straight-through draw: Bengio, Léonard & Courville 2013, arXiv:1308.3432.
"""

from __future__ import annotations

from math import nan
from typing import Any

from .. import dtypes
from ..autograd import no_grad
from ..functions.creation.random import multinomial
from ..tensor import Size, Tensor
from . import constraints
from .composite import TransformedDistribution
from .discrete import Binomial
from .distribution import Distribution, Parametrised
from .transforms import ExpTransform
from .utils import (
    F,
    clamp_probs,
    extremes,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    uniform_like,
)

__all__ = [
    "Categorical", "ExpRelaxedCategorical", "Multinomial", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "RelaxedOneHotCategorical",
]  # fmt: skip


class Categorical(Parametrised):
    """The law of an index of 0 to K - 1, of `probs` (..., K), or of `logits`.

    Probabilities are divided by their sum, logits by that of their exponentials. ValueError unless
    one of the two is given. A step of REINFORCE (Williams 1992, doi:10.1007/BF00992696):

    >>> import cugrad as torch
    >>> scores = torch.zeros(3, requires_grad=True)
    >>> policy = torch.distributions.Categorical(logits=scores)
    >>> action, reward = torch.tensor(2), 1.0
    >>> loss = -policy.log_prob(action) * reward
    >>> loss.backward()
    >>> scores.grad
    tensor([ 0.3333,  0.3333, -0.6667])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _parameters = {"probs": 1, "logits": 1}
    _kept = ("_num_events",)

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        scores = probs if logits is None else logits
        if scores is None or (probs is not None and logits is not None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if scores.dim() < 1:
            name = "probs" if logits is None else "logits"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if logits is None:
            self.probs = scores / scores.sum(-1, keepdim=True)
        else:
            self.logits = scores - scores.logsumexp(dim=-1, keepdim=True)
        self._num_events = scores.shape[-1]
        super().__init__(scores.shape[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """The indices of classes."""
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def _given(self) -> Tensor:
        return vars(self)["probs"] if "probs" in vars(self) else vars(self)["logits"]

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._given.size()

    @property
    def mean(self) -> Tensor:
        """nan: a class is no number."""
        return self._given.new_full(tuple(self._extended_shape()), nan)

    @property
    def variance(self) -> Tensor:
        """nan: a class is no number."""
        return self.mean

    @property
    def mode(self) -> Tensor:
        """The likeliest class."""
        return self.probs.argmax(dim=-1)

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            shape = self._extended_shape(sample_shape)
            count = Size(sample_shape).numel()
            if count == 0 or shape.numel() == 0:
                return self.probs.new_empty(tuple(shape), dtype=dtypes.int64)
            rows = self.probs.detach().reshape(-1, self._num_events)
            return multinomial(rows, count, True).mT.reshape(tuple(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        chosen = value.to(dtypes.int64).unsqueeze(-1)
        shape = F.broadcast_shapes(chosen.shape[:-1], self.logits.shape[:-1])
        logits = self.logits.expand(*shape, self._num_events)
        return logits.gather(-1, chosen.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=extremes(self.logits).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(F.arange(self._num_events, device=self._given.device), expand)

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        values = values.reshape(-1, *[1] * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


class _OfCategorical(Distribution):
    """A law whose parameters are those of a Categorical, which it holds."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _categorical: Categorical

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._categorical.param_shape


class OneHotCategorical(_OfCategorical):
    """As Categorical, whose events are vectors of zeros and a 1 at the class.

    >>> import cugrad as torch
    >>> torch.distributions.OneHotCategorical(torch.tensor([0.25, 0.75])).mode
    tensor([0., 1.])
    """

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        batch, event = self._categorical.batch_shape, self._categorical.param_shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(OneHotCategorical, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return self._copied_to(new, batch_shape)

    @property
    def mean(self) -> Tensor:
        """The probabilities."""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """The vector of the likeliest class."""
        return self._one_hot(self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)

    def _one_hot(self, classes: Tensor) -> Tensor:
        """Vectors of the parameter's dtype."""
        every = F.arange(self._event_shape[0], device=classes.device)
        return (every == classes.unsqueeze(-1)).to(self._categorical._given.dtype)

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._one_hot(self._categorical.enumerate_support(expand))


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """Whose draws have the gradients of the probabilities.

    >>> import cugrad as torch
    >>> p = torch.tensor([0.25, 0.75], requires_grad=True)
    >>> torch.distributions.OneHotCategoricalStraightThrough(p).rsample().requires_grad
    True
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_OfCategorical):
    """How often each of K classes is chosen in `total_count` choices.

    NotImplementedError unless `total_count` is one number.

    >>> import cugrad as torch
    >>> torch.distributions.Multinomial(4, torch.tensor([0.25, 0.75])).mean
    tensor([1., 3.])
    """

    total_count: int

    def __init__(
        self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        batch, event = self._categorical.batch_shape, self._categorical.param_shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Multinomial, _instance)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        return self._copied_to(new, batch_shape)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Counts that sum to `total_count`."""
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        """total_count · probs."""
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        """total_count · probs (1 - probs)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        chosen = self._categorical.sample((self.total_count, *sample_shape))
        every = F.arange(self._event_shape[0], device=chosen.device)
        counts = (chosen.unsqueeze(-1) == every).sum(0)
        return counts.to(self._categorical._given.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = F.broadcast_tensors(self.logits, value)
        possible = F.where((value == 0) & (logits == float("-inf")), 0.0, logits)
        factors = F.lgamma(value.sum(-1) + 1) - F.lgamma(value + 1).sum(-1)
        return factors + (possible * value).sum(-1)

    def entropy(self) -> Tensor:
        n = self.total_count
        counts = Binomial(n, self.probs).enumerate_support(expand=False)[1:]
        weights = F.exp(Binomial(n, self.probs).log_prob(counts))
        spread = (weights * F.lgamma(counts + 1)).sum((0, -1))
        return n * self._categorical.entropy() - F.lgamma(self.probs.new_tensor(n + 1.0)) + spread


class ExpRelaxedCategorical(_OfCategorical):
    """Logarithms of the draws of RelaxedOneHotCategorical, on which numbers do not underflow.

    >>> import cugrad as torch
    >>> from cugrad.distributions.relaxed_categorical import ExpRelaxedCategorical
    >>> ExpRelaxedCategorical(torch.tensor(0.5), torch.tensor([0.25, 0.75])).event_shape
    torch.Size([2])
    """

    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        batch, event = self._categorical.batch_shape, self._categorical.param_shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(ExpRelaxedCategorical, _instance)
        new.temperature = self.temperature
        return OneHotCategorical.expand(self, batch_shape, new)  # type: ignore[arg-type]

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        uniforms = clamp_probs(uniform_like(self.logits, self._extended_shape(sample_shape)))
        scores = (self.logits - F.log(-F.log(uniforms))) / self.temperature
        return F.log_softmax(scores, dim=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        k, t = self._event_shape[0], self.temperature
        logits, value = F.broadcast_tensors(self.logits, value)
        t = t if isinstance(t, Tensor) else logits.new_tensor(t)
        scale = F.lgamma(logits.new_tensor(float(k))) + (k - 1) * F.log(t)
        return F.log_softmax(logits - value * t, dim=-1).sum(-1) + scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """The softened choice of a class (Concrete, Gumbel-softmax), differentiable; see the file.

    >>> import cugrad as torch
    >>> t, p = torch.tensor(0.5), torch.tensor([0.25, 0.75])
    >>> abs(torch.distributions.RelaxedOneHotCategorical(t, p).rsample().sum().item() - 1) < 1e-6
    True
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.simplex
    has_rsample = True
    base_dist: Any

    def __init__(
        self, temperature: Any, probs: Tensor | None = None, logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """How soft the choice is; near 0 a draw is nearly one-hot."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Logarithms of the probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.base_dist.probs
