"""What PyTorch has in `torch.autograd.profiler`; here it is `cugrad.autograd.profiler`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..absent import missing

PLACES = {
    "EventList": "event_list", "FunctionEvent": "events", "FunctionEventAvg": "events",
    "Interval": "events", "Kernel": "events", "emit_itt": "itt", "emit_nvtx": "nvtx",
    "correlate": "correlate", "load_nsys": "load_nsys", "load_nvprof": "load_nvprof",
    "parse_nvprof_trace": "load_nvprof",
    "profile": "autograd_profile", "record_function": "labels",
    "MemorySample": "memory", "MemoryTimeline": "memory",
}  # fmt: skip

__all__ = list(PLACES)


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise missing("cugrad.autograd.profiler", name)
    value = globals()[name] = getattr(import_module(f"..{PLACES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *PLACES})
