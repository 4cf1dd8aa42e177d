"""Distributions made of others: Independent, TransformedDistribution, MixtureSameFamily."""

from __future__ import annotations

from typing import Any

from ..autograd import no_grad
from ..tensor import Size, Tensor
from . import constraints
from .distribution import LIBRARY, Distribution
from .transforms import ComposeTransform, Transform
from .utils import F, sum_rightmost

__all__ = ["Independent", "MixtureSameFamily", "TransformedDistribution"]


class Independent(Distribution):
    """A distribution, whose last batch dims count as dims of the event.

    >>> import cugrad as torch
    >>> from cugrad.distributions import Independent, Normal
    >>> d = Independent(Normal(torch.zeros(2, 3), 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(torch.zeros(2, 3)).shape
    (torch.Size([2]), torch.Size([3]), torch.Size([2]))
    """

    arg_constraints: Any = {}
    base_dist: Any

    def __init__(
        self, base_distribution: Any, reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        batch = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(batch):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(batch)}"
            )
        shape = batch + base_distribution.event_shape
        cut = len(batch) - reinterpreted_batch_ndims
        self.base_dist, self.reinterpreted_batch_ndims = (
            base_distribution, reinterpreted_batch_ndims
        )  # fmt: skip
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Independent, _instance)
        batch_shape, dims = Size(batch_shape), self.reinterpreted_batch_ndims
        new.base_dist = self.base_dist.expand(batch_shape + self.event_shape[:dims])
        new.reinterpreted_batch_ndims = dims
        return self._copied_to(new, batch_shape)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """As of the base."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """As of the base, and not where dims were taken from its batch."""
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        """That of the base, over more dims."""
        support, dims = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(support, dims) if dims else support

    @property
    def mean(self) -> Tensor:
        """As of the base."""
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        """As of the base."""
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        """As of the base."""
        return self.base_dist.variance

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError(
                "Enumeration over cartesian product is not implemented: enumerate the base"
            )
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The law of transforms, one after the other, of draws of another law.

    log p(y) = log p(x) - log |dy / dx|. Where the transforms change the number of dims, dims of the
    base's batch become dims of the event.

    >>> import cugrad as torch
    >>> from cugrad.distributions import ExpTransform, Normal, TransformedDistribution
    >>> TransformedDistribution(Normal(0.0, 1.0), [ExpTransform()]).cdf(torch.tensor(1.0))
    tensor(0.5000)
    """

    arg_constraints: Any = {}
    base_dist: Any

    def __init__(
        self, base_distribution: Any, transforms: Any, validate_args: bool | None = None
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all(
            isinstance(t, Transform) for t in self.transforms
        ):
            raise ValueError(
                f"transforms must be a Transform or list, but was {transforms}"
                if not isinstance(transforms, list)
                else f"transforms must be a Transform or a list of Transforms, but was {transforms}"
            )
        whole = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        inner = whole.domain.event_dim
        if len(shape) < inner:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {inner}, but got "
                f"{base_distribution}."
            )
        image = whole.forward_shape(shape)
        needed, base = whole.inverse_shape(image), base_distribution
        if tuple(needed) != tuple(shape):
            base = base.expand(needed[: len(needed) - len(base.event_shape)])
        more = inner - len(base.event_shape)
        self.base_dist = Independent(base, more) if more > 0 else base
        outer = whole.codomain.event_dim + max(len(self.base_dist.event_shape) - inner, 0)
        cut = len(image) - outer
        super().__init__(Size(image[:cut]), Size(image[cut:]), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        owner = next(c for c in type(self).__mro__ if "__init__" in vars(c))
        new = _instance
        if new is None and owner.__module__.partition(".")[0] == LIBRARY:
            new = type(self).__new__(type(self))
        new = self._get_checked_instance(TransformedDistribution, new)
        batch_shape = Size(batch_shape)
        shape = batch_shape + self.event_shape
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(
            Size(shape[: len(shape) - len(self.base_dist.event_shape)])
        )
        new.transforms = self.transforms
        for name in getattr(self, "_expanded", ()):
            setattr(new, name, getattr(self, name).expand(batch_shape))
        return self._copied_to(new, batch_shape)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """As of the base."""
        return self.base_dist.has_rsample

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """The codomain of the last transform."""
        if not self.transforms:
            return self.base_dist.support
        support, dims = self.transforms[-1].codomain, len(self.event_shape)
        more = dims - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    def _forward(self, x: Tensor) -> Tensor:
        for t in self.transforms:
            x = t(x)
        return x

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        total, y, dims = None, value, len(self.event_shape)
        for t in reversed(self.transforms):
            x = t.inv(y)
            dims += t.domain.event_dim - t.codomain.event_dim
            one = sum_rightmost(t.log_abs_det_jacobian(x, y), dims - t.domain.event_dim)
            total = one if total is None else total + one
            y = x
        base = sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))
        return base if total is None else base - total

    def _signed(self, value: Tensor) -> Tensor:
        """A probability, or its complement where the transforms fall."""
        sign: Any = 1
        for t in self.transforms:
            sign = sign * t.sign
        if isinstance(sign, int):
            return value if sign == 1 else 1 - value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for t in reversed(self.transforms):
            value = t.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._signed(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._signed(value)))


