"""Observers that show a training step: NVTX ranges for tools, memory over time for people."""

from __future__ import annotations

from .correlate import Correlation, correlate
from .cupti import trace_kernels
from .itt import emit_itt
from .load_nsys import load_nsys
from .load_nvprof import load_nvprof
from .memory import MemorySample, MemoryTimeline
from .nvtx import emit_nvtx

__all__ = [
    "Correlation", "MemorySample", "MemoryTimeline", "correlate", "emit_itt", "emit_nvtx",
    "load_nsys", "load_nvprof", "trace_kernels",
]  # fmt: skip
