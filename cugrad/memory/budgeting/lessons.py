"""What steps teach a budget: a plan from the first of their kind, corrections from the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...backends.protocol import Backend
from ...device import device as Device
from ...errors import OutOfMemoryError
from ...runtime.frames import warn_user
from ..sizes import size
from . import known_steps
from .known_steps import BudgetError, SeenStep, StepBook, StepKind, StepOutcome, Tuning
from .measuring import Measurement, mark
from .planning import OFFLOAD
from .rates import rates_of

__all__ = ["Lessons"]


class Lessons:
    """What the steps of one budget taught.

    `book` has the plans of all budgets with the same setting. What is smaller than `small` bytes
    stays, and a link may hold `under_way` bytes each way.
    """

    def __init__(
        self, book: StepBook, backend: Backend, device: Device, index: int | None, limit: int,
        placements: frozenset[str], small: int, under_way: int,
    ) -> None:  # fmt: skip
        self.book, self.backend, self.device, self.index = book, backend, device, index
        self.limit, self.placements, self.small, self.under_way = (
            limit,
            placements,
            small,
            under_way,
        )
        self.last: SeenStep | None = None  # what the last step of a known kind followed, or taught
        self.latest: SeenStep | None = None  # the same of the last step, until someone has seen it
        self.later = 0  # bytes that steps begin with which the one that is measured does not have
        self.stepping = 0  # bytes that a step of an optimizer takes at least
        self.is_least = True  # whether no other places of a model's states take less of the device
        self.lacking: SeenStep | None = None  # what has no room beside them, where others take less
        self.lack: BudgetError | None = None  # what would be said of that, were there no others
        # bytes that are enough for what may come behind a step that was measured
        self.foresees: Callable[[SeenStep], int] | None = None
        self.will_add = False  # whether the steps behind the first one begin with gradients
        self.adds = False  # whether the step has added to gradients of a pass before
        self.adds_to_all = False  # whether it was a later pass of the first step, to all gradients
        self.told = 0  # bytes that steps took at most, since the budget was entered
        self.told_of_turn = 0  # the same since a loop's last turn
        self.foretold = 0  # bytes of which it was said that each turn takes them

    def learn(self, first: tuple[str, int], did: StepKind, measuring: Measurement) -> None:
        """Plans for a step that was measured. BudgetError if no plan fits."""
        self.tell(measuring.peak)
        elsewhere, ours = measuring.elsewhere, any(seen.nbytes for seen in measuring.values)
        if elsewhere not in (None, self.device.type) and not ours:
            warn_user(
                f"budget: the limit is for the memory of '{self.device}', and what this step makes "
                f"is on '{elsewhere}'; say device='{elsewhere}'"
            )
        rates = rates_of(self.backend, self.index, self.limit // 32, self.placements)
        largest = max([seen.nbytes for seen in measuring.values if seen.uses], default=0)
        least = self.under_way
        later, self.later = self.later, 0
        room = max(self.limit - later, 1)
        step, limit, plan = known_steps.first_of(
            (measuring.step(rates, self.placements, self.small, under_way)
             for under_way in (max(least, min(largest, self.limit // 8)), least, 0)),
            room, self.placements,
        )  # fmt: skip
        fits = plan.forecast.peak <= room
        taken = max(measuring.peak, measuring.of_pass + later)
        if not fits and OFFLOAD in self.placements and taken <= self.limit:
            step = measuring.step(rates, self.placements, self.small, 0)
            limit, plan = room, known_steps.as_measured(step, measuring.of_pass)
        course = Tuning(step, 0, limit, plan)
        course.is_last = not fits
        needs = max(plan.needs + later, self.stepping)
        # of a step of an optimizer, and where more might leave, who chooses places says so
        fits = plan.needs + later <= self.limit
        seen_step = SeenStep(did, step, measuring.before, course)
        seen_step.first_peak = seen_step.peak = measuring.peak
        seen_step.added = self.adds and self.adds_to_all
        seen_step.training = [span.training for span in measuring.spans]
        self.last = self.latest = self.book.last = seen_step
        if not fits and self.is_least:
            foreseen = 0 if self.foresees is None else self.foresees(seen_step)
            needs = max(needs, foreseen) if self.will_add else needs
            raise known_steps.too_few(self.limit, plan, needs, foreseen)
        self.lacking = self.lacking if fits else seen_step
        if fits:
            self.check_first(measuring.peak)
        if did.sizes:
            self.book.learns(first, seen_step)

    def ran_out(
        self, measuring: Measurement | None, error: BaseException | None
    ) -> BudgetError | None:
        """The error for a limit that is too small for the step that is measured, in which another
        says that the device is full; None for anything else, and of a device smaller than that.
        """
        asked = re.search(r"allocating ([\d,]+) bytes", str(error))
        if measuring is None or asked is None or not isinstance(error, OutOfMemoryError):
            return None
        least = max(measuring.peak, self.backend.watched_peak())
        least += int(asked[1].replace(",", ""))
        return None if least <= self.limit else known_steps.ran_out(self.limit, least + self.later)

    @property
    def is_settled(self) -> bool:
        """Whether steps follow a plan that will not change: where one begins with more in use than
        that is for, it looks for garbage then.
        """
        return self.last is not None and (self.last.settled or self.last.plan.keeps_all)

    def take_latest(self) -> SeenStep | None:
        """What the last step followed, or taught, once; None if there was none, or of no kind that
        is known.
        """
        latest, self.latest = self.latest, None
        return latest

    def tell(self, peak: int) -> None:
        """Notes what a step took."""
        self.told, self.told_of_turn = max(self.told, peak), max(self.told_of_turn, peak)

    def check(self, peak: int, why: str) -> None:
        """Says so if a step did not keep to its limit."""
        if peak > self.limit:
            warn_user(
                f"budget: the step took {size(peak)}, over its limit of {size(self.limit)}: {why}"
            )

    def check_first(self, peak: int) -> None:
        """The same of a step that was measured, where others will fit."""
        self.check(peak, "the first step of its kind, which is measured with all that it saves "
                   "away; those that follow a plan will fit")  # fmt: skip

    def compare(
        self, first: tuple[str, int], seen_step: SeenStep, did: StepKind, seen: StepOutcome,
        began: Any,
    ) -> None:  # fmt: skip
        """Compares a step with its limit and its forecast; plans again where it missed."""
        if did.nodes != seen_step.nodes:
            if seen.peak > self.limit:
                self.unlike(seen_step, seen.peak)
                return self.book.strays(first, did)
            seen = seen._replace(peaks=seen.peaks[:1])  # those of each event are another's
        self.last = self.latest = self.book.last = seen_step
        if not seen.peaks and self.backend.device_type == "cpu":  # such a step is not counted
            seen = seen._replace(peak=seen_step.peak)
        self.tell(seen.peak)
        seen_step.peak, seen_step.steps = seen.peak, seen_step.steps + 1
        if seen.peak <= self.limit and (
            seen_step.settled or seen_step.now.is_for_less and not self.adds
        ):
            return
        here = f"{size(seen_step.here)} were in use as it began; that corrects the next ones' plan"
        self.check(seen.peak, here)
        if seen_step.settled:
            with self._or_lacking(seen_step):
                seen_step.now.exceeded(self.limit, self.placements)
            return
        if began is None:  # it began like another one, whose plan is settled: nothing was measured
            return
        end = mark(self.backend)
        end.synchronize()
        taken = began.elapsed_time(end)
        seen = seen._replace(milliseconds=taken, beyond=seen_step.beyond)
        with self._or_lacking(seen_step):
            seen_step.now.correct(self.limit, seen, self.placements)

    @contextmanager
    def _or_lacking(self, seen_step: SeenStep) -> Iterator[None]:
        """Within it no error is raised where a model's states could take less of the device."""
        try:
            yield
        except BudgetError as error:
            if self.is_least:
                raise
            self.lacking, self.lack = seen_step, error.with_traceback(None)

    def unlike(self, seen_step: SeenStep | None, peak: int) -> None:
        """Notes a step that went on otherwise than the one that it began like."""
        self.last, self.latest = seen_step or self.last, seen_step
        self.tell(peak)
        self.check(peak, "it was not like those before; the next one is measured")
