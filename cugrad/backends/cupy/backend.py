"""The CuPy backend: tensors in the memory of CUDA devices."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

import cupy
import numpy as np

from ..allocations import MemorySegment
from ..allocator_settings import settings_of_environment
from ..copies import check_copy, in_its_order
from ..lending import pinned
from ..several import several
from ..traced.lists import MakeListGraph, NumbersGraph
from . import memory as memory
from . import pools, written
from .capture import CudaCapture
from .fused import rows as fused
from .fused.lists import ListKernels, NumberKernels
from .fused.sums import add_to, plus
from .fused.tables import table_function
from .namespace import CupyNamespace
from .placing import PlacedNamespace, placed
from .probe import why_uncompilable
from .random import CudaRng
from .stream import AnyStream, CudaEvent, CudaStream, Using, current_stream, new_stream

__all__ = ["CupyBackend"]

Array = Any  # cupy.ndarray


class CupyBackend:
    """Tensors on CUDA devices. Made at CUDA's first real use; RuntimeError if kernels do not
    compile.

    The current device and stream are CuPy's, which are thread-local: a new thread begins on device
    0 and the legacy default stream. Where there are several devices, functions run on that of the
    arrays that they are given.
    """

    name = "cupy"
    readable, runs_rows, makes_kernels, stands_in = True, True, True, False
    keeps_launches = True
    least = 0
    device_type = "cuda"
    array_types: tuple[type, ...] = (cupy.ndarray,)
    xp: Any = CupyNamespace()
    attention: Any = staticmethod(written.attention)
    attention_backward: Any = staticmethod(written.attention_backward)
    attention_of_mask: Any = staticmethod(written.attention_of_mask)
    grid_sample: Any = staticmethod(written.grid_sample)
    grid_sample_backward: Any = staticmethod(written.grid_sample_backward)
    ctc_loss: Any = staticmethod(written.ctc_loss)
    ctc_loss_backward: Any = staticmethod(written.ctc_loss_backward)
    plus: Any = staticmethod(plus)
    add_to: Any = staticmethod(add_to)
    model: Any = None
    host_seconds = staticmethod(perf_counter)

    def __init__(self) -> None:
        reason = why_uncompilable()
        if reason is not None:
            raise RuntimeError(f"device 'cuda' cannot be used: {reason}")
        self._rows: dict[Any, Callable[..., Any]] = {}  # by op
        self._peaks, self._watched = memory.PeakMeter(), memory.PeakMeter()
        memory.use_pools()
        settings = settings_of_environment()
        pinned.reserved[self.device_type] = settings.reserved
        if settings.fraction is not None:
            for index in range(self.device_count()):
                with self.use_device(index):
                    self.limit_memory(int(settings.fraction * self.memory_info()[1]))
        if self.device_count() > 1:
            several.devices = True
            self.xp = PlacedNamespace(CupyBackend.xp)
            self.attention = placed(written.attention.general)  # devices may have other kernels
            self.attention_backward = placed(written.attention_backward.general)
            self.attention_of_mask = placed(written.attention_of_mask)
            self.grid_sample = placed(written.grid_sample.general)
            self.grid_sample_backward = placed(written.grid_sample_backward.general)
            self.ctc_loss = placed(written.ctc_loss.general)
            self.ctc_loss_backward = placed(written.ctc_loss_backward.general)

    # rows

    def row_function(self, op: Any) -> Callable[..., Any]:
        """A row's forward: one kernel where one can be made of the row, else CuPy's functions."""
        function: Any = self._rows.get(op)
        if function is None:
            function = written.forward_of(op, fused.forward_of(op, CupyBackend.xp))
            if several.devices:
                function = _anywhere(function)
                if hasattr(function, "in_place"):
                    function.in_place = _anywhere(function.in_place)
            self._rows[op] = function
        return function

    def run_row(
        self, op: Any, operands: Any, params: dict[str, Any], home: Array | None = None
    ) -> Any:
        """The result of a row; it may lie in `home`, which is then answered."""
        function: Any = self.row_function(op)
        if home is not None and home is operands[0]:
            function = getattr(function, "in_place", function)
        return function(*operands, **params)

    def gradients_function(self, op: Any, mask: int, raw: Any) -> Callable[..., Any] | None:
        """The gradients of a row in a kernel or two, see `fused.rows.backward_of`."""
        if op.kind == "elementwise":
            return fused.backward_of(op, mask, raw)
        return written.backward_of(op, mask, raw)

    def graph_function(
        self,
        name: str,
        results: list[Any],
        arrays: Sequence[Array],
        targets: Sequence[tuple[int, ...]] | None = None,
    ) -> Callable[[Sequence[Array]], list[Array]]:
        """A kernel that computes traced `results` of arrays like these, for such arrays; summed to
        the shapes `targets` where one kernel can.
        """
        run = fused.graph_plan(name, results, arrays, targets).run
        return placed(run, strict=True) if several.devices else run

    def table_function(self, name: str, element: Any, shape: Sequence[int]) -> Callable[[], Array]:
        """A kernel that makes arrays of what is traced of their places; see `fused.tables`."""
        return table_function(name, element, shape)

    def list_kernels(self, graph_of: MakeListGraph) -> ListKernels:
        """Kernels that change lists of arrays in place, few launches for all; see `fused.lists`."""
        return ListKernels(graph_of)

    def number_kernels(self, graph: NumbersGraph) -> NumberKernels:
        """Kernels that compute the constants for such lists from numbers on the device."""
        return NumberKernels(graph)

    # arrays

    def wrap(self, value: Any) -> Array:
        """CuPy's 0-d results are arrays already; a NumPy scalar becomes one, an array is itself."""
        return cupy.asarray(value) if isinstance(value, np.generic) else value

    def asarray(self, value: Any, dtype: np.dtype[Any] | None = None) -> Array:
        """`value` on the current device; a CUDA array stays on its own, and is itself if the dtype
        is right.

        Host data may be changed when this returns. CuPy stages it, and it may still be on its way,
        in stream order; page-locked memory is read where it lies, so that is waited for.
        """
        if isinstance(value, cupy.ndarray):
            return value if dtype is None else value.astype(dtype, copy=False)
        if not isinstance(value, np.ndarray):
            return cupy.asarray(value, dtype)
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        if not memory.is_pinned(value):
            return in_its_order(value, lambda a: cupy.asarray(a, dtype, blocking=False))
        value = value.astype(value.dtype if dtype is None else dtype, copy=False)
        return in_its_order(value, self._from_pinned)

    def _from_pinned(self, value: np.ndarray[Any, Any]) -> Array:
        """CuPy holds page-locked memory that it reads until it has some other work of that kind."""
        stream = current_stream()
        if stream.is_capturing() or not value.flags.c_contiguous:
            return cupy.asarray(value, blocking=True)
        array = cupy.ndarray(value.shape, value.dtype)
        pinned.pinned_memory(self).copy(array, value, stream)
        stream.synchronize()
        return array

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """A NumPy copy; waits for the current stream. What is on the host already is itself."""
        if not isinstance(array, cupy.ndarray):
            return np.asarray(array)
        return in_its_order(array, lambda a: a.get())

    # devices

    def device_index(self, array: Array) -> int | None:
        return array.device.id

    def holder_of(self, array: Array) -> Any:
        """What keeps the memory of an array from going back to its pool."""
        return array.data

    def device_count(self) -> int:
        return cupy.cuda.runtime.getDeviceCount()

    def current_device(self) -> int:
        return cupy.cuda.runtime.getDevice()

    def set_device(self, index: int) -> None:
        """Makes a device current in this thread until further notice."""
        cupy.cuda.Device(index).use()

    def use_device(self, index: int | None) -> AbstractContextManager[Any]:
        return nullcontext() if index is None else cupy.cuda.Device(index)

    def device_properties(self, index: int) -> dict[str, Any]:
        """CUDA's cudaDeviceProp of a device: `name` (bytes), `major`, `minor`, `totalGlobalMem`,
        ...
        """
        return cupy.cuda.runtime.getDeviceProperties(index)

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the current device, as the driver counts them."""
        return cupy.cuda.runtime.memGetInfo()

    # streams

    def stream(self, priority: int = 0) -> CudaStream:
        return new_stream(priority)

    def default_stream(self) -> CudaStream:
        """The legacy default stream, which is current where no other was chosen."""
        return CudaStream(cupy.cuda.Stream.null)

    def external_stream(self, stream: Any) -> CudaStream:
        """Another library's stream, of any object with `__cuda_stream__`; it is kept alive."""
        return CudaStream(cupy.cuda.Stream.from_external(stream))

    def current_stream(self) -> CudaStream:
        return current_stream()

    def use_stream(self, stream: AnyStream) -> Using:
        """Queues this thread's work on `stream`, on the stream's device, inside the block."""
        return Using(stream)

    def event(
        self, timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> CudaEvent:
        return CudaEvent(timing, blocking, interprocess)

    def copy_async(self, dst: Array, src: Array, stream: AnyStream) -> None:
        """Queues a copy of bytes on `stream` and returns; the caller keeps both alive until it is
        done.

        The arrays may differ in dtype and shape, as a slab of bytes and its tenant do, but not in
        size. Between page-locked host memory and a device, or within a device; with ordinary host
        memory CUDA may wait. Legal while a graph is being captured.
        """
        check_copy(dst, src)
        if src.nbytes == 0:
            return
        runtime = cupy.cuda.runtime
        from_device, to_device = isinstance(src, cupy.ndarray), isinstance(dst, cupy.ndarray)
        if from_device and to_device:
            kind = runtime.memcpyDeviceToDevice
        elif from_device:
            kind = runtime.memcpyDeviceToHost
        else:
            kind = runtime.memcpyHostToDevice if to_device else runtime.memcpyHostToHost
        destination, source = memory.pointer_of(dst), memory.pointer_of(src)
        runtime.memcpyAsync(destination, source, src.nbytes, kind, stream.ptr)

    def synchronize(self) -> None:
        """Waits for everything queued on the current device."""
        cupy.cuda.runtime.deviceSynchronize()

    # memory

    def empty_pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return memory.empty_pinned(shape, np.dtype(dtype))

    def is_pinned(self, array: np.ndarray[Any, Any]) -> bool:
        return memory.is_pinned(array)

    def memory_allocated(self) -> int:
        """Bytes of arrays alive on the current device, rounded up to CuPy's blocks of 512."""
        memory.settlers.ask()
        return pools.bytes_allocated()

    def max_memory_allocated(self) -> int:
        """The most memory_allocated() has been since reset_peak_memory_stats(); see
        PeakMeter.peak().
        """
        return self._peaks.peak()

    def reset_peak_memory_stats(self) -> None:
        """Begins to watch the peak of the current device, from now."""
        self._peaks.reset()
        pools.forget_peaks(self.current_device())

    def watch_peak(self) -> None:
        """The same for the library, without a change to what users watch."""
        self._watched.reset()

    def watched_peak(self) -> int:
        return self._watched.peak()

    def raise_watched_peak(self, nbytes: int) -> None:
        """The watched peak was that, at least: for who has begun a watch within another."""
        self._watched.raise_to(nbytes)

    def memory_reserved(self) -> int:
        """Bytes that the pools hold of the current device, in use or not."""
        return pools.bytes_reserved(self.current_device())

    def max_memory_reserved(self) -> int:
        """The most memory_reserved() has been since reset_peak_memory_stats()."""
        return pools.most_reserved(self.current_device())

    def limit_memory(self, nbytes: int) -> None:
        """Bytes that the pools may hold of the current device; the next ones are an error."""
        pools.set_limit(self.current_device(), max(1, nbytes))

    def memory_limit(self) -> int:
        """What `limit_memory` was told; all that the device has without."""
        return pools.limit_of(self.current_device()) or self.memory_info()[1]

    def empty_cache(self) -> None:
        """Gives unused blocks back to the driver; waits for the device."""
        memory.settlers.ask()
        pools.give_up_free_blocks()

    def memory_statistics(self) -> dict[str, Any]:
        """PyTorch's nested statistics of the current device; what came and went, and was at most,
        is watched from the first call on.
        """
        memory.watch()
        memory.settlers.ask()
        return pools.statistics(self.current_device())

    def reset_statistics(self) -> None:
        """Forgets what came and went."""
        memory.watch()
        pools.forget_sums(self.current_device())

    def memory_segments(self) -> list[MemorySegment]:
        """What the pools hold of the current device."""
        return pools.segments(self.current_device())

    def watch_memory(self) -> None:
        """Has blocks that are given from now on noted: whose they are, for the history."""
        memory.watch()
        for index in range(self.device_count()):
            with self.use_device(index):
                pools.watch(index)

    def on_out_of_memory(self, reclaim: Callable[[], bool]) -> None:
        """Calls `reclaim` when an allocation fails, which is tried again if that answers true."""
        memory.retry_after(reclaim)

    def on_count(self, settle: Callable[[], bool]) -> None:
        """Calls `settle` before memory in use is counted."""
        memory.settlers.add(settle)

    def made_room(self, error: Exception) -> bool:
        """Whether an error said that the device is full, and there is more room now; see memory."""
        return memory.made_room(error)

    # the rest

    def capture(self, pool: Any, handle: tuple[int, int]) -> CudaCapture:
        """A CUDA graph to be captured, with memory of a new pool of this handle, or of `pool`."""
        return CudaCapture(pool, handle)

    def quiet(self) -> AbstractContextManager[Any]:
        """CUDA arithmetic says nothing when it overflows or divides by zero."""
        return nullcontext()

    def has_communicators(self) -> bool:
        """Whether NCCL is there, which is a package of its own."""
        with warnings.catch_warnings():  # which CuPy gives where it is not
            warnings.simplefilter("ignore")
            return bool(importlib.import_module("cupy.cuda.nccl").available)

    def unique_identifier(self) -> bytes:
        from .nccl import unique_identifier

        return unique_identifier()

    def communicator(self, size: int, identifier: bytes, rank: int) -> Any:
        from .nccl import NcclRank

        return NcclRank(size, identifier, rank)

    def cudnn_version(self) -> int | None:
        """None where cuDNN is not there."""
        from .cudnn.frontend import version

        return version()

    def rng(self, seed: int) -> CudaRng:
        return CudaRng(seed)

    def profiler_start(self) -> None:
        """Tells an attached profiler (nsys with -c cudaProfilerApi) to begin collecting."""
        cupy.cuda.runtime.profilerStart()

    def profiler_stop(self) -> None:
        """Tells an attached profiler to stop collecting."""
        cupy.cuda.runtime.profilerStop()


def _anywhere(function: Any) -> Any:
    """A row's function on whichever device its operands are, of which nothing is kept."""
    function = placed(function, strict=True)
    function.kept = None
    return function
