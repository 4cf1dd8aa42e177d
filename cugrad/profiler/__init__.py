"""Observers that show a training step: NVTX ranges for tools, memory over time for people."""

from __future__ import annotations

from .itt import emit_itt
from .memory import MemorySample, MemoryTimeline
from .nvtx import emit_nvtx

__all__ = ["MemorySample", "MemoryTimeline", "emit_itt", "emit_nvtx"]
