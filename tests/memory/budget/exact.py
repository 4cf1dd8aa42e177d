"""The best placements of a small step, proved: integer programs whose answers are forecast."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cugrad.memory.budgeting.planning.forecast import BESIDE, Forecast, Forecaster
from cugrad.memory.budgeting.planning.greedy import plan
from cugrad.memory.budgeting.planning.step import KEEP, OFFLOAD, RECOMPUTE, Step

__all__ = ["Exact", "exact"]

PLACES = (KEEP, OFFLOAD, RECOMPUTE)

# The program is a relaxation: it counts what every forecast counts, and leaves out what depends on
# the order of things. Its optimum is therefore a bound. Its solution is forecast in full, and then
# excluded, until the bound has come up to the best forecast. A value that backward asks for before
# it has left stays where it is, which is no better than to keep it: the bounds of copies suppose
# that whatever is offloaded is copied back.


@dataclass(frozen=True)
class Exact:
    """Placements, their forecast, and the bound: no placements that fit take less than `bound`.

    They are proved to be the best if `bound` is `forecast.seconds`, but for a tolerance.
    """

    placements: tuple[str, ...]
    forecast: Forecast
    bound: float

    @property
    def proved(self) -> bool:
        """Whether nothing can be better by more than a thousandth."""
        return self.bound >= self.forecast.seconds * (1 - 1e-3)


def exact(
    step: Step, limit: int, *, placements: Iterable[str] = PLACES, rounds: int = 300
) -> Exact | None:
    """The fastest placements whose peak is at most `limit` bytes; None if there are none.

    Of "keep", "offload" and "recompute" only. It takes seconds for a dozen values, and much longer
    for more: after `rounds` programs it gives up, with the bound that it has got to. ImportError
    where SciPy, whose `milp` it uses, is not installed; ValueError for another placement.
    """
    allowed = frozenset(placements)
    if not allowed <= set(PLACES):
        raise ValueError(f"exact: placements: got {sorted(allowed)}, want some of {PLACES}")
    program = _Program(step, limit, allowed)
    first = plan(step, limit, placements=allowed)
    best: tuple[tuple[str, ...], Forecast] | None = None
    if first.forecast.peak <= limit:
        best = first.placements, first.forecast
    bound = 0.0
    for _ in range(rounds):
        found = program.solve()
        if found is None:  # nothing is left that has not been tried
            return None if best is None else Exact(*best, best[1].seconds)
        bound, chosen = max(bound, found[0]), found[1]
        if best is not None and bound >= best[1].seconds * (1 - 1e-3):
            return Exact(*best, min(bound, best[1].seconds))
        forecast = program.forecaster(chosen)
        if forecast.peak <= limit and (best is None or forecast.seconds < best[1].seconds):
            best = chosen, forecast
        program.exclude(chosen)
    return None if best is None else Exact(*best, min(bound, best[1].seconds))


class _Program:
    """Variables: for each value one of each place; for each op, whether it runs again; the time."""

    def __init__(self, step: Step, limit: int, allowed: frozenset[str]) -> None:
        try:
            from scipy import optimize, sparse
        except ImportError as error:
            raise ImportError(
                "exact() solves integer programs with SciPy, which is not installed; install it "
                "with: pip install scipy"
            ) from error
        self.optimize, self.sparse = optimize, sparse
        self.step, self.limit, self.forecaster = step, limit, Forecaster(step)
        self.count, self.ops = len(step.values), step.forward
        self.size = 3 * self.count + self.ops + 1
        self.rows: list[dict[int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.upper = np.ones(self.size)
        self.upper[-1] = np.inf
        for i, v in enumerate(step.values):
            for k, place in enumerate(PLACES):
                if place not in (v.placements & allowed | {KEEP}):
                    self.upper[3 * i + k] = 0
            self._row({3 * i + k: 1.0 for k in range(3)}, 1, 1)
        self._runs()
        self._memory()
        self._time()

    def _row(self, row: dict[int, float], low: float, high: float) -> None:
        self.rows.append(row)
        self.low.append(low)
        self.high.append(high)

    def _op(self, born: int) -> int:
        return 3 * self.count + born

    def _runs(self) -> None:
        """What is made again runs its op; so do, for that, the ops of inputs that are not kept."""
        values = self.step.values
        for i, v in enumerate(values):
            if v.born < 0:
                continue
            if v.uses:
                self._row({self._op(v.born): 1.0, 3 * i + 2: -1.0}, 0, np.inf)
            for j in v.inputs:
                if values[j].born >= 0:
                    row = {self._op(values[j].born): 1.0, self._op(v.born): -1.0, 3 * j + 2: -1.0}
                    self._row(row, -1, np.inf)

    def _memory(self) -> None:
        """At each event of backward, what is kept, and what has come back and is still wanted."""
        step, there = self.step, self.forecaster.base + self.forecaster.forward_memory
        for e in range(len(step.events)):
            row: dict[int, float] = {}
            for i, v in enumerate(step.values):
                if v.uses and v.dies < e <= v.uses[-1]:
                    row[3 * i] = float(v.nbytes)
                    if e >= v.uses[0]:
                        row[3 * i + 1] = row[3 * i + 2] = float(v.nbytes)
            self._row(row, -np.inf, self.limit - float(there[e]))

    def _time(self) -> None:
        """No less than all ops take; nor than the copies back of what each event has needed."""
        step, time = self.step, self.size - 1
        seconds = [e.seconds for e in step.events]
        saved = [i for i, v in enumerate(step.values) if v.uses]
        beside = BESIDE * (1 / step.out_rate + 1 / step.in_rate)
        row = {time: 1.0}
        for b in range(self.ops):
            row[self._op(b)] = -seconds[b]
        for i in saved:
            row[3 * i + 1] = -beside * step.values[i].nbytes
        self._row(row, sum(seconds), np.inf)
        forward = sum(seconds[: step.forward])
        for e in sorted({step.values[i].uses[0] for i in saved}):
            row = {time: 1.0}
            for i in saved:
                if step.values[i].uses[0] <= e:
                    row[3 * i + 1] = -step.values[i].nbytes * (1 / step.in_rate + beside)
            self._row(row, forward + sum(seconds[e:]), np.inf)

    def exclude(self, chosen: tuple[str, ...]) -> None:
        """Other placements from now on."""
        picked = {3 * i + PLACES.index(place): 1.0 for i, place in enumerate(chosen)}
        self._row(picked, -np.inf, self.count - 1)

    def solve(self) -> tuple[float, tuple[str, ...]] | None:
        """The optimum, and the placements that reach it; None if nothing is left."""
        entries: list[tuple[int, int, float]] = [
            (r, c, x) for r, row in enumerate(self.rows) for c, x in row.items()
        ]
        r, c, x = zip(*entries)
        shape = len(self.rows), self.size
        matrix: Any = self.sparse.csr_array((x, (r, c)), shape=shape)
        integral = np.zeros(self.size)
        integral[: 3 * self.count] = 1
        cost = np.zeros(self.size)
        cost[-1] = 1
        bounds = self.optimize.Bounds(np.zeros(self.size), self.upper)
        rows = self.optimize.LinearConstraint(matrix, self.low, self.high)
        found = self.optimize.milp(cost, integrality=integral, bounds=bounds, constraints=rows)
        if found.x is None:
            return None
        picked = found.x[: 3 * self.count].reshape(-1, 3).argmax(1)
        return float(found.fun), tuple([PLACES[k] for k in picked])
