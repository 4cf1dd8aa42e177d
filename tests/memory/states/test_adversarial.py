"""No schedule that a device may choose has a race over the placements, or other results."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from cugrad.backends import simulated
from tests.memory.states.training import PLACES, same, train

SCHEDULES = [("latest", 0), ("earliest", 0), ("timed", 0), *[("random", k) for k in range(47)]]
DRAWN = 2  # of each placement; CUGRAD_ALL_STATES=1 has all
DURING = {"step": "during backward"}
EACH: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    **{name: (places, ("clip", "tied")) for name, places in PLACES.items()},
    "all streamed, ahead": (PLACES["all streamed"], ("tied",)),
    "all streamed, during": ({**PLACES["all streamed"], **DURING}, ("tied",)),
    "all on the host, during": ({**PLACES["all on the host"], **DURING}, ("tied",)),
    "states streamed, during": ({"states": "stream", **DURING}, ("tied",)),
}
WINDOWS = ("1KiB", "3KiB", "9KiB")  # states in pieces, a tensor at a time, all that is ahead


@pytest.mark.parametrize("place", EACH)
def test_no_schedule_has_a_race(place: str) -> None:
    """The simulated device raises where one stream reads what another may be writing."""
    places, features = EACH[place]
    schedules = list(enumerate(SCHEDULES))
    if not os.environ.get("CUGRAD_ALL_STATES"):
        schedules = Random(place).sample(schedules, DRAWN)
    plain: Any = train("Adam", {"lr": 0.1}, features, None)
    for k, (policy, seed) in schedules:
        with simulated.configured(policy=policy, seed=seed):
            window = WINDOWS[k % len(WINDOWS)]
            assert same(train("Adam", {"lr": 0.1}, features, places, window=window), plain)
