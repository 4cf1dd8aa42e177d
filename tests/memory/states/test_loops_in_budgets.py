"""Loops within a budget take no more than it, whatever they are: some of those that did."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from contextlib import suppress
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.memory.budgeting.known_steps import BudgetError
from cugrad.memory.budgeting.model_states.choosing import MeasuredStep
from cugrad.memory.states.steps import home_of
from tests.memory.states.training import deep
from tests.support.budget_loops import Loop, draw, judged, main

pytestmark = pytest.mark.usefixtures("nothing_stays_placed", "quick_plans")

LAYERS: dict[str, Any] = {"net": "deep", "width": 64, "depth": 6, "capacity": None}


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 64, "share": 0.8},  # other tensors than the model's were not counted
        {"batch": 8, "share": 0.5, "optimizer": "Adam", "settings": {}},  # nor what comes anew
        # data that are made within the budget are known when the first step begins
        {"batch": 64, "share": 0.9, "optimizer": "AdamW", "settings": {"amsgrad": True}},
    ],
)
def test_what_the_host_has_no_room_for_is_said(changes: dict[str, Any]) -> None:
    """For its steps it needs weights, and gradients that pass, beside the states."""
    loop = dataclasses.replace(draw(3, plain=True), **LAYERS, **changes)
    assert loop.host == 0.3 and not judged(loop).faults


@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        (19, {"depth": 4}),  # a plan whose copies are under way needs more than the least
        (103, {"host": None, "share": 0.25}),  # what is small is so at any
        # a weight that an op before has needed leaves where there is no room for it, so it is not
        # counted where there is
        (9022, {"depth": 1, "batch": 16, "passes": 1}),
    ],
)
def test_the_least_that_is_named_is_enough(seed: int, changes: dict[str, Any]) -> None:
    """And it does not depend on the limit that was too small."""
    verdict = judged(dataclasses.replace(draw(seed, plain=True), **changes))
    assert verdict.tries == 2 and not verdict.faults


@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        (30003, {"batch": 32, "width": 64}),  # the recipe of a value held what it was made of
        (20031, {}),  # passes that add to gradients, of which norms are asked for
        (30032, {}),  # in one node of backward several gradients are whole
        (9064, {}),  # steps within backward put aside numbers that stay on the device
        (50175, {}),  # averages; weights that come ahead leave for them, with any other places
        (9310, {}),  # of the host: what a first step shows of other places is not exact
    ],
)
def test_it_is_enough_for_what_comes(seed: int, changes: dict[str, Any]) -> None:
    """Whatever they do, a second error names no more."""
    verdict = judged(dataclasses.replace(draw(seed), capacity=None, **changes))
    assert verdict.tries == 2 and not verdict.faults


@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        (8046, {"depth": 3, "batch": 32}),  # steps within backward took what nodes needed
        (8025, {"depth": 2, "batch": 32}),  # small gradients are there from the second pass on
        (8039, {}),  # an op that waited for a gradient was taken for the first of a step
        # of the first step, too: places are chosen for them where some gradients stay
        (8038, {"capacity": None}),
        (9054, {"depth": 2}),
    ],
)
def test_passes_that_add_to_gradients_keep_to_the_limit(seed: int, changes: Any) -> None:
    """With hardly more than the least, which each thing that is learned may raise once."""
    assert not judged(dataclasses.replace(draw(seed, plain=True), **changes)).faults


def test_a_first_step_has_room_on_the_host() -> None:
    """That of an optimizer that computes in more than the device has, beside the batch."""
    settings: dict[str, Any] = {"optimizer": "Adafactor", "settings": {}, "host": None}
    changes: dict[str, Any] = {"width": 128, "depth": 4, "batch": 64, "share": 0.6}
    loop = draw(3, plain=True)
    loop = dataclasses.replace(loop, **LAYERS | settings | changes, step="during backward")
    verdict = judged(loop)
    assert verdict.tries == 1 and not verdict.faults


def test_a_plan_that_a_step_has_exceeded_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the places stay as they are: it is not followed again. Which limits are such is
    looked for: it depends on what the device has been asked for before.
    """
    shifts, less = MeasuredStep.shifts, 128 << 10  # which is in use, and no plan foresees
    monkeypatch.setattr(MeasuredStep, "shifts", lambda seen, each: shifts(seen, each) - less)
    device: Any = backends.get("simulated")
    cugrad.manual_seed(0)
    x, looked_at = cugrad.rand(256, 96, device="simulated"), 0
    for limit in range(680 << 10, 780 << 10, 20 << 10):
        net = deep(96, 6).to("simulated")
        optimizer, over, places = cugrad.optim.SGD(net.parameters(), lr=0.1), [], []
        with warnings.catch_warnings(), suppress(BudgetError), memory.budget(
            limit, model=net, optimizer=optimizer, placements=("keep", "recompute")
        ) as plan:  # fmt: skip
            warnings.simplefilter("ignore")
            for _ in range(6):
                device.reset_peak_memory_stats()
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
                over.append(device.max_memory_allocated() > limit)
                places.append(plan._states.chosen)
        if over[:2] == [True, True] and all(each.is_same(places[0]) for each in places):
            looked_at += 1  # the first was measured
            assert over[2:].count(True) <= 1 and not any(over[4:])
    assert looked_at


def test_what_comes_back_for_good_is_there_at_once() -> None:
    """The step behind that is planned beside it: a gradient that is zero would come one by one."""
    cugrad.manual_seed(0)
    net = deep(64, 4).to("simulated")
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = cugrad.rand(16, 64, device="simulated")
    with memory.budget("70KiB", model=net, optimizer=optimizer, bring_back=True) as plan:
        for _ in range(3):
            optimizer.zero_grad(set_to_none=False)
            net(x).square().mean().backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        states, homes = plan._states, [home_of(p._grad) for p in net.parameters() if p.ndim > 1]
        assert any(home is not None and home.is_away for home in homes)
        places = {"weights": "host", "gradients": "device", "states": "host"}
        states._go_on(states.chosen._replace(places=places))
        assert not any(home is not None and home.is_away for home in homes)


def test_the_program_says_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = itertools.count(1.0)
    monkeypatch.setattr(Loop, "train", lambda *args, **ended: [next(losses)])
    assert main(["--seed", "7", "--count", "1"]) == 1
    assert "losses differ by" in capsys.readouterr().out
