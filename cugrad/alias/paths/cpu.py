"""torch.cpu: the host as a device of its own kind, of which there is one."""

from __future__ import annotations

from typing import Any

from ...absent import OTHER_DEVICE
from ..refusals import refuse_the_rest

__all__ = ["current_device", "device_count", "is_available", "is_initialized", "synchronize"]


def is_available() -> bool:
    """True."""
    return True


is_initialized = is_available


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """The string "cpu"."""
    return "cpu"


def synchronize(device: Any = None) -> None:
    """The host has always just finished."""


empty_cache = synchronize
refuse_the_rest(__name__, "cpu", OTHER_DEVICE)
