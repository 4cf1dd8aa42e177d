"""Streams and events of the fake CUDA: copies of page-locked memory happen as late as they may.

A copy between page-locked memory and the device waits in its stream's queue until the host waits
for it, or until something uses the device on that stream, or on one that waits for it. So a program
that uses either end too early finds what was there before. All else is done when the call returns.

While a stream captures, what CUDA forbids then raises CUDA's error. What is captured is not done:
new arrays have shapes and dtypes, and nothing in them; a replay does it.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

Host = np.ndarray[Any, Any]
POLLS = 64  # how often an event that could have happened may deny it
BUSY: dict[Stream, None] = {}  # streams with something queued
LOCK = threading.RLock()
NUMBERS = itertools.count(1)
# Errors of captures
UNSUPPORTED, INVALIDATED, UNJOINED, IMPLICIT = 900, 901, 904, 906
CAPTURES: weakref.WeakSet[Capture] = weakref.WeakSet()  # that have not ended
HANDLES: set[int] = set()  # of streams and events that are not destroyed
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


def check_handle(owner: Stream | Event) -> None:
    """CUDA's error, where the process does not end: of a stream or an event that is destroyed."""
    if owner.ptr and owner.ptr not in HANDLES:
        raise failure(709)  # cudaErrorContextIsDestroyed


def refused(status: int) -> Exception:
    """What CuPy raises where CUDA's driver answers with this status."""
    from cupy_backends.cuda.api import driver

    error: Exception = driver.CUDADriverError(status)
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
        HANDLES.add(self.ptr)
        self.priority, self.is_non_blocking = priority or 0, non_blocking
        self.queue: deque[Marker | Callable[[], None]] = deque()
        self.capture: Capture | None = None  # the graph that is captured

    def __del__(self) -> None:
        HANDLES.discard(self.ptr)

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
        check_handle(self)
        check_handle(event)
        marker = event.marker
        if marker is None:
            return
        with LOCK:
            if marker.capture is not None:
                marker.capture.streams.add(self)
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
            self.capture.is_valid = False
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
        self.capture = Capture(self)

    def end_capture(self) -> Any:
        capture = self.capture
        if capture is None:
            raise failure(INVALIDATED)
        self.run()
        self.capture = None
        CAPTURES.discard(capture)
        left = [s for s in capture.streams if s is not self]
        for stream in left:
            stream.capture = None
        if not capture.is_valid:
            raise failure(INVALIDATED)
        if any(s.queue for s in left):
            raise failure(UNJOINED)
        return Graph(capture)

    def is_capturing(self) -> bool:
        if self.capture is not None and not self.capture.is_valid:
            raise RuntimeError(
                "the stream was capturing, but an error has invalidated the capture sequence"
            )
        return self.capture is not None


class Capture:
    """A graph that is being captured: its streams, what is to be done, and its memory."""

    def __init__(self, stream: Stream) -> None:
        self.streams = {stream}
        self.is_inside = False  # a function that is taken down
        self.is_valid = True  # until something is done that CUDA forbids meanwhile
        CAPTURES.add(self)
        self.nodes: list[Callable[[], None]] = []
        self.memory: dict[int, Host] = {}  # that was new, by the array that owns it

    def holds(self, host: Host) -> None:
        """Memory of a pool of its own: it stays where it is."""
        self.memory[id(host)] = host

    def forget(self) -> None:
        """Nothing of it has been done."""
        for host in self.memory.values():
            if host.flags.writeable and host.nbytes and host.dtype != object:
                lies = sorted(range(host.ndim), key=lambda k, host=host: -host.strides[k])
                dense = host.transpose(lies)  # it owns its memory, which lies in some order
                dense.reshape(-1, copy=False).view(np.uint8).fill(255)


class Graph:
    """What was captured; each launch does it."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        capture.forget()

    def launch(self, stream: Stream | None = None) -> None:
        stream = stream or current()
        if stream.capture is not None:
            raise failure(UNSUPPORTED)
        stream.run()
        for node in self._capture.nodes:
            node()

    def debug_dot_str(self) -> str:
        return f"digraph {{ /* {len(self._capture.nodes)} nodes */ }}"


def captured(call: Callable[..., Any], changes: bool = False) -> Callable[..., Any]:
    """A function of the device that a capture takes down: one that changes what is there is not
    called, and of one that makes arrays only their form is kept.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        capture = current().capture
        if capture is None or capture.is_inside:
            return call(*args, **kwargs)
        if changes:
            capture.nodes.append(lambda: call(*args, **kwargs))
            return args[0]
        with _outside(capture):
            made = call(*args, **kwargs)
        results = [x for x in (made if isinstance(made, (tuple, list)) else (made,))
                   if isinstance(getattr(x, "_host", None), np.ndarray)]  # fmt: skip
        operands = [x._host for a in (*args, *kwargs.values())
                    for x in (a if isinstance(a, (tuple, list)) else (a,))
                    if isinstance(getattr(x, "_host", None), np.ndarray)]  # fmt: skip
        own = [x for x in results if not any(np.may_share_memory(x._host, h) for h in operands)]
        for x in own:
            root = x._host
            while isinstance(root.base, np.ndarray):
                root = root.base
            capture.holds(root)
        if own:
            hosts = [x._host for x in results]

            def again() -> None:
                new = call(*args, **kwargs)
                several = new if isinstance(new, (tuple, list)) else (new,)
                each = [x for x in several if isinstance(getattr(x, "_host", None), np.ndarray)]
                for host, x in zip(hosts, each, strict=True):
                    host[...] = x._host

            capture.nodes.append(again)
        return made

    return run


@contextmanager
def _outside(capture: Capture) -> Iterator[None]:
    """What a function of the fake's calls of others is no part of the graph."""
    capture.is_inside = True
    try:
        yield
    finally:
        capture.is_inside = False


class Event:
    """An event: the marker of its last recording, or none."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.ptr = 0x1008 + 16 * next(NUMBERS)
        self.marker: Marker | None = None
        HANDLES.add(self.ptr)

    def __del__(self) -> None:
        HANDLES.discard(self.ptr)

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or current()
        check_handle(self)
        check_handle(stream)
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
            for other in [s for s in list(BUSY) if not s.is_non_blocking]:
                other.run()


def host_waits() -> None:
    """The host waits for the current stream."""
    if current().capture is not None:
        raise RuntimeError(
            "the current stream is capturing, so synchronous API calls are disallowed"
        )
    device_is_used()


def synchronize() -> None:
    """The host waits for all, which it may not while any stream is captured."""
    for capture in list(CAPTURES):
        capture.is_valid = False
    if CAPTURES:
        raise failure(UNSUPPORTED)
    all_run()


def all_run() -> None:
    """Does all that is queued."""
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
