"""Convolution layers of one to three dims, forward and transposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends.windows import Ints, numbers
from ...dtypes import dtype as DType
from ...functions.creation.factories import empty
from ...functions.shapes.padding import pad
from ...runtime.absent import explain
from ...tensor import Tensor
from .. import init
from ..base.dims import OverDims
from ..functional import conv as functional
from ..parameter import Parameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d",
    "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]  # fmt: skip

_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(OverDims, Module):
    """What all convolution layers share; `spatial` says over how many dims."""

    transposed: bool

    _of_older_files = {"padding_mode": "zeros"}

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints,
        padding: Ints | str, dilation: Ints, transposed: bool, output_padding: Ints, groups: int,
        bias: bool, padding_mode: str, device: Any = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.transposed = transposed
        if not self.spatial:  # of a class of the program's own
            self.spatial = len(kernel_size) if isinstance(kernel_size, (tuple, list)) else 2
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode not in _MODES:
            raise ValueError(
                f"padding_mode must be one of {_MODES}, but got padding_mode='{padding_mode}'"
            )
        if self.transposed and padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = self._numbers("kernel_size", kernel_size)
        self.stride = self._numbers("stride", stride)
        self.padding = padding if isinstance(padding, str) else self._numbers("padding", padding)
        self.dilation = self._numbers("dilation", dilation)
        self.output_padding = self._numbers("output_padding", output_padding)
        self.groups = groups
        self.padding_mode = padding_mode
        functional.conv_padding(self.padding, self.kernel_size, self.stride, self.dilation)
        self.weight = Parameter(empty(self._weight_shape(), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels // self.groups
        if self.transposed:
            first, second = self.in_channels, self.out_channels // self.groups
        return (first, second, *self.kernel_size)

    def _numbers(self, what: str, value: Ints) -> tuple[int, ...]:
        values = numbers(value, self.spatial)
        if len(values) != self.spatial or not all(isinstance(v, int) for v in values):
            raise ValueError(
                f"{type(self).__name__}: got {what}={value!r}, want an int or a tuple of "
                f"{self.spatial} ints"
            )
        return values

    @property
    def _reversed_padding_repeated_twice(self) -> tuple[int, ...]:
        """The padding as functional.pad has it: from the last dim on, before and after."""
        if not isinstance(self.padding, str):
            return tuple([p for p in reversed(self.padding) for _ in range(2)])
        border: list[int] = []
        for d, k in zip(reversed(self.dilation), reversed(self.kernel_size)):
            total = d * (k - 1) if self.padding == "same" else 0
            border += [total // 2, total - total // 2]
        return tuple(border)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.reset_affine(self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes, and whatever differs from the defaults."""
        n = self.spatial
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}"
        if self.padding != (0,) * n:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Conv(_ConvNd):
    """A layer that correlates; its border may be made of the input."""

    _about = """Cross-correlate {things} of shape (N, C, {space}) with learned kernels.

    `weight` has shape (out_channels, in_channels // groups, *kernel_size). `padding` is a
    number per side, "valid" (none) or "same" (output as large as the input, stride 1 only).

    Raises:
        ValueError: when channels and groups do not fit, or "same" meets a stride.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.Conv{n}d(1, 4, 3, padding="same")(torch.zeros(2, 1, {each:8})).shape
    torch.Size([2, 4, {each:8}])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints | str = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, False,
                         0, groups, bias, padding_mode, device, dtype)  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer to a batch (N, C, *size), or to (C, *size)."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Apply it with another weight and bias, as classes of a program's own do."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        convolve = getattr(functional, f"conv{self.spatial}d")
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv, dims=1): ...


class Conv2d(_Conv, dims=2): ...


class Conv3d(_Conv, dims=3): ...


class _ConvTransposeNd(_ConvNd):
    """A layer that is the adjoint of a correlation."""

    _about = """The adjoint of Conv{n}d: {things} of shape (N, C, {space}) to larger ones.

    `weight` has shape (in_channels, out_channels // groups, *kernel_size).

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.ConvTranspose{n}d(1, 4, 3, stride=2)(torch.zeros(2, 1, {each:8})).shape
    torch.Size([2, 4, {each:17}])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, True,
                         output_padding, groups, bias, padding_mode, device, dtype)  # fmt: skip

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """Apply the layer; `output_size` chooses among the sizes that a stride leaves open."""
        where = self.stride, self.padding, self.kernel_size
        extra = self._output_padding(input, output_size, *where, self.spatial, self.dilation)
        convolve = getattr(functional, f"conv_transpose{self.spatial}d")
        how = (self.stride, self.padding, extra, self.groups, self.dilation)
        return convolve(input, self.weight, self.bias, *how)

    def _output_padding(
        self, input: Tensor, output_size: Any, stride: Any, padding: Any, kernel_size: Any,
        num_spatial_dims: int, dilation: Any = None,
    ) -> Sequence[int]:  # fmt: skip
        """The output padding that gives `output_size`; ValueError where none does."""
        if output_size is None:
            return self.output_padding
        n, sizes = num_spatial_dims, list(output_size)
        lead = input.dim() - n
        if len(sizes) == n + lead:
            sizes = sizes[lead:]
        if len(sizes) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or "
                f"{n + lead} elements (got {len(output_size)})"
            )
        least = [
            (size - 1) * s - 2 * p + d * (k - 1) + 1
            for size, s, p, d, k in zip(
                input.shape[lead:], stride, padding, dilation or [1] * n, kernel_size)
        ]  # fmt: skip
        most = [low + s - 1 for low, s in zip(least, stride)]
        if any(not low <= size <= high for low, size, high in zip(least, sizes, most)):
            raise ValueError(
                f"requested an output size of {sizes}, but valid sizes range from {least} to "
                f"{most} (for an input of {list(input.shape[lead:])})"
            )
        return [size - low for size, low in zip(sizes, least)]


