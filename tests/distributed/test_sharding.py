"""Sharded states and parameters in 2 and 4 processes train as one process does."""

from __future__ import annotations

import functools

import pytest

from tests.distributed.ranks import Outcome, run_ranks

pytestmark = pytest.mark.host_only

STATES = ["redundancy", "redundancy_mistakes", "checkpoints", "checkpoints_meanwhile",
          "states_of_rank_0"]  # fmt: skip
PARAMETERS = [
    "in_parts", "accumulated", "used_otherwise", "in_other_dtypes", "on_the_host", "state_dicts",
    "mistakes", "after_an_error", "with_any_optimizer", "changed_in_place",
    "in_columns_and_together",
]  # fmt: skip
LAST = "killed"
OF_FOUR = ["redundancy", "in_parts", "in_rows", "checkpoints_of_other_numbers"]


@functools.cache
def outcome(size: int) -> Outcome:
    """One start of the ranks for all cases."""
    cases = [*STATES, *PARAMETERS, LAST] if size == 2 else OF_FOUR
    return run_ranks("tests.distributed.programs_sharding", size, ["start", *cases])


@pytest.mark.parametrize(
    ("case", "size"),
    [*((case, 2) for case in [*STATES, *PARAMETERS]), *((case, 4) for case in OF_FOUR)],
)
def test_ranks_train_as_one_process_does(case: str, size: int) -> None:
    outcome(size).check(case)


def test_a_killed_rank_is_told_to_the_others() -> None:
    survivor, _ = outcome(2).of(LAST)
    assert survivor == "ok", survivor
