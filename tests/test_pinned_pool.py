"""The pool of pinned buffers: who gets which buffer, behind which event."""

from __future__ import annotations

import numpy as np

from cugrad.backends import get
from cugrad.memory.pinned import PinnedPool


def test_the_first_given_back_is_the_first_taken_with_its_event() -> None:
    pool = PinnedPool(get("cpu"))
    (a, _), (b, _) = pool.take(8), pool.take(8)
    pool.give_back(b, "b is copied")
    pool.give_back(a, "a is copied")
    buffer, event = pool.take(8)
    assert buffer is b and event == "b is copied"
    assert pool.take(16)[0].nbytes == 16  # another size is another buffer
    assert pool.take(8)[0] is a
    assert pool.allocated_bytes == 32 and pool.take(8)[1] is None


def test_giving_back_takes_no_lock() -> None:
    """The garbage collector may give a buffer back in the middle of take()."""
    pool = PinnedPool(get("cpu"))
    with pool._lock:
        pool.give_back(np.zeros(8, np.uint8), None)
    assert pool.take(8)[1] is None and pool.allocated_bytes == 0


def test_clear_forgets_what_is_free() -> None:
    pool = PinnedPool(get("cpu"))
    kept, _ = pool.take(8)
    pool.give_back(pool.take(8)[0], get("cpu").event())
    pool.clear()
    assert pool.allocated_bytes == kept.nbytes
