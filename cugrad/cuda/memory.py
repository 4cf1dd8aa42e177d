"""Memory statistics of CUDA devices, and of the simulated one; zero before CUDA is first used."""

from __future__ import annotations

from ..backends.pinned import pinned_memory
from ..runtime.absent import explain
from .devices import DeviceLike, backend_at, is_initialized, is_simulated_device

__all__ = [
    "empty_cache",
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
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


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The largest memory_reserved() that was seen, at a request or before the cache was emptied."""
    return _statistic("max_memory_reserved", device)


def _statistic(name: str, device: DeviceLike) -> int:
    if not is_initialized() and not is_simulated_device(device):
        return 0
    backend, index = backend_at(device)
    with backend.use_device(index):
        return int(getattr(backend, name)())


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """The numbers above under PyTorch's names; of all that its allocator counts these are known.

    >>> sorted(memory_stats("simulated"))[:2]
    ['active_bytes.all.current', 'active_bytes.all.peak']
    """
    current, peak = memory_allocated(device), max_memory_allocated(device)
    reserved, most = memory_reserved(device), max_memory_reserved(device)
    return {
        "active_bytes.all.current": current, "active_bytes.all.peak": peak,
        "allocated_bytes.all.current": current, "allocated_bytes.all.peak": peak,
        "reserved_bytes.all.current": reserved, "reserved_bytes.all.peak": most,
    }  # fmt: skip


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table of memory_stats(), to print; `abbreviated` leaves out what its heading says."""
    stats = memory_stats(device)
    lines = [] if abbreviated else ["Memory of tensors, and of the pool that it comes from"]
    lines.append(f"{'':<10} {'current':>20} {'peak':>20}")
    for what in ("allocated", "reserved"):
        now, most = (stats[f"{what}_bytes.all.{when}"] for when in ("current", "peak"))
        lines.append(f"{what:<10} {_spelled(now):>20} {_spelled(most):>20}")
    return "\n".join(lines)


def _spelled(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.2f} MiB"


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Begins to watch max_memory_allocated() of a device from now; RuntimeError without CUDA."""
    backend, index = backend_at(device)
    with backend.use_device(index):
        backend.reset_peak_memory_stats()


def empty_cache() -> None:
    """Gives unused memory of the current device, and unused page-locked memory, back to the driver;
    does nothing before CUDA is used.
    """
    if is_initialized():
        backend = backend_at(None)[0]
        backend.empty_cache()
        pinned_memory(backend).release()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of a device as the driver counts them, other processes included."""
    backend, index = backend_at(device)
    with backend.use_device(index):
        free, total = backend.memory_info()
    return free, total


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits the pool to a part of a device's memory, from 0 to 1; beyond it OutOfMemoryError.

    Memory that the pool holds already stays. TypeError for what is no float, ValueError for one
    that is no fraction.

    >>> set_per_process_memory_fraction(0.5, "simulated")
    >>> get_per_process_memory_fraction("simulated")
    0.5
    >>> set_per_process_memory_fraction(1.0, "simulated")
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    backend, index = backend_at(device)
    with backend.use_device(index):
        backend.limit_memory(int(fraction * backend.memory_info()[1]))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The part of a device's memory that the pool may hold: 1.0 unless it was limited."""
    backend, index = backend_at(device)
    with backend.use_device(index):
        return float(min(1.0, backend.memory_limit() / backend.memory_info()[1]))


explain(__name__)
