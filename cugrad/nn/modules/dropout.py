"""Dropout: random zeros while training."""

from __future__ import annotations

from ...tensor import Tensor
from ..functional.dropout import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    """A layer that drops with probability `p`."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Probability and mode."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zero each element with probability `p` and scale the rest by 1 / (1 - p).

    Does nothing in evaluation mode. Source: Hinton et al. 2012, https://arxiv.org/abs/1207.0580.

    Raises:
        ValueError: when `p` is no probability.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape."""
        return dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zero whole channels of (N, C, L) or (C, L), and scale the others by 1 / (1 - p).

    Source: Tompson et al. 2015, https://arxiv.org/abs/1411.4280.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zero whole channels of (N, C, H, W), and scale the others by 1 / (1 - p)."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W), and scale the others."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps the mean and the variance of a standard normal input, for SELU networks.

    Source: Klambauer et al. 2017, https://arxiv.org/abs/1706.02515.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape."""
        return alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_DropoutNd):
    """`AlphaDropout` of whole channels of (N, C, ...)."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop channels."""
        return feature_alpha_dropout(input, self.p, self.training, self.inplace)
