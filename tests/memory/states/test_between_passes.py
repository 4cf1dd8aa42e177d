"""What a loop in a budget does between passes, and steps of optimizers that do not time it."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from tests.memory.states.training import deep

pytestmark = pytest.mark.usefixtures("nothing_stays_placed", "quick_plans")

DEVICE: Any = backends.get("simulated")
WIDTH, STEPS = 96, 8


class Wasteful(cugrad.optim.SGD):
    """An optimizer whose step takes what no rehearsal foresees."""

    def step(self, closure: Any = None) -> Any:
        held = [cugrad.zeros(WIDTH, WIDTH, device="simulated") for _ in range(8)]
        result = super().step(closure)
        del held
        return result


class Late(cugrad.optim.SGD):
    """One that takes more behind its own update, beside what has come ahead of need by then."""

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        held = [cugrad.zeros(WIDTH, WIDTH, device="simulated") for _ in range(16)]
        del held
        return result


class Training:
    """Two networks, each with its optimizer, and what is done between their passes."""

    def __init__(self) -> None:
        cugrad.manual_seed(0)
        self.nets = [deep(WIDTH, 4).to("simulated") for _ in range(2)]
        self.targets = [deep(WIDTH, 4).to("simulated").requires_grad_(False)]
        self.optimizers = [cugrad.optim.Adam(net.parameters()) for net in self.nets]
        self.x = cugrad.rand(32, WIDTH, device="simulated")

    def averages(self) -> None:
        with cugrad.no_grad():
            for target, param in zip(self.targets[0].parameters(), self.nets[0].parameters()):
                target.lerp_(param, 0.1)

    def averages_at_once(self) -> None:
        with cugrad.no_grad():
            whole = cugrad.cat([param.flatten() for param in self.nets[0].parameters()])
            flat = cugrad.cat([param.flatten() for param in self.targets[0].parameters()])
            flat = flat * 0.9 + whole * 0.1
            for target in self.targets[0].parameters():
                target.copy_(flat[: target.numel()].view_as(target))

    def evaluates(self) -> None:
        with cugrad.no_grad():
            self.nets[0](self.x.repeat(24, 1))

    def projects(self) -> None:
        grads = [p.grad.flatten().clone() for p in self.nets[1].parameters() if p.grad is not None]
        if grads:
            whole = cugrad.cat(grads)
            whole = whole - whole.dot(whole) * whole * 1e-9
            assert len(whole)

    def train(self, between: Any, sees: Callable[[], None] = lambda: None) -> list[float]:
        losses = []
        for _ in range(STEPS):
            for net, optimizer in zip(self.nets, self.optimizers):
                optimizer.zero_grad()
                loss = net(self.x).square().mean()
                loss.backward()
                between(self) if net is self.nets[1] else None
                optimizer.step()
            losses.append(loss.item())
            del loss
            sees()
        return losses


def nothing(training: Training) -> None:
    """Is done between passes."""


def run(between: Any, limit: int | None, second: Any) -> tuple[list[float], list[int], list[str]]:
    """Losses, what each turn of the loop took, and what was said."""
    training, peaks = Training(), []
    if second is not None:
        training.optimizers[1] = second(training.nets[1].parameters(), lr=0.1)

    def sees() -> None:
        peaks.append(DEVICE.max_memory_allocated())
        DEVICE.reset_peak_memory_stats()

    gc.collect()
    DEVICE.synchronize()
    DEVICE.reset_peak_memory_stats()
    if limit is None:
        return training.train(between, sees), peaks, []
    model: Any = cugrad.nn.ModuleList(training.nets)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with memory.budget(limit, model=model, optimizer=training.optimizers):
            losses = training.train(between, sees)
    return losses, peaks, [str(each.message) for each in said]


CASES: list[tuple[Any, Any]] = [
    (Training.averages, None), (Training.averages_at_once, None), (Training.evaluates, None),
    (Training.projects, None), (nothing, Wasteful), (nothing, Late),
]  # fmt: skip


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
@pytest.mark.parametrize(("between", "second"), CASES)
def test_a_turn_that_was_over_the_limit_makes_room_for_the_next_ones(
    between: Any, second: Any, share: float
) -> None:
    """As soon as it is known what is needed; or else that is said, by how much, where the least
    that a turn takes is more.
    """
    plain, peaks, _ = run(between, None, second)
    limit = int(share * max(peaks))
    losses, took, said = run(between, limit, second)
    assert losses == plain
    over = [peak > limit for peak in took]
    least = [re.search(r"so ([\d.]+) ([KM])iB are needed in each turn", each) for each in said]
    if told := [each for each in least if each is not None]:
        assert len(told) == 1 and least[-1] is told[0]
        most = float(told[0][1]) * 1024 ** " KM".index(told[0][2])
        assert limit < max(took[2:]) <= most < 1.01 * max(took[2:])
        assert share < 0.5
    else:
        assert not any(over[2:]) and over[1] <= len(said)


def test_a_step_of_another_optimizer_is_named() -> None:
    """By which the loop is not timed: its excess is not one of the passes."""
    limit = int(0.6 * max(run(nothing, None, Wasteful)[1]))
    said = run(nothing, limit, Wasteful)[2]
    assert len(said) == 1 and "in a step of Wasteful" in said[0]


@pytest.mark.parametrize("between", [Training.averages_at_once, Training.evaluates])
def test_the_next_budget_knows_what_is_done_between_passes(between: Any) -> None:
    """From its first turn on there is room for that."""
    training, peaks = Training(), list[int]()

    def sees() -> None:
        peaks.append(DEVICE.max_memory_allocated())
        DEVICE.reset_peak_memory_stats()

    limit = int(0.6 * max(run(between, None, None)[1]))
    model: Any = cugrad.nn.ModuleList(training.nets)
    for _ in range(2):
        peaks.clear()
        DEVICE.synchronize()
        DEVICE.reset_peak_memory_stats()
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            with memory.budget(limit, model=model, optimizer=training.optimizers):
                training.train(between, sees)
    assert max(peaks) <= limit


def test_the_peak_is_that_of_every_turn() -> None:
    """Also of one in which something was done that no plan is for, and had room."""
    training, peaks = Training(), list[int]()
    model: Any = cugrad.nn.ModuleList(training.nets)

    def evaluates_once(training: Training) -> None:
        if len(peaks) == 3:
            training.evaluates()

    def sees() -> None:
        peaks.append(DEVICE.max_memory_allocated())
        DEVICE.reset_peak_memory_stats()

    with memory.budget(1 << 24, model=model, optimizer=training.optimizers) as plan:
        training.train(evaluates_once, sees)
    assert plan.peak() == max(peaks) == peaks[3]


def test_room_for_the_step_is_kept_from_the_end_of_a_pass_on() -> None:
    """What comes ahead of need has the rest."""
    training = Training()
    limit = int(0.4 * max(run(nothing, None, None)[1]))
    model, room = cugrad.nn.ModuleList(training.nets), list[int]()

    def looks(training: Training) -> None:
        room.append(plan._limiter.own - plan._states.beside_step)

    with memory.budget(limit, model=model, optimizer=training.optimizers) as plan:
        training.train(looks)
        assert plan._states.beside_step > 0
    assert room == [0] * STEPS
