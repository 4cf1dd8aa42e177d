"""What autocast is set to in this thread, asked and told by function."""

from __future__ import annotations

from .. import dtypes
from ..autograd.autocast import (
    AutocastSetting,
    clear_autocast_cache,
    is_autocast_cache_enabled,
    setting,
    settings,
    switch_autocast,
)

__all__ = [
    "clear_autocast_cache", "get_autocast_dtype", "is_autocast_cache_enabled",
    "is_autocast_enabled", "set_autocast_cache_enabled", "set_autocast_dtype",
    "set_autocast_enabled",
]  # fmt: skip


def _check_bool(function: str, enabled: object) -> None:
    if type(enabled) is not bool:
        raise TypeError(f"{function}(): argument 'enabled' must be bool, not {enabled!r}")


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on for a type of device, "cuda" if none is named.

    >>> import cugrad as torch
    >>> with torch.autocast("cpu"):
    ...     torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled()
    (True, False)
    """
    return setting("cuda" if device_type is None else device_type).enabled


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Turns autocast on or off for a type of device, in this thread; of "cuda" by a bool alone.

    TypeError for no bool.
    """
    kind, on = (device_type, enabled) if isinstance(device_type, str) else ("cuda", device_type)
    _check_bool("set_autocast_enabled", on)
    assert on is not None
    switch_autocast(kind, setting(kind)._replace(enabled=on))


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """The lower precision of a type of device.

    >>> import cugrad as torch
    >>> torch.get_autocast_dtype("cpu"), torch.get_autocast_dtype("cuda")
    (torch.bfloat16, torch.float16)
    """
    return setting(device_type).dtype


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Sets the lower precision of a type of device, in this thread."""
    enabled = setting(device_type).enabled
    switch_autocast(device_type, AutocastSetting(enabled, dtypes.as_dtype(dtype)))


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether weights are cast once only, in this thread. TypeError for no bool."""
    _check_bool("set_autocast_cache_enabled", enabled)
    settings.cache_enabled = enabled
