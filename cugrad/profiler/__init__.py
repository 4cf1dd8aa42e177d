"""The profiler, PyTorch's `torch.profiler`: what a step costs, for people and for tools.

`sessions.py` is `torch.profiler.profile`, `autograd_profile.py` the context behind it: begin there.
The rooms: `events` (noted, made, listed), `memory` (over time), `correlation` (ops with kernels and
backward), `nvidia` (NVTX, CUPTI), `traces` (files of tools). Programs import names from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.lazy import lazily

if TYPE_CHECKING:  # each is imported when it is first asked for
    from .activities import ProfilerActivity, kineto_available, supported_activities
    from .correlation.joining import Correlation, correlate
    from .events.event import DeviceType, FunctionEvent, FunctionEventAvg, Kernel, RecordScope
    from .events.event_list import EventList
    from .itt import emit_itt
    from .labels import record_function
    from .memory.timeline import MemorySample, MemoryTimeline
    from .nvidia.cupti import trace_kernels
    from .nvidia.nvtx import emit_nvtx
    from .sessions import ProfilerAction, profile, schedule, tensorboard_trace_handler
    from .traces.nsys import load_nsys
    from .traces.nvprof import load_nvprof, parse_nvprof_trace

__all__ = [
    "Correlation", "DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "Kernel",
    "MemorySample", "MemoryTimeline", "ProfilerAction", "ProfilerActivity", "RecordScope",
    "correlate", "emit_itt", "emit_nvtx", "kineto_available", "load_nsys", "load_nvprof",
    "parse_nvprof_trace", "profile", "record_function", "schedule", "supported_activities",
    "tensorboard_trace_handler", "trace_kernels",
]  # fmt: skip

__getattr__, __dir__ = lazily(
    __name__,
    {
        "activities": "ProfilerActivity kineto_available supported_activities",
        "correlation.joining": "Correlation correlate",
        "nvidia.cupti": "trace_kernels",
        "events.event_list": "EventList",
        "events.event": "DeviceType FunctionEvent FunctionEventAvg Kernel RecordScope",
        "itt": "emit_itt",
        "labels": "record_function",
        "memory.timeline": "MemorySample MemoryTimeline",
        "nvidia.nvtx": "emit_nvtx",
        "sessions": "ProfilerAction profile schedule tensorboard_trace_handler",
        "traces.nsys": "load_nsys",
        "traces.nvprof": "load_nvprof parse_nvprof_trace",
    },
)
