"""Layers that join dimensions into one, and split one into several."""

from __future__ import annotations

from collections.abc import Sequence

from ...tensor import Tensor
from .module import Module

__all__ = ["Flatten", "Unflatten"]


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


class Unflatten(Module):
    """Split dimension `dim` into several, of the sizes `unflattened_size`; one may be -1.

    >>> import cugrad as torch
    >>> torch.nn.Unflatten(1, (2, 5))(torch.zeros(3, 10)).shape
    torch.Size([3, 2, 5])
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError(f"unflatten: dim must be an int, got {type(dim).__name__}")
        if not isinstance(unflattened_size, Sequence):
            raise TypeError(
                "unflattened_size must be a tuple or list of ints, got "
                f"{type(unflattened_size).__name__}"
            )
        for position, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {position}"
                )
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        """Split the dimension of one tensor."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """The dimension and the sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
