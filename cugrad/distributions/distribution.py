"""Distribution, what all of them have; ExponentialFamily, whose entropy comes from its normaliser.

Shapes: a draw of `sample_shape` has the shape `sample_shape + batch_shape + event_shape`, and its
`log_prob` the shape `sample_shape + batch_shape`.
"""

from __future__ import annotations

from typing import Any, ClassVar
from warnings import warn

from ..autograd import enable_grad, grad, no_grad
from ..tensor import Size, Tensor
from . import constraints
from .utils import F, allowed_to_read, decided, lazy_property, sum_rightmost

__all__ = ["LIBRARY", "Distribution", "ExponentialFamily", "Parametrised"]

LIBRARY = __name__.partition(".")[0]  # whose classes know how to expand themselves


class Distribution:
    """A law of random tensors, of `batch_shape` independent ones with events of `event_shape`.

    `validate_args` says whether parameters and values are checked, which reads them: a wait for a
    GPU. It is on unless Python runs with -O; inside `vmap` nothing is checked. ValueError for a
    parameter that its constraint refuses.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments where they are not told otherwise."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: got {value!r}, want True or False")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Size = Size(()),  # noqa: B008 a Size does not change
        event_shape: Size = Size(()),  # noqa: B008
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            limits = self.arg_constraints
        except NotImplementedError:
            warn(
                f"{type(self)} does not define `arg_constraints`. Please set "
                "`arg_constraints = {}` or initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, constraint in limits.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in vars(self) and isinstance(
                getattr(type(self), name, None), lazy_property
            ):
                continue  # made of the other parameters, which are checked
            value = getattr(self, name)
            if not isinstance(value, Tensor) or not allowed_to_read(value):
                continue
            if not decided(constraint.check(value)):  # its bounds may be inside vmap
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                    f"{constraint!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same law with its batch dims broadcast to `batch_shape`; no memory is copied."""
        raise NotImplementedError(f"{type(self).__name__} has no expand")

    @property
    def batch_shape(self) -> Size:
        """The shape over which there are several laws."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one event, without batch dims."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """The constraint of each parameter, by name."""
        raise NotImplementedError(f"{type(self).__name__} has no arg_constraints")

    @property
    def support(self) -> Any:
        """The constraint that all events satisfy."""
        raise NotImplementedError(f"{type(self).__name__} has no support")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        """Draws of shape `sample_shape + batch_shape + event_shape`, without a graph."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        """As `sample`, differentiable with respect to the parameters; see `has_rsample`."""
        raise NotImplementedError(
            f"{type(self).__name__} has no reparameterised sample: use sample() and log_prob()"
        )

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`; deprecated in PyTorch."""
        warn("sample_n(n) will be deprecated. Use .sample((n,)) instead", UserWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at a value."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of an event of at most `value`."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile of a probability, the inverse of `cdf`."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All events along a new first dim, broadcast over the batch unless `expand=False`."""
        raise NotImplementedError(f"{type(self).__name__} has no enumerate_support")

    def entropy(self) -> Tensor:
        """The expected value of `-log_prob`, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def perplexity(self) -> Tensor:
        """exp of the entropy."""
        return F.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = Size(())) -> Size:  # noqa: B008
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """ValueError for a value whose shape or elements are no events."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        first = value.dim() - len(self._event_shape)
        if tuple(value.shape)[max(first, 0) :] != tuple(self._event_shape):
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{value.shape} vs {self._event_shape}."
            )
        for i, j in zip(reversed(value.shape), reversed(self._batch_shape + self._event_shape)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs "
                    f"{self._batch_shape + self._event_shape}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warn(
                f"{type(self)} does not define `support` to enable sample validation. Please "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if allowed_to_read(value) and not decided(support.check(value)):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, but found "
                f"invalid values:\n{value}"
            )

    def _copied_to(self, new: Any, batch_shape: Any) -> Any:
        """`new` with this law's event and settings, and another batch: how each `expand` ends."""
        Distribution.__init__(new, Size(batch_shape), self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        try:
            names = [name for name in self.arg_constraints if name in vars(self)]
        except NotImplementedError:
            names = []
        texts = [
            f"{name}: {value if value.numel() == 1 else value.size()}"
            for name, value in ((name, vars(self)[name]) for name in names)
        ]
        return f"{type(self).__name__}({', '.join(texts)})"


class Parametrised(Distribution):
    """A distribution of parameters that broadcast against one another.

    `_parameters` are the names of its tensors, each of the shape of the batch and so many dims of
    its own: what `expand` expands. `_kept` are attributes that a copy takes over as they are.
    """

    _parameters: ClassVar[dict[str, int]] = {}
    _kept: ClassVar[tuple[str, ...]] = ()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same law with its batch dims broadcast to `batch_shape`; no memory is copied."""
        owner = next(c for c in type(self).__mro__ if "__init__" in vars(c))
        if (
            _instance is None
            and owner.__module__.partition(".")[0] != __package__.partition(".")[0]
        ):
            self._get_checked_instance(Parametrised, _instance)
        new = type(self).__new__(type(self)) if _instance is None else _instance
        batch_shape = Size(batch_shape)
        for name, dims in self._parameters.items():
            if name in vars(self):
                value = vars(self)[name]
                shape = (*batch_shape, *value.shape[value.dim() - dims :])
                setattr(new, name, value.expand(shape))
        for name in self._kept:
            setattr(new, name, getattr(self, name))
        return self._copied_to(new, batch_shape)


class ExponentialFamily(Distribution):
    """Densities exp(⟨t(x), θ⟩ - F(θ) + k(x)), whose entropy follows from the normaliser F.

    H = F(θ) - ⟨θ, ∇F(θ)⟩ - E[k(x)]. Source: Nielsen & Nock 2010, doi:10.1109/ICIP.2010.5652054.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no natural parameters")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no log normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no carrier measure")

    def entropy(self) -> Tensor:
        """The entropy, by the gradient of the normaliser; see the class."""
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with enable_grad():
            normaliser = self._log_normalizer(*natural)
            slopes = grad(normaliser.sum(), natural, create_graph=True)
        result = normaliser - self._mean_carrier_measure
        for p, slope in zip(natural, slopes):
            inner = sum_rightmost((p * slope).expand(p.shape), p.dim() - len(self._batch_shape))
            result = result - inner
        return result
