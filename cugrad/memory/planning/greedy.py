"""Chooses a placement for each value of a step: fast, and as good as is known under a limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from .forecast import Forecast
from .holders import holders
from .search import Search
from .step import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["Plan", "plan"]

# A step's plan begins as the fastest of a family that fits. Two numbers span the family: how many
# seconds a byte may cost that is made again, and how many bytes may pass until something stays from
# which the next ones are made. What then still exceeds the limit leaves: as much as the link
# carries beside the ops, or the first values first, which have the longest time to go and to come
# back. Room that is left over is given to what pays most for it; and then a search by small
# changes betters the plan, until its forecasts have taken their time.

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the values, by what a byte of them costs to make
COARSE = (1, 4, 16, 64)  # parts into which recomputation is cut
FINE = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 64, 128)
BISECTED = 3  # members of the family that copies are measured out for


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


class _Family(Search):
    """Placements by rule, from which the search begins."""

    def __init__(self, step: Step, limit: int, allowed: frozenset[str]) -> None:
        super().__init__(step, limit, allowed)
        last_use, dependents = self.forecaster.last_use, self.forecaster.dependents
        self.saved = [i for i, v in enumerate(self.values) if v.uses and v.nbytes]
        self.total = sum([self.values[i].nbytes for i in self.saved])
        self.by_age = sorted(self.saved, key=lambda i: (self.values[i].born, -last_use[i]))
        self.last_reader = [max([i, *dependents[i]]) for i in range(len(self.values))]
        self.away = [OFFLOAD if OFFLOAD in c else DISK if DISK in c else "" for c in self.can]
        self.clock = list(accumulate([e.seconds for e in step.events], initial=0.0))

    def start(self) -> list[str]:
        """Everything that is saved stays."""
        return [KEEP if v.uses or RECOMPUTE not in c else RECOMPUTE
                for v, c in zip(self.values, self.can)]  # fmt: skip

    def recomputed(self, price: float, segment: float, blocks: bool = False) -> list[str]:
        """What costs no more than `price` seconds a byte is made again, in segments.

        A segment ends where all that follows is made of one value; `blocks`: and several read it.
        """
        placements, passed, reach = self.start(), 0.0, -1
        for i, v in enumerate(self.values):
            open_before = reach > i  # what is made of earlier ones, and is not there
            reach = max(reach, self.last_reader[i])
            ends = passed > segment and not open_before
            if blocks and len(self.forecaster.dependents[i]) < 2:
                ends = False
            if not v.uses or RECOMPUTE not in self.can[i] or not v.nbytes:
                if placements[i] != RECOMPUTE and v.uses:
                    reach = max(reach, i) if open_before else i
                if not v.uses and ends and v.nbytes:
                    placements[i], passed, reach = KEEP, 0.0, i
                continue
            if self.costs[i] > price * v.nbytes:
                continue
            if ends:
                passed, reach = 0.0, i
                continue
            placements[i] = RECOMPUTE
            passed += v.nbytes
        return placements

    def family(self) -> Iterable[list[str]]:
        """Placements without copies: nothing is made again, or what is cheap, in segments."""
        costs, values = self.costs, self.values
        ratios = sorted(
            {costs[i] / values[i].nbytes for i in self.saved if RECOMPUTE in self.can[i]}
        )
        if not ratios:
            return
        prices = sorted({ratios[int((len(ratios) - 1) * share)] for share in SHARES})
        for price in reversed(prices):
            for parts in FINE if price == prices[-1] else COARSE:
                yield self.recomputed(price, self.total / parts)
        yield self.recomputed(prices[-1], 0.0)
        yield self.recomputed(prices[-1], 0.0, blocks=True)
        if any(COMPRESS in c for c in self.can):
            yield [COMPRESS if COMPRESS in c and v.uses else p
                   for v, c, p in zip(values, self.can, self.start())]  # fmt: skip

    # ------------------------------------------------------------------ copies

    def sent(self, placements: list[str], count: int) -> list[str]:
        """With the first `count` of the kept values away."""
        result, left = list(placements), count
        for i in self.by_age:
            if left <= 0:
                break
            if result[i] == KEEP and self.away[i]:
                result[i] = self.away[i]
                left -= 1
        return result

    def spread(self, placements: list[str], share: float) -> list[str]:
        """With as many away, at any time, as `share` of what the link carries until then."""
        result, gone, step = list(placements), 0, self.step
        for i in self.by_age:
            if result[i] == KEEP and self.away[i]:
                rate = step.out_rate if self.away[i] == OFFLOAD else step.disk_out_rate
                room = share * (rate * self.clock[self.values[i].born + 1] + step.backlog)
                if gone + self.values[i].nbytes <= room:
                    result[i] = self.away[i]
                    gone += self.values[i].nbytes
        return result

    def fit_by_copies(self, placements: list[str]) -> None:
        """Sends out as few of the kept values as fit the limit."""
        movable = sum([placements[i] == KEEP and self.away[i] != "" for i in self.by_age])
        if movable == 0 or self.look(self.sent(placements, movable)).peak > self.limit:
            return
        low, high = 0, movable
        while high - low > max(1, movable // 64):
            middle = (low + high) // 2
            if self.look(self.sent(placements, middle)).peak <= self.limit:
                high = middle
            else:
                low = middle
        few, many = 0.0, 8.0
        for _ in range(6):
            share = (few + many) / 2 if many < 2 else many / 2
            if self.look(self.spread(placements, share)).peak <= self.limit:
                many = share
            elif share < many:
                few = share
                many = max(many, 2 * share) if many >= 2 else many
                if many >= 2:
                    many = min(many, 2 * share)

    # ------------------------------------------------------------------ the last bytes

    def refine(self) -> None:
        """Gives what room is left to the values that gain most by it."""
        for place in (RECOMPUTE, OFFLOAD, DISK, COMPRESS):
            assert self.best is not None
            placements = self.best[0]
            paying = [i for i in self.by_age if placements[i] == place]
            if place == RECOMPUTE:
                paying.sort(key=lambda i: self.costs[i] / self.values[i].nbytes)
            paying.reverse()
            low, high = 0, len(paying) + 1
            while high - low > 1 and paying:
                middle = (low + high) // 2
                tried = list(placements)
                for i in paying[:middle]:
                    tried[i] = KEEP
                if self.look(tried).peak <= self.limit:
                    low = middle
                else:
                    high = middle


def plan(step: Step, limit: int, *, placements: Iterable[str]) -> Plan:
    """The fastest placements known whose peak is at most `limit` bytes.

    Where none fits, those with the least peak: the caller sees by `forecast.peak`.
    """
    search = _Family(step, limit, frozenset(placements))
    if search.look(search.start()).peak > limit:
        all_work = search.left
        tried = [(search.look(p), p) for p in [search.start(), *search.family()]]
        tried.sort(key=lambda t: t[0].seconds)
        for found, chosen in tried:
            if search.best is None or found.seconds < search.best[1].seconds:
                search.look(search.spread(chosen, 1.0))
        tried = [t for t in tried if t[0].peak > limit]
        candidates = tried[:: max(1, len(tried) // BISECTED)] + tried[-1:]
        for found, chosen in candidates:
            if search.best is None or found.seconds < search.best[1].seconds:
                if search.left > all_work // 3:
                    search.fit_by_copies(chosen)
        if search.best is None:
            search.shrink(all_work // 8)
        if search.best is not None:
            search.refine()
            search.improve()
    assert search.least is not None
    chosen, found = search.best or search.least
    placed, least = search.least
    ends = search.forecaster.ends(chosen)  # what nobody will want again is sent nowhere, nor held
    chosen = [p if end >= 0 else RECOMPUTE if RECOMPUTE in can else KEEP
              for p, end, can in zip(chosen, ends, search.can)]  # fmt: skip
    return Plan(tuple(chosen), found, least.peak, holders(step, placed, least))
