"""The accelerator's devices, streams and memory: those of torch.cuda under other names."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .. import cpu, cuda
from ..cuda import (
    current_stream,
    device_count,
    empty_cache,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from ..device import device as Device

__all__ = [
    "Event", "Stream", "current_accelerator", "current_device_idx", "current_device_index",
    "current_stream", "device_count", "device_index", "empty_cache", "get_device_capability",
    "get_device_module", "get_memory_info", "is_available", "max_memory_allocated",
    "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize",
]  # fmt: skip

current_device_index = current_device_idx = cuda.current_device
set_device_index = set_device_idx = cuda.set_device
get_memory_info = cuda.mem_get_info


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device type of the accelerator, without an index; None where none can be used.

    It is the same with and without `check_available`, as CUDA is no part of what is installed.

    >>> import cugrad as torch
    >>> (torch.accelerator.current_accelerator() is None) is not torch.accelerator.is_available()
    True
    """
    return Device("cuda") if is_available() else None


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """What a device can do: the dtypes that it computes with, by name."""
    from ..dtypes import ALL

    cuda.get_device_properties(device)  # RuntimeError without one
    return {"supported_dtypes": set(ALL)}


class device_index(cuda.device):
    """Makes a device current inside a `with`, by its number; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        super().__init__(device)


class _OfCuda(type):
    """A class whose instances are those of the class of torch.cuda that has its name."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, getattr(cuda, cls.__name__))


class Stream(metaclass=_OfCuda):
    """A queue of an accelerator's work: `cuda.Stream`, of which one is made.

    RuntimeError for a device that has no streams.
    """

    def __new__(cls, device: Any = None, *, priority: int = 0) -> Any:
        return cuda.Stream(_with_streams("Stream", device), priority)


class Event(metaclass=_OfCuda):
    """A point in a stream: `cuda.Event`, of which one is made; RuntimeError as for Stream."""

    def __new__(
        cls, device: Any = None, *, enable_timing: bool = False, blocking: bool = False,
        interprocess: bool = False,
    ) -> Any:  # fmt: skip
        with cuda.device(_with_streams("Event", device)):
            return cuda.Event(enable_timing, blocking, interprocess)


def _with_streams(what: str, device: Any) -> Any:
    if device is not None and not isinstance(device, int) and Device(device).type != "cuda":
        raise RuntimeError(f"{what}: got the device {device}, want one of CUDA, which has streams")
    return device


def get_device_module(device: Any = None) -> ModuleType:
    """The module of a device type, `torch.cuda` or `torch.cpu`; of the accelerator by default.

    RuntimeError for a type that has none.

    >>> import cugrad as torch
    >>> torch.get_device_module("cuda:0") is torch.cuda
    True
    """
    kind = "cuda" if device is None else Device(device).type
    if kind not in ("cuda", "cpu"):
        raise RuntimeError(f"Invalid device '{device}': want 'cuda' or 'cpu', which have a module")
    return cuda if kind == "cuda" else cpu
