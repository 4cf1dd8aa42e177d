"""Memory statistics of CUDA devices; zero before CUDA is first used."""

from __future__ import annotations

from ..absent import explain
from .devices import DeviceLike, cuda_backend, index_of, is_initialized

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
]


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes of tensors alive on a device."""
    return _statistic("memory_allocated", device)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most memory_allocated() has been since reset_peak_memory_stats().

    Without a reset nothing is watched, and memory_reserved() stands in, which is an upper bound.
    """
    return _statistic("max_memory_allocated", device)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the memory pool holds of a device, in use or not."""
    return _statistic("memory_reserved", device)


def _statistic(name: str, device: DeviceLike) -> int:
    if not is_initialized():
        return 0
    index = index_of(device)
    backend = cuda_backend()
    with backend.use_device(index):
        return int(getattr(backend, name)())


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Begins to watch max_memory_allocated() of a device from now; RuntimeError without CUDA."""
    index = index_of(device)
    backend = cuda_backend()
    with backend.use_device(index):
        backend.reset_peak_memory_stats()


def empty_cache() -> None:
    """Gives unused memory of the current device back to the driver; does nothing before CUDA is
    used.
    """
    if is_initialized():
        cuda_backend().empty_cache()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of a device as the driver counts them, other processes included."""
    index = index_of(device)
    backend = cuda_backend()
    with backend.use_device(index):
        free, total = backend.memory_info()
    return free, total


explain(__name__)
