"""Instance norms: every channel of every example on its own."""

from __future__ import annotations

import warnings
from typing import Any

from ... import dtypes
from ...tensor import Tensor
from ..functional.norm import instance_norm
from .batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d",
    "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]  # fmt: skip


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
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        """Normalise `input`, with or without a batch dimension before its channels."""
        self._check_input_dim(input)
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
        result = instance_norm(
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


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm1d whose `num_features` are the channels of its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm2d whose `num_features` are the channels of its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm3d whose `num_features` are the channels of its first input."""

    cls_to_become = InstanceNorm3d
