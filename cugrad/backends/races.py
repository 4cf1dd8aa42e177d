"""Vector clocks over streams and the host, which find accesses to memory that nothing orders."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from ..errors import RaceError

__all__ = ["HOST", "Access", "Clock", "Clocks", "Shadow"]

Clock = dict[int, int]  # timeline -> how many of its operations are known to be finished

HOST = 0  # the timeline of the host: all of its threads, whose locks nobody here can see
MAX_SEGMENTS = 64


class Access(NamedTuple):
    """One operation's use of memory: which timeline, its how-manieth operation, and its name."""

    timeline: int
    tick: int
    name: str


class Shadow:
    """What last happened to each byte of one piece of memory.

    `segments` are lists [low, high, last write, reads since by timeline], in order, without gaps.
    """

    __slots__ = ("label", "size", "segments")

    def __init__(self, label: str, size: int) -> None:
        self.label, self.size = label, size
        self.segments: list[list[Any]] = [[0, size, None, {}]]

    def split(self, low: int, high: int) -> list[list[Any]]:
        """The segments of [low, high), cut at both ends."""
        segments = self.segments
        if len(segments) > MAX_SEGMENTS:
            self._merge()
            segments = self.segments
        for cut in (low, high):
            for i, (start, end, write, reads) in enumerate(segments):
                if start < cut < end:
                    segments[i][1] = cut
                    segments.insert(i + 1, [cut, end, write, dict(reads)])
                    break
        return [s for s in segments if s[0] < high and s[1] > low]

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
        found = {s[2] for s in self.segments if s[2] is not None}
        for segment in self.segments:
            found.update(segment[3].values())
        return sorted(found)


class Clocks:
    """The timelines of a device and of the host, and what each knows of the others."""

    def __init__(self) -> None:
        self.names = {HOST: "host"}
        self.known: dict[int, Clock] = {HOST: {HOST: 1}}
        self._host_version = 0
        self._seen_of_host: dict[int, int] = {}
        self.lock = threading.RLock()

    def timeline(self, name: str) -> int:
        """A new timeline; it begins knowing all that the host knows."""
        with self.lock:
            number = len(self.names)
            self.names[number] = name
            self.known[number] = dict(self.known[HOST])
            self.known[number][number] = 0
            self._seen_of_host[number] = self._host_version
            return number

    # order

    def begin(self, timeline: int, name: str) -> Access:
        """The next operation of a stream, launched by the host now."""
        clock = self.known[timeline]
        if self._seen_of_host[timeline] != self._host_version:
            join(clock, self.known[HOST])
            self._seen_of_host[timeline] = self._host_version
        tick = clock[timeline] = clock[timeline] + 1
        return Access(timeline, tick, name)

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
        clock[HOST] += 1
        self._host_version += 1
        return Access(HOST, clock[HOST], name)

    # memory

    def check(self, shadow: Shadow, low: int, high: int, access: Access, writes: bool) -> None:
        """Notes an access to bytes [low, high) of a memory; RaceError if another is unordered."""
        segments = shadow.segments
        if len(segments) > 1 or low > 0 or high < shadow.size:
            segments = shadow.split(low, high)
        elif writes and low <= 0:
            pass
        clock, mine = self.known[access[0]], access[0]
        for segment in segments:
            write, reads = segment[2], segment[3]
            if write is not None and write[0] != mine and clock.get(write[0], 0) < write[1]:
                raise self.race(shadow, segment, write, True, access, writes)
            if writes and reads:
                for read in reads.values():
                    if read[0] != mine and clock.get(read[0], 0) < read[1]:
                        raise self.race(shadow, segment, read, False, access, writes)
        if writes:
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
        found = shadow.accesses()
        return [a for a in found if a[0] != timeline and clock.get(a[0], 0) < a[1]]

    def race(
        self, shadow: Shadow, segment: list[Any], first: Access, wrote: bool,
        second: Access, writes: bool
    ) -> RaceError:  # fmt: skip
        """The error that names both operations, both timelines, and what is missing."""
        one, two = self.names[first.timeline], self.names[second.timeline]
        known = self.known[second.timeline].get(first.timeline, 0)
        if second.timeline == HOST:
            cure = f"the host must wait for an event recorded on '{one}' after '{first.name}'"
        elif first.timeline == HOST:
            cure = f"'{two}' must be given '{second.name}' after the host's '{first.name}'"
        else:
            cure = (
                f"an event recorded on '{one}' after '{first.name}', and waited for by '{two}' "
                f"before '{second.name}'"
            )
        if known and first.timeline != HOST:
            cure += (
                f" ('{two}' has waited for '{one}' only up to its operation {known}; "
                f"'{first.name}' is its operation {first.tick})"
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
