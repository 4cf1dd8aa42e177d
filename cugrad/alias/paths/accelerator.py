"""torch.accelerator: CUDA where it can be used, or nothing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ... import cuda
from ...device import device as Device
from ..refusals import refuse_the_rest

__all__ = ["current_accelerator", "device_count", "is_available"]


def is_available() -> bool:
    """Whether there is a GPU that can be used."""
    return cuda.is_available()


def device_count() -> int:
    """The number of GPUs."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device "cuda", or None where there is none."""
    return Device("cuda") if cuda.is_available() else None


def current_device_index() -> int:
    """The number of the current GPU."""
    return cuda.current_device()


current_device_idx = current_device_index


def synchronize(device: Any = None) -> None:
    """Waits for the GPU, where there is one."""
    if cuda.is_available():
        cuda.synchronize(device)


def empty_cache() -> None:
    """Gives free memory of the GPU back."""
    cuda.empty_cache()


def memory_allocated(device: Any = None) -> int:
    """Bytes of tensors on the GPU."""
    return cuda.memory_allocated(device)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of tensors there have been on the GPU."""
    return cuda.max_memory_allocated(device)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begins to look for the most anew."""
    cuda.reset_peak_memory_stats(device)


def get_device_module(device: Any = None) -> Any:
    """The module of a kind of device: torch.cuda, torch.cpu, or that of one that is not here."""
    kind = "cuda" if device is None and cuda.is_available() else Device(device or "cpu").type
    return import_module(f"torch.{kind}")


refuse_the_rest(__name__, "accelerator", "see torch.cuda, which has what is here")
