"""Memory statistics of CUDA devices, and of the simulated one; zero before CUDA is first used."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

from ..backends.lending.pinned import pinned_memory
from ..runtime.absent import explain
from .devices import DeviceLike, backend_at, is_initialized, is_simulated_device
from .snapshots import _allocation_traceback as _allocation_traceback
from .snapshots import _dump_snapshot as _dump_snapshot
from .snapshots import _record_memory_history as _record_memory_history
from .snapshots import _snapshot as _snapshot
from .snapshots import memory_snapshot

__all__ = [
    "empty_cache",
    "get_per_process_memory_fraction",
    "ipc_collect",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
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
    """Bytes that the memory pools hold of a device, in use or not."""
    return _statistic("memory_reserved", device)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most memory_reserved() has been since reset_peak_memory_stats()."""
    return _statistic("max_memory_reserved", device)


def _statistic(name: str, device: DeviceLike) -> int:
    if not is_initialized() and not is_simulated_device(device):
        return 0
    backend, index = backend_at(device)
    with backend.use_device(index):
        return int(getattr(backend, name)())


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """PyTorch's statistics of a device's memory, by names such as "allocated_bytes.all.current".

    Each of `allocation`, `segment`, `active`, `inactive_split` (numbers), and of `allocated_bytes`,
    `reserved_bytes`, `active_bytes`, `inactive_split_bytes` and `requested_bytes`, has `all`,
    `small_pool` (blocks up to 1 MiB) and `large_pool`, and each of these `current`, `peak`,
    `allocated` and `freed`. What blocks were at most, and what came and went, is watched from the
    first call on; segments always are. It is empty before CUDA is first used.

    >>> stats = memory_stats("simulated")
    >>> stats["allocation.small_pool.current"] <= stats["allocation.all.current"]
    True
    """
    numbers: list[tuple[str, Any]] = []
    todo: list[tuple[str, Any]] = [("", memory_stats_as_nested_dict(device))]
    while todo:
        path, value = todo.pop()
        if isinstance(value, dict):
            todo += [(f"{path}.{name}" if path else name, part) for name, part in value.items()]
        else:
            numbers.append((path, value))
    return OrderedDict(sorted(numbers))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """What `memory_stats` says, as dicts of dicts."""
    if not is_initialized() and not is_simulated_device(device):
        return {}
    backend, index = backend_at(device)
    with backend.use_device(index):
        nested: dict[str, Any] = backend.memory_statistics()
    most = backend_peak(backend, index)
    for name in ("allocated_bytes", "active_bytes"):  # which was watched before, perhaps
        every = dict(nested[name]["all"])
        every["peak"] = max(every["peak"], most)
        nested[name] = {**nested[name], "all": every}
    return nested


def backend_peak(backend: Any, index: int) -> int:
    with backend.use_device(index):
        return int(backend.max_memory_allocated())


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Counts what is `allocated` and `freed` in memory_stats(), retries and errors from now."""
    backend, index = backend_at(device)
    with backend.use_device(index):
        backend.reset_statistics()


LINES = [
    ("allocated_bytes", "Allocated memory"), ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"), ("reserved_bytes", "GPU reserved memory"),
    ("inactive_split_bytes", "Non-releasable memory"), ("allocation", "Allocations"),
    ("active", "Active allocs"), ("segment", "GPU reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
]  # fmt: skip
COLUMNS = ("current", "peak", "allocated", "freed")


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """A table of memory_stats(), to print; `abbreviated` leaves out the pools of small and of large
    blocks.
    """
    stats = memory_stats(device)
    rule = "|" + "=" * 75 + "|"
    refusals, retries = stats.get("num_ooms", 0), stats.get("num_alloc_retries", 0)
    heads = ("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed")
    lines = [
        rule, f"|{'cugrad CUDA memory summary':^75}|", rule,
        f"|{f'CUDA OOMs: {refusals}':^37}|{f'cudaMalloc retries: {retries}':^37}|", rule,
        f"|{'Metric':^23}|" + "|".join(f"{head:^12}" for head in heads) + "|", rule,
    ]  # fmt: skip
    pools = [("all", ""), ("large_pool", "from large pool"), ("small_pool", "from small pool")]
    for key, title in LINES:
        for pool, name in pools[: 1 if abbreviated else 3]:
            numbers = [stats.get(f"{key}.{pool}.{column}", 0) for column in COLUMNS]
            spelled = [_spelled(n) if key.endswith("bytes") else f"{n:,}" for n in numbers]
            lines.append(f"| {name.rjust(21) if name else title:<22}|"
                         + "|".join(f"{text:>11} " for text in spelled) + "|")  # fmt: skip
    return "\n".join([*lines, rule, ""])


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


def ipc_collect() -> None:
    """Does nothing: processes share no memory of a GPU here, of which some could be let go of."""


# What PyTorch calls by other names today --------------------------------------------------------


def _renamed(old: str, new: str) -> None:
    warnings.warn(
        f"`torch.cuda.{old}` has been renamed to `torch.cuda.{new}`", FutureWarning, stacklevel=3
    )


def _resets_all(old: str) -> None:
    warnings.warn(
        f"torch.cuda.{old} now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak "
        "memory stats.", FutureWarning, stacklevel=3,
    )  # fmt: skip


def memory_cached(device: DeviceLike = None) -> int:
    """`memory_reserved`, by an old name: it warns."""
    _renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: DeviceLike = None) -> int:
    """`max_memory_reserved`, by an old name: it warns."""
    _renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """`reset_peak_memory_stats`, by an old name: it warns."""
    _resets_all("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """`reset_peak_memory_stats`, by an old name: it warns."""
    _resets_all("reset_max_memory_cached")
    reset_peak_memory_stats(device)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of a device as the driver counts them, other processes included."""
    backend, index = backend_at(device)
    with backend.use_device(index):
        free, total = backend.memory_info()
    return free, total


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits the pools to a part of a device's memory, from 0 to 1; beyond it OutOfMemoryError.

    Memory that they hold already stays. TypeError for what is no float, ValueError for one
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
    """The part of a device's memory that the pools may hold: 1.0 unless it was limited."""
    backend, index = backend_at(device)
    with backend.use_device(index):
        return float(min(1.0, backend.memory_limit() / backend.memory_info()[1]))


explain(__name__)
