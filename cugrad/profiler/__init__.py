"""The profiler, PyTorch's `torch.profiler`: what a step costs, for people and for tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:  # each is imported when it is first asked for
    from .activities import ProfilerActivity, kineto_available, supported_activities
    from .correlation import Correlation, correlate
    from .cupti import trace_kernels
    from .event_list import EventList
    from .events import DeviceType, FunctionEvent, FunctionEventAvg, Kernel, RecordScope
    from .itt import emit_itt
    from .labels import record_function
    from .memory import MemorySample, MemoryTimeline
    from .nvtx import emit_nvtx
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
        "correlation": "Correlation correlate",
        "cupti": "trace_kernels",
        "event_list": "EventList",
        "events": "DeviceType FunctionEvent FunctionEventAvg Kernel RecordScope",
        "itt": "emit_itt",
        "labels": "record_function",
        "memory": "MemorySample MemoryTimeline",
        "nvtx": "emit_nvtx",
        "sessions": "ProfilerAction profile schedule tensorboard_trace_handler",
        "traces.nsys": "load_nsys",
        "traces.nvprof": "load_nvprof parse_nvprof_trace",
    },
)
