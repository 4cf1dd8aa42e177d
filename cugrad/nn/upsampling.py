"""Layers that change the resolution of images, or normalise across their channels."""

from __future__ import annotations

from typing import Any

from ..functions.arranging import channel_shuffle, pixel_shuffle, pixel_unshuffle
from ..ops.windows import Ints
from ..tensor import Tensor
from .functional.image import interpolate, local_response_norm
from .module import Module


class Upsample(Module):
    """Resample (N, C, *spatial) to `size` or by `scale_factor`, see functional.interpolate.

    >>> import cugrad as torch
    >>> torch.nn.Upsample(scale_factor=2, mode="bilinear")(torch.zeros(1, 1, 2, 3)).shape
    torch.Size([1, 1, 4, 6])
    """

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple([float(factor) for factor in scale_factor])
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The resampled tensor."""
        return interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The size or the factor, and the mode."""
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """The older name of Upsample with mode "nearest".

    >>> import cugrad as torch
    >>> torch.nn.UpsamplingNearest2d(scale_factor=2)(torch.zeros(1, 1, 2, 3)).shape
    torch.Size([1, 1, 4, 6])
    """

    def __init__(self, size: Ints | None = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """The older name of Upsample with mode "bilinear" and aligned corners.

    >>> import cugrad as torch
    >>> torch.nn.UpsamplingBilinear2d(scale_factor=2)(torch.zeros(1, 1, 2, 3)).shape
    torch.Size([1, 1, 4, 6])
    """

    def __init__(self, size: Ints | None = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    """Channels become pixels: (*, C r², H, W) to (*, C, H r, W r).

    >>> import cugrad as torch
    >>> torch.nn.PixelShuffle(2)(torch.zeros(1, 8, 2, 2)).shape
    torch.Size([1, 2, 4, 4])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The rearranged tensor."""
        return pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """The factor."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Pixels become channels: (*, C, H r, W r) to (*, C r², H, W).

    >>> import cugrad as torch
    >>> torch.nn.PixelUnshuffle(2)(torch.zeros(1, 2, 4, 4)).shape
    torch.Size([1, 8, 2, 2])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The rearranged tensor."""
        return pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """The factor."""
        return f"downscale_factor={self.downscale_factor}"


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


class LocalResponseNorm(Module):
    """Divide by a power of the mean square over neighbouring channels.

    >>> import cugrad as torch
    >>> torch.nn.LocalResponseNorm(2)(torch.zeros(1, 4, 3)).shape
    torch.Size([1, 4, 3])
    """

    def __init__(
        self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0
    ) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """The normalised tensor."""
        return local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The window and the constants."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
