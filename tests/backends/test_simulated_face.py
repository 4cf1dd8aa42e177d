"""The simulated device answers as CUDA does where a script asks about memory, or for NumPy."""

from __future__ import annotations

import gc
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import cuda
from cugrad.backends import simulated
from cugrad.backends.simulated import MACHINE, machine

MIB = 1 << 20


def test_memory_statistics() -> None:
    cuda.reset_peak_memory_stats("simulated")
    before, reserved = cuda.memory_allocated("simulated"), cuda.memory_reserved("simulated")
    x = cugrad.ones(4 * MIB, dtype=cugrad.uint8, device="simulated")
    y = x + x
    place = cugrad.device("simulated")
    assert cuda.memory_allocated(place) == before + 8 * MIB
    assert cuda.max_memory_allocated("simulated:0") >= before + 8 * MIB
    assert cuda.memory_reserved(place) >= max(reserved, before + 8 * MIB)
    del y
    stats = cuda.memory_stats("simulated")
    assert stats["allocated_bytes.all.current"] == before + 4 * MIB
    assert stats["allocated_bytes.all.peak"] == cuda.max_memory_allocated("simulated")
    assert stats["reserved_bytes.all.peak"] == cuda.max_memory_reserved("simulated")
    assert stats["reserved_bytes.all.peak"] >= stats["reserved_bytes.all.current"]
    free, total = cuda.mem_get_info("simulated")
    assert total - free == cuda.memory_reserved("simulated")
    text = cuda.memory_summary("simulated")
    assert f"{(before + 4 * MIB) / MIB:,.2f} MiB" in text and "reserved" in text
    assert len(cuda.memory_summary("simulated", abbreviated=True)) < len(text)
    cuda.synchronize("simulated")
    del x


@pytest.mark.parametrize("name", ["mem_get_info", "synchronize"])
def test_other_devices_are_none_of_cuda(name: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match="Expected a cuda device|cuda"):
        getattr(cuda, name)("cpu")


@pytest.mark.parametrize("read", [
    lambda x: x.numpy(), np.asarray, np.array, lambda x: np.ones(2) + np.asarray(x),
    lambda x: x.detach().numpy(),
])  # fmt: skip
def test_numpy_is_of_the_host(read: Any) -> None:
    x = cugrad.ones(2, device="simulated")
    with pytest.raises(TypeError, match=r"can't convert simulated:0 device type tensor to numpy. "
                       r"Use Tensor.cpu\(\) to copy the tensor to host memory first"):  # fmt: skip
        read(x)
    assert x.numpy(force=True).tolist() == x.cpu().numpy().tolist() == [1, 1]


@pytest.mark.parametrize("moves", [False, True])
def test_a_loop_leaves_no_more_objects_than_it_began_with(moves: bool) -> None:
    """No operation is remembered for ever: 500 steps leave what 100 leave."""
    x = cugrad.ones(64, device="simulated", requires_grad=True)
    saving = cugrad.memory.offload(min_bytes=0, keep_last=0, timing=False)

    def steps(count: int) -> None:
        for _ in range(count):
            with saving if moves else nullcontext():
                y = (x * 2).exp().sin().sum()
            x.grad = None
            y.backward()
            MACHINE.new_stream().record_event()  # streams come and go, too

    with simulated.configured(policy="random", seed=1):
        MACHINE.reset_time(64)  # so few records that they are all there after a few steps
        try:
            left = []  # objects, not bytes: a table may be made larger at any time
            for count in (100, 500):
                steps(count)
                gc.collect()
                left.append(sys.getallocatedblocks())
        finally:
            MACHINE.reset_time()
    assert left[1] - left[0] < 500, "an object a step, or more"
    assert len(simulated.timeline().records) <= machine.LAST
