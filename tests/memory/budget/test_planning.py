"""Plans of where saved tensors wait: forecasts against a plain walk, limits kept, little time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cugrad.memory.budgeting.planning import Forecaster
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
