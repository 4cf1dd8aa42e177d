"""A U-Net: images to images, by halving their size and doubling it again beside shortcuts.

Parameters are named as in https://github.com/milesial/Pytorch-UNet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import nn
from ..functions.shapes.copies import cat

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["UNet"]


class _DoubleConv(nn.Module):
    """Two 3x3 convolutions, each with batch norm and ReLU."""

    def __init__(self, channels: int, out_channels: int, inplace: bool) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class _Down(nn.Module):
    """Half the size, then two convolutions."""

    def __init__(self, channels: int, out_channels: int, inplace: bool) -> None:
        super().__init__()
        twice = _DoubleConv(channels, out_channels, inplace)
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), twice)

    def forward(self, x: Tensor) -> Tensor:
        return self.maxpool_conv(x)


class _Up(nn.Module):
    """Twice the size, then two convolutions of that and of what had this size before."""

    def __init__(self, channels: int, out_channels: int, inplace: bool) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, out_channels, 2, 2)
        self.conv = _DoubleConv(channels, out_channels, inplace)

    def forward(self, x: Tensor, shortcut: Tensor) -> Tensor:
        return self.conv(cat([shortcut, self.up(x)], 1))


class _Out(nn.Module):
    """A 1x1 convolution."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


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
        self.depth = depth
        self.inc = _DoubleConv(in_channels, width, inplace)
        for number, (small, large) in enumerate(zip(widths, widths[1:]), 1):
            self.add_module(f"down{number}", _Down(small, large, inplace))
        for number in range(1, depth + 1):
            self.add_module(f"up{number}", _Up(widths[-number], widths[-number - 1], inplace))
        self.outc = _Out(width, out_channels)
        self.register_load_state_dict_pre_hook(_without_values_of_classes)

    def forward(self, x: Tensor) -> Tensor:
        levels = [self.inc(x)]
        for number in range(1, self.depth + 1):
            levels.append(getattr(self, f"down{number}")(levels[-1]))
        x = levels.pop()
        for number in range(1, self.depth + 1):
            x = getattr(self, f"up{number}")(x, levels.pop())
        return self.outc(x)


def _without_values_of_classes(module: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Takes out what that program's checkpoints have beside tensors."""
    state.pop(prefix + "mask_values", None)
