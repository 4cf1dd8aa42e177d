"""Chooses a placement for each value of a step: fast, and as good as is known under a limit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .candidates import Candidates
from .forecast import Forecast, Forecaster
from .step import COMPRESS, KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["Plan", "plan"]

# The plan is the fastest that was found to fit, by exact forecasts. First come what people choose
# by hand, and a family that three numbers span: how many bytes leave, how many seconds a byte may
# cost that is made again, and how many bytes of those may pass until something stays from which the
# next ones are made. Then runs of values change their place, from long ones to single ones; what a
# change takes too much is taken from elsewhere, what it leaves is given to what pays most. How many
# forecasts that takes depends on the size of the step only, so a plan is the same on any machine.

WORK = 800_000  # values forecast, over all forecasts
SEGMENTS = (1, 2, 4, 8, 16, 32, 64)  # parts into which recomputation is cut
SHARES = (0.0, 1.0, 0.5, 1.5)  # of what links carry unseen, that leave
FAMILY = 0.55  # of the work, at most


@dataclass(frozen=True)
class Plan:
    """A placement for each value, and what it will do; `needs` is the least peak that was found."""

    placements: tuple[str, ...]
    forecast: Forecast
    needs: int
    holders: str = ""

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is paid for memory."""
        return self.forecast.recompute_seconds == 0 and self.forecast.out_bytes == 0


