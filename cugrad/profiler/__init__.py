"""Observers that show a training step: NVTX ranges for tools, memory over time for people."""

from __future__ import annotations

from .correlate import Correlation, correlate
from .cupti import trace_kernels
from .event_list import EventList
from .events import FunctionEvent
from .itt import emit_itt
from .load_nsys import load_nsys
from .load_nvprof import load_nvprof, parse_nvprof_trace
from .memory import MemorySample, MemoryTimeline
from .nvtx import emit_nvtx

__all__ = [
    "Correlation", "EventList", "FunctionEvent", "MemorySample", "MemoryTimeline", "correlate",
    "emit_itt", "emit_nvtx", "load_nsys", "load_nvprof", "parse_nvprof_trace", "trace_kernels",
]  # fmt: skip
