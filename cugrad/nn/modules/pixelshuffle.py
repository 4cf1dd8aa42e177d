"""Layers that turn channels into pixels, and back."""

from __future__ import annotations

from ...functions.shapes.arranging import pixel_shuffle, pixel_unshuffle
from ...tensor import Tensor
from .module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Channels become pixels: (*, C r², H, W) to (*, C, H r, W r).

    >>> import cugrad as torch
    >>> torch.nn.PixelShuffle(2)(torch.zeros(1, 8, 2, 2)).shape
    torch.Size([1, 2, 4, 4])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The rearranged tensor."""
        return pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """The factor."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Pixels become channels: (*, C, H r, W r) to (*, C r², H, W).

    >>> import cugrad as torch
    >>> torch.nn.PixelUnshuffle(2)(torch.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 8, 2, 2])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The rearranged tensor."""
        return pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """The factor."""
        return f"downscale_factor={self.downscale_factor}"