class MixtureSameFamily(Distribution):
    """The law of a choice of components of one family: a Categorical over their last batch dim.

    >>> import cugrad as torch
    >>> from cugrad.distributions import Categorical, MixtureSameFamily, Normal
    >>> mix = Categorical(torch.tensor([0.25, 0.75]))
    >>> MixtureSameFamily(mix, Normal(torch.tensor([0.0, 4.0]), 1.0)).mean
    tensor(3.)
    """

    arg_constraints: Any = {}

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        from .categorical import Categorical

        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an  instance of "
                "torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution need to be an instance of "
                "torch.distributions.Distribution"
            )
        weights, batch = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(weights), reversed(batch)):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({weights}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        count = mixture_distribution.logits.shape[-1]
        of_components = component_distribution.batch_shape[-1]
        if count != of_components:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({of_components})"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = count
        event = component_distribution.event_shape
        self._event_ndims = len(event)
        super().__init__(batch, event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = Size(batch_shape)
        new._component_distribution = self.component_distribution.expand(
            (*batch_shape, self._num_component)
        )
        new._mixture_distribution = self.mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        return self._copied_to(new, batch_shape)

    @property
    def mixture_distribution(self) -> Any:
        """The law of the choice."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    @constraints.dependent_property
    def support(self) -> Any:
        """The components'."""
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    def _weighted(self, moments: Tensor) -> Tensor:
        """The sum over the components of what has the shape of their mean."""
        probs = self.mixture_distribution.probs
        probs = probs.reshape(*probs.shape, *[1] * self._event_ndims)
        return (probs * moments).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        """The weighted mean of the means."""
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The mean of the variances and the variance of the means."""
        means = self.component_distribution.mean
        spread = (means - self.mean.unsqueeze(-1 - self._event_ndims)).square()
        return self._weighted(self.component_distribution.variance + spread)

    def cdf(self, x: Tensor) -> Tensor:
        each = self.component_distribution.cdf(self._pad(x))
        return (each * self.mixture_distribution.probs).sum(-1)

    def _pad(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - self._event_ndims)

    def log_prob(self, x: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(x)
        each = self.component_distribution.log_prob(self._pad(x))
        weights = F.log_softmax(self.mixture_distribution.logits, dim=-1)
        return F.logsumexp(each + weights, dim=-1)

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        with no_grad():
            drawn = self.component_distribution.sample(sample_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            dim = -1 - self._event_ndims
            index = chosen.reshape(*chosen.shape, *[1] * (1 + self._event_ndims))
            shape = list(drawn.shape)
            shape[dim] = 1
            return drawn.gather(dim, index.expand(shape)).squeeze(dim)

    def __repr__(self) -> str:
        mixture, components = self.mixture_distribution, self.component_distribution
        return f"MixtureSameFamily(\n  {mixture},\n  {components})"
