"""Which streams a program has recorded ops on, so that a backward pass is in order with them.

A pass runs on the stream of whoever calls it. It reads what forward has written, on whatever stream
that was queued, and frees memory that is used again in the order of that stream. So the caller's
stream waits for those of forward where a pass begins, and they for it where it ends. Nodes do not
know their stream: they have numbers, and a stretch says which numbers were taken while one was
current. A number of another thread, taken meanwhile, counts too: that waits too often, not too
seldom. What is in no stretch was recorded on the default stream, or on one that is remembered no
more: the host has waited for that, and waits for a pass that frees memory of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ...runtime.kept import OPEN, Switch, of_thread
from ...runtime.sequence import seq_now
from ..protocol import Event, Stream

__all__ = ["Current", "StreamsInOrder", "hooked", "stretches", "switched", "usual_again"]

MOST_STREAMS = 32  # that are remembered, as many as PyTorch has for a device
MOST_STRETCHES = 8  # of one stream: older ones become one, with what is between them
OPEN_END = 2**64


class Stretch:
    """The numbers that were taken while a stream was current in a thread."""

    __slots__ = ("backend", "stream", "device", "start", "end")

    def __init__(self, backend: Any, stream: Any, device: int) -> None:
        self.backend, self.stream, self.device = backend, stream, device
        self.start, self.end = seq_now(), OPEN_END

    def covers(self, seqs: list[int]) -> bool:
        """Whether one of these numbers is in the stretch."""
        return any(self.start <= seq < self.end for seq in seqs)


class _OpenStretches(dict[tuple[Any, int], Stretch]):
    """The stretches that last while a thread's streams are what they are, and at most as long as
    the thread.
    """

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        for stretch in self.values():  # no lock: the garbage collector may call this anywhere
            stretch.end = seq_now()


class _StreamsHere(threading.local):
    def __init__(self) -> None:
        self.open = _OpenStretches()


class _SetByHooks(threading.local):
    """The streams that a thread's backward pass has not made current itself: the contexts, the
    streams before them, and the devices; None where no pass runs.
    """

    switches: list[tuple[Current, Stream, int | None]] | None = None


stretches: list[Stretch] = []
switched = [0]  # how often a stream was made current; 0: a program has but the default one
_forgotten: dict[tuple[Any, int], Stretch] = {}  # what streams had that are remembered no more
_passes: list[StreamsInOrder] = []  # that run
_here = of_thread(_StreamsHere(), OPEN)
hooked = of_thread(_SetByHooks())
_lock = threading.RLock()


class Current(Switch):
    """Notes what is recorded in its block as recorded on a stream, which is made current within.

    What was current when the block began is so again behind it, whatever else has begun or ended
    meanwhile: contexts need not be nested.
    """

    def __init__(self, backend: Any, stream: Any, index: int | None = None) -> None:
        self.backend, self.stream = backend, stream
        self.index = stream.device_index or 0 if index is None else index

    def as_is(self) -> Stream:
        with self.backend.use_device(self.index):
            stream: Stream = self.backend.current_stream()
        return stream

    def change(self, before: Stream) -> None:
        switched[0] += 1
        if hooked.switches is not None:
            hooked.switches.append((self, before, self.backend.current_device()))
            _follow(self.backend, self.index, self.stream, before)
        self._note(self.stream)
        for running in list(_passes):
            running.let_in(self.backend, self.index, self.stream)

    def put_back(self, before: Stream) -> None:
        switches = hooked.switches
        if switches:
            switches[:] = [each for each in switches if each[0] is not self]
        self._note(before)

    def ends(self, before: Stream, device: int | None) -> None:
        """What was current before is so again, behind what was queued meanwhile: no one else will
        see to it.
        """
        with self.backend.use_device(self.index):
            _follow(self.backend, self.index, before, self.backend.current_stream())
            self.backend.use_stream(before).__enter__()
        if device is not None and device != self.backend.current_device():
            self.backend.set_device(device)
        self._note(before)

    def _note(self, stream: Stream) -> None:
        """A stream is this thread's current one from now on."""
        key, mine = (self.backend, self.index), _here.open
        with _lock:
            last = mine.get(key)
            if last is not None and last in stretches:
                if last.stream == stream:
                    return
                last.end = seq_now()
                mine.pop(key)
            if stream != self.backend.default_stream():
                mine[key] = self._begun(stream)
            if last is not None:
                _forget(last)

    def _begun(self, stream: Stream) -> Stretch:
        """A stretch that begins here; the last one goes on if it ends here."""
        now, place = seq_now(), (self.backend, self.index)
        for stretch in reversed(stretches):
            if stretch.end == now and (stretch.backend, stretch.device) == place:
                if stretch.stream == stream:
                    stretch.end = OPEN_END
                    return stretch
        stretch = Stretch(self.backend, stream, self.index)
        stretches.append(stretch)
        return stretch


