"""DistributedDataParallel in 2 and 4 processes trains as one process with the joined batch does."""

from __future__ import annotations

import functools

import pytest

from tests.distributed.ranks import Outcome, run_ranks

pytestmark = pytest.mark.host_only

CASES = ["plain", "accumulated", "unused", "placed", "scaled", "hooked", "normed", "mistakes",
         "gradients", "sampled", "uneven", "sparse"]  # fmt: skip
OF_FOUR = ["plain", "unused", "gradients", "uneven"]


@functools.cache
def outcome(size: int) -> Outcome:
    """One start of the ranks for all cases."""
    cases = CASES if size == 2 else OF_FOUR
    return run_ranks("tests.distributed.programs_ddp", size, ["start", *cases])


@pytest.mark.parametrize(
    ("case", "size"), [*((case, 2) for case in CASES), *((case, 4) for case in OF_FOUR)]
)
def test_ranks_train_as_one_process_does(case: str, size: int) -> None:
    outcome(size).check(case)
