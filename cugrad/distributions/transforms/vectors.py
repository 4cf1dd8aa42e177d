"""Transforms of vectors and matrices: onto simplexes and factors, reshaped, or part by part.

Source of stick breaking and of correlation factors: the Stan Reference Manual, "Constraint
Transforms"; Lewandowski, Kurowicka & Joe 2009, doi:10.1016/j.jmva.2009.04.008.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tensor import Size, Tensor
from .. import constraints
from ..utils import F, extremes, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from .transform import Fixed, Transform, widened

__all__ = [
    "CatTransform", "CorrCholeskyTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "ReshapeTransform", "SoftmaxTransform", "StackTransform",
    "StickBreakingTransform",
]  # fmt: skip


class IndependentTransform(Transform):
    """A transform, of which some batch dims count as dims of the element."""

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    domain = property(lambda s: widened(s.base_transform.domain, s._of(s.base_transform.domain)))
    codomain = property(
        lambda s: widened(s.base_transform.codomain, s._of(s.base_transform.codomain))
    )
    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)

    def _of(self, constraint: Any) -> int:
        return constraint.event_dim + self.reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size
        )

    def _call(self, x: Any) -> Any:
        if x.dim() < self.domain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        if y.dim() < self.codomain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        each = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(each, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """Elements of one shape as elements of another; ValueError unless they hold as many numbers."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        """Tensors of the first shape."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        """Tensors of the second shape."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Any:
        same = self._cache_size == cache_size
        return self if same else ReshapeTransform(self.in_shape, self.out_shape, cache_size)

    def _call(self, x: Any) -> Any:
        return x.reshape(*x.shape[: x.dim() - len(self.in_shape)], *self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(*y.shape[: y.dim() - len(self.out_shape)], *self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        return x.new_zeros(tuple(x.shape[: x.dim() - len(self.in_shape)]))

    def forward_shape(self, shape: Any) -> Any:
        return self._replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._replaced(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _replaced(shape: Any, old: Size, new: Size) -> Size:
        cut = len(shape) - len(old)
        if cut < 0:
            raise ValueError("Too few dimensions on input")
        if tuple(shape[cut:]) != tuple(old):
            raise ValueError(f"Shape mismatch: expected {tuple(shape[cut:])} but got {tuple(old)}")
        return Size((*shape[:cut], *new))


class SoftmaxTransform(Fixed):
    """y = softmax(x), whose inverse is the logarithm: no bijection."""

    bijective = False
    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Any) -> Any:
        return F.softmax(x, dim=-1)

    def _inverse(self, y: Any) -> Any:
        return F.log(y)

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Fixed):
    """K - 1 numbers to K probabilities: each breaks a share off what is left of a stick."""

    domain, codomain = constraints.real_vector, constraints.simplex

    @staticmethod
    def _offset(x: Any) -> Any:
        k = x.shape[-1]
        return F.log(F.arange(k, 0, -1, dtype=x.dtype, device=x.device))

    def _call(self, x: Any) -> Any:
        limits = extremes(x)
        z = F.sigmoid(x - self._offset(x)).clamp(min=limits.tiny, max=1 - limits.eps)
        left = F.cumprod(1 - z, -1)
        one = F.ones_like(x[..., :1])
        return F.cat([z, one], -1) * F.cat([one, left], -1)

    def _inverse(self, y: Any) -> Any:
        head = y[..., :-1]
        left = (1 - F.cumsum(head, -1)).clamp(min=extremes(y).tiny)
        return F.log(head) - F.log(left) + self._offset(head)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        z = x - self._offset(x)
        return (-z + F.logsigmoid(z) + F.log(y[..., :-1])).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return _last_dim(shape, 1)

    def inverse_shape(self, shape: Any) -> Any:
        return _last_dim(shape, -1)


def _last_dim(shape: Any, more: int) -> Size:
    if len(shape) < 1:
        raise ValueError("Too few dimensions on input")
    return Size((*shape[:-1], shape[-1] + more))


class LowerCholeskyTransform(Fixed):
    """Square matrices to lower triangular ones, with exp on the diagonal."""

    bijective = False
    domain = constraints.independent(constraints.real, 2)
    codomain: Any = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + F.diag_embed(F.exp(x.diagonal(dim1=-2, dim2=-1)))

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + F.diag_embed(F.log(y.diagonal(dim1=-2, dim2=-1)))


class PositiveDefiniteTransform(LowerCholeskyTransform):
    """Square matrices to positive definite ones, by their factors."""

    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = super()._call(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return super()._inverse(F.cholesky(y))


class CorrCholeskyTransform(Fixed):
    """D (D - 1) / 2 numbers to the Cholesky factor of a D x D correlation matrix.

    tanh makes partial correlations of them; each row breaks a stick of length 1 by their squares.
    """

    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _call(self, x: Any) -> Any:
        eps = extremes(x).eps
        r = vec_to_tril_matrix(F.tanh(x).clamp(min=eps - 1, max=1 - eps), diag=-1)
        ones = F.ones_like(r)
        left = F.cumprod(F.sqrt(ones - r.square()), -1)
        return (r + F.diag_embed(ones[..., 0])) * F.cat([ones[..., :1], left[..., :-1]], -1)

    def _inverse(self, y: Any) -> Any:
        left = 1 - F.cumsum(y.square(), -1)
        shifted = F.cat([F.ones_like(left[..., :1]), left[..., :-1]], -1)
        squares = tril_matrix_to_vec(shifted, diag=-1)
        t = tril_matrix_to_vec(y, diag=-1) / F.sqrt(squares)
        return F.atanh(t)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Tensor:
        left = 1 - F.cumsum(y.square(), -1)
        logs = F.log(tril_matrix_to_vec(left, diag=-2)).sum(-1)
        slopes = 2 * (x + F.softplus(-2 * x) - 0.6931471805599453)
        return 0.5 * logs - slopes.sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class _Parts(Transform):
    """Several transforms, each of a part of the tensor along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _split(self, x: Any) -> Any:
        raise NotImplementedError

    def _joined(self, parts: list[Any]) -> Any:
        raise NotImplementedError

    def _call(self, x: Any) -> Any:
        return self._joined([t(part) for t, part in zip(self.transforms, self._split(x))])

    def _inverse(self, y: Any) -> Any:
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._split(y))])


class CatTransform(_Parts):
    """Transforms of parts of `lengths` along `dim`, one behind the other.

    >>> import cugrad as torch
    >>> from cugrad.distributions import AffineTransform, CatTransform, ExpTransform
    >>> CatTransform([ExpTransform(), AffineTransform(1.0, 2.0)], lengths=[1, 2])(torch.zeros(3))
    tensor([1., 1., 1.])
    """

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"want a length for each transform, got {self.lengths}")

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of `dim`."""
        return sum(self.lengths)

    domain = property(lambda s: constraints.cat([t.domain for t in s.transforms], s.dim, s.lengths))
    codomain = property(
        lambda s: constraints.cat([t.codomain for t in s.transforms], s.dim, s.lengths)
    )

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, x: Any) -> Any:
        return x.split(self.lengths, self.dim)

    def _joined(self, parts: list[Any]) -> Any:
        return F.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        logs = []
        for t, a, b in zip(self.transforms, self._split(x), self._split(y)):
            one = t.log_abs_det_jacobian(a, b)
            logs.append(sum_rightmost(one, self.event_dim - t.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return F.cat(logs, dim) if dim < 0 else sum(logs[1:], logs[0])


class StackTransform(_Parts):
    """Transforms of slices along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    domain = property(lambda s: constraints.stack([t.domain for t in s.transforms], s.dim))
    codomain = property(lambda s: constraints.stack([t.codomain for t in s.transforms], s.dim))

    def with_cache(self, cache_size: int = 1) -> Any:
        same = self._cache_size == cache_size
        return self if same else StackTransform(self.transforms, self.dim, cache_size)

    def _split(self, x: Any) -> Any:
        if x.shape[self.dim] != len(self.transforms):
            raise AssertionError(f"want {len(self.transforms)} slices, got {x.shape[self.dim]}")
        return x.unbind(self.dim)

    def _joined(self, parts: list[Any]) -> Any:
        return F.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Tensor:
        parts = zip(self.transforms, self._split(x), self._split(y))
        return F.stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)
