"""Padding layers: a border of a constant, or made of the input itself."""

from __future__ import annotations

from ..functions.padding import pad
from ..ops.windows import Ints
from ..tensor import Tensor
from .module import Module


class _Pad(Module):
    """A border; `spatial` says around how many dims, `mode` what it is made of."""

    spatial = 0
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


class _ConstantPad(_Pad):
    """A border of one value."""

    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The input with its border."""
        return pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The widths of the border, and the value."""
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    """A border of zeros."""

    def __init__(self, padding: Ints) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths of the border."""
        return f"{self.padding}"


class _CircularPad(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        """The input with its border."""
        n = self.spatial
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")
        return super().forward(input)


class ConstantPad1d(_ConstantPad):
    """A border of `value` around (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.ConstantPad1d(1, 7.0)(torch.zeros(1, 1, 2)).shape
    torch.Size([1, 1, 4])
    """

    spatial = 1


class ConstantPad2d(_ConstantPad):
    """A border of `value` around (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.ConstantPad2d(1, 7.0)(torch.zeros(1, 1, 2, 2)).shape
    torch.Size([1, 1, 4, 4])
    """

    spatial = 2


class ConstantPad3d(_ConstantPad):
    """A border of `value` around (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.ConstantPad3d(1, 7.0)(torch.zeros(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """

    spatial = 3


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """A border of zeros around (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.ZeroPad1d(1)(torch.zeros(1, 1, 2)).shape
    torch.Size([1, 1, 4])
    """

    spatial = 1


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """A border of zeros around (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.ZeroPad2d(1)(torch.zeros(1, 1, 2, 2)).shape
    torch.Size([1, 1, 4, 4])
    """

    spatial = 2


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """A border of zeros around (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.ZeroPad3d(1)(torch.zeros(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """

    spatial = 3


class ReflectionPad1d(_Pad):
    """A border that mirrors the input without its edge, around (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.ReflectionPad1d(1)(torch.zeros(1, 1, 2)).shape
    torch.Size([1, 1, 4])
    """

    spatial = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """A border that mirrors the input without its edge, around (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.ReflectionPad2d(1)(torch.zeros(1, 1, 2, 2)).shape
    torch.Size([1, 1, 4, 4])
    """

    spatial = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """A border that mirrors the input without its edge, around (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.ReflectionPad3d(1)(torch.zeros(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """

    spatial = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """A border that repeats the edge, around (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.ReplicationPad1d(1)(torch.zeros(1, 1, 2)).shape
    torch.Size([1, 1, 4])
    """

    spatial = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """A border that repeats the edge, around (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.ReplicationPad2d(1)(torch.zeros(1, 1, 2, 2)).shape
    torch.Size([1, 1, 4, 4])
    """

    spatial = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """A border that repeats the edge, around (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.ReplicationPad3d(1)(torch.zeros(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """

    spatial = 3
    mode = "replicate"


class CircularPad1d(_CircularPad):
    """A border from the opposite side, around (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.CircularPad1d(1)(torch.zeros(1, 1, 2)).shape
    torch.Size([1, 1, 4])
    """

    spatial = 1


class CircularPad2d(_CircularPad):
    """A border from the opposite side, around (N, C, H, W) or (C, H, W).

    >>> import cugrad as torch
    >>> torch.nn.CircularPad2d(1)(torch.zeros(1, 1, 2, 2)).shape
    torch.Size([1, 1, 4, 4])
    """

    spatial = 2


class CircularPad3d(_CircularPad):
    """A border from the opposite side, around (N, C, D, H, W) or (C, D, H, W).

    >>> import cugrad as torch
    >>> torch.nn.CircularPad3d(1)(torch.zeros(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """

    spatial = 3