def _forget(ended: Stretch) -> None:
    """Forgets stretches in which nothing was recorded, and the oldest if there are too many."""
    stretches[:] = [s for s in stretches if s.start != s.end]
    same = [s for s in stretches if s.stream == ended.stream and s.end != OPEN_END]
    if len(same) > MOST_STRETCHES:
        _join(same[1], same[0])
        stretches.remove(same[0])
    streams = list(dict.fromkeys(s.stream for s in stretches))
    if len(streams) <= MOST_STREAMS:
        return
    used = {s.stream for s in stretches if s.end == OPEN_END}
    for oldest in streams:
        if oldest not in used:
            break
    else:
        return
    if oldest.is_capturing() or ended.backend.current_stream().is_capturing():
        return  # nothing may wait for anything on the host
    oldest.synchronize()
    for stretch in [s for s in stretches if s.stream == oldest]:
        key = stretch.backend, stretch.device
        _join(_forgotten.setdefault(key, stretch), stretch)
        stretches.remove(stretch)


def _join(stretch: Stretch, other: Stretch) -> None:
    """A stretch becomes both, with what is between them."""
    stretch.start = min(stretch.start, other.start)
    stretch.end = max(stretch.end, other.end)


class StreamsInOrder:
    """A block whose work on current streams comes behind what was recorded on others, and before
    what these do later. `numbers()` gives the numbers of the nodes that it will run.
    """

    def __init__(self, numbers: Callable[[], Iterable[int]]) -> None:
        self._numbers = numbers
        self._pairs: list[tuple[Any, int, Stream, Stream]] = []
        self._ended: list[Stream] = []  # which the host waits for, as forgotten ones cannot

    def let_in(self, backend: Any, index: int, stream: Stream) -> None:
        """A hook of the pass makes a stream current, which gets memory that the pass has freed."""
        for pair in self._pairs:
            if pair[:2] == (backend, index) and pair[3] == stream:
                _wait(backend, index, stream, pair[2])

    def __enter__(self) -> None:
        try:
            self._begin()
        except BaseException:  # as an interrupt, which may come anywhere
            self.__exit__()
            raise

    def _begin(self) -> None:
        with _lock:
            before = list(stretches)
            forgotten = dict(_forgotten)
        _passes.append(self)
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
                seqs = seqs if idle or seqs else list(self._numbers())
                if idle or stretch.covers(seqs):
                    others[stretch.stream] = others.get(stretch.stream, True) and idle
            old = forgotten.get((backend, index))
            if old is not None:
                seqs = seqs or list(self._numbers())
                if old.covers(seqs):
                    self._ended.append(here)
            for other, idle in others.items():
                self._pairs.append((backend, index, here, other))
                if not idle:
                    _wait(backend, index, here, other)

    def __exit__(self, *exc: object) -> None:
        try:
            self._end()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self in _passes:
            _passes.remove(self)
        for backend, index, here, other in self._pairs:
            _wait(backend, index, other, here)
        for here in self._ended:
            here.synchronize()


def usual_again(switches: list[tuple[Current, Stream, int | None]], count: int = 0) -> None:
    """Makes current again what was so before hooks made other streams so, for good: when there were
    so many of them.
    """
    while len(switches) > count:
        context, before, device = switches[-1]
        context.ends(before, device)
        switches.pop()


def _follow(backend: Any, index: int, stream: Stream, behind: Stream) -> None:
    """A stream goes on behind another, but for those of a graph, which who captures it joins."""
    if stream != behind and not (stream.is_capturing() or behind.is_capturing()):
        _wait(backend, index, stream, behind)


def _wait(backend: Any, index: int, stream: Stream, behind: Stream) -> None:
    with backend.use_device(index):
        event: Event = behind.record_event()
    stream.wait_event(event)
