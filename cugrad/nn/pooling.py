"""Pooling layers of one to three dims: maxima, averages, powers, adaptive, fractional."""

from __future__ import annotations

from typing import Any

from ..ops.windows import Ints, numbers
from ..tensor import Tensor
from .functional import pooling as functional
from .module import Module


class _MaxPool(Module):
    """The maximum over sliding windows; `spatial` says over how many dims."""

    spatial = 0

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
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
        pool = getattr(functional, f"max_pool{self.spatial}d")
        how = (self.padding, self.dilation, self.ceil_mode, self.return_indices)
        return pool(input, self.kernel_size, self.stride, *how)

    def extra_repr(self) -> str:
        """Window and step."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class _MaxUnpool(Module):
    """Maxima put back to where they were found."""

    spatial = 0

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        super().__init__()
        n = self.spatial
        self.kernel_size = numbers(kernel_size, n)
        self.stride = self.kernel_size if stride is None else numbers(stride, n)
        self.padding = numbers(padding, n)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """The maxima in a tensor of zeros of `output_size`."""
        unpool = getattr(functional, f"max_unpool{self.spatial}d")
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """Window and step."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    """The average over sliding windows of two or three dims."""

    spatial = 0

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """The pooled tensor."""
        pool = getattr(functional, f"avg_pool{self.spatial}d")
        how = (self.ceil_mode, self.count_include_pad, self.divisor_override)
        return pool(input, self.kernel_size, self.stride, self.padding, *how)

    def extra_repr(self) -> str:
        """Window and step."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(Module):
    """The average over sliding windows of (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.AvgPool1d(2)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 4])
    """

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = numbers(kernel_size, 1)
        self.stride = numbers(kernel_size if stride is None else stride, 1)
        self.padding = numbers(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """The pooled tensor."""
        how = (self.padding, self.ceil_mode, self.count_include_pad)
        return functional.avg_pool1d(input, self.kernel_size, self.stride, *how)

    def extra_repr(self) -> str:
        """Window and step."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AdaptiveAvgPool(Module):
    """Averages of as many windows as asked for."""

    spatial = 0

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """The pooled tensor."""
        pool = getattr(functional, f"adaptive_avg_pool{self.spatial}d")
        return pool(input, self.output_size)

    def extra_repr(self) -> str:
        """The size of the result."""
        return f"output_size={self.output_size}"


class _AdaptiveMaxPool(Module):
    """Maxima of as many windows as asked for."""

    spatial = 0

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """The pooled tensor, or (pooled, indices)."""
        pool = getattr(functional, f"adaptive_max_pool{self.spatial}d")
        return pool(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        """The size of the result."""
        return f"output_size={self.output_size}"


class _LPPool(Module):
    """Powers added up over sliding windows."""

    spatial = 0

    def __init__(
        self,
        norm_type: float,
        kernel_size: Ints,
        stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """The pooled tensor."""
        pool = getattr(functional, f"lp_pool{self.spatial}d")
        power = float(self.norm_type)
        return pool(input, power, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """Power, window and step."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class _FractionalMaxPool(Module):
    """Maxima of windows at random places."""

    spatial = 0

    def __init__(
        self,
        kernel_size: Ints,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        n, name = self.spatial, type(self).__name__
        if output_size is not None and output_ratio is not None:
            raise ValueError(f"{name}: only one of output_size and output_ratio may be given")
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio"
            )
        self.kernel_size = numbers(kernel_size, n)
        self.return_indices = return_indices
        self.output_size = None if output_size is None else numbers(output_size, n)
        if isinstance(output_ratio, (int, float)):
            output_ratio = (output_ratio,) * n
        self.output_ratio = output_ratio
        if output_ratio is not None and not all(0 < ratio < 1 for ratio in output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        """The pooled tensor, or (pooled, indices)."""
        pool = getattr(functional, f"fractional_max_pool{self.spatial}d")
        how = (self.output_size, self.output_ratio, self.return_indices, self._random_samples)
        return pool(input, self.kernel_size, *how)


class MaxPool1d(_MaxPool):
    """The maximum over sliding windows of (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.MaxPool1d(2)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 4])
    """

    spatial = 1


class MaxPool2d(_MaxPool):
    """The maximum over sliding windows of (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.MaxPool2d(2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 4, 4])
    """

    spatial = 2


class MaxPool3d(_MaxPool):
    """The maximum over sliding windows of (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.MaxPool3d(2)(torch.zeros(1, 3, 8, 8, 8)).shape
    torch.Size([1, 3, 4, 4, 4])
    """

    spatial = 3


class MaxUnpool1d(_MaxUnpool):
    """Maxima put back to where MaxPool1d found them in (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> maxima = torch.nn.MaxPool1d(2, return_indices=True)(torch.zeros(1, 3, 4))
    >>> torch.nn.MaxUnpool1d(2)(*maxima).shape
    torch.Size([1, 3, 4])
    """

    spatial = 1


class MaxUnpool2d(_MaxUnpool):
    """Maxima put back to where MaxPool2d found them in (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> maxima = torch.nn.MaxPool2d(2, return_indices=True)(torch.zeros(1, 3, 4, 4))
    >>> torch.nn.MaxUnpool2d(2)(*maxima).shape
    torch.Size([1, 3, 4, 4])
    """

    spatial = 2


class MaxUnpool3d(_MaxUnpool):
    """Maxima put back to where MaxPool3d found them in (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> maxima = torch.nn.MaxPool3d(2, return_indices=True)(torch.zeros(1, 3, 4, 4, 4))
    >>> torch.nn.MaxUnpool3d(2)(*maxima).shape
    torch.Size([1, 3, 4, 4, 4])
    """

    spatial = 3


class AvgPool2d(_AvgPool):
    """The average over sliding windows of (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.AvgPool2d(2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 4, 4])
    """

    spatial = 2


class AvgPool3d(_AvgPool):
    """The average over sliding windows of (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.AvgPool3d(2)(torch.zeros(1, 3, 8, 8, 8)).shape
    torch.Size([1, 3, 4, 4, 4])
    """

    spatial = 3


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Averages of `output_size` windows of (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.AdaptiveAvgPool1d(5)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 5])
    """

    spatial = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Averages of `output_size` windows of (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.AdaptiveAvgPool2d(5)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 5, 5])
    """

    spatial = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Averages of `output_size` windows of (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.AdaptiveAvgPool3d(5)(torch.zeros(1, 3, 8, 8, 8)).shape
    torch.Size([1, 3, 5, 5, 5])
    """

    spatial = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima of `output_size` windows of (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.AdaptiveMaxPool1d(5)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 5])
    """

    spatial = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima of `output_size` windows of (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.AdaptiveMaxPool2d(5)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 5, 5])
    """

    spatial = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima of `output_size` windows of (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.AdaptiveMaxPool3d(5)(torch.zeros(1, 3, 8, 8, 8)).shape
    torch.Size([1, 3, 5, 5, 5])
    """

    spatial = 3


class LPPool1d(_LPPool):
    """(Σ x^p)^(1/p) over sliding windows of (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.LPPool1d(2, 2)(torch.zeros(1, 3, 8)).shape
    torch.Size([1, 3, 4])
    """

    spatial = 1


class LPPool2d(_LPPool):
    """(Σ x^p)^(1/p) over sliding windows of (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.LPPool2d(2, 2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 4, 4])
    """

    spatial = 2


class LPPool3d(_LPPool):
    """(Σ x^p)^(1/p) over sliding windows of (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.LPPool3d(2, 2)(torch.zeros(1, 3, 8, 8, 8)).shape
    torch.Size([1, 3, 4, 4, 4])
    """

    spatial = 3


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maxima of windows at random places in (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.FractionalMaxPool2d(2, output_size=5)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 3, 5, 5])
    """

    spatial = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maxima of windows at random places in (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.FractionalMaxPool3d(2, output_size=5)(torch.zeros(1, 3, 8, 8, 8)).shape
    torch.Size([1, 3, 5, 5, 5])
    """

    spatial = 3
