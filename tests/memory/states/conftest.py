"""What tests of placed states have in common."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from cugrad.memory.budgeting.planning import search
from cugrad.memory.states.placed import HOMES


@pytest.fixture
def nothing_stays_placed() -> Iterator[None]:
    """Fails a test behind which a tensor is still placed."""
    yield
    gc.collect()
    assert not HOMES
    gc.freeze()  # what is there is not walked by the collections of the next tests


@pytest.fixture
def quick_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that are good enough, by a tenth of the usual forecasts."""
    for name in ("WORK", "MOST"):
        monkeypatch.setattr(search, name, getattr(search, name) // 10)
