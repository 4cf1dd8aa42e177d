"""What a choice of placements does to a step: its time and its memory, event by event."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .step import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["Forecast", "Forecaster"]

BESIDE = 1e-3  # of its seconds, that a copy costs though ops run beside it: memory serves both
NEVER = -2  # the event in which nobody wants a value any more, where nobody ever does


@dataclass(frozen=True)
class Forecast:
    """A step as it is expected to be: seconds in all, and bytes at each event."""

    seconds: float
    peak: int
    memory: Any  # bytes in use, by event
    stalls: Any  # seconds that each event waits for copies
    recompute_seconds: float
    out_bytes: int
    in_bytes: int

    @property
    def at(self) -> int:
        """The event of the peak."""
        return int(np.argmax(self.memory))


class Forecaster:
    """Answers for one step, again and again; what depends on no placement is worked out once."""

    def __init__(self, step: Step) -> None:
        self.step, values, n = step, step.values, len(step.events)
        self.nbytes = [v.nbytes for v in values]
        self.seconds = [e.seconds for e in step.events]
        self.base = np.array([e.base for e in step.events], np.int64)
        self.reads: list[list[int]] = [[] for _ in range(n)]  # by event of backward
        self.dependents: list[list[int]] = [[] for _ in values]
        self.born_in: list[list[int]] = [[] for _ in range(n)]
        for i, v in enumerate(values):
            for e in v.uses:
                self.reads[e].append(i)
            for j in v.inputs:
                self.dependents[j].append(i)
            if v.born >= 0:
                self.born_in[v.born].append(i)
        self.last_use = [v.uses[-1] if v.uses else NEVER for v in values]
        lowest = int(self.base[: step.forward].min()) if step.forward else 0
        self.room = [max(0, e.base - lowest) for e in step.events]  # what an op itself needs
        born = np.array([max(v.born, 0) for v in values], np.int64)
        dies = np.array([v.dies for v in values], np.int64)
        self.forward_memory = _summed(n, born, dies, np.array(self.nbytes, np.int64))

    def ends(self, placements: Sequence[str]) -> list[int]:
        """The last event that wants each value: itself, or what is made of it again."""
        ends = list(self.last_use)
        for i in range(len(ends) - 1, -1, -1):
            for j in self.dependents[i]:
                if placements[j] == RECOMPUTE and ends[j] > ends[i]:
                    ends[i] = ends[j]
        return ends

    def __call__(self, placements: Sequence[str]) -> Forecast:
        """The forecast for one placement of each value."""
        return _Walk(self, placements).forecast()


def _summed(n: int, first: Any, last: Any, nbytes: Any) -> Any:
    """Bytes by event of intervals, both of whose ends count."""
    change = np.zeros(n + 1, np.int64)
    np.add.at(change, first, nbytes)
    np.add.at(change, last + 1, -nbytes)
    return np.cumsum(change[:-1])


class _Walk:
    """One forecast on its way."""

    def __init__(self, of: Forecaster, placements: Sequence[str]) -> None:
        self.of, self.placements, self.step = of, placements, of.step
        n = len(of.seconds)
        self.ends = of.ends(placements)
        self.extra = [0] * n  # bytes that an event needs for a moment, in recomputations
        self.again = [0.0] * n  # seconds of recomputations
        self.fetches: list[tuple[int, int]] = []  # (event, value), as they are asked for
        self.known: set[int] = set()  # values on their way back
        self.until: dict[int, int] = {}  # recomputed values, and the last event they stay for
        self.intervals: list[tuple[int, int, int]] = []  # (first, last, bytes)

    def forecast(self) -> Forecast:
        of, step, placements = self.of, self.step, self.placements
        values, n = step.values, len(of.seconds)
        for i, place in enumerate(placements):
            v, end = values[i], self.ends[i]
            if end > v.dies:
                if place == KEEP:
                    self.intervals.append((max(v.dies + 1, 0), end, v.nbytes))
                elif place == COMPRESS:
                    stored = (v.stored or {}).get(COMPRESS, v.nbytes)
                    self.intervals.append((max(v.born, 0), end, stored))
                    self.again[max(v.born, 0)] += v.codec_seconds
        for e in range(step.forward, n):
            for i in of.reads[e]:
                self._read(e, i)
        stalls, total = self._timed()
        memory = of.base + of.forward_memory + np.array(self.extra, np.int64)
        if self.intervals:
            first, last, nbytes = np.array(self.intervals, np.int64).T
            memory += _summed(n, first, last, nbytes)
        out = sum([v.nbytes for v, p in zip(values, placements) if p in (OFFLOAD, DISK)])
        back = sum([of.nbytes[i] for _, i in self.fetches])
        return Forecast(
            total + BESIDE * (out / step.out_rate + back / step.in_rate),
            int(memory.max()) if n else 0, memory, stalls, sum(self.again), out, back,
        )

    # ------------------------------------------------------------------ what backward asks for

    def _read(self, e: int, i: int) -> None:
        """An event reads a value."""
        place = self.placements[i]
        if place in (OFFLOAD, DISK):
            self._fetch(e, i)
        elif place == COMPRESS:
            self.extra[e] += self.of.nbytes[i]
            self.again[e] += self.step.values[i].codec_seconds
        elif place == RECOMPUTE and self.until.get(i, NEVER) < e:
            self._make(e, i)

    def _fetch(self, e: int, i: int) -> None:
        if i not in self.known:
            self.known.add(i)
            self.fetches.append((e, i))

    def _make(self, e: int, wanted: int) -> None:
        """The ops that lead to a value run again, each once; what will be read itself stays."""
        of, values, placements, until = self.of, self.step.values, self.placements, self.until
        ops: dict[int, None] = {}
        readers: dict[int, int] = {}
        decoded = 0
        stack = [wanted]
        while stack:
            i = stack.pop()
            born = values[i].born
            if born in ops:
                continue
            ops[born] = None
            for j in values[i].inputs:
                readers[j] = readers.get(j, 0) + 1
                place = placements[j]
                if place == RECOMPUTE:
                    if until.get(j, NEVER) < e:
                        stack.append(j)
                elif place in (OFFLOAD, DISK):
                    self._fetch(e, j)
                elif place == COMPRESS:
                    decoded = max(decoded, of.nbytes[j])
        now = most = stays = 0
        for born in sorted(ops):
            self.again[e] += of.seconds[born]
            made = of.born_in[born]
            now += sum([of.nbytes[i] for i in made])
            most = max(most, now + of.room[born])
            for i in made:
                last = of.last_use[i]
                if placements[i] == RECOMPUTE and last >= e and until.get(i, NEVER) < e:
                    until[i] = last
                    self.intervals.append((e, last, of.nbytes[i]))
                    stays += of.nbytes[i]
                elif not readers.get(i):
                    now -= of.nbytes[i]
            for j in values[made[0]].inputs:
                readers[j] = left = readers.get(j, 1) - 1
                if left == 0 and values[j].born in ops and until.get(j, NEVER) < e:
                    now -= of.nbytes[j]
        self.extra[e] = max(self.extra[e], most + decoded - stays)

    # ------------------------------------------------------------------ when it comes

    def _timed(self) -> tuple[Any, float]:
        """Stalls by event, and the seconds of the step; copies out and back go by in order."""
        of, step, placements = self.of, self.step, self.placements
        n, nbytes, values = len(of.seconds), of.nbytes, step.values
        stalls = np.zeros(n)
        now = out_free = disk_free = 0.0
        leaving: deque[tuple[float, int]] = deque()  # (when it has left, value)
        left: dict[int, float] = {}
        away = 0  # bytes on their way out

        def gone(at: int) -> None:
            nonlocal away
            while leaving and leaving[0][0] <= now:
                i = leaving.popleft()[1]
                away -= nbytes[i]
                if at > values[i].dies + 1:
                    self.intervals.append((max(values[i].dies + 1, 0), at - 1, nbytes[i]))

        for e in range(step.forward):
            gone(e)
            now += of.seconds[e] + self.again[e]
            for i in of.born_in[e]:
                place = placements[i]
                if place not in (OFFLOAD, DISK) or self.ends[i] < 0:
                    continue
                if place == OFFLOAD:
                    out_free = max(out_free, now) + nbytes[i] / step.out_rate
                    left[i] = out_free
                else:
                    disk_free = max(disk_free, now) + nbytes[i] / step.disk_out_rate
                    left[i] = disk_free
                leaving.append((left[i], i))
                away += nbytes[i]
                while away > step.backlog and len(leaving) > 1:
                    if leaving[0][0] > now:
                        stalls[e] += leaving[0][0] - now
                        now = leaving[0][0]
                    gone(e + 1)
        still = {i: None for _, i in leaving}  # used from where it is, if that is soon
        fetches, k, ahead, in_free, disk_in = self.fetches, 0, 0, 0.0, 0.0
        arrived: dict[int, float] = {}
        asked: set[int] = set()
        by_event: dict[int, list[int]] = {}
        for e, i in fetches:
            by_event.setdefault(e, []).append(i)

        def begin(e: int) -> None:
            """Starts copies back as far as the look-ahead goes."""
            nonlocal k, ahead, in_free, disk_in
            while k < len(fetches) and ahead < step.lookahead:
                fetch(e, fetches[k][1])
                ahead += nbytes[fetches[k][1]]
                k += 1

        def fetch(e: int, i: int) -> None:
            nonlocal in_free, disk_in
            asked.add(i)
            end = self.ends[i]
            if i in still and left[i] > now:  # it has not left: it stays
                arrived[i] = 0.0
                self.intervals.append((max(values[i].dies + 1, 0), end, nbytes[i]))
                still.pop(i)
                for entry in leaving:
                    if entry[1] == i:
                        leaving.remove(entry)
                        break
                return
            if placements[i] == OFFLOAD:
                in_free = max(in_free, now, left.get(i, 0.0)) + nbytes[i] / step.in_rate
                arrived[i] = in_free
            else:
                disk_in = max(disk_in, now, left.get(i, 0.0)) + nbytes[i] / step.disk_in_rate
                arrived[i] = disk_in
            self.intervals.append((e, end, nbytes[i]))

        for e in range(step.forward, n):
            gone(e)
            wanted = by_event.get(e, ())
            if e == step.forward or wanted:
                begin(e)
            for i in wanted:
                if i not in asked:
                    fetch(e, i)
                    ahead += nbytes[i]
                    while k < len(fetches) and fetches[k][1] in asked:
                        k += 1
                if arrived[i] > now:
                    stalls[e] += arrived[i] - now
                    now = arrived[i]
                ahead -= nbytes[i]
            if wanted:
                begin(e)
            now += of.seconds[e] + self.again[e]
        return stalls, now
