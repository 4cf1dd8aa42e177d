"""Chooses a placement for each value of a step: fast, and as good as is known under a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .forecast import Forecast, Forecaster
from .holders import holders
from .search import Search
from .step import COMPRESS, KEEP, OFFLOAD, RECOMPUTE, Step, moved

__all__ = ["Plan", "plan"]

# The plan is the fastest that was found to fit, by exact forecasts. First come what people choose
# by hand, and a family that three numbers span: how many bytes leave, how many of the values are
# made again, the cheapest first, and how many bytes of those may pass until something stays from
# which the next ones are made. What then still exceeds the limit leaves. Room that is left over is
# given to what pays most for it; and a search by small changes betters the plan. How many forecasts
# all that takes depends on the size of the step only, so a plan is the same on any machine.

SEGMENTS = (1, 2, 4, 8, 16, 32, 64)  # parts into which recomputation is cut
FINE = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 128)  # where everything is made again
SHARES = (1.0, 0.5, 1.5)  # of what links carry unseen, that leave
BY_HAND, FAMILY, COPIES, RUNS = 0.25, 0.4, 0.5, 0.75  # of the forecasts, until the end of each part
STEPS = 64  # to which part of the values a bisection goes


@dataclass(frozen=True)
class Plan:
    """A placement for each value, and what it will do; `needs` is the least peak that was found.

    `step` is what it was made from, and `least` the placements that need least.
    """

    placements: tuple[str, ...]
    forecast: Forecast
    needs: int
    step: Step | None = None
    least: tuple[str, ...] = ()

    def holders(self, beyond: int = 0) -> str:
        """In words, what the least peak is made of, with so many more bytes in use all the time."""
        if self.step is None:
            return ""
        step = moved(self.step, beyond)
        return holders(step, self.least, Forecaster(step)(self.least))

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is paid for memory."""
        return self.forecast.recompute_seconds == 0 and self.forecast.out_bytes == 0


class _Family(Search):
    """Placements by rule, from which the search begins."""

    def run(self) -> None:
        """The search; ends at once if all that is saved may stay."""
        if self.look(self.of.kept()).peak <= self.limit:
            return
        tried = [(self.look(chosen), chosen) for chosen in self.by_hand()]
        tried.sort(key=lambda t: t[0].seconds)
        for forecast, chosen in tried:
            if self.promising(forecast) and not self.spent(BY_HAND):
                self.look(self.of.spread(chosen, 1.0))
        self.family()
        over = [t for t in tried if t[0].peak > self.limit]
        for forecast, chosen in over[:2] + over[2 :: max(1, len(over) // 4)]:
            if self.promising(forecast) and not self.spent(COPIES):
                self.fit_by_copies(chosen)
        if self.best is None:
            self.shrink()
        if self.best is not None:
            self.refine()
            while not self.spent(RUNS) and self.improve_runs(RUNS):
                pass
            self.improve()

    def by_hand(self) -> Iterator[list[str]]:
        """What people choose, and all made again in segments."""
        yield from self.of.simple()
        for parts in FINE:
            yield self.of.recomputed(len(self.of.cheapest), self.of.total / parts)

    def promising(self, forecast: Forecast) -> bool:
        """Whether something as slow as this could still become the best."""
        return self.best is None or forecast.seconds < self.best[1].seconds

    def family(self) -> None:
        """For so many bytes that leave, and so many segments, as little recomputation as fits."""
        step, seconds = self.step, [e.seconds for e in self.step.events]
        out, back = ((step.out_rate, step.in_rate) if self.of.away == OFFLOAD
                     else (step.disk_out_rate, step.disk_in_rate))  # fmt: skip
        free = min(out * sum(seconds[: step.forward]), back * sum(seconds[step.forward :]))
        groups: list[set[int]] = [set()]
        for share in SHARES:
            groups.append(self.of.movable(share * free, True))
            spread = self.of.spread(self.of.kept(), share)
            groups.append({i for i in self.of.saved if spread[i] == self.of.away})
            groups.append(self.of.movable(share * free, False))
        for k, gone in enumerate(groups):
            if gone or not k:
                for parts in SEGMENTS:
                    if self.spent(FAMILY):
                        return
                    self.fit_by_recomputing(self.of.total / parts, gone)

    def fit_by_recomputing(self, segment: float, gone: set[int]) -> None:
        """Recomputes as little as fits the limit; what does not fit then, leaves."""
        low, high = -1, len(self.of.cheapest)
        least = max(1, high // STEPS)
        top = self.of.recomputed(high, segment, gone)
        if (forecast := self.look(top)).peak > self.limit:
            if self.promising(forecast):
                self.fit_by_copies(top)
            return
        while high - low > least:
            middle = (low + high) // 2
            forecast = self.look(self.of.recomputed(middle, segment, gone))
            if forecast.peak <= self.limit:
                high = middle
            elif not self.promising(forecast):
                return
            else:
                low = middle

    def fit_by_copies(self, placements: list[str]) -> None:
        """Sends out as few of the kept values as fit the limit."""
        kept = [i for i in self.of.saved if placements[i] == KEEP]
        movable = sum([self.of.away in self.can[i] for i in kept])
        low, high = 0, movable
        if not movable or self.look(self.of.sent(placements, high)).peak > self.limit:
            return
        while high - low > max(1, movable // STEPS):
            middle = (low + high) // 2
            forecast = self.look(self.of.sent(placements, middle))
            if forecast.peak <= self.limit:
                high = middle
            elif not self.promising(forecast):
                return
            else:
                low = middle

    def refine(self) -> None:
        """Gives what room is left to the values that gain most by it."""
        for place in (RECOMPUTE, self.of.away, COMPRESS, RECOMPUTE):
            assert self.best is not None
            placements = self.best[0]
            paying = [i for i in self.of.saved if placements[i] == place]
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


def plan(step: Step, limit: int, *, placements: Iterable[str], share: float = 1.0) -> Plan:
    """The fastest placements known whose peak is at most `limit` bytes, by that share of the usual
    number of forecasts.

    Where none fits, those with the least peak: the caller sees by `forecast.peak`.
    """
    search = _Family(step, limit, frozenset(placements))
    search.left = search.all = max(1, int(share * search.all))
    search.run()
    assert search.least is not None
    chosen, forecast = search.best or search.least
    placed, least = search.least
    ends = search.forecaster.ends(chosen)  # what is not used again is neither sent nor held
    chosen = [p if end >= 0 else RECOMPUTE for p, end in zip(chosen, ends)]
    return Plan(tuple(chosen), forecast, least.peak, step, tuple(placed))
