"""A layer that deals channels out to groups."""

from __future__ import annotations

from ...functions.shapes.arranging import channel_shuffle
from ...tensor import Tensor
from .module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Channels dealt out to groups in turn: (*, g, C / g) is transposed.

    >>> import cugrad as torch
    >>> torch.nn.ChannelShuffle(2)(torch.arange(4).reshape(1, 4, 1)).flatten()
    tensor([0, 2, 1, 3])
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """The rearranged tensor."""
        return channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """The number of groups."""
        return f"groups={self.groups}"
