"""Vector clocks over streams and the host, which find accesses to memory that nothing orders."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_right
from collections import deque
from operator import itemgetter
from typing import Any, NamedTuple

from ...errors import RaceError

__all__ = ["HOST", "Access", "Clock", "Clocks", "Shadow"]

Clock = dict[int, int]  # timeline -> its last operation that is known to be finished

HOST = 0  # the timeline of the host: all of its threads, whose locks are not visible here
MAX_SEGMENTS = 64
_low = itemgetter(0)


class Access(NamedTuple):
    """One operation's use of memory: its timeline, its number among all operations, its name."""

    timeline: int
    tick: int
    name: str


class Shadow:
    """What last happened to each byte of one piece of memory.

    `segments` are lists [low, high, last write, reads since by timeline], in order, without gaps.
    """

    __slots__ = ("label", "size", "segments", "limit")

    def __init__(self, label: str, size: int) -> None:
        self.label, self.size = label, size
        self.segments: list[list[Any]] = [[0, size, None, {}]]
        self.limit = MAX_SEGMENTS

    def split(self, low: int, high: int) -> list[list[Any]]:
        """The segments of [low, high), cut at both ends."""
        if len(self.segments) > self.limit:
            self._merge()
            self.limit = max(MAX_SEGMENTS, 2 * len(self.segments))
        segments = self.segments
        first, last = self._cut(low), self._cut(high)
        return segments[first:last]

    def _cut(self, at: int) -> int:
        """Makes a segment begin at a byte; its index."""
        segments = self.segments
        if at >= self.size:
            return len(segments)
        i = bisect_right(segments, at, key=_low) - 1
        if i < 0 or segments[i][0] == at:
            return max(i, 0)
        _, end, write, reads = segments[i]
        segments[i][1] = at
        segments.insert(i + 1, [at, end, write, dict(reads)])
        return i + 1

    def _merge(self) -> None:
        """Joins neighbours of the same history."""
        kept = [self.segments[0]]
        for segment in self.segments[1:]:
            if segment[2] == kept[-1][2] and segment[3] == kept[-1][3]:
                kept[-1][1] = segment[1]
            else:
                kept.append(segment)
        self.segments = kept

    def accesses(self) -> list[Access]:
        """Every access that is still remembered."""
        accesses = {s[2] for s in self.segments if s[2] is not None}
        for segment in self.segments:
            accesses.update(segment[3].values())
        return sorted(accesses)


