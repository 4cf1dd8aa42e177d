"""torch.cuda's face: devices, streams, events and memory statistics of CUDA.

`devices.py` and `streams.py` are what programs use most: begin there. `memory.py` has statistics,
`nvtx.py` ranges, `sanitizer.py` finds races, `index_checks.py` bad indices. It stands below the
functions: it knows backends and devices, no Tensor's maths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ..errors import OutOfMemoryError
from ..lazy import lazily as _lazily
from .devices import (
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
)
from .index_checks import are_indices_checked, check_indices
from .memory import (
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .seeding import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from .streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

if _TYPE_CHECKING:  # what is imported when it is asked for
    from . import nvtx, profiler

__all__ = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "are_indices_checked",
    "check_indices",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "nvtx",
    "profiler",
    "reset_peak_memory_stats",
    "sanitizer",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


# What few programs want, and amp, which is in a higher room.
_find, __dir__ = _lazily(
    __name__, {"amp": "amp", "nvtx": "nvtx", "profiler": "profiler", "sanitizer": "sanitizer"}
)


def __getattr__(name: str) -> _Any:
    return is_initialized() if name == "_initialized" else _find(name)  # PyTorch's checkpoint asks
