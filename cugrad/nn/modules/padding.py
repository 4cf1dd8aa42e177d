"""Padding layers: a border of a constant, or made of the input itself."""

from __future__ import annotations

from ...backends.windows import Ints
from ...functions.shapes.padding import pad
from ...tensor import Tensor
from ..base.dims import OverDims
from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _PadNd(OverDims, Module):
    """A border; `spatial` says around how many dims, `mode` what it is made of."""

    mode = "constant"

    def __init__(self, padding: Ints) -> None:
        super().__init__()
        n = 2 * self.spatial
        self.padding = (padding,) * n if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != n:
            raise ValueError(
                f"{type(self).__name__}: got padding={padding!r}, want an int or {n} ints"
            )

    def forward(self, input: Tensor) -> Tensor:
        """The input with its border."""
        return pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        """The widths of the border."""
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    """A border of one value."""

    _about = """A border of `value` around (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.ConstantPad{n}d(1, 7.0)(torch.zeros(1, 1, {each:2})).shape
    torch.Size([1, 1, {each:4}])
    """

    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The input with its border."""
        return pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The widths of the border, and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd, dims=1): ...


class ConstantPad2d(_ConstantPadNd, dims=2): ...


class ConstantPad3d(_ConstantPadNd, dims=3): ...


class _ZeroPadNd(_ConstantPadNd):
    """A border of zeros."""

    _about = """A border of zeros around (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.ZeroPad{n}d(1)(torch.zeros(1, 1, {each:2})).shape
    torch.Size([1, 1, {each:4}])
    """

    def __init__(self, padding: Ints) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths of the border."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPadNd, ConstantPad1d, dims=1): ...


class ZeroPad2d(_ZeroPadNd, ConstantPad2d, dims=2): ...


class ZeroPad3d(_ZeroPadNd, ConstantPad3d, dims=3): ...


class _ReflectionPadNd(_PadNd):
    """A border that mirrors the input without its edge."""

    _about = """A border that mirrors the input without its edge.

    Around (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.ReflectionPad{n}d(1)(torch.zeros(1, 1, {each:2})).shape
    torch.Size([1, 1, {each:4}])
    """

    mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd, dims=1): ...


class ReflectionPad2d(_ReflectionPadNd, dims=2): ...


class ReflectionPad3d(_ReflectionPadNd, dims=3): ...


class _ReplicationPadNd(_PadNd):
    """A border that repeats the edge."""

    _about = """A border that repeats the edge, around (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.ReplicationPad{n}d(1)(torch.zeros(1, 1, {each:2})).shape
    torch.Size([1, 1, {each:4}])
    """

    mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd, dims=1): ...


class ReplicationPad2d(_ReplicationPadNd, dims=2): ...


class ReplicationPad3d(_ReplicationPadNd, dims=3): ...


class _CircularPadNd(_PadNd):
    """A border from the opposite side."""

    _about = """A border from the opposite side, around (N, C, {space}) or (C, {space}).

    >>> import cugrad as torch
    >>> torch.nn.CircularPad{n}d(1)(torch.zeros(1, 1, {each:2})).shape
    torch.Size([1, 1, {each:4}])
    """

    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        """The input with its border."""
        n = self.spatial
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPadNd, dims=1): ...


class CircularPad2d(_CircularPadNd, dims=2): ...


class CircularPad3d(_CircularPadNd, dims=3): ...
