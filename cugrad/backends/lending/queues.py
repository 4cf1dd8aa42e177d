"""Which streams a program has recorded ops on, so that a backward pass is in order with them.

A pass runs on the stream of whoever calls it. It reads what forward has written, on whatever stream
that was queued, and frees memory that is used again in the order of that stream. So the caller's
stream waits for those of forward where a pass begins, and they for it where it ends. Nodes do not
know their stream: they have numbers, and a stretch says which numbers were taken while one was
current. A number of another thread, taken meanwhile, counts too: that waits too often, not too
seldom. What is in no stretch was recorded on the default stream.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

from ...runtime.kept import Switch
from ...runtime.sequence import seq_now
from ..protocol import Event, Stream

__all__ = ["Current", "StreamsInOrder", "stretches"]

MOST_STREAMS = 32  # that are remembered, as many as PyTorch has for a device
MOST_STRETCHES = 8  # of one stream: older ones become one, with what is between them
OPEN_END = 2**64


class Stretch:
    """The numbers that were taken while a stream was current."""

    __slots__ = ("backend", "stream", "device", "start", "end", "thread")

    def __init__(self, backend: Any, stream: Any, thread: int | None) -> None:
        self.backend, self.stream, self.thread = backend, stream, thread
        self.device = stream.device_index or 0
        self.start, self.end = seq_now(), OPEN_END

    def covers(self, seqs: list[int]) -> bool:
        """Whether one of these sorted numbers is in the stretch."""
        at = bisect_left(seqs, self.start)
        return at < len(seqs) and seqs[at] < self.end


stretches: list[Stretch] = []  # in the order in which they began
_lock = threading.RLock()


class Current(Switch):
    """Notes what is recorded in its block as recorded on a stream, which is current there."""

    def __init__(self, backend: Any, stream: Stream, lasts: bool = False) -> None:
        self.backend, self.stream, self.lasts = backend, stream, lasts

    def as_is(self) -> Stretch:
        return Stretch(self.backend, self.stream, threading.get_ident() if self.lasts else None)

    def change(self, before: Stretch) -> None:
        with _lock:
            if self.lasts:  # until the thread sets another
                for stretch in [s for s in stretches if s.thread == before.thread]:
                    _close(stretch)
            stretches.append(before)

    def put_back(self, before: Stretch) -> None:
        with _lock:
            _close(before)


def _close(stretch: Stretch) -> None:
    """Ends a stretch; one in which nothing was recorded is forgotten."""
    if stretch not in stretches or stretch.end != OPEN_END:
        return
    stretch.end, stretch.thread = seq_now(), None
    if stretch.start == stretch.end:
        stretches.remove(stretch)
        return
    same = [s for s in stretches if s.stream == stretch.stream and s.end != OPEN_END]
    if len(same) > MOST_STRETCHES:
        same[1].start = min(same[0].start, same[1].start)
        same[1].end = max(same[0].end, same[1].end)
        stretches.remove(same[0])
    streams = list(dict.fromkeys(s.stream for s in stretches))
    if len(streams) > MOST_STREAMS:
        oldest = [s for s in stretches if s.stream == streams[0]]
        if all(s.end != OPEN_END for s in oldest):
            streams[0].synchronize()
            stretches[:] = [s for s in stretches if s not in oldest]


class StreamsInOrder:
    """A block whose work on current streams comes behind what was recorded on others, and before
    what these do later. `numbers()` gives the numbers of the nodes that it will run.
    """

    def __init__(self, numbers: Callable[[], Iterable[int]]) -> None:
        self._numbers = numbers
        self._pairs: list[tuple[Any, int, Stream, Stream]] = []

    def __enter__(self) -> None:
        with _lock:
            before = list(stretches)
        seqs: list[int] = []
        for backend, index in dict.fromkeys((s.backend, s.device) for s in before):
            with backend.use_device(index):
                here, default = backend.current_stream(), backend.default_stream()
            if here.is_capturing():  # a graph's streams are joined by who captures it
                continue
            others: dict[Stream, bool] = {} if here == default else {default: False}
            for stretch in before:
                if (stretch.backend, stretch.device) != (backend, index) or stretch.stream == here:
                    continue
                if stretch.stream.is_capturing():
                    continue
                idle = stretch.end != OPEN_END and stretch.stream.query()
                seqs = seqs if idle or seqs else sorted(self._numbers())
                if idle or stretch.covers(seqs):
                    others[stretch.stream] = others.get(stretch.stream, True) and idle
            for other, idle in others.items():
                self._pairs.append((backend, index, here, other))
                if not idle:
                    _wait(backend, index, here, other)

    def __exit__(self, *exc: object) -> None:
        for backend, index, here, other in self._pairs:
            _wait(backend, index, other, here)


def _wait(backend: Any, index: int, stream: Stream, behind: Stream) -> None:
    with backend.use_device(index):
        event: Event = behind.record_event()
    stream.wait_event(event)
