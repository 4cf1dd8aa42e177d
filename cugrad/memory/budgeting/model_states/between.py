"""Room for what a loop does between the passes and the steps that a budget plans."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....runtime.frames import warn_user
from ...sizes import enough, size
from ..known_steps import BudgetError

if TYPE_CHECKING:
    from .choosing import Candidate
    from .states import StatesOfBudget

__all__ = ["Between"]

MISSES = 4  # times that room is made for what is done between passes


class Between:
    """What a loop takes in neither a pass nor the step by which it is timed: in averages of
    weights, evaluations, gradients that are projected, steps of other optimizers.

    No plan knows of it before it has been seen. So each turn of the loop, from one of those steps
    to the next, is compared with the limit. Where one took more, all leaves before each op of the
    next turn that can, which shows how much these need. From then on so much is free as one begins.
    Places are chosen again if what stays on the device leaves too little room for that.
    """

    def __init__(self, states: StatesOfBudget) -> None:
        self.states = states
        self.reserve = 0  # bytes that are to be free as such an op begins
        self.beside = 0  # bytes that are in use then at most, beside what stays on the device
        self.misses = 0
        self._whole = 0  # turns from the first with all states on
        self._is_tight = False  # whether all leaves before each op, which is measured
        self._steps_are_tight = False  # whether nothing comes ahead in other optimizers' steps
        self._began: int | None = None  # bytes in use as such an op began
        self._most = 0  # bytes in use at most in such ops and steps, in a turn that is tight
        self._in_step = 0, ""  # bytes that a step of another optimizer has taken, and whose

    def has_room(self, candidate: Candidate) -> bool:
        """Whether with some places there is room for it."""
        return candidate.in_no_window(1, True) + self.beside <= self.states.owner.limit

    # ------------------------------------------------------------------ an op, or a step

    def makes_room(self) -> None:
        """An op begins there."""
        if not self._is_tight and not self.reserve:
            return
        owner = self.states.owner
        if self._is_tight:
            self.ends()
            self.states.empty()
            owner._limiter.tighten()
            self._began = owner._of_device.memory_allocated()
        owner._limiter.own = max(self.states.beside_step, self.reserve)
        owner._limiter.make_room(0)

    def ends(self) -> None:
        """Such an op has ended: what comes now is another one, or a pass, or a step."""
        began, self._began = self._began, None
        if began is not None:
            most = self.states.owner._within.look()
            self.reserve, self._most = max(self.reserve, most - began), max(self._most, most)

    def step_begins(self, is_another: bool) -> None:
        """A step begins, perhaps of an optimizer by which the loop is not timed."""
        self.ends()
        owner = self.states.owner
        owner._limiter.own = self.states.beside_step
        if is_another and self._steps_are_tight:
            self.states.empty()
            owner._limiter.own = owner.limit  # nothing comes ahead of need

    def step_of_another(self, optimizer: Any, stepped: int) -> None:
        """A step has ended of an optimizer by which the loop is not timed."""
        self.states.owner._limiter.own = self.states.beside_step
        self._in_step = max(self._in_step, (stepped, type(optimizer).__name__))

    # ------------------------------------------------------------------ a turn of the loop

    def turns(self) -> bool:
        """The loop has come to the next turn. Returns whether other places have been taken, as the
        last one took more than the limit.
        """
        states, owner, was_tight = self.states, self.states.owner, self._is_tight
        self.ends()
        lessons, limit, (stepped, whose) = owner._lessons, owner.limit, self._in_step
        most, then = owner._within.turns(), max(self._most, stepped)
        told, lessons.told_of_turn = lessons.told_of_turn, lessons.foretold
        self._is_tight, self._in_step, self._most = False, (0, ""), 0
        if not states.tried or states.chosen is None:
            return False
        self._whole += 1
        if most <= max(limit, told):
            return was_tight and bool(then) and self._needs_less(then)
        self.misses += 1
        self._is_tight = self.misses <= MISSES
        self._steps_are_tight = self._steps_are_tight or stepped > limit
        anew, is_known = self._with_room(most, was_tight)
        if is_known and self._whole > 1 and self.has_room(anew):
            what = "the next one has room for that"
        elif self._is_tight and not (was_tight and anew is states.chosen):
            what = "in the next one all leaves for that which can"
        else:
            lessons.foretold = lessons.told_of_turn = most
            what = f"all has left that can, so {enough(most)} are needed in each turn of the loop"
        where = f"in a step of {whose}" if stepped >= most else "between passes"
        lessons.told = max(lessons.told, most)
        warn_user(
            f"budget: {size(most)} were in use {where}, over its limit of {size(limit)}, where no "
            f"plan is made for what is done; {what}"
        )
        return self._takes(anew)

    def _with_room(self, most: int, was_tight: bool) -> tuple[Candidate, bool]:
        """Places with room for what was in use at most, or with less on the device, and whether
        that is sure: which gradients were there then, and what could have left, is not, unless the
        turn was tight.
        """
        states, chosen = self.states, self.states.chosen
        assert chosen is not None
        before, stays = (states.tried, states.measured), chosen.in_no_window(1, True)
        those = chosen.in_no_window(1, False), stays + sum(states.on_device())
        for k, here in enumerate(those[: 1 if was_tight else 2]):
            self.beside = max(most - here, 0)
            if self.has_room(chosen):
                return chosen, not k
            with suppress(BudgetError):
                anew = chosen if states._seen is None else states._chosen_anew()
                if self.has_room(anew) or was_tight and anew.in_no_window(1, True) < stays:
                    return anew, not k
            states.tried, states.measured = before
        return chosen, False

    def _needs_less(self, most: int) -> bool:
        """A tight turn has shown what is needed, which may be less: places are chosen by that."""
        assert self.states.chosen is not None
        beside = max(most - self.states.chosen.in_no_window(1, False), 0)
        is_less, self.beside = self.beside - beside > self.states.owner.limit >> 6, beside
        before = self.states.tried, self.states.measured
        if is_less and self.states._seen is not None:
            with suppress(BudgetError):
                return self._takes(self.states._chosen_anew())
        self.states.tried, self.states.measured = before
        return False

    def _takes(self, anew: Candidate) -> bool:
        """Whether these are other places than those before, and were taken."""
        if self.states.chosen is not None and anew.is_same(self.states.chosen):
            self.states.chosen = anew
            return False
        self.states.takes(anew)
        return True
