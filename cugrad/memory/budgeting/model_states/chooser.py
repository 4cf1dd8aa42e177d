"""The choice of places for a model's weights, gradients and states, by what a step has shown."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from ...states.context import BEHIND
from ..known_steps import as_measured, first_plan, shifted
from ..measuring import BLOCK
from ..planning import KEEP, RECOMPUTE, Forecaster, plan
from ..rates import rates_of
from .adding import Adding
from .between import Between
from .choosing import AS_FAST, KINDS, Candidate, Forecasts, MeasuredStep, ModelParts
from .inventory import Inventory

if TYPE_CHECKING:
    from ..context import budget

__all__ = ["GAIN", "Chooser"]

LARGE = 400  # events of a step for which a choice of places makes rough plans
ADDING = 2  # passes for a step, of which the second adds to gradients
TOLD = 2  # numbers that are computed of a gradient before it leaves, at most: norm, and finiteness
GAIN = 0.97  # of the time that was measured: a forecast below that is worth a trial


class Chooser:
    """What the steps of a budget have shown, and the fastest places that fit by that."""

    owner: budget
    inventory: Inventory
    adding: Adding
    between: Between
    context: Any
    chosen: Candidate | None
    tried: list[Candidate]
    measured: dict[int, float]  # seconds, by place in `tried`
    _seen: MeasuredStep | None
    _kinds: list[MeasuredStep]  # the steps by which places were chosen before
    _events: dict[int, int]  # by id of a parameter: when its gradient was whole
    _waits: bool  # whether the first step has shown that it needs all gradients
    _others: int  # bytes of the device that are not the model's

    def _see(self, seen: Any, passes: int) -> None:
        """Takes what the first step has shown."""
        before, step = self.chosen, seen.step
        zeroed = getattr(self._seen, "zeroed", self.adding.is_foreseen)
        assert before is not None
        n = len(step.events)
        self._note_when_whole(n)
        layout = self.inventory.layout
        now = {part.key: part for part in layout.parts}
        # the first are elsewhere, but for those that are the model's no more; new ones are not
        away = [now.pop(p.key) for p in before.layout.parts[: before.away] if p.key in now]
        in_order = layout.with_parts([*away, *now.values()])
        before = before._replace(layout=in_order, away=len(away))
        stay = before.of_those_that_stay(n, self.inventory.has_states, seen.added)
        stay = stay - self.inventory.aside * self.inventory.has_states  # the first puts none aside
        placed = before.placed(n, seen.added)
        if any(seen.training):  # what is on the device for good is in no window
            moved = [before.places[kind] != "device" for kind in KINDS]
            placed[:, moved] = np.array(seen.training, np.int64)[:, moved]
        gone = as_measured(step, 0).placements
        tight = [Forecaster.tight(step, each).memory for each in (gone, seen.plan.least or gone)]
        least = min(tight, key=lambda memory: int(memory.max()))
        self._seen = MeasuredStep(step, passes, before, stay, placed, least, seen.added)
        self._seen.told, self._seen.zeroed = self._told(), zeroed

    def _note_when_whole(self, events: int) -> None:
        """Takes when the gradients of parameters were whole in the last step."""
        self.inventory.layout = self.inventory.layout.when_whole(self._events, events - 1)

    def _told(self) -> int:
        """Bytes of what is computed of gradients before they leave, from the second step on."""
        if self.context is None or self.inventory.layout.on_host:
            return 0
        parts = [part for part in self.inventory.layout.parts if part.gradients]
        return len(self.context._windows["gradients"].tells) * BLOCK * len(parts)

    def _chosen_anew(self) -> Candidate:
        """Takes the fastest places with which a plan for what is saved fits."""
        seen, owner = self._seen, self.owner
        assert seen is not None
        step, limit = seen.step, owner.limit - seen.less
        keep = [KEEP if value.uses else RECOMPUTE for value in step.values]
        kept, forecasts = Forecaster(step)(keep), self._forecasts(step, seen.passes)
        layouts = [self.inventory.layout.sorted(lambda part: part.whole)]
        layouts.append(layouts[0].sorted(lambda part: part.weights + part.states))
        layouts.append(layouts[0].sorted(lambda part: -(part.weights + part.states)))
        plans: dict[tuple[bool, bytes], Any] = {}  # by what is there beside the step's
        self.tried, self.measured = [], {}
        for places, when in self.inventory.choices():
            fitting = []
            for layout in layouts:
                for window in self.inventory.windows(places, layout, layout.count):
                    candidate, peak = self._fewest(places, when, layout, window, kept, limit)
                    if candidate is not None:
                        fitting.append(forecasts.of(candidate, kept.seconds, peak))
            best = min([each.seconds for each in fitting], default=float("inf"))
            if best > AS_FAST * kept.seconds * seen.passes:  # with what is saved elsewhere, too?
                fitting += self._planned(places, when, layouts[0], forecasts, limit, best, plans)
            if fitting:
                self.tried.append(self._fastest(fitting))
        if not self.tried:
            least = self.chosen if seen.misses else None
            when = "for one more step like that"
            least = least or self.inventory.frugal(self._needs, when, self._may_need)
            self.tried.append(least._replace(step=BEHIND))
        return self._fastest(self.tried)

    def _fastest(self, candidates: list[Candidate]) -> Candidate:
        """Of those that are as fast as the fastest, the one with least to do beside computing."""
        least = min([each.seconds for each in candidates])
        return min(
            [each for each in candidates if each.seconds <= AS_FAST * least],
            key=lambda each: (each.busy, each.seconds),
        )

    def _forecasts(self, step: Any, passes: int) -> Forecasts:
        owner, layout = self.owner, self.inventory.layout
        rates = rates_of(owner._backend, owner._index, owner.limit // 32, owner.placements)
        clock = [*accumulate([event.seconds for event in step.events])]
        both = layout.bytes_of("gradients") + 2 * (
            layout.bytes_of("weights") + layout.bytes_of("states")
        )
        room = self.inventory.room_of_host()
        return Forecasts(
            clock, rates, self.inventory.host_rate(), passes, not self._waits, both <= room
        )

    def _has_room(self, candidate: Candidate, limit: int) -> bool:
        """Whether the optimizer's step fits, and each kind of step that there was, with all away
        that it saves, and the host has what it should.
        """
        there, room = candidate.of_host, self.inventory.room_of_host()
        if candidate.with_windows + self._others > limit or there and there > room:
            return False
        if not self.between.has_room(candidate):
            return False
        return all(int((e.least + e.shifts(candidate)).max()) <= limit for e in self._kinds)

    def _needs(self, candidate: Candidate) -> int:
        """Bytes of the device that a loop takes with some places, with all that it saves away."""
        assert self._seen is not None
        passes = int((self._seen.least + self._seen.shifts(candidate)).max())
        return max(candidate.in_step + self._others, passes)

    def _may_need(self, candidate: Candidate) -> int:
        """The same where passes add to gradients, of which norms are asked for: it is enough for
        what may come behind a step of which only that is not known yet.
        """
        seen = self._seen
        assert seen is not None
        before, told = (seen.passes, seen.told), TOLD * BLOCK * self.inventory.layout.count
        seen.passes, seen.told = max(seen.passes, ADDING), max(seen.told, told)
        try:
            return self._needs(candidate)
        finally:
            seen.passes, seen.told = before

    def _foreseen(self, step: Any) -> int:
        """That with the places that take least of the device, as far as a step that was measured
        has shown.
        """
        before, room = self._seen, self.inventory.room_of_host()
        self._see(step, ADDING)
        try:
            every = [each for each in self.inventory.every() if each.of_host <= room]
            return min(map(self._may_need, every))
        finally:
            self._seen = before

    def _planned(
        self, places: dict[str, str], when: str, layout: ModelParts, forecasts: Forecasts,
        limit: int, best: float, plans: dict[tuple[bool, bytes], Any],
    ) -> list[Candidate]:  # fmt: skip
        """With all parts elsewhere, and the best plan for what a step saves beside them: for the
        windows that may be faster than the best so far.
        """
        seen, several = self._seen, []
        assert seen is not None
        for window in self.inventory.windows(places, layout, layout.count):
            candidate = self.inventory.at(places, when, layout, layout.count, window)
            if not self._has_room(candidate, limit):
                continue
            if forecasts.of(candidate, seen.computing, 0).seconds >= GAIN * best:
                break  # nor are smaller ones
            shifts = seen.shifts(candidate)
            key = candidate.weights_stay, shifts.tobytes()
            if key not in plans:
                step = shifted(seen.step, shifts.tolist(), candidate.weights_stay)
                plans[key] = self._glance(step, limit)
            forecast = plans[key]
            if forecast.peak <= limit:
                several.append(forecasts.of(candidate, forecast.seconds, forecast.peak))
                best = min(best, several[-1].seconds)
        return several

    def _glance(self, step: Any, limit: int) -> Any:
        """The forecast of a plan, of which the places are chosen. For a large step it is made by
        fewer forecasts: a plan is made in earnest for the places that are taken.
        """
        share, placements = LARGE / len(step.events), self.owner.placements
        if share >= 1:
            return first_plan(step, limit, placements)[1].forecast
        return plan(step, limit, placements=placements, share=share / 2).forecast

    def _fewest(
        self, places: dict[str, str], when: str, layout: ModelParts, window: int, kept: Any,
        limit: int,
    ) -> tuple[Candidate | None, int]:  # fmt: skip
        """With as few parts elsewhere as there has to be for the rest to have room, beside all that
        a step saves, and the peak with them; None if all are too few.
        """
        assert self._seen is not None
        is_on_device = set(places.values()) == {"device"}
        few, many, fits = (0, 0, None) if is_on_device else (1, layout.count, None)
        while few <= many:  # the more are elsewhere, the less there is
            count = (few + many) // 2
            candidate = self.inventory.at(places, when, layout, count, window)
            peak = int((kept.memory + self._seen.shifts(candidate)).max())
            if self._has_room(candidate, limit) and peak <= limit - (limit >> 6):
                fits, many = (candidate, peak), count - 1
            else:
                few = count + 1
        return fits or (None, 0)
