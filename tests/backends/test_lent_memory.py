"""Memory that another stream uses is not used again before that stream is done with it."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import cugrad
from cugrad import backends
from cugrad.backends import simulated
from cugrad.backends.simulated.machine import POLICIES
from cugrad.backends.simulated.streams import SimulatedEvent
from cugrad.errors import RaceError

DEVICE: Any = backends.get("simulated")


def in_use() -> int:
    gc.collect()
    DEVICE.memory_allocated()  # marks how far the streams are that used what is gone
    DEVICE.synchronize()
    return DEVICE.memory_allocated()


def used_on_a_side_stream(tell: bool, count: int = 6) -> list[float]:
    """What a side stream makes of tensors that are gone before it has run; new ones follow."""
    side = DEVICE.stream()
    found = []
    for k in range(count):
        x = cugrad.full((1000,), float(k), device="simulated")
        side.wait_event(DEVICE.current_stream().record_event())
        with DEVICE.use_stream(side):
            y = x * 2 + 1
        if tell:
            x.record_stream(side)
            y.record_stream(DEVICE.current_stream())
        del x
        other = cugrad.zeros(1000, device="simulated")  # of the memory of x, where that is free
        DEVICE.current_stream().wait_event(side.record_event())
        found.append(float(y.sum()))
        del y, other
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_no_tensor_gets_memory_that_is_in_use(policy: str) -> None:
    with simulated.configured(policy=policy, seed=3):
        assert used_on_a_side_stream(True) == [1000.0 * (2 * k + 1) for k in range(6)]


def test_without_it_that_is_a_race() -> None:
    with simulated.configured(policy="latest"), pytest.raises(RaceError):
        used_on_a_side_stream(False)
    simulated.reset()


def test_memory_comes_back() -> None:
    """Of what is gone nothing is kept, once the stream is done: counted, or asked for when full."""
    side = DEVICE.stream()
    before = in_use()
    for _ in range(50):
        x = cugrad.empty(1 << 18, device="simulated")
        x[1:].record_stream(side)
        x.record_stream(side)
        x.record_stream(DEVICE.current_stream())
    del x
    assert in_use() <= before
    limit = DEVICE.memory_limit()
    DEVICE.empty_cache()
    try:
        DEVICE.limit_memory(DEVICE.memory_reserved() + (5 << 20))  # of three
        for _ in range(20):
            x = cugrad.empty(1 << 19, device="simulated")  # 2 MiB: the next one wants this one's
            with DEVICE.use_stream(side):
                x.fill_(1.0)
            x.record_stream(side)
            del x
    finally:
        DEVICE.limit_memory(limit)


def test_a_view_keeps_what_it_shows() -> None:
    side = DEVICE.stream()
    before = in_use()
    x = cugrad.ones(1000, device="simulated")
    part = x[10:20]
    x.record_stream(side)
    del x
    assert in_use() > before and part.sum().item() == 10.0
    del part
    assert in_use() == before


@pytest.mark.parametrize("asked", ["query", "record"])
def test_an_interrupt_gives_nothing_back(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side, before = DEVICE.stream(), in_use()
    x = cugrad.ones(1000, device="simulated")
    x.record_stream(side)
    x.record_stream(DEVICE.current_stream())
    del x
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedEvent, asked, interrupt)
        with pytest.raises(KeyboardInterrupt):
            DEVICE.memory_allocated()
    assert DEVICE.machine.pool.used > before
    assert in_use() == before


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_of_many_threads() -> None:
    side, wrong = DEVICE.stream(), list[BaseException]()

    def work() -> None:
        try:
            for _ in range(100):
                cugrad.empty(100, device="simulated").record_stream(side)
        except BaseException as error:
            wrong.append(error)

    before = in_use()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert in_use() <= before


def test_bad_input() -> None:
    with pytest.raises(NotImplementedError, match="want one on a GPU"):
        cugrad.ones(2).record_stream(DEVICE.current_stream())
    with pytest.raises(TypeError, match="argument 's' .* must be Stream, not int"):
        cugrad.ones(2, device="simulated").record_stream(3)
