"""What went through an offload: bytes, and the times of copies and of waiting for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...autograd.ranges import ranged

__all__ = ["Meter", "OffloadStats", "Times", "wait_for"]


@dataclass
class OffloadStats:
    """What went through an offload: counts of tensors, and bytes.

    Tensors that share memory count each in `saved_bytes`, and once in `unique_bytes`, which are the
    bytes of the storages that were to move. `kept` has the bytes that stayed, by reason: "leaf"
    (parameters and their views), "small", "filter", "alive" (on the device anyway, as the step
    before has shown), "last" (needed so soon that they would not have left), "host full", "disk
    full". `forwarded` bytes were used before they had left the device; `on_demand` bytes were asked
    for before they were on their way back. `already_on_host` bytes were in host memory and stayed
    there; `pageable_bytes` went to ordinary host memory, because page-locked memory, or the disk,
    had come to its limit; `disk_bytes` went to a file.
    """

    saved_tensors: int = 0
    saved_bytes: int = 0
    unique_bytes: int = 0
    moved_to_host_bytes: int = 0
    moved_back_bytes: int = 0
    forwarded: int = 0
    on_demand: int = 0
    already_on_host: int = 0
    pageable_bytes: int = 0
    disk_bytes: int = 0
    encoded_bytes: int = 0  # what codecs had to encode; `moved_*` count what they made of it
    kept: dict[str, int] = field(default_factory=dict)

    def reset(self) -> None:
        """Sets every count to zero."""
        self.__init__()  # type: ignore[misc]

    def keep(self, reason: str, nbytes: int) -> None:
        """Counts bytes that stay on the device."""
        self.kept[reason] = self.kept.get(reason, 0) + nbytes

    @property
    def copied_ratio(self) -> float:
        """Bytes copied out by bytes of unique storage that were to leave; 1.0 where none were."""
        stayed = sum([self.kept.get(why, 0) for why in ("alive", "last", "host full", "disk full")])
        nbytes = self.unique_bytes - stayed
        return self.moved_to_host_bytes / nbytes if nbytes else 1.0

    def as_dict(self) -> dict[str, Any]:
        """Every count by name, and `copied_ratio`."""
        counts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**counts, "kept": dict(self.kept), "copied_ratio": self.copied_ratio}


class Times(NamedTuple):
    """Seconds and bytes of one forward and backward pass.

    `forward` and `backward` leave out two things. One is the time in which the compute stream
    waited for copies: `stalled_forward`, `stalled_backward`, and `stalls` by op and sequence
    number. The other is the time of codecs. `raw_bytes` are the bytes that came back, counted
    without a codec. `out_rate` and `back_rate` are bytes/s of the link itself: of large copies,
    less what a small one takes.
    """

    forward: float
    backward: float
    stalled_forward: float
    stalled_backward: float
    out_bytes: int
    out_seconds: float
    back_bytes: int
    back_seconds: float
    coding_forward: float
    coding_backward: float
    raw_bytes: int
    out_rate: float
    back_rate: float
    stalls: dict[tuple[str, int], float]


def rate_of(copies: list[tuple[float, int]]) -> float:
    """Bytes/s of a link, of copies as (seconds, bytes): that of the largest copy, less what the
    quickest of half its size or less took, if there is one. 0.0 of no copies.

    >>> rate_of([(3.0, 100), (4.0, 200), (5.0, 200)])
    100.0
    """
    if not any(seconds > 0 for seconds, _ in copies):
        return 0.0
    large = max([n for _, n in copies])
    seconds = min([s for s, n in copies if n == large])
    least, small = min([c for c in copies if c[1] <= large / 2], default=(0.0, 0))
    if seconds <= least:
        least, small = 0.0, 0
    return (large - small) / (seconds - least)


def wait_for(stream: Any, event: Any) -> None:
    """Makes a stream wait; for what a store writes, of which no stream knows, the host waits."""
    with ranged("offload: stall", "stall", stream=stream):
        if hasattr(event, "on_disk"):
            event.synchronize()
        else:
            stream.wait_event(event)


class Meter:
    """Takes the times of one session, by events; answers when the device has got that far."""

    def __init__(self, backend: Any, compute: Any) -> None:
        self._backend, self._compute = backend, compute
        self.began = self.mark(compute)
        self.turned: Any = None  # the first unpack
        self.ended: Any = None  # the last one
        self.out: list[tuple[Any, Any, int]] = []
        self.back: list[tuple[Any, Any, int]] = []
        self.raw_bytes = 0  # of those, without a codec
        self.coding: list[tuple[Any, Any, int]] = []
        self.stalls: list[tuple[Any, Any, Any, bool]] = []
        self.unique_bytes = self.kept_bytes = 0
        self.resident = self.without = 0  # the most bytes seen on the device; without offload
        self.peak_before = self.peak = backend.max_memory_allocated()
        self.absent = self._away = 0  # bytes that were away at the peak; and at the last look

    def mark(self, stream: Any) -> Any:
        """A new event with the time of this point of a stream."""
        return stream.record_event(self._backend.event(timing=True))

    def look(self, away: int) -> None:
        """Looks at the device's memory, from which `away` bytes are away that are still wanted."""
        here, peak = self._backend.memory_allocated(), self._backend.max_memory_allocated()
        self.resident = max(self.resident, here)
        self.without = max(self.without, here + away)
        if peak > self.peak:  # since the last look
            self.peak, self.absent = peak, min(away, self._away)
        self._away = away

    def begin_backward(self, compute: Any) -> None:
        """Backward has asked for something."""
        if self.turned is None:
            self.turned = self.mark(compute)

    def end(self, compute: Any) -> None:
        """Backward has what it asked for; the last call counts."""
        if self.ended is None:
            self.ended = self.mark(compute)  # which is known once it is recorded
        else:
            compute.record_event(self.ended)

    def drop(self) -> None:
        """Forgets the times of this session, which was interrupted."""
        self.ended = None

    def wait(self, compute: Any, event: Any, label: Any) -> None:
        """Makes a stream wait for an event, and takes the time, if it is compute."""
        before = self.mark(compute) if compute == self._compute else None
        wait_for(compute, event)
        if before is not None:
            self.stalls.append((label, before, self.mark(compute), self.turned is not None))

    @contextmanager
    def codes(self, compute: Any, checks: bool = False) -> Iterator[None]:
        """Takes the time of what compute does for a codec; or to look at what that loses, which is
        no part of a step.
        """
        before = self.mark(compute)
        yield
        backward = self.turned is not None
        self.coding.append((before, self.mark(compute), backward + 2 * checks))

    def late(self) -> tuple[int, int] | None:
        """How many bytes too many were copied for the time that the ops took, in forward and in
        backward; negative where there was time for more. None: not yet known.
        """
        if self.ended is None or not self.ended.query():
            return None
        if not all(end.query() for _, end, _ in (*self.out[-1:], *self.back[-1:])):
            return None
        t = self.times()
        assert t is not None
        forward, backward = t.forward + t.coding_forward, t.backward + t.coding_backward
        return (
            int(t.out_bytes * (1 - forward / t.out_seconds)) if t.out_seconds else 0,
            int(t.back_bytes * (1 - backward / t.back_seconds)) if t.back_seconds else 0,
        )

    def times(self) -> Times | None:
        """The times, once backward has begun; waits for the device."""
        if self.ended is None:
            return None
        self.ended.synchronize()
        for _, end, _ in (*self.out[-1:], *self.back[-1:]):
            end.synchronize()
        by_op: dict[tuple[str, int], float] = {}
        stalled = [0.0, 0.0]
        for label, start, end, in_backward in self.stalls:
            seconds = start.elapsed_time(end) / 1e3
            stalled[in_backward] += seconds
            by_op[label] = by_op.get(label, 0.0) + seconds
        coding = [0.0] * 4  # in forward, in backward; and to look at it, in forward, in backward
        for start, end, kind in self.coding:
            coding[kind] += start.elapsed_time(end) / 1e3
        out, back = (
            [(start.elapsed_time(end) / 1e3, n) for start, end, n in copies]
            for copies in (self.out, self.back)
        )
        return Times(
            self.began.elapsed_time(self.turned) / 1e3 - stalled[0] - coding[0] - coding[2],
            self.turned.elapsed_time(self.ended) / 1e3 - stalled[1] - coding[1] - coding[3],
            stalled[0],
            stalled[1],
            sum([n for _, n in out]), sum([t for t, _ in out]),
            sum([n for _, n in back]), sum([t for t, _ in back]),
            coding[0], coding[1], self.raw_bytes, rate_of(out), rate_of(back),
            by_op,
        )  # fmt: skip
