"""The slab of pinned memory: who gets which block, behind which events."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from cugrad.backends import get
from cugrad.backends.lending.slab import FIRST, PinnedSlab

pytestmark = pytest.mark.host_only


class Happening:
    """An event that has happened, or not."""

    def __init__(self, happened: bool = False) -> None:
        self.happened = happened

    def query(self) -> bool:
        return self.happened

    def synchronize(self) -> None:
        self.happened = True


def taken(slab: PinnedSlab, nbytes: int) -> Any:
    block = slab.take(nbytes)
    assert block is not None
    return block


def test_the_first_given_back_is_the_first_taken_with_its_event() -> None:
    slab = PinnedSlab(get("cpu"))
    a, b = taken(slab, 512), taken(slab, 512)
    first, second = Happening(), Happening()
    slab.give_back(b, first)
    slab.give_back(a, second)
    again = taken(slab, 512)
    assert again.start == b.start and again.events == (first,)
    assert taken(slab, 512).events == (second,)


def test_giving_back_takes_no_lock() -> None:
    """The garbage collector may give a block back in the middle of take()."""
    slab = PinnedSlab(get("cpu"))
    block = taken(slab, 8)
    with slab._lock:
        slab.give_back(block, None)
    assert taken(slab, 8).events == () and slab.allocated_bytes == FIRST


def test_a_block_that_an_interrupt_lost_before_it_was_entered() -> None:
    slab = PinnedSlab(get("cpu"))
    kept = taken(slab, 512)
    for put_in_order in (slab.mend, lambda: None):
        block = Happening()
        reference = weakref.ref(block, slab._lost.append)
        del block
        put_in_order()
        assert taken(slab, 512).start != kept.start and not slab._lost and reference() is None


def test_sizes_are_exact_but_for_alignment_and_blocks_do_not_overlap() -> None:
    slab = PinnedSlab(get("cpu"))
    sizes = (1, 512, 513, 5000, 70_000)
    blocks = [taken(slab, n) for n in sizes]
    for number, block in enumerate(blocks):
        block.array[...] = number
    assert [b.size for b in blocks] == [512, 512, 1024, 5120, 70_144]
    assert [set(b.array.tolist()) for b in blocks] == [{n} for n in range(len(blocks))]
    assert slab.used_bytes == slab.peak_bytes == sum(b.size for b in blocks)


def test_neighbours_are_joined_before_memory_grows_and_keep_the_events_that_count() -> None:
    slab = PinnedSlab(get("cpu"), chunk=FIRST)
    quarters = [taken(slab, FIRST // 4) for _ in range(4)]
    events = [Happening(), Happening(True), Happening(), Happening()]
    for block, event in zip(quarters, events, strict=True):
        slab.give_back(block, event)
    whole = taken(slab, FIRST)
    assert slab.allocated_bytes == FIRST and whole.size == FIRST
    assert whole.events == (events[0], events[2], events[3])  # one has happened


def test_blocks_of_two_chunks_are_not_joined() -> None:
    slab = PinnedSlab(get("cpu"), chunk=FIRST)
    for block in [taken(slab, FIRST), taken(slab, FIRST)]:
        slab.give_back(block, None)
    assert taken(slab, 2 * FIRST).size == 2 * FIRST and slab.allocated_bytes == 4 * FIRST


def test_the_limit_holds_and_a_host_without_memory_answers_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slab = PinnedSlab(get("cpu"), limit=4096)
    assert taken(slab, 4096).size == 4096 and slab.take(1) is None

    def full(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(type(get("cpu")), "empty_pinned", full)
    assert PinnedSlab(get("cpu")).take(8) is None


def test_chunks_double_and_repeated_steps_lock_nothing_more() -> None:
    slab = PinnedSlab(get("cpu"))
    grown = []
    for _ in range(4):
        blocks = [taken(slab, 300_000 + 4096 * k) for k in range(20)]
        grown.append((slab.allocated_bytes, len(slab._chunks)))
        for block in blocks:
            slab.give_back(block, Happening())
    assert len(set(grown)) == 1 and grown[0][1] <= 5


def test_release_unlocks_what_is_wholly_free_behind_its_events() -> None:
    slab = PinnedSlab(get("cpu"), chunk=FIRST)
    kept, gone, event = taken(slab, FIRST), taken(slab, FIRST), Happening()
    slab.give_back(gone, event)
    slab.release()
    assert event.happened and slab.allocated_bytes == FIRST == kept.size
    assert np.shares_memory(kept.array, slab._chunks[0])
