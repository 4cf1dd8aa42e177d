"""What a choice of placements does to a step: its time and its memory, event by event."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np

from .step import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["Forecast", "Forecaster", "at_once"]

BESIDE = 1e-3  # of its seconds, that a copy costs though ops run beside it: memory serves both
NEVER = -2  # stands for the last event that uses a value, if none does


@dataclass(frozen=True)
class Forecast:
    """A step as it is expected to be: seconds in all, and bytes at each event."""

    seconds: float
    peak: int
    memory: Any  # bytes in use, by event
    stalls: list[float]  # seconds that each event waits for copies
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
        self.born = [v.born for v in values]
        self.dies = [v.dies for v in values]
        self.inputs = [v.inputs for v in values]
        self.seconds = [e.seconds for e in step.events]
        self.base = np.array([e.base for e in step.events], np.int64)
        reads: list[list[int]] = [[] for _ in range(n)]  # by event of backward
        self.dependents: list[list[int]] = [[] for _ in values]
        self.born_in: list[list[int]] = [[] for _ in range(n)]
        for i, v in enumerate(values):
            for e in v.uses:
                reads[e].append(i)
            for j in v.inputs:
                self.dependents[j].append(i)
            if v.born >= 0:
                self.born_in[v.born].append(i)
        self.reads = [(e, i) for e in range(n) for i in reads[e]]
        self.held = [v.held for v in values]
        self.last_use = [v.uses[-1] if v.uses else NEVER for v in values]
        self.by_birth = sorted(range(len(values)), key=self.born.__getitem__)
        lowest = int(self.base[: step.forward].min()) if step.forward else 0
        self.room = [(max(0, e.base - lowest) if e.room is None else e.room) + e.comes
                     for e in step.events]  # fmt: skip
        born = np.maximum(np.array(self.born, np.int64), 0)
        dies = np.array(self.dies, np.int64)
        self.forward_memory = _summed(n, born, dies, np.array(self.nbytes, np.int64))
        self.own = [e.own for e in step.events]
        memory = self.base + self.forward_memory
        self.change: list[int] = [
            *np.diff(memory, prepend=0).tolist(),
            0,
        ]  # by event, of what stays

    def ends(self, placements: Sequence[str]) -> list[int]:
        """The last event that wants each value: itself, or what is made of it again."""
        ends, inputs = list(self.last_use), self.inputs
        for j in range(len(ends) - 1, -1, -1):
            end = ends[j]
            if end >= 0 and placements[j] == RECOMPUTE:
                for i in inputs[j]:
                    if ends[i] < end:
                        ends[i] = end
        return ends

    def lowest(self, can: Sequence[frozenset[str] | set[str]]) -> int:
        """Bytes that no choice of placements has its peak below, if each value has one of those it
        `can` have: what is read is there, and so is what may only stay.
        """
        there = [(e, e, self.nbytes[i]) for e, i in {*self.reads}
                 if self.dies[i] < e and can[i] != {KEEP}]  # fmt: skip
        for i, places in enumerate(can):
            end = max(self.last_use[i], self.held[i])
            if places == {KEEP} and end > self.dies[i]:
                there.append((self.dies[i] + 1, end, self.nbytes[i]))
        memory = self.base + self.forward_memory
        if there:
            memory = memory + _summed(len(memory), *np.array(there, np.int64).T)
        return int(memory.max(initial=0))

    def __call__(self, placements: Sequence[str]) -> Forecast:
        """The forecast for one placement of each value."""
        return _Walk(self, placements).forecast()

    @staticmethod
    def tight(step: Step, placements: Sequence[str]) -> Forecast:
        """The forecast where copies take no time and nothing comes back ahead: the least memory."""
        return Forecaster(at_once(step))(placements)


def at_once(step: Step) -> Step:
    """The same step where copies take no time, and nothing comes back ahead of need."""
    return replace(
        step, out_rate=inf, in_rate=inf, disk_out_rate=inf, disk_in_rate=inf, lookahead=0,
        backlog=0,
    )  # fmt: skip


def _summed(n: int, first: Any, last: Any, nbytes: Any) -> Any:
    """Bytes by event of intervals, both of whose ends count."""
    change = np.bincount(first, nbytes, n + 1) - np.bincount(last + 1, nbytes, n + 1)
    return np.cumsum(change[:-1]).astype(np.int64)  # exact: all sums are below 2**53


class _Walk:
    """One forecast on its way."""

    def __init__(self, of: Forecaster, placements: Sequence[str]) -> None:
        self.of, self.placements, self.step = of, placements, of.step
        self.ends = of.ends(placements)
        self.change = [*of.change]  # of the bytes in use, by event
        self.extra: dict[int, int] = {}  # bytes that events need for a moment, in recomputations
        self.again: dict[int, float] = {}  # seconds of recomputations by event
        self.stalls = [0.0] * len(of.seconds)
        self.fetches: list[tuple[int, int]] = []  # (event, value), as they are asked for
        self.known: set[int] = set()  # values on their way back
        self.until = [NEVER] * len(of.nbytes)  # the last event that recomputed values stay for

    def forecast(self) -> Forecast:
        of, step, placements, ends = self.of, self.step, self.placements, self.ends
        nbytes, dies, held, change = of.nbytes, of.dies, of.held, self.change
        sent = [i for i in of.by_birth
                if placements[i] in (OFFLOAD, DISK) and ends[i] >= 0]  # fmt: skip
        for i, place in enumerate(placements):
            if place == KEEP:
                end = ends[i] if ends[i] > held[i] else held[i]
                if end > dies[i]:
                    change[dies[i] + 1] += nbytes[i]
                    change[end + 1] -= nbytes[i]
            elif place == COMPRESS and ends[i] > dies[i]:
                v = step.values[i]
                stored = (v.stored or {}).get(COMPRESS, v.nbytes)
                self._add(max(v.born, 0), max(ends[i], v.held), stored)
                self._spend(max(v.born, 0), v.codec_seconds)
        for e, i in of.reads:
            place = placements[i]
            if place == KEEP:
                continue
            if place == RECOMPUTE:
                if self.until[i] < e:
                    self._make(e, i)
            elif place == COMPRESS:
                self._add(e, e, nbytes[i])
                self._spend(e, step.values[i].codec_seconds)
            else:
                self._fetch(e, i)
        seconds = self._timed(sent)
        for e, more in self.extra.items():
            self._add(e, e, more)
        memory = np.array(change[:-1], np.int64).cumsum()
        out, back = sum([nbytes[i] for i in sent]), sum([nbytes[i] for _, i in self.fetches])
        return Forecast(
            seconds + BESIDE * (out / step.out_rate + back / step.in_rate),
            int(memory.max()) if len(memory) else 0, memory, self.stalls,
            sum([self.again[e] for e in sorted(self.again)]), out, back,
        )  # fmt: skip

    def _add(self, first: int, last: int, nbytes: int) -> None:
        """So many bytes are in use from one event to another one, in both, too."""
        self.change[first] += nbytes
        self.change[last + 1] -= nbytes

    def _spend(self, e: int, seconds: float) -> None:
        self.again[e] = self.again.get(e, 0.0) + seconds

    # ------------------------------------------------------------------ what backward asks for

    def _fetch(self, e: int, i: int) -> None:
        if i not in self.known:
            self.known.add(i)
            self.fetches.append((e, i))

    def _make(self, e: int, target: int) -> None:
        """The ops that lead to a value run again, each once; what will be read itself stays."""
        of, placements, until = self.of, self.placements, self.until
        born, inputs, nbytes, last_use = of.born, of.inputs, of.nbytes, of.last_use
        ops: set[int] = set()
        readers: dict[int, int] = {}
        decode: set[int] = set()
        loose: set[int] = set()  # what is there only while this lasts
        stack = [target]
        while stack:
            i = stack.pop()
            if born[i] in ops:
                continue
            ops.add(born[i])
            for j in inputs[i]:
                readers[j] = readers.get(j, 0) + 1
                place = placements[j]
                if place == RECOMPUTE:
                    if until[j] < e:
                        stack.append(j)
                elif place == COMPRESS:
                    decode.add(j)
                elif place != KEEP:
                    self._fetch(e, j)
        now = most = stays = 0
        spent = self.again.get(e, 0.0)
        for op in sorted(ops) if len(ops) > 1 else ops:
            spent += of.seconds[op]
            outputs = of.born_in[op]
            read = inputs[outputs[0]]
            if decode:
                for j in read:
                    if j in decode:
                        decode.remove(j)
                        loose.add(j)
                        now += nbytes[j]
                        spent += self.step.values[j].codec_seconds
            for i in outputs:
                if i not in loose:
                    now += nbytes[i]
            if now + of.room[op] > most:
                most = now + of.room[op]
            for i in outputs:
                if last_use[i] >= e and placements[i] == RECOMPUTE and until[i] < e:
                    until[i] = last_use[i]
                    self.change[e] += nbytes[i]
                    self.change[last_use[i] + 1] -= nbytes[i]
                    stays += nbytes[i]
                elif readers.get(i):
                    loose.add(i)
                    decode.discard(i)
                else:
                    now -= nbytes[i]
            for j in read:
                readers[j] -= 1
                if j in loose and readers[j] == 0:
                    now -= nbytes[j]
        self.again[e] = spent
        more = most - stays - of.own[e]  # which comes later
        if more > self.extra.get(e, 0):
            self.extra[e] = more

    # ------------------------------------------------------------------ when it comes

    def _timed(self, sent: list[int]) -> float:
        """The seconds of the step; copies out and back go by in order, and make events wait."""
        of, seconds = self.of, [*self.of.seconds]
        for e, more in self.again.items():
            seconds[e] += more
        clock = list(accumulate(seconds, initial=0.0))
        if not sent:
            return clock[-1]
        left, delay = self._leave(sent, clock)
        asked, delay = self._return(left, clock, delay)
        starts = clock[:-1]
        if delay:
            starts = [a + b for a, b in zip(starts, accumulate(self.stalls, initial=0.0))]
        for i in sent:
            at = bisect_left(starts, left[i])
            last = (at if at < asked[i] else asked[i]) - 1
            if last > of.dies[i]:
                self._add(of.dies[i] + 1, last, of.nbytes[i])
        return clock[-1] + delay

    def _leave(self, sent: list[int], clock: list[float]) -> tuple[dict[int, float], float]:
        """When each value has left, and how long compute has waited for that."""
        of, step, placements, nbytes = self.of, self.step, self.placements, self.of.nbytes
        born, backlog, delay = of.born, step.backlog, 0.0
        left: dict[int, float] = {}
        free = {OFFLOAD: 0.0, DISK: 0.0}  # when a link's last copy has ended
        away = {OFFLOAD: 0, DISK: 0}  # bytes on their way
        queues: dict[str, deque[int]] = {OFFLOAD: deque(), DISK: deque()}
        for i in sent:
            place = placements[i]
            queue, begins = queues[place], free[place]
            now = clock[born[i] + 1] + delay
            rate = step.out_rate if place == OFFLOAD else step.disk_out_rate
            left[i] = free[place] = (begins if begins > now else now) + nbytes[i] / rate
            queue.append(i)
            under_way = away[place] + nbytes[i]
            while under_way > backlog and len(queue) > 1:
                oldest = queue.popleft()
                under_way -= nbytes[oldest]
                if left[oldest] > now:
                    self.stalls[max(born[i], 0)] += left[oldest] - now
                    delay += left[oldest] - now
                    now = left[oldest]
            away[place] = under_way
        return left, delay

    def _return(
        self, left: dict[int, float], clock: list[float], delay: float
    ) -> tuple[dict[int, int], float]:
        """Brings back what is asked for: in which event, and how long compute waits in all."""
        of, step, placements, nbytes = self.of, self.step, self.placements, self.of.nbytes
        fetches, lookahead, stalls, change = self.fetches, step.lookahead, self.stalls, self.change
        k = ahead = at = 0  # asked for; bytes on their way or waiting; read
        free = disk_free = 0.0
        arrives: list[float] = []
        asked: dict[int, int] = {}
        e, count, now = fetches[0][0] if fetches else step.forward, len(fetches), 0.0

        def ask() -> None:
            nonlocal k, ahead, free, disk_free
            i = fetches[k][1]
            size, first, arrived = nbytes[i], e, 0.0
            if left[i] > now:  # it has not left: it stays
                first = of.dies[i] + 1
            elif placements[i] == OFFLOAD:
                arrived = free = (free if free > now else now) + size / step.in_rate
            else:
                arrived = disk_free = (
                    disk_free if disk_free > now else now
                ) + size / step.disk_in_rate
            asked[i] = first
            arrives.append(arrived)
            change[first] += size
            change[self.ends[i] + 1] -= size
            ahead += size
            k += 1

        while at < count:
            now = clock[e] + delay
            while k < count and ahead < lookahead:
                ask()
            while at < count and fetches[at][0] == e:
                if k == at:
                    ask()
                if arrives[at] > now:
                    stalls[e] += arrives[at] - now
                    delay += arrives[at] - now
                    now = arrives[at]
                ahead -= nbytes[fetches[at][1]]
                at += 1
            while k < count and ahead < lookahead:
                ask()
            if at < count:
                e = fetches[at][0]
        return asked, delay
