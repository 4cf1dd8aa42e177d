# Written by python -m tests.documents.stubs --write, and checked by tests/typing.
# mypy: disable-error-code="override, overload-overlap, overload-cannot-match"

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

import numpy

from cugrad._types import (
    DeviceLikeType, Generator, Number, _bool, _complex, _device, _dtype, _float, _Index, _int,
    _layout, _Node, _size, memory_format,
)
from cugrad.tensor import Tensor
from cugrad.profiler.correlation.joining import Correlation as Correlation
from cugrad.profiler.events.event import DeviceType as DeviceType
from cugrad.profiler.events.event_list import EventList as EventList
from cugrad.profiler.events.event import FunctionEvent as FunctionEvent
from cugrad.profiler.events.event import FunctionEventAvg as FunctionEventAvg
from cugrad.profiler.events.event import Kernel as Kernel
from cugrad.profiler.memory.timeline import MemorySample as MemorySample
from cugrad.profiler.memory.timeline import MemoryTimeline as MemoryTimeline
from cugrad.profiler.sessions import ProfilerAction as ProfilerAction
from cugrad.profiler.activities import ProfilerActivity as ProfilerActivity
from cugrad.profiler.events.event import RecordScope as RecordScope
from cugrad.profiler.correlation.joining import correlate as correlate
from cugrad.profiler.itt import emit_itt as emit_itt
from cugrad.profiler.nvidia.nvtx import emit_nvtx as emit_nvtx
from cugrad.profiler import itt as itt
from cugrad.profiler.activities import kineto_available as kineto_available
from cugrad.profiler.traces.nsys import load_nsys as load_nsys
from cugrad.profiler.traces.nvprof import load_nvprof as load_nvprof
from cugrad.profiler.traces.nvprof import parse_nvprof_trace as parse_nvprof_trace
from cugrad.profiler.sessions import profile as profile
from cugrad.profiler.labels import record_function as record_function
from cugrad.profiler.sessions import schedule as schedule
from cugrad.profiler.activities import supported_activities as supported_activities
from cugrad.profiler.sessions import tensorboard_trace_handler as tensorboard_trace_handler
from cugrad.profiler.nvidia.cupti import trace_kernels as trace_kernels
