"""Norms over layers, groups and neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dtypes
from ...functions.creation.factories import empty
from ...tensor import Tensor
from .. import init
from ..functional import pad
from ..functional.image import local_response_norm
from ..functional.norm import group_norm, layer_norm, rms_norm
from ..parameter import Parameter
from .module import Module

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _shape_of(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, int):
        return (normalized_shape,)
    return tuple(normalized_shape)


def _reset(weight: Tensor | None, bias: Tensor | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


class LayerNorm(Module):
    """Normalise over the last dims, of `normalized_shape`, to mean 0, variance 1; scale and shift.

    Source: Ba, Kiros & Hinton 2016, https://arxiv.org/abs/1607.06450.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.LayerNorm(3)(torch.tensor([1.0, 2.0, 3.0])).detach()
    tensor([-1.2247,  0.0000,  1.2247])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape_of(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        for name, present in (
            ("weight", elementwise_affine),
            ("bias", elementwise_affine and bias),
        ):
            self.register_parameter(
                name,
                Parameter(empty(self.normalized_shape, device=device, dtype=dtype))
                if present
                else None,
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1 and shift 0."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input` of shape (..., *normalized_shape)."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shape and settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root mean square over the last dims, of `normalized_shape`; scale.

    `eps` None is the dtype's epsilon, float32's for bfloat16 and float16. Source:
    https://arxiv.org/abs/1910.07467.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape_of(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weight = None
        if elementwise_affine:
            weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype))
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1."""
        _reset(self.weight, None)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` of shape (..., *normalized_shape)."""
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Shape and settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """Normalise each of `num_groups` groups of channels, for each sample alone; scale and shift.

    Source: Wu & He 2018, https://arxiv.org/abs/1803.08494.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        for name, present in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(
                name,
                Parameter(empty(num_channels, device=device, dtype=dtype)) if present else None,
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale 1 and shift 0."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input` of shape (N, num_channels, ...)."""
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Sizes and settings."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


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


class CrossMapLRN2d(Module):
    """Divide images (N, C, H, W) by a power of a sum of squares over neighbouring channels.

    As PyTorch computes it: over (size - 1) // 2 channels to either side, and over channel 0 for all
    channels from (size + 1) // 2 on, whose window it never leaves. LocalResponseNorm has no such
    channel. ValueError for an input of other than four dimensions.

    >>> import cugrad as torch
    >>> torch.nn.CrossMapLRN2d(3)(torch.zeros(1, 4, 3, 3)).shape
    torch.Size([1, 4, 3, 3])
    """

    def __init__(self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    extra_repr = LocalResponseNorm.extra_repr

    def forward(self, input: Tensor) -> Tensor:
        """The normalised images."""
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        channels, reach = input.shape[1], (self.size - 1) // 2
        squares = input * input
        sums = squares
        for step in range(1, min(reach + 1, channels)):
            sums = sums + pad(squares[:, step:], (0, 0, 0, 0, 0, step))
            sums = sums + pad(squares[:, :-step], (0, 0, 0, 0, step, 0))
        if channels > reach + 1:
            first = squares[:, :1].expand(-1, channels - reach - 1, -1, -1)
            sums = sums + pad(first, (0, 0, 0, 0, reach + 1, 0))
        output: Tensor = input * (sums * (self.alpha / self.size) + self.k) ** -self.beta
        return output
