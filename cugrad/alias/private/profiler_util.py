"""torch.autograd.profiler_util: the events of a profile, and how their tables spell numbers."""

from __future__ import annotations

from ...profiler.events.event import DeviceType, FunctionEvent, FunctionEventAvg, Interval, Kernel
from ...profiler.events.event_list import EventList
from ...profiler.events.table import memory_text as _format_memory
from ...profiler.events.table import share_text as _format_time_share
from ...profiler.events.table import time_text as _format_time

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel"]

_PRIVATE = (DeviceType, _format_memory, _format_time, _format_time_share)  # imported from here
