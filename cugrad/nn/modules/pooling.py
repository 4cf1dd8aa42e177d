"""Pooling layers of one to three dims: maxima, averages, powers, adaptive, fractional."""

from __future__ import annotations

from typing import Any

from ...backends.windows import Ints, numbers
from ...tensor import Tensor
from ..base.dims import OverDims
from ..functional import pooling as functional
from .module import Module

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d",
    "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


class _MaxPoolNd(OverDims, Module):
    """The maximum over sliding windows; `spatial` says over how many dims."""

    _about = """The maximum over sliding windows of (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.MaxPool{n}d(2)(torch.zeros(1, 3, {each:8})).shape
    torch.Size([1, 3, {each:4}])
    """

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


class MaxPool1d(_MaxPoolNd, dims=1): ...


class MaxPool2d(_MaxPoolNd, dims=2): ...


class MaxPool3d(_MaxPoolNd, dims=3): ...


class _MaxUnpoolNd(OverDims, Module):
    """Maxima put back to where they were found."""

    _about = """Maxima put back to where MaxPool{n}d found them in (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> maxima = torch.nn.MaxPool{n}d(2, return_indices=True)(torch.zeros(1, 3, {each:4}))
    >>> torch.nn.MaxUnpool{n}d(2)(*maxima).shape
    torch.Size([1, 3, {each:4}])
    """

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


class MaxUnpool1d(_MaxUnpoolNd, dims=1): ...


class MaxUnpool2d(_MaxUnpoolNd, dims=2): ...


class MaxUnpool3d(_MaxUnpoolNd, dims=3): ...


class _AvgPoolNd(OverDims, Module):
    """The average over sliding windows."""

    _about = """The average over sliding windows of (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.AvgPool{n}d(2)(torch.zeros(1, 3, {each:8})).shape
    torch.Size([1, 3, {each:4}])
    """

    def extra_repr(self) -> str:
        """Window and step."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd, dims=1):
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


class _AvgPool(_AvgPoolNd):
    """The average over sliding windows of two or three dims, by a divisor that may be given."""

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


class AvgPool2d(_AvgPool, dims=2): ...


class AvgPool3d(_AvgPool, dims=3): ...


class _AdaptiveAvgPoolNd(OverDims, Module):
    """Averages of as many windows as asked for."""

    _about = """Averages of `output_size` windows of (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.AdaptiveAvgPool{n}d(5)(torch.zeros(1, 3, {each:8})).shape
    torch.Size([1, 3, {each:5}])
    """

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


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd, dims=1): ...


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd, dims=2): ...


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd, dims=3): ...


class _AdaptiveMaxPoolNd(OverDims, Module):
    """Maxima of as many windows as asked for."""

    _about = """Maxima of `output_size` windows of (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.AdaptiveMaxPool{n}d(5)(torch.zeros(1, 3, {each:8})).shape
    torch.Size([1, 3, {each:5}])
    """

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


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd, dims=1): ...


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd, dims=2): ...


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd, dims=3): ...


class _LPPoolNd(OverDims, Module):
    """Powers added up over sliding windows."""

    _about = """(Σ x^p)^(1/p) over sliding windows of (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.LPPool{n}d(2, 2)(torch.zeros(1, 3, {each:8})).shape
    torch.Size([1, 3, {each:4}])
    """

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


class LPPool1d(_LPPoolNd, dims=1): ...


class LPPool2d(_LPPoolNd, dims=2): ...


class LPPool3d(_LPPoolNd, dims=3): ...


class _FractionalMaxPool(OverDims, Module):
    """Maxima of windows at random places."""

    _about = """Maxima of windows at random places in (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.FractionalMaxPool{n}d(2, output_size=5)(torch.zeros(1, 3, {each:8})).shape
    torch.Size([1, 3, {each:5}])
    """

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
            raise ValueError(f"only one of output_size and output_ratio may be specified ({name})")
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


class FractionalMaxPool2d(_FractionalMaxPool, dims=2): ...


class FractionalMaxPool3d(_FractionalMaxPool, dims=3): ...
