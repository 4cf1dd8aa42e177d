"""The profiler, PyTorch's `torch.profiler`: what a step costs, for people and for tools."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..absent import missing

if TYPE_CHECKING:  # each is imported when it is first asked for
    from .activities import ProfilerActivity, kineto_available, supported_activities
    from .correlate import Correlation, correlate
    from .cupti import trace_kernels
    from .event_list import EventList
    from .events import DeviceType, FunctionEvent, FunctionEventAvg, Kernel, RecordScope
    from .itt import emit_itt
    from .labels import record_function
    from .load_nsys import load_nsys
    from .load_nvprof import load_nvprof, parse_nvprof_trace
    from .memory import MemorySample, MemoryTimeline
    from .nvtx import emit_nvtx
    from .sessions import ProfilerAction, profile, schedule, tensorboard_trace_handler

ROOMS = {
    "activities": "ProfilerActivity kineto_available supported_activities",
    "correlate": "Correlation correlate",
    "cupti": "trace_kernels",
    "event_list": "EventList",
    "events": "DeviceType FunctionEvent FunctionEventAvg Kernel RecordScope",
    "itt": "emit_itt",
    "labels": "record_function",
    "load_nsys": "load_nsys",
    "load_nvprof": "load_nvprof parse_nvprof_trace",
    "memory": "MemorySample MemoryTimeline",
    "nvtx": "emit_nvtx",
    "sessions": "ProfilerAction profile schedule tensorboard_trace_handler",
}
PLACES = {name: room for room, names in ROOMS.items() for name in names.split()}

__all__ = [
    "Correlation", "DeviceType", "EventList", "FunctionEvent", "FunctionEventAvg", "Kernel",
    "MemorySample", "MemoryTimeline", "ProfilerAction", "ProfilerActivity", "RecordScope",
    "correlate", "emit_itt", "emit_nvtx", "kineto_available", "load_nsys", "load_nvprof",
    "parse_nvprof_trace", "profile", "record_function", "schedule", "supported_activities",
    "tensorboard_trace_handler", "trace_kernels",
]  # fmt: skip


class _Face(ModuleType):
    """The module: `load_nsys` is the function of that name, also where its file was imported."""

    def __getattr__(self, name: str) -> Any:
        if name not in PLACES:
            raise missing(__name__, name)
        value = getattr(import_module(f".{PLACES[name]}", __name__), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in PLACES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Face
