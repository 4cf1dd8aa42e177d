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
class BFloat16Tensor(Tensor): ...
class BoolTensor(Tensor): ...
class ByteTensor(Tensor): ...
from cugrad.graphs.capture import CUDAGraph as CUDAGraph
class CharTensor(Tensor): ...
class DoubleTensor(Tensor): ...
from cugrad.cuda.streams import Event as Event
class FloatTensor(Tensor): ...
class HalfTensor(Tensor): ...
class IntTensor(Tensor): ...
class LongTensor(Tensor): ...
from cugrad.errors import OutOfMemoryError as OutOfMemoryError
class ShortTensor(Tensor): ...
from cugrad.cuda.streams import Stream as Stream
from cugrad.cuda.streams import StreamContext as StreamContext
from cugrad.cuda import amp as amp
from cugrad.cuda.index_checks import are_indices_checked as are_indices_checked
from cugrad.graphs.steps import capture_step as capture_step
from cugrad.cuda.index_checks import check_indices as check_indices
from cugrad.cuda.devices import current_device as current_device
from cugrad.cuda.streams import current_stream as current_stream
from cugrad.cuda.streams import default_stream as default_stream
from cugrad.cuda.devices import device as device
from cugrad.cuda.devices import device_count as device_count
from cugrad.cuda.devices import device_of as device_of
from cugrad.cuda.memory import empty_cache as empty_cache
from cugrad.cuda.devices import get_device_capability as get_device_capability
from cugrad.cuda.devices import get_device_name as get_device_name
from cugrad.cuda.devices import get_device_properties as get_device_properties
from cugrad.cuda.memory import get_per_process_memory_fraction as get_per_process_memory_fraction
from cugrad.cuda.seeding import get_rng_state as get_rng_state
from cugrad.cuda.seeding import get_rng_state_all as get_rng_state_all
from cugrad.graphs.capture import graph as graph
from cugrad.graphs.capture import graph_pool_handle as graph_pool_handle
from cugrad.cuda import graphs as graphs
from cugrad.cuda.devices import init as init
from cugrad.cuda.seeding import initial_seed as initial_seed
from cugrad.cuda.memory import ipc_collect as ipc_collect
from cugrad.cuda.devices import is_available as is_available
from cugrad.cuda.devices import is_bf16_supported as is_bf16_supported
from cugrad.graphs.capture import is_current_stream_capturing as is_current_stream_capturing
from cugrad.cuda.devices import is_initialized as is_initialized
from cugrad.graphs.callables import make_graphed_callables as make_graphed_callables
from cugrad.cuda.seeding import manual_seed as manual_seed
from cugrad.cuda.seeding import manual_seed_all as manual_seed_all
from cugrad.cuda.memory import max_memory_allocated as max_memory_allocated
from cugrad.cuda.memory import max_memory_cached as max_memory_cached
from cugrad.cuda.memory import max_memory_reserved as max_memory_reserved
from cugrad.cuda.memory import mem_get_info as mem_get_info
from cugrad.cuda import memory as memory
from cugrad.cuda.memory import memory_allocated as memory_allocated
from cugrad.cuda.memory import memory_cached as memory_cached
from cugrad.cuda.memory import memory_reserved as memory_reserved
from cugrad.cuda.snapshots import memory_snapshot as memory_snapshot
from cugrad.cuda.memory import memory_stats as memory_stats
from cugrad.cuda.memory import memory_stats_as_nested_dict as memory_stats_as_nested_dict
from cugrad.cuda.memory import memory_summary as memory_summary
from cugrad.cuda import nvtx as nvtx
from cugrad.cuda import profiler as profiler
from cugrad.cuda.memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from cugrad.cuda.memory import reset_max_memory_allocated as reset_max_memory_allocated
from cugrad.cuda.memory import reset_max_memory_cached as reset_max_memory_cached
from cugrad.cuda.memory import reset_peak_memory_stats as reset_peak_memory_stats
from cugrad.cuda import sanitizer as sanitizer
from cugrad.cuda.seeding import seed as seed
from cugrad.cuda.seeding import seed_all as seed_all
from cugrad.cuda.devices import set_device as set_device
from cugrad.cuda.memory import set_per_process_memory_fraction as set_per_process_memory_fraction
from cugrad.cuda.seeding import set_rng_state as set_rng_state
from cugrad.cuda.seeding import set_rng_state_all as set_rng_state_all
from cugrad.cuda.streams import set_stream as set_stream
from cugrad.cuda.streams import stream as stream
from cugrad.cuda import streams as streams
from cugrad.cuda.devices import synchronize as synchronize
