"""What PyTorch has in `torch.autograd.profiler`; here it is `cugrad.autograd.profiler`."""

from __future__ import annotations

from ..runtime.lazy import lazily

HOMES = {
    "autograd_profile": "profile",
    "correlation.joining": "correlate",
    "events.event_list": "EventList",
    "events.event": "FunctionEvent FunctionEventAvg Interval Kernel",
    "itt": "emit_itt",
    "labels": "record_function",
    "memory.timeline": "MemorySample MemoryTimeline",
    "nvidia.nvtx": "emit_nvtx",
    "traces.nsys": "load_nsys",
    "traces.nvprof": "load_nvprof parse_nvprof_trace",
}
__all__ = " ".join(HOMES.values()).split()

__getattr__, __dir__ = lazily(__name__, HOMES, "cugrad.profiler", "cugrad.autograd.profiler")
