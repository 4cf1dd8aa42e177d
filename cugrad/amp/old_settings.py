"""The switches of autocast under the names that PyTorch has given up, which programs still ask."""

from __future__ import annotations

import warnings

from .. import dtypes
from ..autograd.autocast import leave, settings
from .settings import (
    get_autocast_dtype,
    is_autocast_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)

__all__ = [
    "autocast_decrement_nesting", "autocast_increment_nesting", "get_autocast_cpu_dtype",
    "get_autocast_gpu_dtype", "is_autocast_cpu_enabled", "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled", "set_autocast_gpu_dtype",
]  # fmt: skip


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"torch.{old} is deprecated. Please use torch.{new} instead.",
        DeprecationWarning,
        stacklevel=3,
    )


def get_autocast_gpu_dtype() -> dtypes.dtype:
    """`get_autocast_dtype("cuda")`, by an old name: it warns."""
    _warn("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def get_autocast_cpu_dtype() -> dtypes.dtype:
    """`get_autocast_dtype("cpu")`, by an old name: it warns."""
    _warn("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def set_autocast_gpu_dtype(dtype: dtypes.dtype) -> None:
    """`set_autocast_dtype("cuda", dtype)`, by an old name: it warns."""
    _warn("set_autocast_gpu_dtype(dtype)", "set_autocast_dtype('cuda', dtype)")
    set_autocast_dtype("cuda", dtype)


def set_autocast_cpu_dtype(dtype: dtypes.dtype) -> None:
    """`set_autocast_dtype("cpu", dtype)`, by an old name: it warns."""
    _warn("set_autocast_cpu_dtype(dtype)", "set_autocast_dtype('cpu', dtype)")
    set_autocast_dtype("cpu", dtype)


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`, by an old name: it warns."""
    _warn("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("cpu", enabled)`, by an old name: it warns. TypeError for no bool."""
    _warn("set_autocast_cpu_enabled(enabled)", "set_autocast_enabled('cpu', enabled)")
    set_autocast_enabled("cpu", enabled)


def autocast_increment_nesting() -> int:
    """Enters a region of autocast, as contexts of a program's own do; how many are entered now.

    >>> import cugrad as torch
    >>> torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()
    (1, 0)
    """
    settings.nesting += 1
    return settings.nesting


def autocast_decrement_nesting() -> int:
    """Leaves such a region; how many are entered still. With the last the casts of weights go."""
    leave(settings.nesting - 1)
    return settings.nesting
