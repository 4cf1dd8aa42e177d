"""Layers that only change a tensor's shape: Flatten, Identity."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .module import Module


class Flatten(Module):
    """Join the dimensions `start_dim` to `end_dim` (both included) into one.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Flatten()(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Flatten one tensor."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """The two dimensions."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Identity(Module):
    """Gives back its input; takes and ignores any arguments, to stand in for another layer.

    >>> from cugrad import nn
    >>> nn.Identity(54)(7)
    7
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """The input, untouched."""
        return input
