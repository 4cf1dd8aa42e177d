"""Each wait of the engine's for training states is needed: without it, there is a race."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cugrad
from cugrad import backends
from cugrad.backends import simulated
from cugrad.errors import RaceError
from cugrad.memory.disk.store import DiskStore
from cugrad.memory.geometry import memory_of
from cugrad.memory.offloading import engine
from cugrad.memory.offloading.options import OffloadOptions
from cugrad.memory.states.lane import Lane, lane_of
from cugrad.tensor import make
from tests.memory.offload import test_faults as faults_of_offload

DEVICE: Any = backends.get("simulated")
PATHS = ["cugrad.memory.offloading.state_spans.StateSpans", "cugrad.memory.states.lane.Lane"]
FAULTS = faults_of_offload.faults(PATHS)
PROGRAMS: list[Callable[[], Any]] = []
SIZE = 512


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS.append(function)
    return function


def sent() -> tuple[Any, Any, Any]:
    """An engine, a tensor on the device, and the span of its bytes, which are on their way out."""
    copies = engine.engine_of(DEVICE, 0)
    tensor = cugrad.ones(SIZE, device="simulated") * 2
    return copies, tensor, copies.send_state(tensor, OffloadOptions())


@program
def a_block_that_a_copy_fills_is_for_the_host() -> None:
    copies, tensor, span = sent()
    del span
    other = copies.host_state([0], tensor.nbytes, OffloadOptions())
    copies.state_on_host(other, True)[:] = 1


@program
def what_comes_ahead_is_dropped() -> None:
    copies, tensor, span = sent()
    del tensor
    copies.drain()
    assert copies.expect_state(span)
    copies.drop_state(span)
    assert cugrad.ones(SIZE, device="simulated") * 3 is not None


@program
def the_host_reads_what_leaves() -> None:
    copies, _, span = sent()
    assert copies.state_on_host(span, False).sum()


@program
def the_host_changes_what_comes() -> None:
    copies, tensor, span = sent()
    del tensor
    copies.drain()
    assert copies.bring_state(span) is not None
    copies.state_on_host(span, True)[:] = 1


@program
def what_the_host_has_changed_is_read_before_and_behind() -> None:
    copies, tensor, span = sent()
    copies.state_on_host(span, True)[:] = 1
    assert tensor * 3 is not None
    span.renew()
    copies.refresh_state(span, memory_of(DEVICE.xp, tensor._array))
    assert tensor * 3 is not None


@program
def what_is_held_for_its_return_is_written_to_when_it_has_left() -> None:
    copies, tensor, span = sent()
    del tensor
    copies.drain()
    lane = lane_of(copies, "states")
    there = make(copies.bring_state(span, lane))
    there += 1
    span = copies.send_state(there, OffloadOptions(), lane, span)
    copies.drop_state(span)
    assert copies.expect_state(span, lane)
    copies.release_finished(0)  # the lane waits
    there = make(copies.bring_state(span, lane))
    there += 1


def left_to_an_ordinary_tensor() -> tuple[Any, Any]:
    """An engine, and a tensor in a lane's memory, with a copy under way that no one wants."""
    copies, tensor, span = sent()
    del tensor
    copies.drain()
    lane = lane_of(copies, "states")
    there = make(copies.bring_state(span, lane))
    there += 1
    copies.send_state(there, OffloadOptions(), lane, span)
    return copies, there


@program
def what_was_sent_and_is_wanted_no_more_is_written_to() -> None:
    copies, there = left_to_an_ordinary_tensor()
    copies.release_finished(0)  # the lane waits
    there += 1


@program
def what_was_sent_and_is_wanted_no_more_is_written_to_behind_another_copy() -> None:
    copies, there = left_to_an_ordinary_tensor()
    copies.send_state(cugrad.ones(SIZE, device="simulated"), OffloadOptions(backlog=0))
    there += 1


@program
def a_block_is_read_on_two_streams() -> None:
    copies, tensor, span = sent()
    del tensor
    copies.drain()
    for lane in (lane_of(copies, "weights"), None):
        assert copies.expect_state(span, lane)
        copies.drop_state(span)
    del span
    sent()


@program
def a_block_is_read_on_two_streams_and_then_by_who_has_it() -> None:
    copies, tensor, span = sent()
    copies.drain()
    assert copies.expect_state(copies.host_state([0], tensor.nbytes, OffloadOptions()), None)
    other = copies.host_state([0], tensor.nbytes, OffloadOptions())
    assert copies.expect_state(other, lane_of(copies, "weights"))
    copies.drop_state(other)
    copies.refresh_state(other, memory_of(DEVICE.xp, tensor._array))
    del other, span
    sent()


def in_lane() -> tuple[Any, Lane, Any, Any]:
    """An engine, a lane, a span of bytes that have come to its memory, and these, in use."""
    copies, tensor, span = sent()
    lane = lane_of(copies, "states")
    del tensor
    copies.drain()
    flat = copies.bring_state(span, lane)
    assert flat + flat is not None
    return copies, lane, span, flat


