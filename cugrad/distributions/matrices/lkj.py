"""LKJCholesky: laws of correlation matrices, by their Cholesky factors."""

from __future__ import annotations

from math import log, pi
from typing import Any

from ...functions.creation.ranges import arange
from ...tensor import Size, Tensor
from .. import constraints
from ..distribution import Parametrised
from ..unit_interval import Beta
from ..utils import F, broadcast_all, extremes, normal_like

__all__ = ["LKJCholesky"]


class LKJCholesky(Parametrised):
    """Cholesky factors of `dim` × `dim` correlations, with density ∝ det^(concentration - 1).

    Where `concentration` is 1, all matrices are as likely. ValueError for a dim below 2.

    Source: Lewandowski, Kurowicka & Joe 2009, doi:10.1016/j.jmva.2009.04.008: section 3.2 for draws
    (the onion method), page 1999 for the constant.

    >>> import cugrad as torch
    >>> d = torch.distributions.LKJCholesky(3, 0.5)
    >>> L = d.sample()
    >>> torch.allclose((L @ L.T).diagonal(), torch.ones(3))
    True
    """

    arg_constraints: Any = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky
    _parameters = {"concentration": 0}
    _kept = ("dim",)
    concentration: Tensor

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, Size((dim, dim)), validate_args)

    @property
    def _beta(self) -> Beta:
        """The law of the squared length of a row, less its last element."""
        c = self.concentration
        offset = F.clamp(arange(self.dim, dtype=c.dtype, device=c.device) - 1, min=0.0)
        last = (c + 0.5 * (self.dim - 2)).unsqueeze(-1) - 0.5 * offset
        return Beta(offset + 0.5, last, validate_args=False)

    def sample(self, sample_shape: Any = Size(())) -> Tensor:  # noqa: B008
        lengths = self._beta.sample(sample_shape).unsqueeze(-1)
        normal = normal_like(self.concentration.detach(), self._extended_shape(sample_shape))
        below = normal.tril(-1)
        size = below.square().sum(-1, keepdim=True).sqrt()
        rows = F.sqrt(lengths) * below / F.where(size == 0, 1.0, size)
        last = F.clamp(1 - rows.square().sum(-1), min=extremes(rows).tiny).sqrt()
        return rows + F.diag_embed(last)

    def log_prob(self, value: Tensor) -> Tensor:
        """∏ L_ii^(2 concentration - 2 + dim - i), over the constant."""
        if self._validate_args:
            self._validate_sample(value)
        c, n = self.concentration, self.dim - 1
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = self.dim - arange(2, self.dim + 1, device=c.device)
        power = ((2 * (c - 1).unsqueeze(-1) + order) * diagonal.log()).sum(-1)
        alpha = c + 0.5 * n
        constant = 0.5 * n * log(pi) + F.mvlgamma(alpha - 0.5, n) - n * F.lgamma(alpha)
        return power - constant
