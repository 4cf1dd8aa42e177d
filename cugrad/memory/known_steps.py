"""What budgets know of steps that they have seen: plans, and how those went."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from . import planning
from .sizes import size

__all__ = ["ADVICE", "BudgetError", "Course", "Known", "Learned", "Tried"]

ADVICE = (
    "Raise the limit, or make the step smaller: fewer examples at a time, their gradients added "
    "up, or in parts what is computed there."
)
COURSES = 4  # amounts of other things in memory, for which a step has a plan each
ADJUSTMENTS = 6  # steps after which a plan is corrected by what was measured


class BudgetError(RuntimeError):
    """No plan is known that fits the limit; the message says what would."""


class Tried(NamedTuple):
    """A plan, and what a step was that followed it."""

    plan: planning.Plan
    limit: int  # that it was made for
    peak: int
    milliseconds: float


class Course:
    """The plan for a step that begins with so much else in memory, and what came of it."""

    def __init__(self, step: planning.Step, shift: int, limit: int, plan: planning.Plan) -> None:
        self.step, self.shift, self.plan = step, shift, plan
        self.limit = limit  # that the plan was made for
        self.fits, self.fails = 0, 0  # the largest such that fitted, the smallest that did not
        self.tried: list[Tried] = []  # steps that followed a plan
        self.settled = False
        self.followed: Any = None  # the plan of the last step
        self.is_cold = False  # whether that step was its first: it learns the order of the copies
        self.cold_peak = 0

    def begin(self) -> None:
        """A step begins, and follows the plan."""
        self.is_cold = self.plan.forecast.out_bytes > 0 and self.followed is not self.plan
        self.followed = self.plan
        if self.is_cold:
            self.cold_peak = 0

    def correct(
        self, limit: int, peak: int, milliseconds: float, placements: frozenset[str]
    ) -> None:
        """A step has followed the plan: the next one is for so much less, or more, as it missed by.

        What a forecast leaves out, blocks that the device's allocator cannot use at once, is much
        the same in the next plan. After some steps the best of those that were tried stays.
        """
        aim = limit - (limit >> 7)  # steps that follow one plan differ by some blocks
        if self.is_cold and peak <= aim:
            self.cold_peak = peak
            return
        peak = max(peak, self.cold_peak)
        self.cold_peak = 0
        self.tried.append(Tried(self.plan, self.limit, peak, milliseconds))
        left = aim - peak
        if left < 0:
            self.fails = min(self.limit, self.fails or self.limit)
            self.fits = 0 if self.fits >= self.fails else self.fits
        else:
            self.fits = max(self.limit, self.fits)
        following = self.limit + left
        if self.fits and self.fails:
            following = (self.fits + self.fails) // 2
        elif left < 0:
            following = min(following, self.limit - (limit >> 8))
        near = 0 <= left <= limit // 100 or left >= 0 and self.plan.keeps_all
        moves = abs(following - self.limit) > limit >> 10
        fits = bool(self.fitting(limit))
        more = len(self.tried) < ADJUSTMENTS * (1 if fits else 4)
        if not near and moves and more:
            if self.takes(planning.plan(self.step, following, placements=placements), following):
                return
        if left < 0 and len(self.tried) == 1:  # perhaps of what an error has left in memory
            return
        while not fits and more:  # there may be one that needs less
            following -= limit >> 5
            plan = planning.plan(self.step, following, placements=placements)
            if plan.forecast.peak > following:
                break
            if self.takes(plan, following):
                return
        self.settle(limit)

    def takes(self, plan: planning.Plan, limit: int) -> bool:
        """Makes a plan the next one if it fits its limit and is none of those that were tried."""
        if plan.forecast.peak > limit or any(
            t.plan.placements == plan.placements for t in self.tried
        ):
            return False
        self.plan, self.limit = plan, limit
        return True

    def peaks(self) -> dict[int, int]:
        """The highest peak of each plan that was tried, by its id."""
        found: dict[int, int] = {}
        for t in self.tried:
            found[id(t.plan)] = max(found.get(id(t.plan), 0), t.peak)
        return found

    def fitting(self, limit: int) -> list[Tried]:
        """Steps with plans that never exceeded the limit."""
        peaks = self.peaks()
        return [t for t in self.tried if peaks[id(t.plan)] <= limit]

    def settle(self, limit: int) -> None:
        """Takes the fastest plan that was never over the limit; BudgetError if there is none."""
        fitting = self.fitting(limit)
        if not fitting:
            peaks = self.peaks()
            least = min(self.tried, key=lambda t: peaks[id(t.plan)])
            raise BudgetError(
                f"budget: {size(limit)} are too few: of the plans that were tried, the one that "
                f"needs least took {size(peaks[id(least.plan)])}. {least.plan.holders} {ADVICE}"
            )
        best = min(fitting, key=lambda t: t.milliseconds)
        self.plan, self.limit, self.settled = best.plan, best.limit, True

    def exceeded(self, limit: int, peak: int, placements: frozenset[str]) -> None:
        """A step that followed the plan that had been settled on took more than those before."""
        self.settled = self.is_cold = False
        self.correct(limit, peak, inf, placements)


class Known:
    """A step that was measured, and what is done in the next one like it.

    What else is in memory as it begins may differ: an optimizer's state comes after the first
    step, and gradients that are added to are there from the second micro-batch on. Each such
    amount has a course of its own.
    """

    def __init__(
        self, names: list[str], sizes: list[int], step: planning.Step, before: int, now: Course
    ) -> None:
        self.names, self.sizes, self.step = names, sizes, step
        self.before = before  # bytes in use before the step that was measured
        self.now, self.courses = now, [now]
        self.first_peak = 0  # of the step that was measured
        self.here = before  # bytes in use before the last step
        self.beyond = 0  # bytes in use before the last step, more than its course was made for

    @property
    def plan(self) -> planning.Plan:
        return self.now.plan

    @property
    def tried(self) -> list[Tried]:
        return self.now.tried

    @property
    def settled(self) -> bool:
        return self.now.settled

    def matches(self, number: int, name: str, nbytes: int) -> bool:
        return (
            number < len(self.sizes)
            and self.sizes[number] == nbytes
            and self.names[number] == name
        )

    def begin(self, limit: int, before: int, placements: frozenset[str]) -> None:
        """A step begins with so many bytes in use: it takes the course for that, or a new one."""
        shift = before - self.before
        self.now = min(self.courses, key=lambda course: abs(course.shift - shift))
        if abs(self.now.shift - shift) > limit >> 7:
            step = moved(self.step, shift)
            self.now = Course(step, shift, *first_plan(step, limit, placements))
            self.courses[:] = [*self.courses[1 - COURSES :], self.now]
        self.here, self.beyond = before, shift - self.now.shift
        self.now.begin()


def first_plan(
    step: planning.Step, limit: int, placements: frozenset[str]
) -> tuple[int, planning.Plan]:
    """A plan of which nothing is known yet, and the limit that it is for.

    That is less than the true one, by what a forecast may leave out, where it can be and need be.
    """
    less = limit - (limit >> 6)
    plan = planning.plan(step, limit, placements=placements)
    if plan.keeps_all or plan.forecast.peak > limit:
        return limit, plan
    careful = planning.plan(step, less, placements=placements)
    return (less, careful) if careful.forecast.peak <= less else (limit, plan)


def moved(step: planning.Step, shift: int) -> planning.Step:
    """A step with so much more in memory all the time."""
    events = tuple([replace(e, base=max(0, e.base + shift)) for e in step.events])
    return replace(step, events=events)


class Learned:
    """What all budgets of the same arguments know, by the first value of a step."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], list[Known]] = {}
        self.again: set[tuple[str, int]] = set()  # steps that began like this and went on otherwise
