"""Normalisation layers over batches, examples, layers and groups."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..creation import empty, ones, tensor, zeros
from ..tensor import Tensor
from . import init
from .functional import norm as functional
from .module import Module
from .parameter import Parameter


class _NormBase(Module):
    """Normalise every channel of (N, C, ...) to mean 0, variance 1, then scale and shift.

    In training mode with the batch's own statistics, which also update the running ones:
    running = (1 - momentum) * running + momentum * batch, or the plain average over all batches
    when `momentum` is None. In evaluation mode with the running ones, where they are tracked.
    Source: Ioffe & Szegedy 2015, https://arxiv.org/abs/1502.03167.
    """

    _dims: tuple[int, ...] = ()  # what inputs may have
    _version = 2  # num_batches_tracked came with 2

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats

        def parameter(present: bool) -> Parameter | None:
            if not present:
                return None
            return Parameter(empty(num_features, device=device, dtype=dtype))

        self.register_parameter("weight", parameter(affine))
        self.register_parameter("bias", parameter(affine and bias))
        stats: list[Tensor | None] = [None, None, None]
        if track_running_stats:
            stats = [
                zeros(num_features, device=device, dtype=dtype),
                ones(num_features, device=device, dtype=dtype),
                tensor(0, device=device, dtype=dtypes.int64),
            ]
        for name, value in zip(("running_mean", "running_var", "num_batches_tracked"), stats):
            self.register_buffer(name, value)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget what was seen: mean 0, variance 1, no batches."""
        if self.running_mean is not None:
            init.zeros_(self.running_mean)
        if self.running_var is not None:
            init.ones_(self.running_var)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, and no statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input`, whose channels are dim 1."""
        self._check_dim(input)
        factor: float | Tensor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / self.num_batches_tracked  # a tensor: no waiting for the device
        tracked = self.track_running_stats or not self.training
        return functional.batch_norm(
            input,
            self.running_mean if tracked else None,
            self.running_var if tracked else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            factor,
            self.eps,
        )

    def _check_dim(self, input: Tensor) -> None:
        if input.dim() not in self._dims:
            wanted = " or ".join(f"{n}D" for n in self._dims)
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        if local_metadata.get("version", 1) < 2 and self.num_batches_tracked is not None:
            # a plain dict carries no version: the counter may be absent, as in old checkpoints
            state_dict.setdefault(prefix + "num_batches_tracked", self.num_batches_tracked)
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    def extra_repr(self) -> str:
        """Size and settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """What batch norms are, for `isinstance`."""


class BatchNorm1d(_BatchNorm):
    """Normalise every channel of (N, C) or (N, C, L) to mean 0, variance 1, then scale and shift.

    The batch's own statistics count in training mode, and move the running ones, which count in
    evaluation mode. Source: Ioffe & Szegedy 2015, https://arxiv.org/abs/1502.03167.

    >>> import cugrad as torch
    >>> torch.nn.BatchNorm1d(3)(torch.tensor([[1., 2., 3.], [3., 2., 1.]])).shape
    torch.Size([2, 3])
    """

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalise every channel of (N, C, H, W); see `BatchNorm1d`.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> norm = nn.BatchNorm2d(3)
    >>> norm(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalise every channel of (N, C, D, H, W); see `BatchNorm1d`."""

    _dims = (5,)


class _InstanceNorm(_NormBase):
    """Normalise every channel of every example to mean 0, variance 1.

    Scaled and shifted only where `affine`; running statistics only where `track_running_stats`.
    Source: Ulyanov et al. 2016, https://arxiv.org/abs/1607.08022.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input`, with or without a batch dimension before its channels."""
        self._check_dim(input)
        single = input.dim() == self._dims[0]
        x = input.unsqueeze(0) if single else input
        if x.shape[1] != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={0 if single else 1} to match num_features "
                    f"({self.num_features}), but got: {x.shape[1]}."
                )
            warnings.warn(
                f"input's size at dim={0 if single else 1} does not match num_features. You can "
                "silence this warning by not passing in num_features, which is not used because "
                "affine=False", stacklevel=2,
            )  # fmt: skip
        result = functional.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum, self.eps,
        )  # fmt: skip
        return result.squeeze(0) if single else result


class InstanceNorm1d(_InstanceNorm):
    """Normalise every channel of every example of (N, C, L) or (C, L).

    >>> import cugrad as torch
    >>> torch.nn.InstanceNorm1d(2)(torch.ones(3, 2, 5)).shape
    torch.Size([3, 2, 5])
    """

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalise every channel of every example of (N, C, H, W) or (C, H, W)."""

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalise every channel of every example of (N, C, D, H, W) or (C, D, H, W)."""

    _dims = (4, 5)


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
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shape and settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


def _shape_of(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, int):
        return (normalized_shape,)
    return tuple(normalized_shape)


def _reset(weight: Tensor | None, bias: Tensor | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


class RMSNorm(Module):
    """Divide by the root mean square over the last dims, of `normalized_shape`; scale.

    `eps` None is the dtype's epsilon. Source: https://arxiv.org/abs/1910.07467.
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

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input` of shape (..., *normalized_shape)."""
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

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
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Sizes and settings."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )
