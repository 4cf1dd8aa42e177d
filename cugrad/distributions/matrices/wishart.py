"""Wishart: laws of covariance matrices."""

from __future__ import annotations

from math import log, nan
from numbers import Number
from typing import Any
from warnings import warn

from ... import linalg
from ...functions.creation.factories import tensor
from ...functions.creation.ranges import arange
from ...tensor import Size, Tensor
from .. import constraints
from ..positive import Chi2
from ..utils import F, allowed_to_read, extremes, normal_like
from .normal import OneOfThree, half_log_det

__all__ = ["Wishart"]


class Wishart(OneOfThree):
    """Sums of x xᵀ of `df` normal vectors, of a covariance, its inverse or Cholesky factor.

    Exactly one of the three, (..., p, p), AssertionError else; `df`, a number or (...,), need not
    be whole but above p - 1, ValueError else. Below p draws tend to be singular: a warning.

    Draws are differentiable, by Bartlett's decomposition (Sawyer 2007, "Wishart Distributions and
    Inverse-Wishart Sampling"). `rsample(max_try_correction=)` says how often singular draws are
    replaced, at most 10 times.

    >>> import cugrad as torch
    >>> d = torch.distributions.Wishart(torch.tensor(3.0), torch.eye(2))
    >>> d.mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    support: Any = constraints.positive_definite
    has_rsample = True
    _parameters = {"df": 0, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2}
    df: Tensor

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """The constraint of each parameter, by name."""
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self, df: Any, covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        matrices = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                    "scale_tril": scale_tril}  # fmt: skip
        present = {name: m for name, m in matrices.items() if m is not None}
        if len(present) != 1:
            raise AssertionError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        ((name, matrix),) = present.items()
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch = matrix.shape[:-2]
        if isinstance(df, Number):
            self.df = tensor(df, dtype=matrix.dtype, device=matrix.device)
        else:
            batch = Size(F.broadcast_shapes(batch, df.shape))
            self.df = df.expand(batch)
        self._check_df(matrix.shape[-1])
        setattr(self, name, matrix.expand((*batch, *matrix.shape[-2:])))
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        self._take(batch, **present)

    def _check_df(self, p: int) -> None:
        if not allowed_to_read(self.df):
            return
        if bool((self.df <= p - 1).any()):
            raise ValueError(
                f"Value of df={self.df} expected to be greater than ndim - 1 = {p - 1}."
            )
        if bool((self.df < p).any()):
            warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=3,
            )

    @property
    def _p(self) -> int:
        return self._event_shape[-1]

    def _each(self, x: Tensor) -> Tensor:
        """Numbers of the batch, as factors of matrices."""
        return x.expand(self._batch_shape)[..., None, None]

    @property
    def mean(self) -> Tensor:
        """df times the covariance matrix."""
        return self._each(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """(df - p - 1) times the covariance matrix; nan where that factor is not positive."""
        factor = self.df - self._p - 1
        return self._each(F.where(factor > 0, factor, nan)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        """df (V_ij² + V_ii V_jj), element by element."""
        matrix = self.covariance_matrix
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._each(self.df) * (matrix.square() + products)

    def _bartlett_sampling(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        """L A Aᵀ Lᵀ: A has normal numbers below its diagonal, and roots of χ² numbers on it."""
        factor, p = self._unbroadcasted_scale_tril, self._p
        below = arange(p, dtype=factor.dtype, device=factor.device)
        df = self.df.expand(self._batch_shape).unsqueeze(-1) - below
        roots = Chi2(df, validate_args=False).rsample(sample_shape).sqrt()
        noise = normal_like(factor, self._extended_shape(sample_shape)).tril(-1)
        half = factor @ (noise + F.diag_embed(roots.clamp(min=extremes(roots).eps)))
        return half @ half.mT

    def rsample(
        self, sample_shape: Any = Size(()), max_try_correction: int | None = None  # noqa: B008
    ) -> Tensor:  # fmt: skip
        sample = self._bartlett_sampling(sample_shape)
        for _ in range(10 if max_try_correction is None else max_try_correction):
            regular = self.support.check(sample)
            if not allowed_to_read(regular) or bool(regular.all()):
                break
            sample = F.where(
                regular[..., None, None], sample, self._bartlett_sampling(sample_shape)
            )
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        nu, p, factor = self.df, self._p, self._unbroadcasted_scale_tril
        trace = F.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -nu * (p * log(2) / 2 + half_log_det(factor)) - F.mvlgamma(nu / 2, p)
            + (nu - p - 1) / 2 * linalg.slogdet(value).logabsdet - trace / 2
        )  # fmt: skip

    def entropy(self) -> Tensor:
        nu, p = self.df, self._p
        steps = arange(p, dtype=nu.dtype, device=nu.device) / 2
        slope = F.digamma((nu / 2).unsqueeze(-1) - steps).sum(-1)
        return (
            (p + 1) * (p * log(2) / 2 + half_log_det(self._unbroadcasted_scale_tril))
            + F.mvlgamma(nu / 2, p) - (nu - p - 1) / 2 * slope + nu * p / 2
        )  # fmt: skip
