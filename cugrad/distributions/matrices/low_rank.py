"""LowRankMultivariateNormal: normal vectors whose covariance is W Wᵀ + D."""

from __future__ import annotations

from math import log, pi
from typing import Any

from ... import linalg
from ...functions.creation.factories import eye
from ...tensor import Size, Tensor
from .. import constraints
from ..distribution import Parametrised
from ..utils import F, lazy_property, normal_like
from .normal import _batch_mahalanobis, _batch_mv, half_log_det

__all__ = ["LowRankMultivariateNormal"]


def _with_identity(matrix: Tensor) -> Tensor:
    return matrix + eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _batch_capacitance_tril(W: Tensor, D: Tensor) -> Tensor:
    """The Cholesky factor of C = I + Wᵀ D⁻¹ W."""
    return linalg.cholesky(_with_identity((W.mT / D.unsqueeze(-2)) @ W))


def _batch_lowrank_logdet(W: Tensor, D: Tensor, capacitance_tril: Tensor) -> Tensor:
    """log det of W Wᵀ + D, which is that of C and that of D."""
    return 2 * half_log_det(capacitance_tril) + D.log().sum(-1)


def _batch_lowrank_mahalanobis(W: Tensor, D: Tensor, x: Tensor, capacitance_tril: Tensor) -> Tensor:
    """xᵀ (W Wᵀ + D)⁻¹ x, by Woodbury's identity (W Wᵀ + D)⁻¹ = D⁻¹ - D⁻¹ W C⁻¹ Wᵀ D⁻¹."""
    inner = _batch_mv(W.mT / D.unsqueeze(-2), x)
    return (x.square() / D).sum(-1) - _batch_mahalanobis(capacitance_tril, inner)


class LowRankMultivariateNormal(Parametrised):
    """Normal vectors around `loc` with the covariance `cov_factor` `cov_factor`ᵀ + `cov_diag`.

    `cov_factor` has the shape (..., n, m), `loc` and the diagonal `cov_diag` (..., n); batch dims
    broadcast, ValueError else. No n × n matrix is factored: with m far below n this is cheap.

    >>> import cugrad as torch
    >>> d = torch.distributions.LowRankMultivariateNormal(
    ...     torch.zeros(2), torch.tensor([[1.0], [0.0]]), torch.ones(2))
    >>> d.variance
    tensor([2., 1.])
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support: Any = constraints.real_vector
    has_rsample = True
    _parameters = {"loc": 1, "cov_factor": 2, "cov_diag": 1}
    _kept = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")
    loc: Tensor

    def __init__(
        self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = F.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand((*batch, *event))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, *event))
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)
        super().__init__(Size(batch), event, validate_args=validate_args)

    @property
    def _parts(self) -> tuple[Tensor, Tensor]:
        return self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag

    @property
    def mean(self) -> Tensor:
        """`loc`."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """`loc`."""
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The diagonal of the covariance matrix."""
        W, D = self._parts
        return (W.square().sum(-1) + D).expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """L of L Lᵀ, the covariance: D^½ times the factor of I + D^-½ W Wᵀ D^-½."""
        W, D = self._parts
        root = D.sqrt().unsqueeze(-1)
        scaled = W / root
        return self._whole(root * linalg.cholesky(_with_identity(scaled @ scaled.mT)))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """W Wᵀ + D."""
        W, D = self._parts
        return self._whole(W @ W.mT + F.diag_embed(D))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix, by Woodbury's identity."""
        W, D = self._parts
        half = linalg.solve_triangular(self._capacitance_tril, W.mT / D.unsqueeze(-2), upper=False)
        return self._whole(F.diag_embed(D.reciprocal()) - half.mT @ half)

    def _whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    def rsample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        W, D = self._parts
        shape = self._extended_shape(sample_shape)
        along = normal_like(self.loc, (*shape[:-1], W.shape[-1]))
        return self.loc + _batch_mv(W, along) + D.sqrt() * normal_like(self.loc, shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        C = self._capacitance_tril
        distance = _batch_lowrank_mahalanobis(*self._parts, value - self.loc, C)
        log_det = _batch_lowrank_logdet(*self._parts, C)
        return -0.5 * (self._event_shape[0] * log(2 * pi) + log_det + distance)

    def _factors(self) -> list[Tensor]:
        """Matrices M of which the sum of M Mᵀ is the covariance."""
        W, D = self._parts
        return [W, F.diag_embed(D.sqrt())]

    def _squares(self, M: Tensor) -> Tensor:
        """The trace of Mᵀ Σ⁻¹ M, Σ the covariance, by Woodbury's identity."""
        W, D = self._parts
        scaled = M / D.unsqueeze(-1)
        inner = linalg.solve_triangular(self._capacitance_tril, W.mT @ scaled, upper=False)
        return (M * scaled).sum((-2, -1)) - inner.square().sum((-2, -1))

    def _half_log_det(self) -> Tensor:
        return 0.5 * _batch_lowrank_logdet(*self._parts, self._capacitance_tril)

    def entropy(self) -> Tensor:
        log_det = _batch_lowrank_logdet(*self._parts, self._capacitance_tril)
        nats = 0.5 * (self._event_shape[0] * (1 + log(2 * pi)) + log_det)
        return nats.expand(self._batch_shape)
