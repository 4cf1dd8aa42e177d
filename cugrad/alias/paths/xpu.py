"""torch.xpu, and what else is a kind of device that is not here: none of them is available."""

from __future__ import annotations

from typing import Any

from ...runtime.absent import OTHER_DEVICE
from ..refusals import refuse_the_rest

__all__ = ["device_count", "empty_cache", "is_available", "is_initialized", "manual_seed",
           "manual_seed_all", "seed", "seed_all", "synchronize"]  # fmt: skip


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def empty_cache() -> None:
    """There is no memory to give back."""


def synchronize(device: Any = None) -> None:
    """There is nothing to wait for."""


def manual_seed(seed: int) -> None:
    """There is no generator to seed."""


manual_seed_all = manual_seed


def seed() -> None:
    """There is no generator to seed."""


seed_all = seed
refuse_the_rest(__name__, "xpu", OTHER_DEVICE)
