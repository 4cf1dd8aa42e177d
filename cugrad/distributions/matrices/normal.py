"""MultivariateNormal, and sums that a Cholesky factor answers."""

from __future__ import annotations

from math import log, pi
from typing import Any

from ... import linalg
from ...functions.creation.factories import eye
from ...tensor import Size, Tensor
from .. import constraints
from ..distribution import Parametrised
from ..utils import F, lazy_property, normal_like

__all__ = ["MultivariateNormal", "OneOfThree", "half_log_det"]


def _batch_mv(bmat: Tensor, bvec: Tensor) -> Tensor:
    """Products of matrices and vectors, whose batch dims broadcast."""
    return F.matmul(bmat, bvec.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(bL: Tensor, bx: Tensor) -> Tensor:
    """xᵀ M⁻¹ x of factors M = L Lᵀ. The batch dims of `bL` broadcast to the last ones of `bx`.

    What `bx` has more of them are columns of one system, so that no factor is copied.
    """
    n, batch = bx.shape[-1], bL.dim() - 2
    shape = bx.shape[:-1]
    within = shape[len(shape) - batch :]
    columns = bx.reshape(-1, *within, n).movedim(0, -1)  # (*within, n, draws)
    squares = linalg.solve_triangular(bL, columns, upper=False).square().sum(-2)
    return squares.movedim(-1, 0).reshape(shape)


def _precision_to_scale_tril(P: Tensor) -> Tensor:
    """The Cholesky factor of P⁻¹: that of P with rows and columns reversed is L⁻ᵀ reversed."""
    reversed_factor = linalg.cholesky(F.flip(P, (-2, -1)))
    inverse = F.flip(reversed_factor, (-2, -1)).mT
    identity = eye(P.shape[-1], dtype=P.dtype, device=P.device)
    return linalg.solve_triangular(inverse, identity, upper=False)


def half_log_det(factor: Tensor) -> Tensor:
    """log √det of L Lᵀ."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class OneOfThree(Parametrised):
    """A law with a covariance matrix, its inverse or its Cholesky factor, which it computes with.

    The others are made when they are asked for.
    """

    _kept = ("_unbroadcasted_scale_tril",)
    _unbroadcasted_scale_tril: Tensor

    def _take(self, batch: Size, **matrices: Tensor | None) -> None:
        """Keeps the one matrix, broadcast, and its factor."""
        for name, matrix in matrices.items():
            if matrix is not None:
                setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
                self._unbroadcasted_scale_tril = {
                    "scale_tril": lambda m: m, "covariance_matrix": linalg.cholesky,
                    "precision_matrix": _precision_to_scale_tril,
                }[name](matrix)  # fmt: skip

    def _whole(self, matrix: Tensor) -> Tensor:
        n = self._unbroadcasted_scale_tril.shape[-1]
        return matrix.expand((*self._batch_shape, n, n))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """L of L Lᵀ, the covariance matrix."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """L Lᵀ."""
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return self._whole(F.cholesky_inverse(self._unbroadcasted_scale_tril))


class MultivariateNormal(OneOfThree):
    """Normal vectors around `loc`, with a covariance matrix, its inverse or its Cholesky factor.

    Exactly one of `covariance_matrix`, `precision_matrix` and `scale_tril`, of shape (..., n, n);
    ValueError else. Their batch dims and those of `loc`, (..., n), broadcast.

    >>> import cugrad as torch
    >>> d = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    >>> d.log_prob(torch.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support: Any = constraints.real_vector
    has_rsample = True
    _parameters = {"loc": 1, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2}
    loc: Tensor

    def __init__(
        self, loc: Tensor, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                    "scale_tril": scale_tril}  # fmt: skip
        present = {name: m for name, m in matrices.items() if m is not None}
        if len(present) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        ((name, matrix),) = present.items()
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch = Size(F.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1]))
        self.loc = loc.expand((*batch, loc.shape[-1]))
        for name in present:
            setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._take(batch, **present)

    @property
    def mean(self) -> Tensor:
        """`loc`."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """`loc`."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance matrix."""
        squares = self._unbroadcasted_scale_tril.square().sum(-1)
        return squares.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        noise = normal_like(self.loc, self._extended_shape(sample_shape))
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        factor = self._unbroadcasted_scale_tril
        distance = _batch_mahalanobis(factor, value - self.loc)
        return -0.5 * (self._event_shape[0] * log(2 * pi) + distance) - half_log_det(factor)

    def _factors(self) -> list[Tensor]:
        """Matrices M of which the sum of M Mᵀ is the covariance."""
        return [self._unbroadcasted_scale_tril]

    def _squares(self, M: Tensor) -> Tensor:
        """The trace of Mᵀ Σ⁻¹ M, Σ the covariance."""
        factor = self._unbroadcasted_scale_tril
        return linalg.solve_triangular(factor, M, upper=False).square().sum((-2, -1))

    def _half_log_det(self) -> Tensor:
        return half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self) -> Tensor:
        nats = 0.5 * self._event_shape[0] * (1 + log(2 * pi))
        return (nats + half_log_det(self._unbroadcasted_scale_tril)).expand(self._batch_shape)
