"""Betters the placements of a step by small changes, each judged by a whole forecast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from .candidates import Candidates
from .forecast import Forecast, Forecaster
from .step import COMPRESS, KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["Search"]

WORK = 420_000  # values that all forecasts of a plan may look at, together: about half a second
FEWEST, MOST = 80, 2500  # forecasts of a plan
MEMORY = 24  # changes ago that the next one may be as slow as
STALE = 300  # changes in turn that lead to nothing new: there are few placements
QUIET = 20  # forecasts for each value that may move, none of which is better: there may be no such
REPAIRS = 4  # values that leave, or stay, so that a change fits


class Search:
    """The best placements so far, of one step under one limit."""

    def __init__(self, step: Step, limit: int, allowed: frozenset[str]) -> None:
        self.step, self.limit, self.forecaster = step, limit, Forecaster(step)
        self.values, n = step.values, len(step.values)
        self.all = max(FEWEST, min(MOST, WORK // (n + 30)))  # forecasts
        self.left = self.all
        self.of = Candidates(step, allowed)
        self.can = self.of.can
        self.best: tuple[list[str], Forecast] | None = None
        self.least: tuple[list[str], Forecast] | None = None
        self.seen: dict[tuple[str, ...], Forecast] = {}
        self.movable = [i for i, v in enumerate(self.values) if v.nbytes and self.can[i] != {KEEP}]
        self.lowest = self.forecaster.lowest(self.can)

    def spent(self, share: float) -> bool:
        """Whether that share of the forecasts has been made, or no other can be of use."""
        return self.left < (1 - share) * self.all or self.cannot_fit()

    def cannot_fit(self) -> bool:
        """Whether no placements are within the limit, and the least that any take are there."""
        return self.least is not None and self.limit < self.least[1].peak <= self.lowest

    def look(self, placements: Sequence[str]) -> Forecast:
        """A forecast; the placements are remembered if they are the best yet."""
        key = tuple(placements)
        forecast = self.seen.get(key)
        if forecast is not None:
            self.left -= 1 if self.left & 1 else 0  # so that this ends
            return forecast
        self.left -= 1
        forecast = self.seen[key] = self.forecaster(key)
        if forecast.peak <= self.limit:
            if self.best is None or forecast.seconds < self.best[1].seconds:
                self.best = list(key), forecast
        if self.least is None or forecast.peak < self.least[1].peak:
            self.least = list(key), forecast
        return forecast

    # ------------------------------------------------------------------ small changes

    def improve(self) -> None:
        """Changes the best placements until all forecasts have been made."""
        if self.best is None or not self.movable:
            return
        random = Random(0)
        floor = sum([e.seconds for e in self.step.events])
        now, forecast = self.best
        recent = [forecast.seconds] * MEMORY
        tries, left, stale = 0, self.left, 0
        best, quiet = self.best, self.left - STALE - QUIET * len(self.movable)
        while self.left > max(0, quiet) and best[1].seconds > floor * (1 + 1e-9) and stale < STALE:
            tries, stale = tries + 1, stale + 1 if left == self.left else 0
            left = self.left
            if best is not self.best:
                best, quiet = self.best, left - STALE - QUIET * len(self.movable)
            if tries % 100 == 0:  # from the best again: what was slower has led nowhere
                now, forecast = self.best
                recent = [forecast.seconds] * MEMORY
            tried = self.change(random, now)
            if tried is None:
                continue
            after = self.look(tried)
            if random.random() < 0.5:
                tried, after = self.balance(tried, after, forecast)
            for _ in range(REPAIRS):
                if after.peak <= self.limit or after.seconds >= forecast.seconds or self.left <= 0:
                    break
                if not self.repair(random, tried, after):
                    break
                after = self.look(tried)
            slot = tries % MEMORY
            if after.peak <= self.limit and after.seconds <= max(forecast.seconds, recent[slot]):
                now, forecast = tried, after
            recent[slot] = forecast.seconds

    def shrink(self) -> None:
        """Changes the placements with the least peak so that it falls, until they fit."""
        if self.least is None or not self.movable:
            return
        random, left, stale = Random(0), self.left, 0
        while self.left > 0 and not self.cannot_fit() and self.best is None and stale < STALE:
            stale = stale + 1 if left == self.left else 0
            left = self.left
            now, forecast = self.least
            tried = list(now)
            if random.random() < 0.5:
                if not self.repair(random, tried, forecast):
                    continue
            else:
                changed = self.change(random, tried)
                if changed is None:
                    continue
                tried = changed
            self.look(tried)

    def change(self, random: Random, now: list[str]) -> list[str] | None:
        """A few neighbours are placed otherwise, or two such groups."""
        movable, tried, changed = self.movable, list(now), False
        longest = max(1, len(movable).bit_length() - 2)
        for _ in range(random.choice((1, 1, 2))):
            at = random.randrange(len(movable))
            count = 1 << int(random.random() ** 2 * longest)
            before = tried[movable[at]]
            options = sorted(self.can[movable[at]] - {before})
            after = random.choice(options)
            if KEEP in options and random.random() < 0.4:
                after = KEEP
            for i in movable[at : at + count]:
                if tried[i] == before and after in self.can[i]:
                    tried[i], changed = after, True
        if random.random() < 0.25:  # what stays to make others of, a little earlier or later
            at = random.randrange(len(movable))
            a, b = movable[at], movable[max(0, at + random.choice((-2, -1, 1, 2))) % len(movable)]
            if tried[a] != tried[b] and tried[b] in self.can[a] and tried[a] in self.can[b]:
                tried[a], tried[b], changed = tried[b], tried[a], True
        return tried if changed else None

    def repair(self, random: Random, tried: list[str], forecast: Forecast) -> bool:
        """One more value is not there at the peak: of a few, that which costs least a byte."""
        at, values = forecast.at, self.values
        ends = self.forecaster.ends(tried)
        here = [i for i in self.movable if tried[i] == KEEP and values[i].dies < at <= ends[i]]
        over, chosen, lowest = forecast.peak - self.limit, None, float("inf")
        for _ in range(min(6, len(here))):
            i = random.choice(here)
            for place in self.can[i]:
                if place in (KEEP, COMPRESS) and random.random() < 0.5:
                    continue
                seconds = self.of.costs[i] if place == RECOMPUTE else 0.0
                if place != RECOMPUTE:
                    rate = self.step.out_rate if place == OFFLOAD else self.step.disk_out_rate
                    seconds = random.random() * values[i].nbytes / rate
                cost = seconds / max(1, min(over, values[i].nbytes))
                if place != KEEP and cost < lowest:
                    chosen, lowest = (i, place), cost
        if chosen is None:
            return False
        tried[chosen[0]] = chosen[1]
        return True

    # ------------------------------------------------------------------ many at once

    def moved(self, placements: list[str], chosen: Iterable[int], place: str) -> list[str]:
        """With these values somewhere else, where they may be."""
        result = list(placements)
        for i in chosen:
            if place in self.can[i]:
                result[i] = place
        return result

    def balance(
        self, tried: list[str], after: Forecast, forecast: Forecast
    ) -> tuple[list[str], Forecast]:
        """Placements, or what they become with just what fits, if that is better."""
        room = self.limit - after.peak
        options: list[list[str]] = []
        if room < 0 and after.seconds < forecast.seconds:
            for place in (RECOMPUTE, self.of.away):
                options.append(self.moved(tried, self.payers(tried, place, -room), place))
        elif room > 0 and after.seconds > forecast.seconds:
            options.append(self.moved(tried, self.relieved(tried, room), KEEP))
        for option in options:
            other = self.look(option)
            if other.peak <= self.limit and (
                after.peak > self.limit or other.seconds < after.seconds
            ):
                tried, after = option, other
        return tried, after

    def improve_runs(self, share: float) -> bool:
        """Changes the place of neighbours, many and then fewer; whether that was any better."""
        assert self.best is not None
        before, saved = self.best[1].seconds, self.of.saved
        places = [p for p in (KEEP, self.of.away, RECOMPUTE, COMPRESS)
                  if any(p in c for c in self.can)]  # fmt: skip
        length = max(1, len(saved) // 8)
        while length:
            for start in range(0, len(saved), length):
                for place in places:
                    if self.spent(share):
                        return False
                    now, forecast = self.best
                    tried = self.moved(now, saved[start : start + length], place)
                    if tried != now:
                        self.balance(tried, self.look(tried), forecast)
            length //= 2
        return self.best[1].seconds < before

    def payers(self, placements: list[str], place: str, nbytes: int) -> list[int]:
        """Kept values of `nbytes` or a little more that cost least elsewhere."""
        kept = [i for i in self.of.saved if placements[i] == KEEP and place in self.can[i]]
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
        rate = 1 / (self.step.in_rate if self.of.away == OFFLOAD else self.step.disk_in_rate)
        paying = [i for i in self.of.saved if placements[i] != KEEP]
        paying.sort(key=lambda i: -(self.of.ratio(i) if placements[i] == RECOMPUTE else rate))
        chosen = []
        for i in paying:
            if self.values[i].nbytes <= room:
                chosen.append(i)
                room -= self.values[i].nbytes
        return chosen
