"""CUDA streams and events as cugrad's Stream and Event, over CuPy's."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ...runtime.kept import Switch

__all__ = ["CudaEvent", "CudaStream", "Using", "current_stream", "new_stream"]

# What the protocol hands back is what this backend handed out: a CudaStream, a CudaEvent.
AnyStream = Any
AnyEvent = Any


PER_THREAD = 2  # CUDA's handle of the default stream of whatever thread uses it


def owned(native: Any) -> Any:
    """What keeps a handle of CUDA's from being destroyed before the last reference to it is gone.

    The garbage collector runs the destructors of all that is in a cycle before it looks who refers
    to it; a destructor of ours, that of a span of saved bytes, hands an event on to who uses the
    memory next. The collector sees no reference that an array of objects has, and lets it be.
    """
    box = np.empty((), object)
    box[()] = native
    return box


class CudaStream:
    """A queue of device work that runs in order; a value that equals another view of the same
    queue.
    """

    __slots__ = ("native", "ptr", "_owned")

    def __init__(self, native: Any) -> None:
        self.native = native  # a cupy.cuda.Stream
        self.ptr: int = native.ptr  # the address of the cudaStream_t; 0 is the legacy default
        self._owned = owned(native) if self.ptr else None
        if self.ptr == PER_THREAD:
            raise RuntimeError(
                "CUDA's per-thread default stream is another one in each thread, and backward may "
                "run in any: unset CUPY_CUDA_PER_THREAD_DEFAULT_STREAM, and use cuda.Stream()"
            )

    @property
    def device_index(self) -> int | None:
        """The device that the stream was made on; None for the default stream, which every device
        has.
        """
        index = self.native.device_id
        return None if index < 0 else index

    @property
    def priority(self) -> int:
        """The stream's priority; lower numbers go first."""
        return self.native.priority

    def wait_event(self, event: AnyEvent) -> None:
        """Makes work queued from now on wait for `event`; the host does not wait."""
        self.native.wait_event(event.native)

    def record_event(self, event: AnyEvent | None = None) -> CudaEvent:
        """Marks this point of the queue in `event`, or in a new one, and answers it."""
        if event is None:
            event = CudaEvent()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Blocks the host until all queued work is done."""
        self.native.synchronize()

    def query(self) -> bool:
        """Whether all queued work is done; never blocks."""
        return self.native.done

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured from this stream."""
        return self.native.is_capturing()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr  # the protocol by which other libraries take a stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaStream) and (self.ptr, self.native.device_id) == (
            other.ptr,
            other.native.device_id,
        )

    def __hash__(self) -> int:
        return hash((self.ptr, self.native.device_id))

    def __repr__(self) -> str:
        return f"<CudaStream {self.ptr:#x} on device {self.device_index}>"


class CudaEvent:
    """A point in a stream that another stream, or the host, can wait for."""

    __slots__ = ("native", "_owned")

    def __init__(
        self, timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.native = cupy.cuda.Event(
            block=blocking, disable_timing=not timing, interprocess=interprocess
        )
        self._owned = owned(self.native)

    @property
    def ptr(self) -> int:
        """The address of the cudaEvent_t."""
        return self.native.ptr

    def record(self, stream: AnyStream | None = None) -> None:
        """Marks the present end of `stream` (of the current stream if None)."""
        self.native.record(None if stream is None else stream.native)

    def wait(self, stream: AnyStream | None = None) -> None:
        """Makes `stream` (the current stream if None) wait for this event."""
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """Blocks the host until the event has happened."""
        self.native.synchronize()

    def query(self) -> bool:
        """Whether the event has happened; never blocks. An event that was never recorded has."""
        return self.native.done

    def elapsed_time(self, end_event: AnyEvent) -> float:
        """Milliseconds from this event to `end_event`; both made with timing, both happened."""
        return cupy.cuda.get_elapsed_time(self.native, end_event.native)


def new_stream(priority: int = 0) -> CudaStream:
    """A stream on the current device that does not wait for the legacy default stream.

    A plain Stream() would: CuPy's default current stream is the legacy one, and every copy would
    then wait for the computation that it is meant to overlap.
    """
    return CudaStream(cupy.cuda.Stream(non_blocking=True, priority=priority))


def current_stream() -> CudaStream:
    """The stream of this thread and device that kernels are launched on."""
    return CudaStream(cupy.cuda.get_current_stream())


class Using(Switch):
    """Makes a stream, and its device, the current ones of this thread.

    Each device has a current stream of its own, and CuPy wants to be on a stream's device.
    """

    def __init__(self, stream: CudaStream) -> None:
        self._stream = stream

    def as_is(self) -> tuple[int, int, Any]:
        device = cupy.cuda.runtime.getDevice()
        index = self._stream.device_index
        index = device if index is None else index
        return device, index, cupy.cuda.get_current_stream(index)

    def change(self, before: tuple[int, int, Any]) -> CudaStream:
        _, index, _ = before
        cupy.cuda.Device(index).use()
        self._stream.native.use()
        return self._stream

    def put_back(self, before: tuple[int, int, Any]) -> None:
        device, index, native = before
        cupy.cuda.Device(index).use()
        native.use()
        cupy.cuda.Device(device).use()