class _Search:
    """The best placements so far, of one step under one limit."""

    def __init__(self, step: Step, limit: int, allowed: frozenset[str]) -> None:
        self.step, self.limit, self.forecaster = step, limit, Forecaster(step)
        self.values, self.of = step.values, Candidates(step, allowed)
        self.saved, self.can, self.away = self.of.saved, self.of.can, self.of.away
        self.places = [p for p in (KEEP, self.away, RECOMPUTE, COMPRESS) if p in allowed | {KEEP}]
        self.best: tuple[list[str], Forecast] | None = None
        self.least: tuple[list[str], Forecast] | None = None
        self.seen: dict[tuple[str, ...], Forecast] = {}
        self.work = max(100, min(2000, WORK // max(1, len(step.values) + len(step.events) // 2)))

    def look(self, placements: list[str]) -> Forecast:
        """A forecast; the placements are remembered if they are the best yet."""
        key = tuple(placements)
        if (found := self.seen.get(key)) is not None:
            return found
        self.seen[key] = found = self.forecaster(placements)
        if found.peak <= self.limit:
            if self.best is None or found.seconds < self.best[1].seconds:
                self.best = placements, found
        if self.least is None or found.peak < self.least[1].peak:
            self.least = placements, found
        return found

    def spent(self, share: float = 1.0) -> bool:
        """Whether that share of the work has been done."""
        return len(self.seen) >= share * self.work

    def run(self) -> None:
        """The search; ends at once if all that is saved may stay."""
        tried = []
        for chosen in self.of.simple():
            tried.append((self.look(chosen), chosen))
            if tried[0][0].peak <= self.limit:
                return
        tried.sort(key=lambda t: t[0].seconds)
        for found, chosen in tried:
            if found.peak > self.limit and self.promising(found):
                self.fit_by_copies(chosen)
        self.family()
        if self.best is None:
            self.lower()
        if self.best is not None:
            self.refine()
            while not self.spent() and self.improve():
                pass
            self.shake()

    def promising(self, found: Forecast) -> bool:
        """Whether something as slow as this could still become the best."""
        return self.best is None or found.seconds < self.best[1].seconds

    # ------------------------------------------------------------------ the family

    def family(self) -> None:
        """For so many bytes that leave, and so many segments, as low a price as fits."""
        step, seconds = self.step, [e.seconds for e in self.step.events]
        out, back = ((step.out_rate, step.in_rate) if self.away == OFFLOAD
                     else (step.disk_out_rate, step.disk_in_rate))  # fmt: skip
        free = min(out * sum(seconds[: step.forward]), back * sum(seconds[step.forward :]))
        for share in SHARES:
            for by_cost in (True, False)[: 2 if share else 1]:
                gone = self.of.movable(share * free, by_cost)
                if share and not gone:
                    continue
                for parts in SEGMENTS:
                    if self.spent(FAMILY):
                        return
                    self.fit_by_price(self.of.total / parts, gone)

    def fit_by_price(self, segment: float, gone: set[int]) -> None:
        """Recomputes as little as fits the limit; what does not fit then, leaves."""
        prices = [-1.0, *self.of.ratios]
        low, high = -1, len(prices) - 1
        top = self.of.recomputed(prices[high], segment, gone)
        if (found := self.look(top)).peak > self.limit:
            if self.promising(found):
                self.fit_by_copies(top)
            return
        while high - low > 1:
            middle = (low + high) // 2
            found = self.look(self.of.recomputed(prices[middle], segment, gone))
            if found.peak <= self.limit:
                high = middle
            elif not self.promising(found):
                return
            else:
                low = middle

    def fit_by_copies(self, placements: list[str]) -> None:
        """Sends out as few of the kept values as fit the limit."""
        movable = sum([placements[i] == KEEP and self.away in self.can[i] for i in self.saved])
        low, high = 0, movable
        if not movable or self.look(self.of.sent(placements, high)).peak > self.limit:
            return
        while high - low > max(1, movable // 256):
            middle = (low + high) // 2
            found = self.look(self.of.sent(placements, middle))
            if found.peak <= self.limit:
                high = middle
            elif not self.promising(found):
                return
            else:
                low = middle

    # ------------------------------------------------------------------ from there

    def refine(self) -> None:
        """Gives what room is left to the values that gain most by it."""
        assert self.best is not None
        for place in (RECOMPUTE, self.away, COMPRESS, RECOMPUTE):
            placements = self.best[0]
            paying = [i for i in self.saved if placements[i] == place]
            if place == RECOMPUTE:
                paying.sort(key=lambda i: -self.of.ratio(i))
            else:
                paying.reverse()
            low, high = 0, len(paying) + 1
            while high - low > 1:
                middle = (low + high) // 2
                if self.look(self.moved(placements, paying[:middle], KEEP)).peak <= self.limit:
                    low = middle
                else:
                    high = middle

    def moved(self, placements: list[str], chosen: Iterable[int], place: str) -> list[str]:
        """With these values somewhere else, where they may be."""
        result = list(placements)
        for i in chosen:
            if place in self.can[i]:
                result[i] = place
        return result

    def runs(self) -> Iterator[list[int]]:
        """Neighbours among what is saved, all such runs of a length, from long to short ones."""
        n = len(self.saved)
        length = max(1, n // 8)
        while True:
            for start in range(0, n, length):
                yield self.saved[start : start + length]
            if length == 1:
                return
            length = max(1, length // 2)

    def improve(self) -> bool:
        """Changes the place of runs of values; whether that made the plan faster."""
        assert self.best is not None
        before = self.best[1].seconds
        for run in self.runs():
            for place in self.places:
                if self.spent():
                    return False
                tried = self.moved(self.best[0], run, place)
                if tried != self.best[0]:
                    self.balance(tried)
        return self.best[1].seconds < before

    def lower(self) -> None:
        """Changes the place of runs of values until something fits, or no change needs less."""
        assert self.least is not None
        before = -1
        while before != self.least[1].peak:
            before = self.least[1].peak
            for run in self.runs():
                for place in self.places:
                    if self.spent() or self.best is not None:
                        return
                    self.look(self.moved(self.least[0], run, place))

    def shake(self) -> None:
        """Changes the place of a few values, drawn at random, as long as there is work left."""
        draw, tries = random.Random(0), 2 * self.work
        while tries and not self.spent():
            assert self.best is not None
            tried, tries = self.best[0], tries - 1
            for i in draw.sample(self.saved, min(draw.randint(1, 4), len(self.saved))):
                tried = self.moved(tried, [i], draw.choice(self.places))
            self.balance(tried)

    def balance(self, tried: list[str]) -> None:
        """Looks at placements, and at what they become with just what fits."""
        found, assured = self.look(tried), self.best
        assert assured is not None
        room = self.limit - found.peak
        if room < 0 and found.seconds < assured[1].seconds:
            for place in (RECOMPUTE, self.away):
                self.look(self.moved(tried, self.payers(tried, place, -room), place))
        elif room > 0 and found.seconds > assured[1].seconds:
            self.look(self.moved(tried, self.relieved(tried, room), KEEP))

    def payers(self, placements: list[str], place: str, nbytes: int) -> list[int]:
        """Kept values of `nbytes` or a little more that cost least elsewhere."""
        kept = [i for i in self.saved if placements[i] == KEEP and place in self.can[i]]
        if place == RECOMPUTE:
            kept.sort(key=self.of.ratio)
        chosen = []
        for i in kept:
            if nbytes <= 0:
                break
            chosen.append(i)
            nbytes -= self.values[i].nbytes
        return chosen

    def relieved(self, placements: list[str], room: int) -> list[int]:
        """Values of `room` bytes at most that pay most for not being kept."""
        rate = 1 / (self.step.in_rate if self.away == OFFLOAD else self.step.disk_in_rate)
        paying = [i for i in self.saved if placements[i] != KEEP]
        paying.sort(key=lambda i: -(self.of.ratio(i) if placements[i] == RECOMPUTE else rate))
        chosen = []
        for i in paying:
            if self.values[i].nbytes <= room:
                chosen.append(i)
                room -= self.values[i].nbytes
        return chosen


def plan(step: Step, limit: int, *, placements: Iterable[str]) -> Plan:
    """The fastest placements known whose peak is at most `limit` bytes.

    Where none fits, those with the least peak: the caller sees by `forecast.peak`.
    """
    search = _Search(step, limit, frozenset(placements))
    search.run()
    assert search.least is not None
    chosen, found = search.best or search.least
    least = search.least[1]
    return Plan(tuple(chosen), found, least.peak, _holders(search, least))


def _holders(search: _Search, found: Forecast) -> str:
    """What the memory of a peak is, in words."""
    at = found.at
    event = search.step.events[at]
    where = "forward" if at < search.step.forward else "backward"
    return (
        f"At its peak, in {event.name or 'an op'} of {where}, {event.base} of {found.peak} bytes "
        "are parameters, gradients, and what the op itself needs; the rest are saved tensors that "
        "it reads or that are under way."
    )
