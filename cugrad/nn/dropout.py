"""Dropout: random zeros while training."""

from __future__ import annotations

from ..tensor import Tensor
from . import functional
from .module import Module


class Dropout(Module):
    """Zero each element with probability `p` and scale the rest by 1 / (1 - p).

    Does nothing in evaluation mode. Source: Hinton et al. 2012, https://arxiv.org/abs/1207.0580.

    Raises:
        ValueError: when `p` is no probability.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape."""
        return functional.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """Probability and mode."""
        return f"p={self.p}, inplace={self.inplace}"
