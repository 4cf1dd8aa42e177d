"""Layers that act on each element: ReLU."""

from __future__ import annotations

from ..tensor import Tensor
from . import functional
from .module import Module


class ReLU(Module):
    """max(x, 0), element by element; `inplace` writes it into the input.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.ReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Apply it to a tensor of any shape."""
        return functional.relu(input, self.inplace)

    def extra_repr(self) -> str:
        """`inplace=True` or nothing."""
        return "inplace=True" if self.inplace else ""
