"""What a budget does about turns of a loop that took more than its limit: by a few numbers."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from cugrad.memory.budgeting.known_steps import BudgetError
from cugrad.memory.budgeting.model_states.between import MISSES, Between

LIMIT, BESIDE_STEP = 6400, 7


class Places:
    """Places with which so many bytes are on the device as passes begin, of which there are
    gradients in those that add to them.
    """

    def __init__(self, stays: int, gradients: int = 0) -> None:
        self.stays, self.gradients = stays, gradients

    def in_no_window(self, events: int, adds: bool) -> int:
        return self.stays + self.gradients * adds

    def is_same(self, other: Places) -> bool:
        return vars(self) == vars(other)


class States:
    """The part of a budget that has chosen places, and may choose others."""

    beside_step = BESIDE_STEP

    def __init__(self, chosen: Places, others: list[Places], in_windows: int = 0) -> None:
        self.chosen, self.others, self.in_windows = chosen, others, in_windows
        self.tried, self.measured = [chosen], {0: 1.0}
        self._seen, self.took = object(), list[Places]()
        self.done: list[str] = []
        self.most = self.used = 0
        limiter = SimpleNamespace(
            own=0, make_room=lambda nbytes: self.done.append("made room"),
            tighten=lambda: self.done.append("waited"),
        )  # fmt: skip
        self.owner = SimpleNamespace(
            limit=LIMIT, _limiter=limiter,
            _lessons=SimpleNamespace(told=0, told_of_turn=0, foretold=0),
            _within=SimpleNamespace(turns=lambda: self.most, look=lambda: self.most),
            _of_device=SimpleNamespace(memory_allocated=lambda: self.used),
        )  # fmt: skip
        fake: Any = self
        self.between = Between(fake)

    def empty(self) -> None:
        self.done.append("emptied")

    def on_device(self) -> tuple[int, ...]:
        return 0, self.in_windows, 0

    def _chosen_anew(self) -> Places:
        """The first of the others that there is room for, as one that chooses has it."""
        self.tried, self.measured = [*self.others], {}
        roomy: Any = [each for each in self.others if self.between.has_room(each)]  # type: ignore
        if not roomy:
            raise BudgetError("none")
        return roomy[0]

    def takes(self, anew: Places) -> None:
        self.chosen = anew
        self.took.append(anew)

    def turn(self, most: int, ops: tuple[int, int] | None = None, step: int = 0) -> list[str]:
        """A turn that took so much at most: in ops that began with so much in use, or in a step of
        another optimizer, or else anywhere. Returns what was said.
        """
        self.done.clear()
        if ops is not None:
            self.used, self.most = ops
            self.between.makes_room()
            self.between.ends()
        self.between.step_begins(True)
        self.between.step_of_another(self, step)
        self.most = most
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.between.turns()
        return [str(each.message) for each in said]


def test_what_is_in_use_beside_what_stays_decides_on_places() -> None:
    """Gradients that passes begin with are beside it, too."""
    states = States(Places(5000, gradients=1000), [Places(3000, gradients=1000)])
    for most, fits in ((6400, True), (6401, False)):
        states.between.beside = most - 6000
        assert states.between.has_room(states.chosen) == fits  # type: ignore[arg-type]


def test_room_is_made_for_ops_only_behind_a_turn_that_lacked_it() -> None:
    """In the next one, of which it is seen what they need, all leaves before each; then so much is
    free as they begin.
    """
    states = States(Places(3000), [])
    assert not states.turn(6000, (2000, 6000)) and not states.done
    assert "in the next one all leaves" in states.turn(6500)[0]
    assert not states.turn(4500, (2000, 4500))
    assert states.done == ["emptied", "waited", "made room"] and states.between.reserve == 2500
    states.between.makes_room()
    assert states.owner._limiter.own == 2500 and states.done[3:] == ["made room"]
    states.between.reserve = BESIDE_STEP - 1
    states.between.makes_room()
    assert states.owner._limiter.own == BESIDE_STEP


def test_a_step_that_took_too_much_has_nothing_ahead_from_then_on() -> None:
    """In none of those behind it; and what comes behind such a step may come ahead."""
    states = States(Places(3000), [Places(1000)])
    limiter, between = states.owner._limiter, states.between
    said = states.turn(7000, step=7000)
    assert "in a step of States" in said[0]
    for most in (5000, 6500, 5000):  # of which the second is of no step
        for is_another in (False, True):
            states.done.clear()
            between.step_begins(is_another)
            assert ("emptied" in states.done) == is_another
            assert limiter.own == (LIMIT if is_another else BESIDE_STEP)
        between.step_of_another(states, 4000)
        assert limiter.own == BESIDE_STEP
        states.turn(most)


def test_the_step_that_took_most_is_named() -> None:
    states, others = States(Places(3000), []), []
    for optimizer, stepped in ((states, 7000), (others, 6500)):
        states.between.step_of_another(optimizer, stepped)
    assert "in a step of States" in states.turn(7000)[0]
    states.between.step_of_another(others, 6500)
    assert "between passes" in states.turn(6501)[0]


def test_a_turn_that_is_not_the_first_says_what_is_needed_beside_what_stays() -> None:
    """The first may have been one without states, or gradients: what has room then may have none
    later.
    """
    states = States(Places(3000), [Places(2000)])
    assert "in the next one all leaves" in states.turn(7000)[0]
    assert states.took == states.others and states.between.beside == 4000
    states = States(Places(3000), [Places(2000)])
    assert not states.turn(5000)
    assert "the next one has room for that" in states.turn(7000)[0]
    assert [each.stays for each in states.took] == [2000]


def test_what_could_have_left_is_no_need_until_it_has() -> None:
    """Places with room for a turn that was not tight are looked for with it, and without."""
    states = States(Places(3000), [Places(2000)], in_windows=1500)
    assert not states.turn(5000)
    said = states.turn(9000)  # 4500 beside what stays, and what is in windows
    assert "in the next one all leaves" in said[0]
    assert not states.took and states.between.beside == 4500
    assert states.tried == [states.chosen] and states.measured == {0: 1.0}


def test_less_on_the_device_is_taken_where_nothing_is_enough() -> None:
    """Once a tight turn has shown that: the least that there is, and that is said."""
    states = States(Places(3000), [Places(3000), Places(500)])
    states.between.has_room = lambda each: False  # type: ignore[method-assign]
    states._chosen_anew = lambda: states.others[1]  # type: ignore[method-assign]
    states.turn(9000)
    assert not states.took
    said = states.turn(9000, (3000, 9000))
    assert states.took == [states.others[1]] and "in the next one all leaves" in said[0]
    said = states.turn(8500, (500, 8500))
    assert "so 8.301 KiB are needed in each turn" in said[0]
    lessons = states.owner._lessons
    assert (lessons.told, lessons.told_of_turn, lessons.foretold) == (9000, 8500, 8500)
    assert not states.turn(8500) and states.turn(8600)  # more than was said


def test_a_tight_turn_that_needed_less_has_places_chosen_by_that() -> None:
    """If it is much less; else, or if none has room, all stays as it is."""
    for less, others, took in (
        (2000, [Places(3500)], 1), (LIMIT >> 6, [Places(3500)], 0), (2000, [Places(3000)], 0),
        (2000, [], 0),
    ):  # fmt: skip
        states = States(Places(3000), others)
        states._seen, seen = None, states._seen
        states.turn(7000)
        beside, states._seen = states.between.beside, seen
        states.turn(6000, (3000, 3000 + beside - less))
        assert len(states.took) == took and states.between.beside == beside - less
        if not took:
            assert states.measured == {0: 1.0} or states.chosen is others[0]
    states = States(Places(3000), [Places(3500)])
    states.turn(7000)
    states.turn(6000)  # tight, and nothing was done in it
    assert not states.took and states.between.beside == 4000


def test_places_that_are_the_same_are_not_entered_again() -> None:
    """But they are those that were tried now, of which the fastest is looked for."""
    states = States(Places(3000), [Places(3000)])
    states.turn(5000)
    states.between.has_room = lambda each: each is not before  # type: ignore[method-assign]
    before = states.chosen
    states.turn(7000)
    assert not states.took and states.chosen is states.others[0] is not before


def test_turns_are_tight_so_often_and_no_more() -> None:
    states = States(Places(3000), [])
    for k in range(MISSES + 2):
        said = states.turn(9000 + 100 * k)
        states.done.clear()
        states.between.makes_room()
        assert ("emptied" in states.done) == (k < MISSES)
        states.between._began = None
        assert said and (k < MISSES or "needed in each turn" in said[0])


@pytest.mark.parametrize("is_tried", [False, True])
def test_before_places_are_chosen_nothing_is_done(is_tried: bool) -> None:
    """The turn in which they are is none of those with them."""
    states = States(Places(3000), [])
    states.tried = [states.chosen] * is_tried
    assert bool(states.turn(9000)) == is_tried
