"""What the protocol asks of every device, and what the library asks on rarer ways."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import simulated
from cugrad.memory import offload
from tests.support import fake_cuda


def test_a_device_says_what_it_is(backend: Any, device: str) -> None:
    if device == "cpu":
        pytest.skip("the CPU is no device of CUDA's")
    free, total = backend.memory_info()
    about = backend.device_properties(backend.current_device())
    assert 0 <= free <= total and about["totalGlobalMem"] > 0 and about["name"] and about["major"]
    assert backend.device_count() >= 1
    backend.set_device(0)
    assert backend.current_device() == 0


def test_memory_is_counted(backend: Any, device: str) -> None:
    if device == "cpu":
        pytest.skip("tracemalloc counts the CPU's")
    backend.reset_peak_memory_stats()
    before = backend.memory_allocated()
    x = cugrad.ones(1000, device=device)
    assert backend.memory_allocated() - before >= 4000
    assert backend.max_memory_reserved() >= backend.memory_reserved() >= 4000
    del x
    assert backend.max_memory_allocated() >= before
    backend.watch_peak()
    backend.raise_watched_peak(before + 10**6)
    assert backend.watched_peak() >= before + 10**6 > backend.max_memory_allocated()
    backend.empty_cache()
    backend.reset_peak_memory_stats()


def test_a_part_of_the_memory_is_enough(backend: Any, device: str) -> None:
    if device == "cpu":
        pytest.skip("the CPU is no device of CUDA's")
    cuda = cugrad.cuda
    cuda.set_per_process_memory_fraction(0.25, device)
    assert cuda.get_per_process_memory_fraction(device) == 0.25
    cuda.set_per_process_memory_fraction(1.0, device)
    assert cuda.get_per_process_memory_fraction(device) == 1.0
    with pytest.raises(TypeError, match="must be `float`"):
        cuda.set_per_process_memory_fraction(1, device)
    with pytest.raises(ValueError, match="Allowed range"):
        cuda.set_per_process_memory_fraction(1.5, device)


def test_a_full_device_says_who_holds_what() -> None:
    simulated.MACHINE.pool.release()
    with simulated.configured(capacity=simulated.MACHINE.pool.held + 25_000):
        w = cugrad.ones(1000, device="simulated", requires_grad=True)
        y = (w * w).exp()
        w.grad = cugrad.zeros(1000, device="simulated")
        with pytest.raises(cugrad.OutOfMemoryError, match="out of memory. mul: Out of") as full:
            [y * 2.0 for _ in range(9)]
    text = str(full.value)
    for who in (
        "in 1 arrays: parameters",
        "gradients",
        "saved for ExpBackward0",
        "(1000,) float32",
    ):
        assert who in text
    assert isinstance(full.value, MemoryError) and isinstance(full.value, RuntimeError)
    assert cugrad.cuda.OutOfMemoryError is cugrad.OutOfMemoryError


@pytest.mark.parametrize("recorded", [False, True])
def test_a_device_that_is_full_in_backward_says_who_holds_what(recorded: bool) -> None:
    gc.collect()  # nothing else is given back meanwhile
    w = cugrad.ones(1000, device="simulated", requires_grad=True)
    y = (w * w).exp().sum()
    simulated.MACHINE.pool.release()
    full = pytest.raises(cugrad.OutOfMemoryError, match=r"(Exp|Mul)Backward0: Out|(exp|mul): Out")
    with simulated.configured(capacity=simulated.MACHINE.pool.held + 1000), full as error:
        cugrad.autograd.grad(y, w, create_graph=recorded)
    text = str(error.value)
    assert text.startswith("CUDA out of memory. ") and "arrays: parameters" in text
    assert text.count("Held by:") == 1
    y = (w * w).exp().sum()
    y.backward()  # with memory again, the engine works
    assert w.grad is not None


MAKERS: dict[str, Callable[[str], Any]] = {
    "empty": lambda d: cugrad.empty(500, 500, device=d),
    "zeros": lambda d: cugrad.zeros(500, 500, device=d),
    "full": lambda d: cugrad.full((500, 500), 2.0, device=d),
    "rand": lambda d: cugrad.rand(500, 500, device=d),
    "randn": lambda d: cugrad.randn(500, 500, device=d),
    "arange": lambda d: cugrad.arange(250_000, device=d),
    "eye": lambda d: cugrad.eye(500, device=d),
    "linspace": lambda d: cugrad.linspace(0, 1, 250_000, device=d),
    "tensor": lambda d: cugrad.tensor(np.zeros((500, 500)), device=d),
    "to": lambda d: cugrad.zeros(500, 500, device="cpu").to(d),
    "zeros_like": lambda d: cugrad.zeros_like(cugrad.empty(500, 500, device="cpu"), device=d),
    "new_zeros": lambda d: cugrad.ones(1, device=d).new_zeros(500, 500),
}  # fmt: skip


@contextlib.contextmanager
def small(device: str) -> Iterator[None]:
    """A device that has no room for a million bytes."""
    gc.collect()
    if device == "simulated":
        simulated.MACHINE.pool.release()
        with simulated.configured(capacity=simulated.MACHINE.pool.held + 100_000):
            yield
        return
    if fake_cuda.REAL is None:
        pytest.skip("other programs use the device")
    cugrad.cuda.empty_cache()
    total = cugrad.cuda.get_device_properties(0).total_memory
    part = (cugrad.cuda.memory_reserved() + 100_000) / total
    cugrad.cuda.set_per_process_memory_fraction(part)
    try:
        yield
    finally:
        cugrad.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("name", MAKERS)
def test_who_makes_or_moves_a_tensor_is_told_who_holds_what(device: str, name: str) -> None:
    if device == "cpu":
        pytest.skip("the host's memory is the system's")
    w = cugrad.ones(1000, device=device, requires_grad=True)
    with small(device), pytest.raises(cugrad.OutOfMemoryError) as full:
        [MAKERS[name](device) for _ in range(100)]
    text = str(full.value)
    assert text.startswith(f"CUDA out of memory. {name}: Out of memory allocating "), text
    assert text.count("Held by:") == 1 and "arrays: parameters" in text and w.is_leaf


def test_a_module_that_finds_no_room_says_so() -> None:
    net = cugrad.nn.Linear(500, 500, device="cpu")
    with small("simulated"), pytest.raises(cugrad.OutOfMemoryError, match="Held by:"):
        net.to("simulated")


def test_streams_and_events(backend: Any, device: str) -> None:
    begin, end, stream = backend.event(True), backend.event(True), backend.stream()
    begin.record()
    with backend.use_stream(stream):
        x = cugrad.ones(10, device=device)
        end.record()
    backend.current_stream().wait_event(end)
    assert x.sum().item() == 10
    end.synchronize()
    backend.synchronize()
    assert begin.query() and end.query() and stream.query() and begin.elapsed_time(end) >= 0
    assert not stream.is_capturing()
    if device == "cuda":
        assert backend.external_stream(stream).ptr == stream.ptr
        theirs = SimpleNamespace(__cuda_stream__=stream.__cuda_stream__)
        with cugrad.cuda.stream(theirs):  # type: ignore[arg-type]
            assert cugrad.cuda.current_stream().cuda_stream == stream.ptr
        assert cugrad.cuda.current_stream() == cugrad.cuda.default_stream()
        backend.profiler_start()
        backend.profiler_stop()


def test_integers_divide_and_round(device: str) -> None:
    values, by = np.array([7, -7, 6, 0, -1]), np.array([3, 3, -4, 5, 2])
    x, y = cugrad.tensor(values, device=device), cugrad.tensor(by, device=device)
    assert cugrad.remainder(x, y).tolist() == (values % by).tolist()
    assert cugrad.floor_divide(x, y).tolist() == (values // by).tolist()
    assert cugrad.max_pool1d(x[None], 2)[0].tolist() == [7, 6]
    assert x.nonzero().tolist() == [[0], [1], [2], [4]]
    assert cugrad.triu_indices(2, 2, device=device).tolist() == [[0, 0, 1], [0, 1, 1]]
    found = cugrad.round(cugrad.tensor([1.234, -5.678], device=device), decimals=1)
    assert found.tolist() == pytest.approx([1.2, -5.7])
    assert x.float().round().dtype is cugrad.float32 and x.round().tolist() == values.tolist()


def test_counts_are_drawn(device: str) -> None:
    cugrad.manual_seed(0)
    rate = cugrad.full((4000,), 3.0, device=device)
    assert abs(cugrad.poisson(rate).mean().item() - 3) < 0.2
    assert abs(cugrad.binomial(rate * 4, rate / 6).mean().item() - 6) < 0.2


@pytest.mark.parametrize("dtype", [cugrad.float32, cugrad.float64])
@pytest.mark.parametrize("codec", ["fp8", "int8", "bf16"])
def test_codecs_decode_what_they_encode(device: str, codec: str, dtype: Any) -> None:
    if device == "cpu":
        pytest.skip("nothing leaves the CPU")
    x = cugrad.rand(64, 64, device=device, requires_grad=True, dtype=dtype)
    with offload(min_bytes=0, keep_last=0, compress=codec):
        y = (x * x).exp().sum()
    y.backward()
    wanted = (x * x).exp() * 2 * x
    assert (x.grad - wanted).abs().max().item() < 0.5


def test_an_optimizer_steps(device: str) -> None:
    w = cugrad.ones(5, device=device, requires_grad=True)
    for make in (cugrad.optim.Adam, cugrad.optim.AdamW, cugrad.optim.SGD):
        optimizer = make([w], lr=0.1)
        (w * w).sum().backward()
        before = w.detach().clone()
        optimizer.step()
        assert (w < before).all()
        optimizer.zero_grad()


def test_memory_by_its_former_names(device: str) -> None:
    if device == "cpu":
        pytest.skip("the CPU is no device of CUDA's")
    for name in ("memory", "max_memory"):
        with pytest.warns(FutureWarning, match=f"renamed to `torch.cuda.{name}_reserved`"):
            told = getattr(cugrad.cuda, f"{name}_cached")(device)
        assert told == getattr(cugrad.cuda, f"{name}_reserved")(device)
    for name in ("allocated", "cached"):
        with pytest.warns(FutureWarning, match="resets /all/ peak"):
            getattr(cugrad.cuda, f"reset_max_memory_{name}")(device)
    cugrad.cuda.ipc_collect()


@pytest.mark.parametrize("weight", [0.1, 0.9])
def test_lerp_by_a_number_takes_one_array(weight: float) -> None:
    """As a step of averages of weights does, where the device is nearly full."""
    backend: Any = cugrad.backends.get("simulated")
    x = cugrad.ones(1 << 16, device="simulated")
    y = x * 2
    backend.synchronize()
    backend.reset_peak_memory_stats()
    before = backend.max_memory_allocated()
    x.lerp_(y, weight)
    assert backend.max_memory_allocated() - before <= x.nbytes + 512
