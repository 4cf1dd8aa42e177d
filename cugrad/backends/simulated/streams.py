"""Streams and events of the simulated device: queues of work, and places in them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from .races import Clock

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["Marker", "SimulatedEvent", "SimulatedStream"]


class Marker:
    """The place in a stream's queue that one recording of an event stands for."""

    __slots__ = ("stream", "done", "clock", "stamp", "epoch", "polls")

    def __init__(self, stream: SimulatedStream, clock: Clock) -> None:
        self.stream, self.clock, self.stamp = stream, clock, stream.time
        self.epoch = stream.machine.epoch
        self.done, self.polls = False, 0

    @property
    def time(self) -> float:
        """When it will be reached; before all time, if that began anew since."""
        return self.stamp if self.epoch == self.stream.machine.epoch else 0.0


class SimulatedStream:
    """A queue of work in order. Copies wait in it; a kernel runs all before it, then itself."""

    def __init__(self, machine: Machine, priority: int, name: str | None = None) -> None:
        self.machine, self.priority = machine, priority
        self.number = next(machine.stream_numbers)
        self.ptr = 0 if name == "default" else 0x5000 + 16 * self.number
        self._name = name or f"stream {self.number}"
        self.timeline = machine.clocks.timeline(self._name)
        self.queue: deque[Any] = deque()  # a Marker to reach, a Marker to wait for, or a callable
        self.time = 0.0  # when all that is queued so far will have ended
        self.device_index = 0

    @property
    def name(self) -> str:
        """What errors and drawings call the stream; may be set."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = self.machine.clocks.names[self.timeline] = name

    def wait_event(self, event: SimulatedEvent) -> None:
        """Work queued from now on waits for the event as recorded now; the host does not wait."""
        self.machine.wait(self, event)

    def record_event(self, event: SimulatedEvent | None = None) -> SimulatedEvent:
        """Marks this point of the queue in `event`, or in a new one, and answers it."""
        event = event or SimulatedEvent(self.machine)
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Blocks the host until all queued work is done."""
        self.machine.synchronize_stream(self)

    def query(self) -> bool:
        """Whether all queued work is done; never blocks."""
        return self.machine.query_stream(self)

    def __del__(self) -> None:
        self.machine.clocks.retire(self.timeline)

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured: never here."""
        return False

    def __repr__(self) -> str:
        return f"<simulated stream '{self.name}'>"


class SimulatedEvent:
    """A point in a stream that another stream, or the host, can wait for."""

    def __init__(self, machine: Machine, timing: bool = False) -> None:
        self.machine, self.timing = machine, timing
        self.marker: Marker | None = None

    @property
    def ptr(self) -> int:
        return id(self)

    def record(self, stream: SimulatedStream | None = None) -> None:
        """Marks the present end of `stream` (of the current stream if None)."""
        self.marker = self.machine.mark(stream or self.machine.current())

    def wait(self, stream: SimulatedStream | None = None) -> None:
        """Makes `stream` (the current stream if None) wait for this event."""
        self.machine.wait(stream or self.machine.current(), self)

    def synchronize(self) -> None:
        """Blocks the host until the event has happened; at once if it was never recorded."""
        if self.marker is not None:
            self.machine.host_waits_for(self.marker)

    def query(self) -> bool:
        """Whether the event has happened; never blocks. One never recorded has, as on CUDA."""
        return self.marker is None or self.machine.query(self.marker)

    def elapsed_time(self, end_event: SimulatedEvent) -> float:
        """Milliseconds of virtual time from this event to `end_event`."""
        if self.marker is None or end_event.marker is None:
            raise RuntimeError("elapsed_time: both events must be recorded first")
        if not (self.timing and end_event.timing):
            raise RuntimeError("elapsed_time: both events must be made with timing enabled")
        return (end_event.marker.stamp - self.marker.stamp) * 1e3
