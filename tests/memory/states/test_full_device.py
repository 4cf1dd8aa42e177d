"""A device that is full has what waits there for later leave, and whoever tells of it brings in
nothing.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated

DEVICE: Any = backends.get("simulated")
W = 128
ONE = 4 * W * W  # bytes of a weight


pytestmark = pytest.mark.usefixtures("nothing_stays_placed")


def training(depth: int) -> tuple[Any, Any, Any]:
    cugrad.manual_seed(0)
    layers = [cugrad.nn.Linear(W, W, bias=False) for _ in range(depth)]
    net = cugrad.nn.Sequential(*layers).to("simulated")
    optimizer = cugrad.optim.Adam(net.parameters(), lr=0.01)
    return net, optimizer, cugrad.rand(16, W, device="simulated")


def in_use() -> int:
    gc.collect()
    DEVICE.synchronize()
    DEVICE.empty_cache()
    return int(DEVICE.memory_allocated())


def step(net: Any, optimizer: Any, x: Any) -> float:
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.item())


def test_weights_that_are_not_in_use_leave_a_device_that_is_full() -> None:
    net, optimizer, x = training(8)
    places: Any = {"weights": "host", "gradients": "host", "states": "host"}
    with memory.offload_states(net, optimizer, window=6 * ONE, **places):
        for _ in range(2):
            step(net, optimizer, x)
        with cugrad.no_grad():
            net(x)
        there = in_use()
        assert there > 6 * ONE
        with simulated.configured(capacity=there + ONE):
            large = cugrad.zeros(4, W, W, device="simulated")
            assert in_use() < there + ONE
        del large
        assert step(net, optimizer, x) > 0


def test_the_error_of_a_full_device_brings_nothing_in() -> None:
    """It names who holds the memory that is in use, of weights that are elsewhere too."""
    net, optimizer, x = training(8)
    with memory.offload_states(net, optimizer, weights="host", window=ONE):
        step(net, optimizer, x)
        aliases = [p.detach() for p in net.parameters()]
        small, caught = simulated.configured(capacity=in_use() + ONE), pytest.raises(MemoryError)
        with small, caught as error:
            cugrad.zeros(64, W, W, device="simulated")
        text = str(error.value)
        assert "parameters" not in text and "gradients" in text
        del caught, error, aliases
        assert step(net, optimizer, x) > 0


def test_a_device_too_small_for_the_first_step_is_a_limit_that_is_too_small() -> None:
    """BudgetError says how much it needs, which does, before long."""
    net, optimizer, x = training(4)
    many, limit, tries = cugrad.rand(512, W, device="simulated"), in_use(), 0
    while True:
        tries += 1
        plan = memory.budget(limit, model=net, optimizer=optimizer)
        try:
            with simulated.configured(capacity=int(1.02 * limit)), plan:
                for _ in range(3):
                    step(net, optimizer, many)
            break
        except memory.BudgetError as error:
            words = str(error).partition("needs at least ")[2].split()
            least = float(words[0]) * {"KiB": 1 << 10, "MiB": 1 << 20}[words[1].rstrip(".,")]
        assert least > limit and tries < 6
        limit = int(1.001 * least)
    with memory.offload_states(net, optimizer):
        pass
