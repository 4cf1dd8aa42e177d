"""MaxPool2d: the largest value of every window."""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from . import functional
from .module import Module


class MaxPool2d(Module):
    """The maximum over sliding windows of (N, C, H, W) or (C, H, W).

    `stride` defaults to `kernel_size`; `return_indices` also gives where, in the flattened
    image, each maximum was found.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.MaxPool2d(2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 4, 4])
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """The pooled tensor, or (pooled, indices)."""
        return functional.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        """Window and step."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )
