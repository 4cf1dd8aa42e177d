"""torch.cuda's streams and events, over the backend's."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from ..backends.lending.queues import Current
from ..device import device as Place
from ..runtime.absent import explain
from ..runtime.kept import Switch
from .devices import DeviceLike, cuda_backend, device, index_of

__all__ = [
    "Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream",
]  # fmt: skip


class Stream:
    """A queue of device work that runs in order, beside the other queues.

    It does not wait for the default stream: order across streams takes events, or wait_stream().
    In a `with` it is the current one, as by `stream()`. Backward runs on the stream of its caller,
    which waits for those that forward ran on; they wait for its end.
    """

    __slots__ = ("native", "device_index", "_entered")

    def __init__(self, device: DeviceLike = None, priority: int = 0) -> None:
        self.device_index = index_of(device)
        self._entered: list[tuple[int, StreamContext]] = []  # a thread and a `with` of its
        backend = cuda_backend()
        with backend.use_device(self.device_index):
            self.native: Any = backend.stream(priority)  # a Stream of the backend

    @property
    def cuda_stream(self) -> int:
        """The address of the cudaStream_t."""
        return int(self.native.ptr)

    @property
    def native_handle(self) -> int:
        """The same, by the name that all devices' streams have."""
        return self.cuda_stream

    @property
    def stream_id(self) -> int:
        """A number that no other stream of the device has."""
        return self.cuda_stream

    @property
    def device(self) -> Place:
        """The device that the stream is on."""
        return Place("cuda", self.device_index)

    @property
    def priority(self) -> int:
        """The stream's priority; lower numbers go first."""
        return int(self.native.priority)

    def wait_event(self, event: Event) -> None:
        """Makes work queued from now on wait for `event`; the host does not wait."""
        self.native.wait_event(event.native)

    def wait_stream(self, stream: Stream) -> None:
        """Makes work queued from now on wait for all that `stream` has queued; the host does
        not.
        """
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Marks this point of the queue in `event`, or in a new one, and answers it."""
        if event is None:
            with cuda_backend().use_device(self.device_index):
                event = Event()
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """Whether a CUDA graph captures what is queued here."""
        return bool(self.native.is_capturing())

    def synchronize(self) -> None:
        """Blocks the host until all queued work is done."""
        self.native.synchronize()

    def query(self) -> bool:
        """Whether all queued work is done; never blocks."""
        return bool(self.native.query())

    def __enter__(self) -> Stream:
        entry = get_ident(), StreamContext(self)
        try:
            self._entered.append(entry)
            entry[1].__enter__()
        except BaseException:
            if entry in self._entered:
                self._entered.remove(entry)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        mine = [entry for entry in self._entered if entry[0] == get_ident()]
        last = (mine or self._entered)[-1]  # a generator may be closed by another thread
        try:
            last[1].__exit__(*exc)
        finally:
            self._entered.remove(last)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream  # the protocol by which other libraries take a stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.cuda_stream, self.device_index) == (
            other.cuda_stream,
            other.device_index,
        )

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """A point in a stream that another stream, or the host, can wait for.

    `enable_timing` for elapsed_time(); `blocking` makes synchronize() sleep and not spin.
    """

    __slots__ = ("native", "device")

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self.device = Place("cuda", index_of(None))
        self.native: Any = cuda_backend().event(enable_timing, blocking, interprocess)

    @property
    def cuda_event(self) -> int:
        """The address of the cudaEvent_t."""
        return int(self.native.ptr)

    @property
    def event_id(self) -> int:
        """The same, by the name that all devices' events have."""
        return self.cuda_event

    def record(self, stream: Stream | None = None) -> None:
        """Marks the present end of `stream` (of the current stream if None)."""
        self.native.record(None if stream is None else stream.native)

    def wait(self, stream: Stream | None = None) -> None:
        """Makes `stream` (the current stream if None) wait for this event."""
        self.native.wait(None if stream is None else stream.native)

    def synchronize(self) -> None:
        """Blocks the host until the event has happened."""
        self.native.synchronize()

    def query(self) -> bool:
        """Whether the event has happened; never blocks."""
        return bool(self.native.query())

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`; both with enable_timing, both happened."""
        return float(self.native.elapsed_time(end_event.native))


def _wrap(native: Any, index: int) -> Stream:
    stream = Stream.__new__(Stream)
    stream.native, stream.device_index, stream._entered = native, index, []
    return stream


def current_stream(device: DeviceLike = None) -> Stream:
    """The stream of this thread that work on a device is queued on."""
    index = index_of(device)
    backend = cuda_backend()
    with backend.use_device(index):
        return _wrap(backend.current_stream(), index)


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream that is current where no other was chosen."""
    index = index_of(device)
    return _wrap(cuda_backend().default_stream(), index)


class StreamContext(Switch):
    """Queues this thread's work on `stream`, and makes its device current, inside the block.

    None changes nothing, so that code need not ask whether there is a GPU. It may be another
    library's stream, which has `__cuda_stream__`.
    """

    def __init__(self, stream: Stream | None) -> None:
        if stream is not None and not isinstance(stream, Stream):
            if not hasattr(stream, "__cuda_stream__"):
                raise TypeError(
                    "stream: want a cuda.Stream, or a stream of another library, which has "
                    f"__cuda_stream__, got {type(stream).__name__}"
                )
            stream = _wrap(cuda_backend().external_stream(stream), index_of(None))
        self.stream = stream

    def as_is(self) -> tuple[Switch, ...]:
        if self.stream is None:
            return ()
        backend, native = cuda_backend(), self.stream.native
        index = self.stream.device_index
        return Current(backend, native, index), device(index), backend.use_stream(native)

    def change(self, before: tuple[Switch, ...]) -> None:
        for part in before:
            part.__enter__()

    def put_back(self, before: tuple[Switch, ...]) -> None:
        for part in reversed(before):
            if part._before:  # as far as it came
                part.__exit__()


def stream(stream: Stream | None) -> StreamContext:
    """Queues this thread's work on `stream`, and makes its device current, inside the block.

    None changes nothing, so that code need not ask whether there is a GPU.
    """
    return StreamContext(stream)


def set_stream(stream: Stream | None) -> None:
    """Queues this thread's work on `stream` from now on, and makes its device current.

    The context `stream` is for a part of a program. None changes nothing.
    """
    if stream is not None:
        StreamContext(stream).__enter__()


explain(__name__)
