"""What budgets know of steps that they have seen: plans, and how those went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import NamedTuple

from ..sizes import enough, size
from . import planning
from .planning import KEEP, OFFLOAD, RECOMPUTE, moved

__all__ = [
    "RECORDED", "BudgetError", "Tuning", "SeenStep", "StepBook", "StepKind", "StepOutcome",
    "TriedPlan", "as_measured", "first_of", "moved", "named", "ran_out", "shifted", "too_few",
]  # fmt: skip

ADVICE = (
    "Raise the limit, or make the step smaller: fewer examples at a time, their gradients added "
    "up, or in parts what is computed there."
)
COURSES = 4  # amounts of other things in memory, for which a step has a plan each
ADJUSTMENTS = 6  # plans that are tried, and four times as many while none has fitted
CHEAP = 1.02  # of the time of a step's ops: a plan that costs so little will do
FURTHER = 4  # smaller limits that a plan is made for, until one is new


RECORDED = "recorded "  # before the name of a node that runs under `create_graph`
ALIKE = 4  # plans for steps that begin alike, and steps in a row measured to find one of them


class BudgetError(RuntimeError):
    """No plan is known that fits the limit; the message says what would."""


class StepKind(NamedTuple):
    """What a step did, op by op: values as they were made, and nodes of backward."""

    names: list[str]
    sizes: list[int]
    nodes: list[str]


class StepOutcome(NamedTuple):
    """Time and peak of a step that followed a plan."""

    peak: int  # bytes
    peaks: list[int]  # the same by event; empty if it was not measured
    evicted: int  # bytes that the plan keeps, and that had to leave for the limit
    milliseconds: float = inf
    beyond: int = 0  # bytes in use before it, more than its course is for


class TriedPlan(NamedTuple):
    """A plan, and the outcome of the last warm step that followed it."""

    plan: planning.Plan
    limit: int  # that it was made for
    peak: int
    evicted: int
    milliseconds: float
    most: int  # bytes in use at most in its cold step, had it begun as its course says

    def fits(self, limit: int) -> bool:
        """Whether the step stayed within the limit, without help."""
        return self.peak <= limit and not self.evicted


class Tuning:
    """The plan for a step that begins with so much else in memory, and what came of it.

    The first step of a plan is cold: its copies are waited for at once, and nothing comes back
    ahead, so what is in use by event depends on no copy's time. That is compared with the forecast
    of just this, and corrects the step that plans are made from. The steps after it take their
    time.
    """

    def __init__(self, step: planning.Step, shift: int, limit: int, plan: planning.Plan) -> None:
        self.step, self.shift, self.plan = step, shift, plan
        self.limit = limit  # that the plan was made for
        self.tried: list[TriedPlan] = []
        self.settled = False
        self.is_last = False  # whether the measured step fitted, and no forecast does
        self.evicts = False  # whether it was settled on a plan that some values have to leave for
        self.is_cold = True  # whether the step that runs, or comes, is the plan's first
        self.most = plan.forecast.peak  # bytes in use at most, as far as is known
        self.is_for_less = False  # whether steps follow it that begin with less, and end alike

    def follows(self, shift: int, limit: int) -> bool:
        """Whether a step that begins with this many more bytes in use may follow the plan."""
        more = shift - self.shift
        return (
            (-(limit >> 7) <= more or self.is_for_less)
            and more <= 0
            or more + self.most <= limit
            and (more > 0 or self.plan.keeps_all)
        )

    def correct(self, limit: int, seen: StepOutcome, placements: frozenset[str]) -> None:
        """Notes the outcome of a step that followed the plan. The plan stays, or another one is
        tried next. After some steps the fastest of those that fitted stays.
        """
        fits = seen.peak <= limit and not seen.evicted
        if self.is_cold:
            self.learn(seen, OFFLOAD in placements)
            self.is_cold = False
            self.most = seen.peak - seen.beyond
            if fits and self.plan.forecast.out_bytes:
                return  # the next one shows how long it takes
        if fits and seen.beyond < -(limit >> 7):
            return  # a step that began with so much less does not show that the course's own fit
        self.tried.append(
            TriedPlan(self.plan, self.limit, seen.peak, seen.evicted, seen.milliseconds, self.most)
        )
        if len(self.tried) < ADJUSTMENTS * (1 if self.fitting(limit) else 4):
            if self.looks_further(limit, fits, placements):
                return
        if seen.peak > limit and self.sends_all(limit):
            return
        if seen.peak > limit and len(self.tried) == 1:  # of what an error has left in memory?
            self.is_cold = True
            return
        self.settle(limit)

    def learn(self, seen: StepOutcome, falls: bool) -> None:
        """Corrects what no plan can place by what a cold step has shown; `falls`: down, too.

        A forecast that is too low for another plan may cost an eviction then, where there can be
        one.
        """
        forecast = planning.Forecaster.tight(self.step, self.plan.placements).memory
        if seen.evicted or len(seen.peaks) != len(forecast):
            return
        events = []
        for event, peak, expected in zip(self.step.events, seen.peaks, forecast.tolist()):
            error = peak - seen.beyond - expected if peak else 0  # of an event that was not seen
            base = event.base + (error if falls else max(error, 0))
            events.append(replace(event, base=max(0, base)))
        self.step = replace(self.step, events=tuple(events))

    def looks_further(self, limit: int, fits: bool, placements: frozenset[str]) -> bool:
        """Whether to try another plan, which needs less memory, or uses what is left."""
        if fits:
            if self.plan.keeps_all or self.is_last:
                return False
            used = planning.Forecaster(self.step)(self.plan.placements).peak
            if limit - used <= limit // 100:
                return False
            return self.takes(planning.plan(self.step, limit, placements=placements), limit)
        fails = sum([not tried.fits(limit) for tried in self.tried])
        for less in range(fails, fails + FURTHER):
            aim = limit - less * (limit >> 6)
            plan = planning.plan(self.step, aim, placements=placements)
            if plan.forecast.peak > aim:
                return False
            if self.takes(plan, aim):
                return True
        return False

    def sends_all(self, limit: int) -> bool:
        """Makes the plan of the step that was measured the next one, where none has fitted: that
        took what was seen, whatever the others hold that no forecast knows.
        """
        if any(tried.peak <= limit for tried in self.tried):
            return False
        plan = as_measured(self.step, self.plan.needs)
        is_tried = any(tried.plan.placements == plan.placements for tried in self.tried)
        if is_tried or OFFLOAD not in plan.placements:
            return False
        self.plan, self.limit, self.is_cold, self.most = plan, limit, True, limit
        return True

    def takes(self, plan: planning.Plan, limit: int) -> bool:
        """Makes a plan the next one, if it fits its limit and has not been tried."""
        if plan.forecast.peak > limit or any(
            t.plan.placements == plan.placements for t in self.tried
        ):
            return False
        self.plan, self.limit, self.is_cold, self.most = plan, limit, True, plan.forecast.peak
        return True

    def fitting(self, limit: int) -> list[TriedPlan]:
        """Steps with plans that never exceeded the limit."""
        failed = {id(t.plan) for t in self.tried if not t.fits(limit)}
        return [t for t in self.tried if id(t.plan) not in failed]

    def settle(self, limit: int) -> None:
        """Takes the fastest plan that was never over the limit; BudgetError if there is none."""
        fitting, helped = self.fitting(limit), [t for t in self.tried if t.peak <= limit]
        if not fitting and not helped:
            least = min(self.tried, key=lambda t: t.peak)
            forecast = planning.Forecaster.tight(self.step, least.plan.placements)
            more = least.peak - forecast.peak
            beside = f" The other {size(more)} were copies on their way." if more > 0 else ""
            if more < 0:
                beside = f" That is its forecast, of which it did not need {size(-more)}."
            raise BudgetError(
                f"budget: {size(limit)} are too few: of the plans that were tried, the one that "
                f"needs least took {enough(least.peak)}. "
                f"{planning.holders(self.step, least.plan.placements, forecast)}{beside} {ADVICE}"
            )
        best = min(fitting or helped, key=lambda t: t.milliseconds)
        self.plan, self.limit, self.most = best.plan, best.limit, best.most
        self.settled, self.evicts = True, not fitting

    def exceeded(self, limit: int, placements: frozenset[str]) -> None:
        """Notes that a step took more than the limit although it followed the settled plan."""
        self.settled = self.is_cold = False
        self.correct(limit, StepOutcome(limit + 1, [], 0), placements)


class SeenStep:
    """A step that was measured, and what is done in the next one like it.

    What else is in memory as it begins may differ: an optimizer's state comes after the first
    step, and gradients that are added to are there from the second micro-batch on. Each such
    amount has a course of its own.
    """

    def __init__(self, kind: StepKind, step: planning.Step, before: int, now: Tuning) -> None:
        self.kind, self.step = kind, step
        self.names, self.sizes, self.nodes = kind
        self.before = before  # bytes in use before the step that was measured
        self.now, self.courses = now, [now]
        self.owns = [e.own for e in step.events]
        self.first_peak = self.peak = 0  # of the step that was measured, and of the last one
        # bytes of weights, gradients and states that are placed and were here, by event
        self.training: list[tuple[int, ...]] = []
        self.added = False  # whether it was measured as it added to gradients of a pass before
        self.steps = 0  # that have followed it, to their end
        self.here = before  # bytes in use before the last step
        self.beyond = 0  # bytes in use before the last step, more than its course was made for

    @property
    def plan(self) -> planning.Plan:
        return self.now.plan

    @property
    def tried(self) -> list[TriedPlan]:
        return self.now.tried

    @property
    def settled(self) -> bool:
        return self.now.settled

    def matches(self, number: int, name: str, nbytes: int) -> bool:
        return (
            number < len(self.sizes) and self.sizes[number] == nbytes and self.names[number] == name
        )

    def has_event(self, number: int, name: str) -> bool:
        """Whether an op or a node of this name is that event of the step."""
        return number < len(self.step.events) and self.step.events[number].name == name

    def fitting(self, limit: int, before: int) -> list[Tuning]:
        """The courses that a step may follow which begins with so many bytes in use."""
        return [course for course in self.courses if course.follows(before - self.before, limit)]

    def begin(
        self, limit: int, before: int, placements: frozenset[str], adds: bool = False
    ) -> None:
        """A step begins with so many bytes in use: it takes the course for that, or a new one.
        `adds`: it adds to gradients of a pass before.
        """
        shift = before - self.before
        near = min(self.courses or [self.now], key=lambda course: abs(course.shift - shift))
        fitting = self.fitting(limit, before)
        if adds and near.is_for_less and shift < near.shift - (limit >> 7):
            fitting = []  # that was foreseen, and this is what there is
        if fitting:
            self.now = near if near in fitting else fitting[-1]
        else:
            planned = shift + (limit >> 8)  # it may grow a little: what a program remembers
            step = moved(near.step, planned - near.shift)
            self.now = Tuning(step, planned, *first_plan(step, limit, placements))
            self.now.is_for_less = near.is_for_less
            self.courses[:] = [*self.courses[1 - COURSES :], self.now]
            if self.now.is_for_less:
                self.courses[:] = [self.now]
        self.here, self.beyond = before, shift - self.now.shift

    def restart(
        self, step: planning.Step, shift: int, limit: int, placements: frozenset[str], adds: bool
    ) -> None:
        """What else is in memory is different from now on: by event, as a version of the step says,
        and before it by so many bytes. Of another step's events this one learns nothing. `adds`:
        that is of a pass that adds to the gradients of those before it, and the first pass, which
        makes them, follows the same plan.
        """
        is_its_own = [e.name for e in step.events] == [e.name for e in self.step.events]
        if is_its_own:
            self.now = Tuning(step, shift, *first_plan(step, limit, placements))
            self.now.is_for_less = adds
        # else the next step shows what there is before it
        self.courses[:] = [self.now] * (adds and is_its_own)


def first_plan(
    step: planning.Step, limit: int, placements: frozenset[str]
) -> tuple[int, planning.Plan]:
    """A plan that has not been tried, and the limit that it is made for. That limit is below the
    true one by what a forecast may leave out, where a plan exists with that margin.
    """
    less = limit - (limit >> 6)
    plan = planning.plan(step, limit, placements=placements)
    if plan.keeps_all or plan.forecast.peak > limit:
        return limit, plan
    careful = planning.plan(step, less, placements=placements)
    return (less, careful) if careful.forecast.peak <= less else (limit, plan)


def first_of(
    steps: Iterable[planning.Step], limit: int, placements: frozenset[str]
) -> tuple[planning.Step, int, planning.Plan]:
    """The best plan among some versions of one step, which differ in the bytes under way, with its
    version and limit. The search ends at a plan that costs little time. The version without bytes
    under way is tried only if no other fits.
    """
    candidates: list[tuple[planning.Step, int, planning.Plan]] = []
    fitting: list[tuple[planning.Step, int, planning.Plan]] = []
    for step in steps:
        if not step.lookahead and fitting:
            break
        limited, plan = first_plan(step, limit, placements)
        candidates.append((step, limited, plan))
        if plan.forecast.peak <= limit:
            fitting.append(candidates[-1])
            if plan.forecast.seconds <= CHEAP * sum([e.seconds for e in step.events]):
                break
    if fitting:
        return min(fitting, key=lambda each: each[2].forecast.seconds)
    return min(candidates, key=lambda each: each[2].needs)


def as_measured(step: planning.Step, peak: int) -> planning.Plan:
    """The plan of the measured step, in which all saved values left, and the peak of that step."""
    chosen = tuple([RECOMPUTE if not v.uses else OFFLOAD if OFFLOAD in v.placements else KEEP
                    for v in step.values])  # fmt: skip
    step = planning.at_once(step)
    return planning.Plan(chosen, planning.Forecaster(step)(chosen), peak, step, chosen)


def named(needs: int, foreseen: int) -> int:
    """The bytes that an error names as the least: those that a step needs, or those that are
    `foreseen` for what the loop may do, where they are hardly more.
    """
    return max(needs, foreseen) if foreseen - needs <= needs >> 4 else needs


def too_few(limit: int, plan: planning.Plan, needs: int, foreseen: int = 0) -> BudgetError:
    """The error for a limit that no plan fits: so many bytes are needed, with what comes later; and
    so many are `foreseen` if passes add to gradients.
    """
    least = named(needs, foreseen)
    more = f", {enough(foreseen)} if passes add to gradients" if foreseen > least else ""
    return BudgetError(
        f"budget: {size(limit)} are too few: this step needs at least {enough(least)}{more}, and "
        f"room for an optimizer's state if that is yet to come. {plan.holders()} {ADVICE}"
    )


def ran_out(limit: int, least: int) -> BudgetError:
    """The error for a limit that a step exceeds that is measured, and did not come to its end."""
    return BudgetError(
        f"budget: {size(limit)} are too few: the first step, which sends away all that it can, "
        f"needs at least {enough(least)}. {ADVICE}"
    )


def shifted(step: planning.Step, shifts: Iterable[int], weights_stay: bool) -> planning.Step:
    """The same step with so many more bytes in use, by event; if weights stay, none come."""
    events = [replace(e, base=max(0, e.base + n), comes=0 if weights_stay else e.comes)
              for e, n in zip(step.events, shifts)]  # fmt: skip
    return replace(step, events=tuple(events))


class StepBook:
    """What all budgets with the same arguments have learned, by the first value of a step."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], list[SeenStep]] = {}
        self.last: SeenStep | None = None  # what the last of their steps followed, or taught
        # what began like a step that is known and went on otherwise, and how many more are measured
        # until it is seen; None: it is not known how it went on
        self.again: dict[tuple[str, int], tuple[StepKind | None, int]] = {}

    def strays(self, first: tuple[str, int], did: StepKind | None = None) -> None:
        """Notes that a step was not the one that it began like. The next one is measured."""
        self.again[first] = did, ALIKE

    def learns(self, first: tuple[str, int], seen_step: SeenStep) -> None:
        """Notes a plan. Of those with one forward that which needs most is followed, for how
        backward goes on is not known before.
        """
        kind, left = self.again.pop(first, (None, 0))
        if kind is not None and kind != seen_step.kind and left > 1:
            self.again[first] = kind, left - 1
        plans = [k for k in self.known.get(first, []) if k.kind != seen_step.kind]
        forward = seen_step.kind[:2]
        same = [k for k in plans if k.kind[:2] == forward]
        others = [k for k in plans if k.kind[:2] != forward]
        same = sorted([*same, seen_step], key=lambda k: k.plan.needs)
        self.known[first] = [*others, *same][-ALIKE:]

    def other(
        self, left: SeenStep, first: tuple[str, int], names: list[str], sizes: list[int]
    ) -> SeenStep | None:
        """Another plan that has done as this one so far, and goes on as the step does."""
        n = len(sizes)
        for other in reversed(self.known[first]):
            if other.sizes[:n] == sizes and other.names[:n] == names:
                if other.plan.placements[: n - 1] == left.plan.placements[: n - 1]:
                    return other
        self.strays(first)
        return None
