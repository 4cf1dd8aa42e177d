"""Drawn steps under drawn limits, on every schedule of the device: none exceeds its limit."""

from __future__ import annotations

import gc
import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import cugrad as torch
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.backends.simulated.machine import POLICIES
from cugrad.memory.budgeting import context as budgeting
from cugrad.memory.budgeting import rates
from cugrad.memory.budgeting.planning import search
from tests.memory.budget.budget_programs import WAYS, Drawn

CASES = int(os.environ.get("CUGRAD_BUDGET_CASES", "1"))  # for each way to train
STEPS = 6
PLACES = (
    ("keep", "offload", "recompute"), ("keep", "offload"), ("keep", "recompute"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(search, "WORK", search.WORK // 20)
    budgeting._learned.clear()
    rates._rates.clear()
    yield
    budgeting._learned.clear()
    simulated.reset()


def trained(seed: str, way: str, saving: Callable[[], Any]) -> tuple[list[Any], list[int]]:
    """All gradients, and the peak of each step."""
    backend, peaks = backends.get("simulated"), list[int]()

    def entered() -> Any:
        backend.reset_peak_memory_stats()
        return saving()

    def seen() -> None:
        peaks.append(backend.max_memory_allocated())

    drawn = Drawn.of(seed, way)
    gc.collect()
    return drawn.train(STEPS, entered, seen), peaks


def fitted(
    seed: str, way: str, limit: int, places: tuple[str, ...]
) -> tuple[list[Any], list[int], list[str], int]:
    """Gradients, peaks, warnings and the limit: this one, or what errors say would do."""
    last: list[memory.budget] = []

    def saving() -> memory.budget:
        last[:] = [memory.budget(limit, device="simulated", placements=places)]
        return last[0]

    for _ in range(5):
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found, peaks = trained(seed, way, saving)
            return found, peaks, [str(each.message) for each in told], limit
        except memory.BudgetError as error:
            assert "are too few" in str(error)
            needs = max(last[0].report()["needs"], last[0].report()["peak"])
        assert needs > limit
        limit = needs
        gc.collect()
    raise AssertionError("errors say of too little, again and again, that it would do")


@pytest.mark.parametrize("case", range(CASES))
@pytest.mark.parametrize("way", WAYS)
def test_no_step_exceeds_its_limit(way: str, case: int) -> None:
    seed = f"{way} {case}"
    draw = random.Random(seed)
    share, places = draw.uniform(0.3, 1.05), draw.choice(PLACES)
    wanted, plain = trained(seed, way, nullcontext)
    floor = backends.get("simulated").memory_allocated()
    with simulated.configured(policy=draw.choice(POLICIES), seed=case):
        limit = int(floor + share * (max(plain) - floor))
        found, peaks, told, limit = fitted(seed, way, limit, places)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None) and (a is None or a.tobytes() == b.tobytes())
    measured = [each for each in told if "the first step of its kind" in each]
    assert len(measured) == len(told), told
    assert sum(peak > limit for peak in peaks) <= len(measured), (peaks, limit)


def test_where_no_plan_fits_that_is_an_error_at_last() -> None:
    """Every second step adds to gradients, which takes more than is allowed whatever is placed
    where. That the others fit does not show that these do.
    """
    x = torch.rand(4, 64, device="simulated")
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).to("simulated")
    backend: Any = backends.get("simulated")
    gc.collect()
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    grown = torch.zeros(32 << 10, device="simulated")  # after the first step, as of an optimizer
    limit = backend.memory_allocated() + (8 << 10)  # a gradient that is to be added takes 16 KiB
    del grown
    with pytest.warns(UserWarning, match="over its limit"), pytest.raises(memory.BudgetError):
        for k in range(12):
            if k % 2 == 0:
                net.zero_grad()
            grown = torch.zeros(32 << 10 if k else 1, device="simulated")
            with memory.budget(limit, device="simulated"):
                net(x).square().mean().backward()
        del grown


def test_events_are_those_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where ops that make no value, as views, are more or fewer than in the first step."""
    known: list[bool] = []
    event = budgeting.budget._event_begins

    def seen(self: Any, name: str) -> None:
        event(self, name)
        plan = self._following
        if plan is not None:
            events, number = plan.step.events, self._events - 1
            known.append(number < len(events) and events[number].name == name)

    monkeypatch.setattr(budgeting.budget, "_event_begins", seen)
    w = torch.rand(64, 64, device="simulated", requires_grad=True)
    x = torch.rand(32, 64, device="simulated")
    for views in (2, 0, 3):
        with memory.budget("1MB", device="simulated"):
            part = x
            for _ in range(views):
                part = part.view(32, 64)
            h = (part @ w).tanh()
            for _ in range(views):
                part = part.view(32, 64)
            (h @ w).exp().mean().backward()
    assert len(known) > 10 and known.count(False) <= 3 + 1
