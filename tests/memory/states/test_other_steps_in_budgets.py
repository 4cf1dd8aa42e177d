"""Steps that need more than the first one did: places are chosen again where they have no room."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import memory
from cugrad.backends import get
from cugrad.optim.swa_utils import AveragedModel
from tests.memory.states.training import deep

pytestmark = pytest.mark.usefixtures("nothing_stays_placed", "quick_plans")

Loop = Callable[[Any, Any, int], None]  # what a program does behind a step, by its number


def holds_a_copy() -> Loop:
    kept: dict[str, Any] = {}

    def behind(net: Any, optimizer: Any, step: int) -> None:
        if step == 2:
            kept.update({name: value.clone() for name, value in net.state_dict().items()})

    return behind


def trains_more() -> Loop:
    def behind(net: Any, optimizer: Any, step: int) -> None:
        if step == 2:
            optimizer.add_param_group({"params": list(net[:4].parameters())})

    return behind


def has_another_layer() -> Loop:
    def behind(net: Any, optimizer: Any, step: int) -> None:
        if step == 1:
            cugrad.manual_seed(1)
            net[2] = cugrad.nn.Linear(96, 96).to("simulated")
            optimizer.add_param_group({"params": list(net[2].parameters())})

    return behind


def has_one_more_layer() -> Loop:
    def behind(net: Any, optimizer: Any, step: int) -> None:
        if step == 2:
            net[3] = cugrad.nn.Sequential(net[3], cugrad.nn.Linear(96, 96).to("simulated"))
            optimizer.add_param_group({"params": list(net[3][1].parameters()), "lr": 0.1})

    return behind


def averages() -> Loop:
    averaged: list[Any] = []

    def behind(net: Any, optimizer: Any, step: int) -> None:
        if step == 2:
            averaged.append(AveragedModel(net))

    return behind


def nothing() -> Loop:
    return lambda *args: None


def losses(
    limit: int | None, batches: list[int], behind: Loop, first: int = 0
) -> tuple[list[float], list[int], list[str]]:
    """Losses, what each step took, and what was said."""
    device: Any = get("simulated")
    cugrad.manual_seed(0)
    net = deep(96, 6).to("simulated")
    optimizer = cugrad.optim.Adam(net[first:].parameters())
    data = cugrad.randn(max(batches), 96, device="simulated")
    seen, peaks = [], []

    def train() -> None:
        for step, batch in enumerate(batches):
            device.reset_peak_memory_stats()
            net.zero_grad()
            loss = net(data[:batch]).square().mean()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
            del loss
            peaks.append(device.max_memory_allocated())
            behind(net, optimizer, step)

    if limit is None:
        train()
        return seen, peaks, []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with memory.budget(limit, model=net, optimizer=optimizer):
            train()
    return seen, peaks, [str(each.message) for each in said]


@pytest.mark.parametrize(
    ("batches", "behind", "first", "limit"),
    [
        ([16] * 2 + [256] * 4, nothing, 0, 900_000),
        ([16, 64, 128, 256, 16, 256, 128, 16], nothing, 0, 700_000),
        ([16, 256] * 3, nothing, 0, 700_000),
        ([128] * 7, holds_a_copy, 0, 700_000),
        ([128] * 7, averages, 0, 700_000),
        ([128] * 8, trains_more, 4, 900_000),
        ([128] * 8, has_one_more_layer, 0, 1_150_000),
        ([16] * 8, has_one_more_layer, 0, 890_000),  # what the optimizer's step takes grows
        ([16] * 8, has_one_more_layer, 0, 1_090_000),
    ],
)
def test_a_limit_is_enough_where_it_was_with_them_from_the_start(
    batches: list[int], behind: Callable[[], Loop], first: int, limit: int
) -> None:
    """A few steps may take more, which is said; those behind them keep to the limit."""
    seen, peaks, said = losses(limit, batches, behind(), first)
    assert seen == losses(None, batches, behind(), first)[0]
    over = [peak > limit for peak in peaks]
    assert not any(over[-2:]) and sum(over) <= len(said) <= 3
    assert all("over its limit" in each for each in said)


def test_a_step_that_is_measured_later_says_that_it_is_over_its_limit() -> None:
    """Although a plan fits, and other places would take less of the device."""
    peaks, said = losses(930_000, [16] * 6, has_one_more_layer())[1:]
    assert max(peaks) > 930_000 and any("the first step of its kind" in each for each in said)


def test_a_layer_that_was_replaced_is_the_models_no_more() -> None:
    """The states of the new one are made within a step, which no plan is for yet."""
    batches = [16] * 3 + [256] * 5
    seen, peaks, said = losses(900_000, batches, has_another_layer())
    assert seen == losses(None, batches, has_another_layer())[0]
    assert max(peaks[-4:]) <= 900_000 < max(peaks) and "over its limit" in said[0]


def test_places_for_which_there_was_an_error_are_not_taken_again() -> None:
    """A limit that is too small for steps that come later is so at once the next time."""
    cugrad.manual_seed(0)
    net = deep(96, 6).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters())
    steps = []
    for batches in ([16] * 3 + [256] * 4, [256] * 4):
        with pytest.raises(memory.BudgetError, match="needs at least"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with memory.budget(450_000, model=net, optimizer=optimizer):
                for step, batch in enumerate(batches):
                    steps.append(step)
                    optimizer.zero_grad()
                    x = cugrad.randn(batch, 96, device="simulated")
                    net(x).square().mean().backward()
                    optimizer.step()
    assert steps[-1] == 0
