"""What all transforms have in common, their inverses, and several of them one after another."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import constraints
from ..utils import F, sum_rightmost

__all__ = ["ComposeTransform", "Fixed", "Transform", "identity_transform", "widened"]


class Transform:
    """A function between two constraints, `domain` and `codomain`.

    `bijective` says whether `inv` undoes it, `sign` whether it grows or falls. With `cache_size=1`
    the last pair is remembered, so that an inverse that is not exact gives the input back.
    """

    bijective = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._cached: tuple[Any, Any] = (None, None)
        self._inverse_of: Transform | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cached": (None, None), "_inverse_of": None}

    @property
    def event_dim(self) -> int:
        """The dims of an element, the same on both sides."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Any:
        """The inverse, whose inverse is this one."""
        if self._inverse_of is None:
            self._inverse_of = _InverseTransform(self)
        return self._inverse_of

    @property
    def sign(self) -> Any:
        """1 where it grows, -1 where it falls."""
        raise NotImplementedError(f"{type(self).__name__} has no sign")

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same transform with a cache of this size."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Any) -> Any:
        """The image of `x`."""
        if self._cache_size == 0:
            return self._call(x)
        if x is not self._cached[0]:
            self._cached = (x, self._call(x))
        return self._cached[1]

    def _inv_call(self, y: Any) -> Any:
        if self._cache_size == 0:
            return self._inverse(y)
        if y is not self._cached[1]:
            self._cached = (self._inverse(y), y)
        return self._cached[0]

    def _call(self, x: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        """log |dy / dx|, of the determinant where elements are vectors."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def __repr__(self) -> str:
        return type(self).__name__ + "()"

    def forward_shape(self, shape: Any) -> Any:
        """The shape of the image of a tensor of this shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of what has an image of this shape."""
        return shape


class _InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._transform = transform

    domain = property(lambda self: self._transform.codomain)
    codomain = property(lambda self: self._transform.domain)
    bijective = property(lambda self: self._transform.bijective)
    sign = property(lambda self: self._transform.sign)
    inv = property(lambda self: self._transform)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._transform.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._transform == other._transform

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transform!r})"

    def __call__(self, x: Any) -> Any:
        return self._transform._inv_call(x)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return -self._transform.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._transform.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._transform.forward_shape(shape)


class ComposeTransform(Transform):
    """Transforms one after the other, the first first.

    >>> import cugrad as torch
    >>> from cugrad.distributions import AffineTransform, ComposeTransform, ExpTransform
    >>> ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])(torch.zeros(1))
    tensor([2.7183])
    """

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def _dims(self) -> tuple[int, int]:
        """The event dims of the input and of the output of the whole."""
        first = self.parts[-1].domain.event_dim
        for part in reversed(self.parts):
            first += part.domain.event_dim - part.codomain.event_dim
            first = max(first, part.domain.event_dim)
        last = self.parts[0].codomain.event_dim
        for part in self.parts:
            last += part.codomain.event_dim - part.domain.event_dim
            last = max(last, part.codomain.event_dim)
        return first, last

    @property
    def domain(self) -> Any:
        """That of the first, with the dims that later ones need."""
        if not self.parts:
            return constraints.real
        return widened(self.parts[0].domain, self._dims()[0])

    @property
    def codomain(self) -> Any:
        """That of the last, with the dims that earlier ones need."""
        if not self.parts:
            return constraints.real
        return widened(self.parts[-1].codomain, self._dims()[1])

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether all of them are."""
        return all(p.bijective for p in self.parts)

    @property
    def sign(self) -> Any:
        """The product of their signs."""
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Any:
        if self._inverse_of is None:
            self._inverse_of = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inverse_of._inverse_of = self
        return self._inverse_of

    def with_cache(self, cache_size: int = 1) -> Any:
        same = self._cache_size == cache_size
        return self if same else ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return F.zeros_like(x)
        dims, total, last = self.domain.event_dim, None, len(self.parts) - 1
        for i, part in enumerate(self.parts):
            image = y if i == last else part(x)
            one = part.log_abs_det_jacobian(x, image)
            one = sum_rightmost(one, dims - part.domain.event_dim)
            total = one if total is None else total + one
            dims += part.codomain.event_dim - part.domain.event_dim
            x = image
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


def widened(constraint: Any, dims: int) -> Any:
    more = dims - constraint.event_dim
    return constraints.independent(constraint, more) if more else constraint


class Fixed(Transform):
    """A bijection without parameters: two of a class are equal."""

    bijective = True
    sign: Any = 1

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = object.__hash__


identity_transform = ComposeTransform([])