class Clocks:
    """The timelines of a device and of the host, and what each knows of the others."""

    def __init__(self) -> None:
        self.names = {HOST: "host"}
        self.known: dict[int, Clock] = {HOST: {HOST: 1}}
        self.floor = 0  # every operation up to this one has been waited for by the host
        self._ticks = itertools.count(2)
        self._last = 1
        self._numbers = itertools.count(1)
        self._host_version = 0
        self._seen_of_host: dict[int, int] = {}
        self._retired: deque[int] = deque()
        self.lock = threading.RLock()

    def timeline(self, name: str) -> int:
        """A new timeline; it begins knowing all that the host knows."""
        with self.lock:
            self._forget()
            number = next(self._numbers)
            self.names[number] = name
            self.known[number] = {**self.known[HOST], number: 0}
            self._seen_of_host[number] = self._host_version
            return number

    def retire(self, timeline: int) -> None:
        """A stream is gone. Takes no lock: a destructor may call this anywhere."""
        self._retired.append(timeline)

    def all_is_finished(self) -> None:
        """The host has waited for the whole device: what was until now is in order with all."""
        self.floor = self._last
        self._forget()
        for timeline in self.known:
            self.known[timeline] = {timeline: self.floor}
        self._host_version += 1

    def _forget(self) -> None:
        """Lets go of what streams knew that are gone: no work is queued on them any more."""
        while self._retired:
            gone = self._retired.popleft()
            for table in (self.known, self.names, self._seen_of_host):
                table.pop(gone, None)

    # order

    def begin(self, timeline: int, name: str) -> Access:
        """The next operation of a stream, launched by the host now."""
        clock = self.known[timeline]
        if self._seen_of_host[timeline] != self._host_version:
            join(clock, self.known[HOST])
            self._seen_of_host[timeline] = self._host_version
        self._last = clock[timeline] = next(self._ticks)
        return Access(timeline, self._last, name)

    def snapshot(self, timeline: int) -> Clock:
        """What is finished when the stream reaches its present end: the clock of an event."""
        clock = self.known[timeline]
        if self._seen_of_host[timeline] != self._host_version:
            join(clock, self.known[HOST])
            self._seen_of_host[timeline] = self._host_version
        return dict(clock)

    def wait(self, timeline: int, clock: Clock) -> None:
        """Work queued on a stream from now on comes after `clock`."""
        join(self.known[timeline], clock)

    def host_waits(self, clock: Clock) -> None:
        """The host has seen that all of `clock` is finished."""
        if join(self.known[HOST], clock):
            self._host_version += 1

    def host_access(self, name: str) -> Access:
        """An access by the host, now."""
        clock = self.known[HOST]
        self._last = clock[HOST] = next(self._ticks)
        self._host_version += 1
        return Access(HOST, self._last, name)

    # memory

    def check(self, shadow: Shadow, low: int, high: int, access: Access, writes: bool) -> None:
        """Notes an access to bytes [low, high) of a memory; RaceError if another is unordered."""
        segments = shadow.segments
        if low > 0 or high < shadow.size:
            segments = shadow.split(low, high)
        clock, mine, floor = self.known[access[0]], access[0], self.floor
        for segment in segments:
            write, reads = segment[2], segment[3]
            if write is not None and write[0] != mine:
                if write[1] > floor and clock.get(write[0], 0) < write[1]:
                    raise self.race(shadow, segment, write, True, access, writes)
            if writes and reads:
                for read in reads.values():
                    if read[1] <= floor or read[0] == mine:
                        continue
                    if clock.get(read[0], 0) < read[1]:
                        raise self.race(shadow, segment, read, False, access, writes)
        if writes and segments is shadow.segments:  # all of it has one history now
            segments[:] = [[0, shadow.size, access, {}]]
        elif writes:
            for segment in segments:
                segment[2] = access
                if segment[3]:
                    segment[3] = {}
        else:
            for segment in segments:
                segment[3][mine] = access

    def unordered(self, shadow: Shadow, timeline: int) -> list[Access]:
        """The accesses to a memory that a timeline does not know to be finished."""
        clock = self.known[timeline]
        accesses = [a for a in shadow.accesses() if a[0] != timeline and a[1] > self.floor]
        return [a for a in accesses if clock.get(a[0], 0) < a[1]]

    def race(
        self, shadow: Shadow, segment: list[Any], first: Access, wrote: bool,
        second: Access, writes: bool
    ) -> RaceError:  # fmt: skip
        """The error that names both operations, both timelines, and what is missing."""
        one = self.names.get(first.timeline, "a stream that is gone")
        two = self.names[second.timeline]
        tick = self.known[second.timeline].get(first.timeline, 0)
        if second.timeline == HOST:
            cure = f"the host must wait for an event recorded on '{one}' after '{first.name}'"
        elif first.timeline == HOST:
            cure = f"'{two}' must be given '{second.name}' after the host's '{first.name}'"
        else:
            cure = (
                f"an event recorded on '{one}' after '{first.name}', and waited for by '{two}' "
                f"before '{second.name}'"
            )
        if tick and first.timeline != HOST:
            cure += (
                f" ('{two}' has waited for '{one}' only up to operation {tick}; "
                f"'{first.name}' is operation {first.tick})"
            )
        text = (
            f"race: '{second.name}' on '{two}' {'writes' if writes else 'reads'} bytes "
            f"{segment[0]}:{segment[1]} of {shadow.label}, which '{first.name}' on '{one}' "
            f"{'writes' if wrote else 'reads'}, and nothing orders the two; missing: {cure}"
        )
        return RaceError(text, first.name, one, second.name, two, cure)


def join(clock: Clock, other: Clock) -> bool:
    """Makes a clock know what another knows; whether that was news."""
    news = False
    for timeline, tick in other.items():
        if clock.get(timeline, 0) < tick:
            clock[timeline] = tick
            news = True
    return news
