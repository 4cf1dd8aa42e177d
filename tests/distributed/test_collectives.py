"""Collectives of 2 and 4 processes give what NumPy makes of all ranks' tensors."""

from __future__ import annotations

import functools

import pytest

from tests.distributed.ranks import Outcome, run_ranks

pytestmark = pytest.mark.host_only

CASES = ["sums", "sums_in_parts", "copies", "exchanges", "layouts", "later", "pairs", "things",
         "groups", "again"]  # fmt: skip


@functools.cache
def outcome(size: int) -> Outcome:
    """One start of the ranks for all cases: two by mpiexec, four by themselves."""
    return run_ranks("tests.distributed.programs", size, ["start", *CASES], by_mpiexec=size == 2)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_ranks_get_what_they_should(case: str, size: int) -> None:
    outcome(size).check(case)
