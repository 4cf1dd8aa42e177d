"""Chooses a placement for each value of a step: fast, and as good as is known under a limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .forecast import Forecast, Forecaster
from .step import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["Plan", "plan"]

# A step's plan is the fastest of a family that fits. Two numbers span the family: how many seconds
# a byte may cost that is made again, and how many bytes may pass until something stays from which
# the next ones are made. What then still exceeds the limit leaves, the first values first: they
# have the longest time to go and to come back. At last, room that is left over is given to what
# pays most for it.

PRICES = 6  # of recomputation, tried
SEGMENTS = (1, 2, 4, 8, 16, 32, 64)  # parts into which recomputation is cut


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
        self.values = step.values
        self.can = [v.placements & allowed | {KEEP} for v in step.values]
        self.away = OFFLOAD if OFFLOAD in allowed else DISK
        self.best: tuple[list[str], Forecast] | None = None
        self.least: tuple[list[str], Forecast] | None = None
        ends = self.forecaster.last_use
        self.saved = [i for i, v in enumerate(self.values) if v.uses and v.nbytes]
        self.total = sum([self.values[i].nbytes for i in self.saved])
        self.by_age = sorted(self.saved, key=lambda i: (self.values[i].born, -ends[i]))
        self.last_reader = self._last_readers()

    def _last_readers(self) -> list[int]:
        """Of each value the last value that is made of it; itself if there is none."""
        return [max([i, *self.forecaster.dependents[i]]) for i in range(len(self.values))]

    def start(self) -> list[str]:
        """Everything that is saved stays."""
        return [KEEP if v.uses or RECOMPUTE not in c else RECOMPUTE
                for v, c in zip(self.values, self.can)]  # fmt: skip

    def look(self, placements: list[str]) -> Forecast:
        """A forecast; the placements are remembered if they are the best yet."""
        found = self.forecaster(placements)
        if found.peak <= self.limit:
            if self.best is None or self.cost(found) < self.cost(self.best[1]):
                self.best = list(placements), found
        if self.least is None or found.peak < self.least[1].peak:
            self.least = list(placements), found
        return found

    def cost(self, found: Forecast) -> float:
        """Seconds; copies that hide behind ops cost a little, too: of two such, the fewer."""
        return found.seconds + 1e-3 * (
            found.out_bytes / self.step.out_rate + found.in_bytes / self.step.in_rate
        )

    def promising(self, found: Forecast) -> bool:
        """Whether something as slow as this could still become the best."""
        return self.best is None or found.seconds < self.cost(self.best[1])

    # ------------------------------------------------------------------ the family

    def costs(self) -> list[float]:
        """Seconds that each value takes to be made again, if all that is saved is there."""
        step, costs = self.step, [0.0] * len(self.values)
        for i, v in enumerate(self.values):
            own = step.events[v.born].seconds if v.born >= 0 else 0.0
            costs[i] = own + sum([costs[j] for j in v.inputs if not self.values[j].uses])
        return costs

    def recomputed(self, price: float, segment: float, costs: list[float]) -> list[str]:
        """What costs no more than `price` seconds a byte is made again, in segments."""
        placements, passed, reach = self.start(), 0.0, -1
        for i, v in enumerate(self.values):
            open_before = reach > i  # what is made of earlier ones, and is not there
            reach = max(reach, self.last_reader[i])
            if not v.uses or RECOMPUTE not in self.can[i] or not v.nbytes:
                if placements[i] != RECOMPUTE and v.uses:
                    reach = max(reach, i) if open_before else i
                if not v.uses and passed > segment and not open_before and v.nbytes:
                    placements[i], passed, reach = KEEP, 0.0, i
                continue
            if costs[i] > price * v.nbytes:
                continue
            if passed > segment and not open_before:
                passed, reach = 0.0, i
                continue
            placements[i] = RECOMPUTE
            passed += v.nbytes
        return placements

    def family(self) -> Iterable[list[str]]:
        """Placements without copies: nothing is made again, or what is cheap, in segments."""
        yield self.start()
        costs = self.costs()
        ratios = sorted(
            {costs[i] / self.values[i].nbytes for i in self.saved if RECOMPUTE in self.can[i]}
        )
        if not ratios:
            return
        chosen = {ratios[(len(ratios) - 1) * k // (PRICES - 1)] for k in range(PRICES)}
        seen = set()
        for price in sorted(chosen):
            for parts in SEGMENTS:
                found = self.recomputed(price, self.total / parts, costs)
                key = tuple(found)
                if key not in seen:
                    seen.add(key)
                    yield found

    def sent(self, placements: list[str], count: int) -> list[str]:
        """With the first `count` of the kept values away."""
        result, left = list(placements), count
        for i in self.by_age:
            if left <= 0:
                break
            if result[i] == KEEP and self.away in self.can[i]:
                result[i] = self.away
                left -= 1
        return result

    def fit_by_copies(self, placements: list[str], found: Forecast) -> None:
        """Sends out as few of the kept values as fit the limit."""
        movable = sum(
            [placements[i] == KEEP and self.away in self.can[i] for i in self.by_age]
        )
        if movable == 0:
            return
        low, high = 0, movable
        if self.look(self.sent(placements, high)).peak > self.limit:
            return
        while high - low > max(1, movable // 256):
            middle = (low + high) // 2
            tried = self.look(self.sent(placements, middle))
            if tried.peak <= self.limit:
                high = middle
            else:
                low = middle

    def compressed(self) -> list[str]:
        return [COMPRESS if COMPRESS in c and v.uses else p
                for v, c, p in zip(self.values, self.can, self.start())]  # fmt: skip

    # ------------------------------------------------------------------ the last bytes

    def refine(self) -> None:
        """Gives what room is left to the values that gain most by it."""
        assert self.best is not None
        costs = self.costs()
        for place in (RECOMPUTE, self.away, COMPRESS, RECOMPUTE):
            placements = self.best[0]
            paying = [i for i in self.saved if placements[i] == place]
            if place == RECOMPUTE:
                paying.sort(key=lambda i: -costs[i] / self.values[i].nbytes)
            else:
                paying = [i for i in reversed(self.by_age) if placements[i] == place]
            low, high = 0, len(paying) + 1
            while high - low > 1:
                middle = (low + high) // 2
                tried = list(placements)
                for i in paying[:middle]:
                    tried[i] = KEEP
                if self.look(tried).peak <= self.limit:
                    low = middle
                else:
                    high = middle
        self.fill()

    def fill(self) -> None:
        """One by one, where a value fits that the larger ones have left room for."""
        assert self.best is not None
        budget = 24
        placements, found = self.best
        room = self.limit - found.peak
        paying = [i for i in self.saved if placements[i] != KEEP and self.values[i].nbytes <= room]
        costs = self.costs()
        paying.sort(key=lambda i: -(costs[i] if placements[i] == RECOMPUTE
                                    else self.values[i].nbytes / self.step.in_rate))  # fmt: skip
        for i in paying[:budget]:
            tried = list(self.best[0])
            tried[i] = KEEP
            self.look(tried)


def plan(step: Step, limit: int, *, placements: Iterable[str]) -> Plan:
    """The fastest placements known whose peak is at most `limit` bytes.

    Where none fits, those with the least peak: the caller sees by `forecast.peak`.
    """
    search = _Search(step, limit, frozenset(placements))
    tried = []
    for chosen in search.family():
        tried.append((search.look(chosen), chosen))
        if tried[0][0].peak <= limit:
            break  # all of it fits
    if search.best is None or search.best[0] != tried[0][1]:
        if COMPRESS in placements:
            chosen = search.compressed()
            tried.append((search.look(chosen), chosen))
        tried.sort(key=lambda t: t[0].seconds)
        for found, chosen in tried:
            if found.peak > limit and search.promising(found):
                search.fit_by_copies(chosen, found)
        if search.best is not None:
            search.refine()
    assert search.least is not None
    chosen, found = search.best or search.least
    least = search.least[1]
    return Plan(tuple(chosen), found, least.peak, _holders(search, search.least[0], least))


def _holders(search: _Search, placements: list[str], found: Forecast) -> str:
    """What the memory of a peak is, in words."""
    at = found.at
    event = search.step.events[at]
    where = "forward" if at < search.step.forward else "backward"
    base = event.base
    return (
        f"At its peak, in {event.name or 'an op'} of {where}, {base} of {found.peak} bytes are "
        "parameters, gradients, and what the op itself needs; the rest are saved tensors that it "
        "reads or that are under way."
    )
