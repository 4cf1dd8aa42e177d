"""A step under a choice of placements, walked event by event: slow, and as the words say it."""

from __future__ import annotations

from collections.abc import Sequence

from cugrad.memory.budgeting.planning import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["walk"]


class _Machine:
    """What is where, while events go by."""

    def __init__(self, step: Step, placements: Sequence[str]) -> None:
        self.step, self.place = step, placements
        self.values = step.values
        self.memory = [e.base for e in step.events]
        self.extra = [0] * len(step.events)
        self.now = 0.0
        self.made: set[int] = set()  # values that were made again, and are there
        self.queued: list[int] = []  # on their way out, or arrived there, as sent
        self.left: dict[int, float] = {}
        self.arrives: dict[int, float] = {}
        self.ahead = 0
        self.free = dict.fromkeys(["out", "in", "disk out", "disk in"], 0.0)

    def wanted_until(self, i: int) -> int:
        """The last event that needs value i: itself, or to make others of it."""
        found = max(self.values[i].uses, default=-1)
        for j, v in enumerate(self.values):
            if i in v.inputs and self.place[j] == RECOMPUTE:
                found = max(found, self.wanted_until(j))
        return found

    def kept_until(self, i: int) -> int:
        """The same, or for which a graph holds it."""
        until = self.wanted_until(i)
        return max(until, self.values[i].held) if until > self.values[i].dies else until

    def copy(self, link: str, ready: float, i: int) -> float:
        """When a copy ends that may begin once it is ready and the one before is over."""
        rate = {
            "out": self.step.out_rate,
            "in": self.step.in_rate,
            "disk out": self.step.disk_out_rate,
            "disk in": self.step.disk_in_rate,
        }[link]
        self.free[link] = max(self.free[link], ready) + self.values[i].nbytes / rate
        return self.free[link]

    def link(self, i: int, way: str) -> str:
        return way if self.place[i] == OFFLOAD else "disk " + way

    # ---- forward

    def send(self, e: int) -> None:
        """After an op: what it made and does not stay begins to leave."""
        for i, v in enumerate(self.values):
            if v.born == e and self.place[i] in (OFFLOAD, DISK) and self.wanted_until(i) >= 0:
                self.left[i] = self.copy(self.link(i, "out"), self.now, i)
                self.queued.append(i)
                while True:
                    under_way = [j for j in self.queued if self.place[j] == self.place[i]
                                 and self.left[j] > self.now]  # fmt: skip
                    total = sum(self.values[j].nbytes for j in under_way)
                    if total <= self.step.backlog or len(under_way) < 2:
                        break
                    self.now = self.left[under_way[0]]

    # ---- backward

    def away(self, i: int) -> bool:
        return self.place[i] in (OFFLOAD, DISK)

    def asked(self) -> list[tuple[int, int]]:
        """What is fetched, in order: (event, value); and what recomputations do to each event."""
        order: list[tuple[int, int]] = []

        def fetch(e: int, i: int) -> None:
            if i not in [j for _, j in order]:
                order.append((e, i))

        for e in range(self.step.forward, len(self.step.events)):
            decoded = 0
            for i, v in enumerate(self.values):
                if e not in v.uses:
                    continue
                if self.away(i):
                    fetch(e, i)
                elif self.place[i] == COMPRESS:
                    decoded += v.nbytes
                    self.again[e] += v.codec_seconds
                elif self.place[i] == RECOMPUTE and i not in self.made:
                    for j in self.make(e, i):
                        fetch(e, j)
            for i in list(self.made):
                self.memory[e] += self.values[i].nbytes
                if max(self.values[i].uses) <= e:
                    self.made.remove(i)
            self.memory[e] += decoded
        return order

    def make(self, e: int, wanted: int) -> list[int]:
        """A recomputation; answers what it reads that is away."""
        values, place = self.values, self.place
        ops: list[int] = []
        reads: list[int] = []
        todo = [wanted]
        while todo:
            op = values[todo.pop()].born
            if op in ops:
                continue
            ops.append(op)
            inputs = next(v for v in values if v.born == op).inputs
            for j in inputs:
                if place[j] == RECOMPUTE and j not in self.made:
                    todo.append(j)
                if self.away(j) and j not in reads:
                    reads.append(j)
        ops.sort()

        def still_read(i: int, after: int) -> bool:
            return any(v.born in ops and v.born > after and i in v.inputs for v in values)

        here: set[int] = set()
        stay: set[int] = set()
        most = 0
        least = min(event.base for event in self.step.events[: self.step.forward])
        for op in ops:
            self.again[e] += self.step.events[op].seconds
            first = next(v for v in values if v.born == op)
            for j in first.inputs:
                if place[j] == COMPRESS and j not in here:
                    here.add(j)
                    self.again[e] += values[j].codec_seconds
            here |= {i for i, v in enumerate(values) if v.born == op and i not in here}
            room = self.step.events[op].room
            room = self.step.events[op].base - least if room is None else room
            room = max(0, room) + self.step.events[op].comes
            most = max(most, sum(values[i].nbytes for i in here) + room)
            for i in list(here):
                own = max(values[i].uses, default=-1) >= e and place[i] == RECOMPUTE
                if own and values[i].born == op and i not in self.made:
                    stay.add(i)
                    self.made.add(i)
                elif i not in stay and not still_read(i, op):
                    here.remove(i)
        later = self.step.events[e].own
        self.extra[e] = max(self.extra[e], most - sum(values[i].nbytes for i in stay) - later)
        return reads

    def bring(self, e: int, i: int) -> None:
        """A copy back begins, and its memory is there; unless the value never left."""
        self.asked_at[i] = e
        self.ahead += self.values[i].nbytes
        if self.left[i] > self.now:
            self.stayed.add(i)
            self.arrives[i] = 0.0
        else:
            self.arrives[i] = self.copy(self.link(i, "in"), self.now, i)

    def run(self) -> tuple[float, list[int]]:
        step, values, n = self.step, self.values, len(self.step.events)
        self.again = [0.0] * n
        self.asked_at: dict[int, int] = {}
        self.stayed: set[int] = set()
        order = self.asked()
        for i, v in enumerate(values):
            if self.place[i] == COMPRESS and self.wanted_until(i) > v.dies:
                self.again[max(v.born, 0)] += v.codec_seconds
        starts = []
        self.send(-1)
        for e in range(step.forward):
            starts.append(self.now if e else 0.0)
            self.now += step.events[e].seconds + self.again[e]
            self.send(e)
        waiting = list(order)
        for e in range(step.forward, n):
            starts.append(self.now)
            due = [i for event, i in order if event == e]
            if due:
                self.fill(e, waiting)
            for i in due:
                if i not in self.asked_at:
                    self.bring(e, i)
                    waiting.pop(0)
                self.now = max(self.now, self.arrives[i])
                self.ahead -= values[i].nbytes
            if due:
                self.fill(e, waiting)
            self.now += step.events[e].seconds + self.again[e]
        for e in range(n):
            self.memory[e] += self.extra[e]
            for i, v in enumerate(values):
                if self.present(i, e, starts[e]):
                    self.memory[e] += v.nbytes
                elif self.place[i] == COMPRESS and e >= v.born and e <= self.kept_until(i):
                    self.memory[e] += (v.stored or {})[COMPRESS]
                if self.place[i] == COMPRESS and self.wanted_until(i) > v.dies:
                    if max(v.born, 0) <= e <= v.dies:  # beside the value itself
                        self.memory[e] += (v.stored or {})[COMPRESS]
        return self.now, self.memory

    def fill(self, e: int, waiting: list[tuple[int, int]]) -> None:
        """What will be wanted next begins to come back."""
        while waiting and self.ahead < self.step.lookahead:
            self.bring(e, waiting.pop(0)[1])

    def present(self, i: int, e: int, start: float) -> bool:
        v, place = self.values[i], self.place[i]
        if max(v.born, 0) <= e <= v.dies:
            return True
        if place == KEEP and v.born <= e <= v.held:
            return True
        if e < v.born or e > self.wanted_until(i):
            return False
        if place == KEEP or i in self.stayed:
            return True
        if i in self.asked_at and e >= self.asked_at[i]:
            return True
        return i in self.left and start < self.left[i]


def walk(step: Step, placements: Sequence[str]) -> tuple[float, list[int]]:
    """Seconds of the step, and bytes by event."""
    return _Machine(step, placements).run()
