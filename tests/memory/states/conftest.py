"""What tests of placed states have in common."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from cugrad.memory.states.placed import HOMES


@pytest.fixture
def nothing_stays_placed() -> Iterator[None]:
    """Fails a test behind which a tensor is still placed."""
    yield
    gc.collect()
    assert not HOMES
