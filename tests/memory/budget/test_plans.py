"""Plans of whole networks' steps over sweeps of limits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from cugrad.memory.budgeting import planning
from cugrad.memory.budgeting.planning import KEEP, OFFLOAD, RECOMPUTE, Step, search
from tests.memory.budget.steps import NETWORKS, gpt

LOSSLESS = (KEEP, OFFLOAD, RECOMPUTE)
SMALLER: dict[str, tuple[Any, ...]] = {"resnet": ((2, 2, 3, 2),), "gpt": (4,), "unet": ()}


@pytest.fixture(autouse=True, scope="module")
def quick_plans() -> Iterator[None]:
    """By a third of the usual forecasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "WORK", search.WORK // 3)
        yield


@cache
def network(name: str) -> tuple[Step, planning.Forecaster, list[str]]:
    """A network's step, and the placements with all that is saved kept."""
    step = NETWORKS[name](*SMALLER[name])
    return step, planning.Forecaster(step), all_of(step, KEEP)


def all_of(step: Step, place: str) -> list[str]:
    """What is saved has this place if it may; the rest is made again, if it may."""
    kept = [KEEP if v.uses or RECOMPUTE not in v.placements else RECOMPUTE for v in step.values]
    return [place if v.uses and place in v.placements else p for v, p in zip(step.values, kept)]


def blocks(step: Step, every: int) -> list[str]:
    """All made again but each `every`-th sum, the ends of blocks: checkpoints by hand."""
    placements, seen = all_of(step, RECOMPUTE), 0
    for i, v in enumerate(step.values):
        if v.born >= 0 and step.events[v.born].name in ("add", "cat"):
            seen += 1
            if seen % every == 0:
                placements[i] = KEEP
    return placements


@cache
def sweep(name: str) -> tuple[int, list[tuple[int, planning.Plan]]]:
    """The plain peak, and plans under some limits from nearly that to nearly the least."""
    step, forecaster, kept = network(name)
    plain = forecaster(kept).peak
    least = planning.plan(step, 0, placements=LOSSLESS).needs
    limits = [int(least + (plain - least) * k / 10.5) for k in (10, 5, 1)]
    return plain, [(limit, planning.plan(step, limit, placements=LOSSLESS)) for limit in limits]


@pytest.mark.parametrize("name", NETWORKS)
def test_plans_fit_and_use_what_is_allowed(name: str) -> None:
    step, forecaster, kept = network(name)
    plain = forecaster(kept)
    for limit, found in sweep(name)[1]:
        assert forecaster(found.placements).peak == found.forecast.peak <= limit
        pays = found.forecast.seconds > 1.002 * plain.seconds
        assert not pays or found.forecast.peak >= 0.95 * limit
        ends = forecaster.ends(found.placements)  # what is not wanted is dropped for good
        wanted = [pair for *pair, end in zip(step.values, found.placements, ends) if end >= 0]
        assert all(p in v.placements for v, p in wanted)


@pytest.mark.parametrize("name", NETWORKS)
def test_more_memory_is_never_slower(name: str) -> None:
    seconds = [found.forecast.seconds for _, found in sweep(name)[1]]
    for more, less in zip(seconds, seconds[1:]):
        assert more <= 1.01 * less


@pytest.mark.parametrize("name", NETWORKS)
def test_plans_are_no_slower_than_choices_by_hand(name: str) -> None:
    step, forecaster, kept = network(name)
    by_hand = [kept, all_of(step, OFFLOAD), all_of(step, RECOMPUTE)]
    by_hand += [blocks(step, every) for every in (1, 2, 4, 8)]
    rivals = [forecaster(placements) for placements in by_hand]
    for limit, found in sweep(name)[1]:
        fitting = [rival.seconds for rival in rivals if rival.peak <= limit]
        assert found.forecast.seconds <= min(fitting, default=float("inf"))


def test_what_fits_is_kept() -> None:
    step, forecaster, kept = network("unet")
    found = planning.plan(step, forecaster(kept).peak, placements=LOSSLESS)
    assert found.keeps_all
    assert list(found.placements) == kept


@pytest.mark.parametrize("name", NETWORKS)
def test_a_limit_that_is_too_small_is_told_what_it_needs(name: str) -> None:
    step, _, _ = network(name)
    found = planning.plan(step, 1 << 20, placements=LOSSLESS)
    assert found.forecast.peak == found.needs > 1 << 20
    assert "parameters" in found.holders()
    again = planning.plan(step, found.needs, placements=LOSSLESS)
    assert again.forecast.peak <= found.needs


def test_a_plan_is_the_same_each_time() -> None:
    step, _, _ = network("unet")
    limit = sweep("unet")[1][1][0]
    again = planning.plan(step, limit, placements=LOSSLESS)
    assert again.placements == sweep("unet")[1][1][1].placements


@pytest.mark.parametrize("share", [0.7, 0.3, 0.0])
def test_the_work_of_a_plan_is_bounded(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two thousand saved values too: by the values that its forecasts look at, all together."""
    step = gpt(layers=225)
    n = len(step.values)
    assert sum(bool(v.uses) and v.nbytes > 0 for v in step.values) >= 2000
    plain = planning.Forecaster(step)(all_of(step, KEEP)).peak
    made, forecast = [0], planning.Forecaster.__call__

    def counted(self: planning.Forecaster, placements: Any) -> planning.Forecast:
        made[0] += 1
        return forecast(self, placements)

    monkeypatch.setattr(planning.Forecaster, "__call__", counted)
    monkeypatch.setattr(search, "FEWEST", search.FEWEST // 2)
    planning.plan(step, int(share * plain), placements=LOSSLESS)
    assert made[0] * n <= 1.1 * search.WORK + 10 * n
