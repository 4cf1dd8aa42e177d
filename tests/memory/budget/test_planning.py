"""Plans of where saved tensors wait: forecasts against a plain walk, limits kept, little time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cugrad.memory.budgeting.known_steps import shifted
from cugrad.memory.budgeting.planning import (
    KEEP,
    RECOMPUTE,
    Forecaster,
    Step,
    StepEvent,
    StepValue,
)
from cugrad.memory.budgeting.planning.forecast import BESIDE
from tests.memory.budget.planned_reference import walk
from tests.memory.budget.steps import drawn

pytestmark = pytest.mark.host_only

SEEDS = st.integers(0, 1 << 40)


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_forecast_is_what_a_walk_through_the_events_finds(seed: int) -> None:
    step, random = drawn(seed), Random(seed)
    placements = [random.choice(sorted(v.placements)) for v in step.values]
    found = Forecaster(step)(placements)
    seconds, memory = walk(step, placements)
    beside = BESIDE * (found.out_bytes / step.out_rate + found.in_bytes / step.in_rate)
    assert abs(found.seconds - seconds - beside) < 1e-9
    assert found.memory.tolist() == memory
    assert found.peak == max(memory)


def test_weights_that_come_for_an_op_come_again_where_it_runs_again() -> None:
    """They are there beside what it makes, unless they stay all the time."""
    values = (
        StepValue(8, -1, 0, (), (), frozenset({KEEP})),
        StepValue(16, 0, 1, (2,), (0,), frozenset({KEEP, RECOMPUTE})),
    )
    events = (StepEvent(1.0, 108, "op", 0, 0, 100), StepEvent(1.0, 8), StepEvent(1.0, 8))
    step = Step(events, 2, values, 1.0, 1.0, 1.0, 1.0, 0, 0)
    away, stays = shifted(step, [0] * 3, False), shifted(step, [0, 100, 100], True)
    again, kept = (KEEP, RECOMPUTE), (KEEP, KEEP)
    memory = lambda step, places: Forecaster(step)(places).memory.tolist()
    assert memory(away, kept)[2] == 8 + 16 and memory(stays, kept)[2] == 108 + 16
    assert memory(away, again)[2] == memory(stays, again)[2] == 108 + 16 + 8  # what it reads
