"""Unfold and Fold: the windows of images as columns, and back."""

from __future__ import annotations

from ...backends.windows import Ints
from ...tensor import Tensor
from ..functional.image import fold, unfold
from .module import Module

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """The windows of (N, C, H, W) as columns (N, C * kh * kw, windows).

    >>> import cugrad as torch
    >>> torch.nn.Unfold(2)(torch.zeros(1, 3, 4, 4)).shape
    torch.Size([1, 12, 9])
    """

    def __init__(
        self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The columns."""
        how = (self.dilation, self.padding, self.stride)
        return unfold(input, self.kernel_size, *how)

    def extra_repr(self) -> str:
        """The windows."""
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Fold(Module):
    """Columns (N, C * kh * kw, windows) added to images (N, C, *output_size).

    >>> import cugrad as torch
    >>> torch.nn.Fold((4, 4), 2)(torch.zeros(1, 12, 9)).shape
    torch.Size([1, 3, 4, 4])
    """

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0,
        stride: Ints = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The images."""
        how = (self.dilation, self.padding, self.stride)
        return fold(input, self.output_size, self.kernel_size, *how)

    def extra_repr(self) -> str:
        """The images and the windows."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )
