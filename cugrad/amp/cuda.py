"""PyTorch's older names of autocast and GradScaler, for CUDA: `torch.cuda.amp`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..cuda import is_available
from . import autocast_mode, grad_scaler

__all__ = [
    "GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd",
]  # fmt: skip


def amp_definitely_not_available() -> bool:
    """Whether there is no CUDA device for the names of this module to work on."""
    return not is_available()


def _warn(name: str, instead: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use "
        f"`torch.amp.{name}({instead})` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(autocast_mode.autocast):
    """`torch.autocast("cuda", ...)`. Deprecated in PyTorch too: a FutureWarning says so."""

    def __init__(
        self, enabled: bool = True, dtype: dtypes.dtype = dtypes.float16, cache_enabled: bool = True
    ) -> None:
        _warn("autocast", "'cuda', args...")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(grad_scaler.GradScaler):
    """`torch.amp.GradScaler("cuda", ...)`. Deprecated in PyTorch too: a FutureWarning says so."""

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        _warn("GradScaler", "'cuda', args...")
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: dtypes.dtype | None = None
) -> Any:
    """`torch.amp.custom_fwd(device_type="cuda")`. Deprecated."""
    _warn("custom_fwd", "args..., device_type='cuda'")
    return autocast_mode.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Any:
    """`torch.amp.custom_bwd(device_type="cuda")`. Deprecated."""
    _warn("custom_bwd", "args..., device_type='cuda'")
    return autocast_mode.custom_bwd(bwd, device_type="cuda")
