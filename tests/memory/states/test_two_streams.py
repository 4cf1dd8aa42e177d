"""Streams that use what is placed take turns, whether or not the program orders them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import cugrad
import cugrad.distributed as dist
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.backends.lending import queues
from cugrad.distributed.fsdp import fully_shard
from cugrad.memory.offloading import engine
from tests.memory.states.training import PLACES, deep

pytestmark = [pytest.mark.host_only, pytest.mark.usefixtures("nothing_stays_placed")]

DEVICE: Any = backends.get("simulated")
SCHEDULES = [("latest", 0), ("earliest", 0), *[("random", k) for k in range(20)]]
WINDOWS = ("3KiB", "9KiB", None)
WIDTH = 24


@contextmanager
def current(stream: Any) -> Iterator[None]:
    with queues.Current(DEVICE, stream), DEVICE.use_stream(stream):
        yield


@pytest.fixture(autouse=True)
def streams_of_before() -> Iterator[None]:
    """An engine of its own for each test, and no streams behind it."""
    gc.collect()
    before = dict(engine._engines)
    engine._engines.clear()
    yield
    engine._engines.clear()
    engine._engines.update(before)
    queues.stretches.clear()
    queues._forgotten.clear()
    queues.switched[0] = 0
    simulated.reset()


def trained(places: Any, window: Any, learns: bool) -> list[float]:
    """Losses of a model that two streams use, which wait for the default one alone. Steps are on
    either of them, behind the other, as a program has to see to.
    """
    simulated.reset()
    cugrad.manual_seed(0)
    net = deep(WIDTH, 4).to("simulated")
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    streams, default = [DEVICE.stream(), DEVICE.stream()], DEVICE.default_stream()
    values = np.random.default_rng(1).standard_normal((8, WIDTH))
    x = cugrad.tensor(values, dtype=cugrad.float32, device="simulated")

    def all_wait(behind: Any) -> None:
        for stream in {default, *streams} - {behind}:
            stream.wait_event(behind.record_event())

    def step(number: int) -> list[Any]:
        losses = []
        for k, stream in enumerate(streams):
            with current(stream), cugrad.set_grad_enabled(learns):
                losses.append(net(x * (k + 1)).square().mean())
        for stream in streams:
            default.wait_event(stream.record_event())
        found = [loss.item() for loss in losses]
        if learns:
            optimizer.zero_grad()
            with current(streams[number % 2]):
                streams[number % 2].wait_event(default.record_event())
                for loss in losses:
                    loss.backward()
                optimizer.step()
            all_wait(streams[number % 2])
        return found

    all_wait(default)
    if places is None:
        return [loss for number in range(4) for loss in step(number)]
    with memory.offload_states(net, optimizer, window=window, min_bytes=0, **places):
        return [loss for number in range(4) for loss in step(number)]


def test_a_host_and_parts_of_ranks_have_no_streams_to_order() -> None:
    with current(DEVICE.stream()):
        pass
    assert queues.switched[0]
    net = deep(WIDTH, 2)
    with memory.offload_states(net, weights="disk", window="3KiB", min_bytes=0):
        net(cugrad.ones(2, WIDTH)).sum().backward()
    dist.init_process_group("mpi", rank=0, world_size=1)
    try:
        whole = fully_shard(cugrad.nn.Linear(WIDTH, WIDTH))
        whole(cugrad.ones(2, WIDTH)).sum().backward()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("learns", [False, True], ids=["without grad", "trained"])
@pytest.mark.parametrize("place", PLACES)
def test_streams_that_use_one_weight_take_turns(place: str, learns: bool) -> None:
    """The simulated device raises where one stream reads what another may be writing."""
    plain = trained(None, None, learns)
    every = list(product(SCHEDULES, WINDOWS))
    for (policy, seed), window in Random(f"{place} {learns}").sample(every, 3):
        with simulated.configured(policy=policy, seed=seed):
            assert trained(PLACES[place], window, learns) == plain