def another_comes(copies: Any, lane: Lane) -> None:
    """To memory that the lane has free."""
    other = copies.host_state([0], SIZE * 4, OffloadOptions())
    assert copies.expect_state(other, lane)
    assert copies.bring_state(other, lane) is not None


@program
def a_lanes_memory_is_free_again() -> None:
    copies, lane, span, flat = in_lane()
    flat[...] = 1
    copies.drop_state(span)
    del flat
    another_comes(copies, lane)


@program
def a_lanes_memory_is_left() -> None:
    copies, lane, span, flat = in_lane()
    flat[...] = 1
    tensor = make(flat)
    span = copies.send_state(tensor, OffloadOptions(), lane)
    copies.drop_state(span, False)
    del tensor, flat
    copies.let_state_go(span)
    another_comes(copies, lane)


@program
def someone_lets_go_of_a_lanes_memory() -> None:
    copies, lane, span, flat = in_lane()
    lane.escaped.append(weakref.ref(flat))
    another_comes(copies, lane)
    flat[...] = 1
    del span, flat
    another_comes(copies, lane)
    assert not lane.escaped


@program
def a_part_comes_of_what_leaves() -> None:
    copies, _, span = sent()
    flat, arrived = copies.bring_part(span, 0, SIZE, lane_of(copies, "states"))
    DEVICE.current_stream().wait_event(arrived)
    assert flat + flat is not None
    copies.state_on_host(span, True)[:] = 1


@program
def what_is_on_its_way_to_a_file_is_read() -> None:
    copies, tensor, _ = sent()
    store = DiskStore()
    try:
        span = copies.send_state(tensor, OffloadOptions(pinned=False, spill=store))
        assert copies.read_state(span).sum()
    finally:
        store.close()


@program
def a_part_leaves_that_compute_has_made() -> None:
    copies, tensor, span = sent()
    del span
    copies.drain()
    whole = copies.host_state([0], tensor.nbytes, OffloadOptions(), copies.out.stream)
    tensor = tensor * 3
    left = copies.send_part(whole, 0, memory_of(DEVICE.xp, tensor._array)[:SIZE])
    assert copies.state_on_host(whole, False).sum() >= 0
    DEVICE.current_stream().wait_event(left)


@program
def a_part_leaves_to_where_others_were_read() -> None:
    copies, tensor, span = sent()
    lane = lane_of(copies, "states")
    copies.drain()
    flat, arrived = copies.bring_part(span, 0, SIZE, lane)
    DEVICE.current_stream().wait_event(arrived)
    del span
    whole = copies.host_state([0], tensor.nbytes, OffloadOptions(), copies.out.stream)
    left = copies.send_part(whole, 0, memory_of(DEVICE.xp, (tensor * 3)._array)[:SIZE])
    DEVICE.current_stream().wait_event(left)


@program
def streams_take_turns_with_what_has_come() -> None:
    copies, _, _, flat = in_lane()
    with DEVICE.use_stream(DEVICE.stream()):
        copies.in_order()
        assert flat + flat is not None


@program
def what_one_stream_lets_go_of_serves_another() -> None:
    copies, tensor, span = sent()
    copies.drain()
    with DEVICE.use_stream(DEVICE.stream()):
        copies.in_order()
        assert tensor * 2 is not None
        copies.drop_state(span)
        del tensor
    assert cugrad.ones(SIZE, device="simulated") * 3 is not None


@program
def what_leaves_while_one_stream_waits_serves_another() -> None:
    stream = DEVICE.stream()
    copies, tensor, span = sent()
    with DEVICE.use_stream(stream):
        copies.in_order()
        span = copies.send_state(tensor, OffloadOptions(), None, span)
        copies.drop_state(span)
        del tensor
        copies.release_finished(0)
    assert cugrad.ones(SIZE, device="simulated") * 3 is not None


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """An engine of its own for each test."""
    gc.collect()
    before = dict(engine._engines)
    engine._engines.clear()
    with simulated.configured(simulated.H200):
        simulated.reset()
        yield
        faults_of_offload.fresh()
    engine._engines.update(before)


def race() -> str | None:
    """The first race that some program finds under some schedule; its missing event."""
    for policy, seed in (("latest", 0), ("earliest", 0), ("random", 1), ("timed", 0)):
        for function in PROGRAMS:
            with simulated.configured(policy=policy, seed=seed):
                try:
                    function()
                    DEVICE.synchronize()
                except RaceError as error:
                    error.__traceback__ = None
                    faults_of_offload.fresh()
                    return error.missing
            faults_of_offload.fresh()
    return None


def test_with_all_of_it_there_is_none() -> None:
    assert race() is None
    assert len(FAULTS) >= 11


@pytest.mark.parametrize("fault", FAULTS)
def test_without_it_there_is_a_race(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with faults_of_offload.planted(fault, monkeypatch, FAULTS):
        assert race() is not None
