"""Whole choices of placements that are worth a forecast: the start of a search."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import accumulate

from .step import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["Candidates"]


class Candidates:
    """Makes placements for one step; what depends on no choice is worked out once.

    `can` says what each value may be; `saved` are the values that backward reads, in the order in
    which they are born, and `costs` the seconds to make each again if all that is saved is there.
    """

    def __init__(self, step: Step, allowed: frozenset[str]) -> None:
        self.step, self.values = step, step.values
        self.can = [v.placements & allowed | {KEEP} for v in step.values]
        self.away = OFFLOAD if OFFLOAD in allowed else DISK
        self.saved = [i for i, v in enumerate(step.values) if v.uses and v.nbytes]
        self.saved.sort(key=lambda i: (step.values[i].born, -step.values[i].uses[-1]))
        self.total = sum([step.values[i].nbytes for i in self.saved])
        self.costs = self._costs()
        self.cheapest = [i for i in self.saved if RECOMPUTE in self.can[i]]
        self.cheapest.sort(key=self.ratio)
        self.clock = list(accumulate([e.seconds for e in step.events], initial=0.0))
        self.last_reader = list(range(len(step.values)))
        for i, v in enumerate(step.values):
            for j in v.inputs:
                self.last_reader[j] = max(self.last_reader[j], i)

    def _costs(self) -> list[float]:
        step, costs = self.step, [0.0] * len(self.values)
        for i, v in enumerate(self.values):
            own = step.events[v.born].seconds if v.born >= 0 else 0.0
            costs[i] = own + sum([costs[j] for j in v.inputs if not self.values[j].uses])
        return costs

    def ratio(self, i: int) -> float:
        """Seconds per byte to make a value again."""
        return self.costs[i] / self.values[i].nbytes

    def kept(self) -> list[str]:
        """Everything that is saved stays."""
        return [KEEP if v.uses or RECOMPUTE not in c else RECOMPUTE
                for v, c in zip(self.values, self.can)]  # fmt: skip

    def all_of(self, place: str) -> list[str]:
        """Everything that is saved, and may be, is placed there."""
        return [place if v.uses and place in c else p
                for v, c, p in zip(self.values, self.can, self.kept())]  # fmt: skip

    def simple(self) -> Iterator[list[str]]:
        """What people choose by hand: all of one kind, and checkpoints around blocks."""
        yield self.kept()
        for place in (self.away, RECOMPUTE, COMPRESS):
            if any(place in c for c in self.can):
                yield self.all_of(place)
        cuts = self.cuts()
        every = 1
        while every < len(cuts):
            for place in (KEEP, self.away):
                placements = self.all_of(RECOMPUTE)
                for i in cuts[every - 1 :: every]:
                    placements[i] = place if place in self.can[i] else KEEP
                yield placements
            every *= 2

    def cuts(self) -> list[int]:
        """Values through which all that comes later passes: nothing else made before is read."""
        alive: list[int] = []
        change: dict[int, list[int]] = {}
        for i, v in enumerate(self.values):
            if v.born >= 0 and v.dies > v.born:
                change.setdefault(v.born, []).append(i)
        cuts: list[int] = []
        for e in range(self.step.forward):
            alive = [i for i in alive if self.values[i].dies > e] + change.get(e, [])
            if len(alive) == 1 and (not cuts or cuts[-1] != alive[0]):
                cuts.append(alive[0])
        return cuts

    def recomputed(self, count: int, segment: float, gone: Collection[int] = ()) -> list[str]:
        """The `count` values that cost least, by the byte, are made again.

        After `segment` bytes of that something stays, from which the next ones are made. What is in
        `gone` is elsewhere.
        """
        placements, passed, reach = self.kept(), 0.0, -1
        cheap = set(self.cheapest[:count])
        for i, v in enumerate(self.values):
            open_before = reach > i  # what is made of earlier ones, and is not there
            reach = max(reach, self.last_reader[i])
            if i in gone:
                placements[i] = self.away
            elif not v.uses or RECOMPUTE not in self.can[i] or not v.nbytes:
                if placements[i] != RECOMPUTE and v.uses:
                    reach = max(reach, i) if open_before else i
                if not v.uses and passed > segment and not open_before and v.nbytes:
                    placements[i], passed, reach = KEEP, 0.0, i
            elif i in cheap:
                if passed > segment and not open_before:
                    passed, reach = 0.0, i
                else:
                    placements[i] = RECOMPUTE
                    passed += v.nbytes
        return placements

    def movable(self, nbytes: float, by_cost: bool) -> set[int]:
        """Values of `nbytes` in all that leave: the first, or those that cost most to make again.

        The last ones would be wanted again before they have gone.
        """
        order = [i for i in self.saved if self.away in self.can[i]]
        if by_cost:
            first = order[: max(1, 3 * len(order) // 4)]
            order = sorted(first, key=lambda i: -self.ratio(i)
                           if RECOMPUTE in self.can[i] else -float("inf"))  # fmt: skip
        chosen, taken = set(), 0
        for i in order:
            if taken >= nbytes:
                break
            chosen.add(i)
            taken += self.values[i].nbytes
        return chosen

    def sent(self, placements: list[str], count: int) -> list[str]:
        """With the first `count` of the kept values away."""
        result, left = list(placements), count
        for i in self.saved:
            if left <= 0:
                break
            if result[i] == KEEP and self.away in self.can[i]:
                result[i] = self.away
                left -= 1
        return result

    def spread(self, placements: list[str], share: float) -> list[str]:
        """With as many away, at any time, as `share` of what the link carries until then."""
        result, gone, step = list(placements), 0, self.step
        rate = step.out_rate if self.away == OFFLOAD else step.disk_out_rate
        for i in self.saved:
            nbytes = self.values[i].nbytes
            room = share * (rate * self.clock[self.values[i].born + 1] + step.backlog)
            if result[i] == KEEP and self.away in self.can[i] and gone + nbytes <= room:
                result[i] = self.away
                gone += nbytes
        return result
