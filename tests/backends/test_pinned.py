"""What pin_memory gives: a storage of its own, used again only when no copy reads or writes it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.backends import simulated
from cugrad.backends.lending.pinned import pinned_memory
from cugrad.backends.owners import root_of
from cugrad.tensor import make
from tests.conftest import usable_devices

N = 1000


DEVICES = [("simulated", policy) for policy in simulated.POLICIES] + [("cuda", None)]


@pytest.fixture(params=[d for d in DEVICES if d[0] in usable_devices()] or [None], ids=str)
def place(request: pytest.FixtureRequest) -> Any:
    if request.param is None:
        pytest.skip("nothing is page-locked for the CPU")
    return request.param


@pytest.fixture
def device(place: Any) -> str:
    return str(place[0])


@pytest.fixture
def pinned(place: Any) -> Iterator[Any]:
    """Makes tensors in the page-locked memory of a device, as `pin_memory` does."""
    device, policy = place
    memory = pinned_memory(backends.get(device))

    def filled(value: float, *shape: int) -> Any:
        array = memory.empty(shape or (N,), np.dtype(np.float32))
        array.fill(value)
        return make(array)

    with simulated.configured(policy=policy) if policy else nullcontext():
        yield filled
        memory.release()


def test_what_is_copied_from_lasts_as_long_as_the_copy(pinned: Any, device: str) -> None:
    there = [cugrad.zeros(N, device=device) for _ in range(4)]
    for i, target in enumerate(there):
        source = pinned(i + 1)
        if i % 2:
            target.copy_(source, non_blocking=True)
        else:
            there[i] = source.to(device, non_blocking=True)
        del source
        pinned(-1)
    assert [t.mean().item() for t in there] == [1, 2, 3, 4]


def test_what_is_copied_to_lasts_as_long_as_the_copy(pinned: Any, device: str) -> None:
    source = cugrad.ones(N, device=device)
    for _ in range(4):
        source.to("cpu", non_blocking=True)
        other = pinned(7)
        backends.get(device).synchronize()
        assert other.mean().item() == 7


def test_a_device_has_its_memory_back_before_a_copy_has_ended(pinned: Any, device: str) -> None:
    """Whatever is queued: what takes it next comes behind on the stream."""
    backend: Any = backends.get(device)
    target = pinned(0)
    before = backend.memory_allocated()
    source = cugrad.ones(N, device=device)
    target.copy_(source, non_blocking=True)
    assert backend.memory_allocated() > before
    del source
    assert backend.memory_allocated() == before
    backend.synchronize()
    assert target.sum().item() == N


@pytest.mark.parametrize("copied", [
    lambda t, device: t.to(device), lambda t, device: t[10:].t().to(device),
    lambda t, device: cugrad.tensor(t, device=device),
    lambda t, device: cugrad.as_tensor(t.numpy(), device=device),
    lambda t, device: cugrad.zeros(N, device=device).copy_(t),
    lambda t, device: cugrad.zeros(N, device=device).index_put_((cugrad.arange(N, device=device),),
                                                               t.to(device)),
])  # fmt: skip
def test_a_blocking_copy_is_done_when_it_returns(pinned: Any, device: str, copied: Any) -> None:
    """Loaders fill one buffer again and again."""
    buffer, found = pinned(0), []
    for i in range(4):
        buffer.fill_(i)
        found.append(copied(buffer, device))
    buffer.fill_(-1)
    assert [t.mean().item() for t in found] == [0, 1, 2, 3]


def test_memory_is_locked_once(pinned: Any, device: str) -> None:
    memory = pinned_memory(backends.get(device))
    target = cugrad.zeros(N, device=device)
    for i in range(20):
        target.copy_(pinned(i), non_blocking=True)
        target.sum().item()
        if i == 9:
            locked = memory._slab.allocated_bytes
    assert memory._slab.allocated_bytes == locked
    memory.release()
    assert memory._slab.allocated_bytes == 0
    kept = pinned(5)[10:20]
    pinned(3)
    memory.release()
    assert memory._slab.allocated_bytes > 0 and kept.tolist() == [5] * 10


def test_each_is_a_storage_of_its_own(pinned: Any, device: str) -> None:
    a, b = pinned(1, 10, 100), pinned(2, 10, 100)
    for t in (a, b):
        assert root_of(t[3:, ::2].t()._array) is root_of(t._array)
        assert t.untyped_storage().nbytes() == 4 * N and t[2].storage_offset() == 200
        file = io.BytesIO()
        cugrad.save(t, file)
        assert file.tell() < 8 * N
    assert root_of(a._array) is not root_of(b._array)
    assert backends.get(device).is_pinned(a[5]._array)
    a.add_(1)
    assert b._version == 0 and (a == b).all()