class ConvTranspose1d(_ConvTransposeNd, dims=1): ...


class ConvTranspose2d(_ConvTransposeNd, dims=2): ...


class ConvTranspose3d(_ConvTransposeNd, dims=3): ...


class _LazyConvNd(LazyModuleMixin, _ConvNd):
    """A convolution whose `in_channels` are those of its first input."""

    _about = """A {of}{n}d whose `in_channels` are those of its first input.

    >>> import cugrad as torch
    >>> torch.nn.Lazy{of}{n}d(4, 3)(torch.zeros(2, 1, {each:8})).shape[1]
    4
    """

    def reset_parameters(self) -> None:
        """Draw new initial values, once there is room for them."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the number of channels of `input`."""
        alone = self.spatial + 1
        if input.dim() not in (alone, alone + 1):
            raise RuntimeError(
                f"Expected {alone}D (unbatched) or {alone + 1}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        channels = input.shape[input.dim() - alone]
        if channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if self.in_channels == 0:  # also where the parameters were loaded
            self.in_channels = channels
        if not self.has_uninitialized_params():
            return
        self.weight.materialize(self._weight_shape())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyConv(_LazyConvNd):
    _about = _LazyConvNd._about.replace("{of}", "Conv")

    def __init__(
        self, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints | str = 0,
        dilation: Ints = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
        device: Any = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode,
                         device, dtype)  # fmt: skip
        self.out_channels = out_channels
        self._declare("weight bias" if bias else "weight", device, dtype)


class LazyConv1d(_LazyConv, Conv1d, dims=1):
    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d, dims=2):
    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d, dims=3):
    cls_to_become = Conv3d


class _LazyConvTranspose(_LazyConvNd):
    _about = _LazyConvNd._about.replace("{of}", "ConvTranspose")

    def __init__(
        self, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0,
        output_padding: Ints = 0, groups: int = 1, bias: bool = True, dilation: Ints = 1,
        padding_mode: str = "zeros", device: Any = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False,
                         dilation, padding_mode, device, dtype)  # fmt: skip
        self.out_channels = out_channels
        self._declare("weight bias" if bias else "weight", device, dtype)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d, dims=1):
    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d, dims=2):
    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d, dims=3):
    cls_to_become = ConvTranspose3d


explain(__name__)
