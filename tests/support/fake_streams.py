"""Streams and events of the fake CUDA: copies of page-locked memory happen as late as they may.

A copy between page-locked memory and the device waits in its stream's queue until the host waits
for it, or until something uses the device on that stream, or on one that waits for it. So a program
that uses either end too early finds what was there before. All else is done when the call returns.

While a stream captures, what CUDA forbids then raises CUDA's error. What is captured runs once, at
once; a graph is not replayed.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Host = np.ndarray[Any, Any]
POLLS = 64  # how often an event that could have happened may deny it
BUSY: dict[Stream, None] = {}  # streams with something queued
LOCK = threading.RLock()
NUMBERS = itertools.count(1)
UNSUPPORTED, UNJOINED, IMPLICIT = 900, 904, 906  # errors of captures
LOCKED: dict[int, weakref.ref[PinnedMemoryPointer]] = {}  # page-locked memory by its address


class Here(threading.local):
    """The current device and stream of a thread, and its allocator."""

    device = 0
    stream: Stream | None = None
    allocator: Any = None


HERE = Here()


def failure(status: int) -> Exception:
    """What CuPy raises where CUDA's runtime answers with this status."""
    from cupy_backends.cuda.api import runtime

    error: Exception = runtime.CUDARuntimeError(status)
    return error


STREAMS: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()


def of(ptr: int) -> Stream:
    """The stream of a handle."""
    return STREAMS[ptr] if ptr else Stream.null


class Marker:
    """A place in a stream's queue, for which others wait."""

    def __init__(self, stream: Stream, capture: Any) -> None:
        self.stream, self.capture = stream, capture
        self.done, self.polls = False, 0


class Stream:
    """A stream. Its queue holds copies, markers of its own, and markers of others to wait for."""

    null: Stream

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: Any = None,
    ) -> None:
        self.ptr = 0 if null else 0x1000 + 16 * next(NUMBERS)
        self.device_id = -1 if null else HERE.device
        STREAMS[self.ptr] = self
        self.priority, self.is_non_blocking = priority or 0, non_blocking
        self.queue: deque[Marker | Callable[[], None]] = deque()
        self.capture: set[Stream] | None = None  # the streams of the graph that is captured

    @classmethod
    def from_external(cls, stream: Any) -> Stream:
        _, ptr = stream.__cuda_stream__()
        return of(ptr)

    def use(self) -> Stream:
        HERE.stream = self
        return self

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        marker = event.marker
        if marker is None:
            return
        with LOCK:
            if marker.capture is not None:
                marker.capture.add(self)
                self.capture = marker.capture
            elif self.capture is not None:
                raise failure(IMPLICIT)
            if not marker.done:
                self.enqueue(marker)

    def enqueue(self, item: Marker | Callable[[], None]) -> None:
        with LOCK:
            self.queue.append(item)
            BUSY[self] = None

    def run(self) -> None:
        """Does all that is queued."""
        with LOCK:
            while self.queue:
                item = self.queue.popleft()
                if not isinstance(item, Marker):
                    item()
                elif item.stream is self:
                    item.done = True
                else:
                    item.stream.reach(item)
            BUSY.pop(self, None)

    def reach(self, marker: Marker) -> None:
        if not marker.done:
            self.run()

    def synchronize(self) -> None:
        if self.capture is not None:
            raise failure(UNSUPPORTED)
        self.run()

    @property
    def done(self) -> bool:
        if not self.queue:
            return True
        return self.record().done

    def begin_capture(self, mode: Any = None) -> None:
        if self is Stream.null:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self.run()
        self.capture = {self}

    def end_capture(self) -> Any:
        capture = self.capture
        if capture is None:
            raise failure(901)
        self.run()
        self.capture = None
        left = [s for s in capture if s is not self]
        for stream in left:
            stream.capture = None
        if any(s.queue for s in left):
            raise failure(UNJOINED)
        return Graph()

    def is_capturing(self) -> bool:
        return self.capture is not None


class Graph:
    """What was captured; it has run once."""

    def launch(self, stream: Stream | None = None) -> None:
        raise NotImplementedError("the fake CUDA replays no graph")


class Event:
    """An event: the marker of its last recording, or none."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.ptr = 0x2000 + 16 * next(NUMBERS)
        self.marker: Marker | None = None

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or current()
        self.marker = Marker(stream, stream.capture)
        if stream.queue:
            stream.enqueue(self.marker)
        else:
            self.marker.done = True

    @property
    def done(self) -> bool:
        marker = self._outside()
        if marker is None or marker.done:
            return True
        marker.polls += 1
        if marker.polls > POLLS:
            marker.stream.reach(marker)
        return marker.done

    def synchronize(self) -> None:
        marker = self._outside()
        if marker is not None:
            marker.stream.reach(marker)

    def _outside(self) -> Marker | None:
        if self.marker is not None and self.marker.capture is not None:
            raise failure(907)  # cudaErrorCapturedEvent
        return self.marker


Stream.null = Stream(null=True)


def current(device_id: int = -1) -> Stream:
    """The stream that this thread has chosen."""
    return HERE.stream or Stream.null


def device_is_used() -> None:
    """Something is about to run on the current stream: what is queued there comes first."""
    if BUSY:
        stream = current()
        stream.run()
        if not stream.is_non_blocking:  # the default stream and those that wait for it
            for other in [s for s in BUSY if not s.is_non_blocking]:
                other.run()


def host_waits() -> None:
    """The host waits for the current stream."""
    if current().capture is not None:
        raise RuntimeError(
            "the current stream is capturing, so synchronous API calls are disallowed"
        )
    device_is_used()


def synchronize() -> None:
    """The host waits for all."""
    for stream in list(BUSY):
        stream.run()


# Page-locked memory and copies of memory ----------------------------------------------------------


class PinnedMemory:
    """A size; the memory comes with the pointer."""

    limit = 1 << 40  # bytes; tests set less

    def __init__(self, size: int, flags: int = 0) -> None:
        if size > PinnedMemory.limit:
            raise failure(2)
        self.size = size


class PinnedMemoryPointer(bytearray):
    """Host memory that NumPy arrays can lie in."""

    def __init__(self, mem: PinnedMemory, offset: int) -> None:
        super().__init__(mem.size)
        self.address = address = ctypes.addressof(ctypes.c_char.from_buffer(self))
        LOCKED[address] = weakref.ref(self, lambda gone: LOCKED.pop(address, None))


def locked_at(address: int) -> PinnedMemoryPointer | None:
    """The page-locked memory that an address lies in."""
    for start, found in list(LOCKED.items()):
        memory = found()
        if memory is not None and start <= address < start + len(memory):
            return memory
    return None


def copy(dst: int, src: int, size: int, host: bool, stream: Stream, *holds: Any) -> None:
    """Copies bytes on a stream: later, if the host's end is page-locked. `holds` is what keeps the
    memory of both until then.
    """
    if not host:
        stream.run()
        ctypes.memmove(dst, src, size)
        return
    locked = locked_at(dst) or locked_at(src)
    if locked is None:
        if stream.capture is not None:
            raise failure(UNSUPPORTED)
        stream.run()
        ctypes.memmove(dst, src, size)
        return
    stream.enqueue(partial(_move, dst, src, size, (locked, *holds)))


def _move(dst: int, src: int, size: int, holds: tuple[Any, ...]) -> None:
    ctypes.memmove(dst, src, size)
