"""Conv2d: the two-dimensional convolution layer."""

from __future__ import annotations

from typing import Any

from ..creation import empty
from ..dtypes import dtype as DType
from ..tensor import Tensor
from . import functional, init
from .module import Module
from .parameter import Parameter


class Conv2d(Module):
    """Cross-correlate images of shape (N, in_channels, H, W) with learned kernels.

    `weight` has shape (out_channels, in_channels // groups, *kernel_size). `padding` is a
    number per side, "valid" (none) or "same" (output as large as the input, stride 1 only).

    Raises:
        ValueError: when channels and groups do not fit, or "same" meets a stride.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Conv2d(1, 4, 3, padding="same")(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode != "zeros":
            raise ValueError(
                f"padding_mode must be 'zeros', but got padding_mode='{padding_mode}'; "
                "pad the input before the layer for another mode"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = functional.pair(kernel_size)
        self.stride = functional.pair(stride)
        self.padding = padding if isinstance(padding, str) else functional.pair(padding)
        self.dilation = functional.pair(dilation)
        self.groups = groups
        self.padding_mode = padding_mode
        functional.conv_padding(self.padding, self.kernel_size, self.stride, self.dilation)
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.reset_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to (N, C, H, W) or (C, H, W)."""
        return functional.conv2d(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
        )

    def extra_repr(self) -> str:
        """Sizes, and whatever differs from the defaults."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}"
        if self.padding != (0, 0):
            text += f", padding={self.padding}"
        if self.dilation != (1, 1):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text
