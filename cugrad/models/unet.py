"""A U-Net: images to images, by halving their size and doubling it again beside shortcuts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import nn
from ..functions.shapes.copies import cat

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["UNet"]


class _DoubleConv(nn.Sequential):
    """Two 3x3 convolutions, each with batch norm and ReLU."""

    def __init__(self, channels: int, out_channels: int, inplace: bool) -> None:
        super().__init__(
            nn.Conv2d(channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace),
        )


class UNet(nn.Module):
    """U-Net, https://arxiv.org/abs/1505.04597, with padding and batch norm: sizes are kept.

    Args:
        in_channels: channels of the images.
        out_channels: channels of the result: classes, if it is a segmentation.
        width: channels at full size; twice as many at half the size, and so on.
        depth: how often the size is halved.
        inplace: whether ReLU writes into its input.

    Input (N, in_channels, H, W) with H and W multiples of 2**depth; output (N, out_channels, H, W).

    >>> import cugrad as torch
    >>> from cugrad.models import UNet
    >>> UNet(1, 2, width=4, depth=2)(torch.zeros(1, 1, 8, 8)).shape
    torch.Size([1, 2, 8, 8])
    """

    def __init__(
        self,
        in_channels: int = 3,
        out_channels: int = 1,
        *,
        width: int = 64,
        depth: int = 4,
        inplace: bool = True,
    ) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            [_DoubleConv(a, b, inplace) for a, b in zip([in_channels, *widths], widths)]
        )
        self.pool = nn.MaxPool2d(2)
        self.widen = nn.ModuleList(
            [nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1])]
        )
        self.up = nn.ModuleList([_DoubleConv(2 * w, w, inplace) for w in reversed(widths[:-1])])
        self.head = nn.Conv2d(width, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for number, twice in enumerate(self.down):
            x = twice(self.pool(x) if number else x)
            levels.append(x)
        levels.pop()
        for widen, twice in zip(self.widen, self.up):
            x = twice(cat([levels.pop(), widen(x)], 1))
        return self.head(x)
