"""Distances of vectors as layers."""

from __future__ import annotations

from ...tensor import Tensor
from ..functional.loss import cosine_similarity, pairwise_distance
from .module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along `dim`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """`functional.cosine_similarity` with the settings of this module."""
        return cosine_similarity(x1, x2, dim=self.dim, eps=self.eps)


class PairwiseDistance(Module):
    """The p-norm over the last dim of x1 - x2 + eps."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.p = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """`functional.pairwise_distance` with the settings of this module."""
        return pairwise_distance(x1, x2, p=self.p, eps=self.eps, keepdim=self.keepdim)
