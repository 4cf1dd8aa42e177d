"""The simulated device: arrays, streams, memory, schedules, virtual time, and standing for CUDA."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.backends import simulated
from cugrad.backends.simulated.cost import Resource
from cugrad.memory import save_on_cpu
from tests.support import ROOT

MB = 1 << 20
# A device whose every cost is a round number: 1 GB/s of memory, 100 MB/s each way, no latencies.
ROUND = simulated.Model(
    "round", 1 << 30, 1e9, 1e8, 1e8, {"float32": 1e9, "float16": 2e9, "float64": 5e8},
    launch=0.0, latency=0.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with simulated.configured(simulated.H200):
        simulated.reset()
        yield
        simulated.MACHINE.freed_pinned.clear()
        simulated.reset()


@pytest.fixture
def b() -> Any:
    return backends.get("simulated")


def pinned(b: Any, n: int, dtype: str = "float32") -> Any:
    return b.empty_pinned((n,), np.dtype(dtype))


# Arrays -------------------------------------------------------------------------------------------


def test_host_arrays_do_not_mix(b: Any) -> None:
    x, host = b.xp.ones(3), np.ones(3)
    for mixed in (lambda: x + host, lambda: host + x, lambda: b.xp.add(x, host),
                  lambda: x.__setitem__(0, host), lambda: b.xp.stack([x, host]),
                  lambda: b.xp.where(x > 0, host, x), lambda: x.__iadd__(host)):  # fmt: skip
        with pytest.raises(TypeError, match="Unsupported type"):
            mixed()
    for implicit in (lambda: np.asarray(x), lambda: np.array(x), lambda: np.sum([x])):
        with pytest.raises(TypeError, match="Implicit conversion to a NumPy array"):
            implicit()
    assert float((x * 2.5 + np.float64(1)).sum()) == 10.5


def test_an_element_is_a_view_and_a_reduction_an_array(b: Any) -> None:
    x = b.xp.zeros((2, 3))
    x[1, 2][...] = 5.0
    assert x.get()[1, 2] == 5 and x.sum().shape == ()
    assert isinstance(x.sum(), b.array_types)
    assert x[0].base is x and x.base is None


def test_a_tensor_goes_there_and_back() -> None:
    x = cugrad.arange(4.0, device="simulated", requires_grad=True)
    assert (x.device.type, x.device.index, x.is_cuda) == ("simulated", 0, False)
    (x * x).sum().backward()
    assert x.grad is not None and x.grad.cpu().tolist() == [0.0, 2.0, 4.0, 6.0]
    assert cugrad.ones(2).to("simulated").to("cpu").tolist() == [1.0, 1.0]
    assert cugrad.device("simulated:0") == x.device


# Memory -------------------------------------------------------------------------------------------


def test_memory_comes_and_goes(b: Any) -> None:
    before = b.memory_allocated()
    x = b.xp.zeros(1000, np.float32)
    assert b.memory_allocated() == before + 4096
    address = x.data.ptr
    del x
    assert b.memory_allocated() == before
    y = b.xp.empty(1001, np.float32)
    assert y.data.ptr == address  # the block was kept, and is reused at once
    assert np.isnan(y.get()).all()  # and what was in it is gone


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_new_memory_is_poison(b: Any, dtype: str) -> None:
    assert np.isnan(b.xp.empty(7, dtype).get()).all()
    assert np.isnan(np.asarray(pinned(b, 7, dtype))).all()


def test_a_full_device_says_so_and_recovers(b: Any) -> None:
    simulated.MACHINE.pool.release()
    with simulated.configured(capacity=b.memory_reserved() + MB):
        x = b.xp.zeros(100_000, np.float64)
        with pytest.raises(simulated.OutOfMemoryError, match="Out of memory allocating 800,256"):
            b.xp.zeros(100_000, np.float64)
        del x
        y = b.xp.zeros(110_000, np.float64)  # another size: the kept block is given back first
        assert issubclass(simulated.OutOfMemoryError, MemoryError) and y.size


def test_peak(b: Any) -> None:
    b.reset_peak_memory_stats()
    base = b.memory_allocated()
    x = b.xp.zeros(MB, np.uint8)
    del x
    assert b.max_memory_allocated() - base == MB and b.memory_allocated() == base


# Streams and schedules ----------------------------------------------------------------------------


def test_a_copy_is_late_when_it_may_be(b: Any) -> None:
    host, side = pinned(b, 4), b.stream()
    x = b.xp.ones(4, np.float32)
    side.wait_event(b.current_stream().record_event())
    with simulated.configured(policy="latest"):
        b.copy_async(host, x, side)
        event = side.record_event()
        assert np.isnan(np.asarray(host)).all()  # past the checks: poison
        assert not event.query()
        event.synchronize()
        assert host.tolist() == [1, 1, 1, 1] and event.query() and side.query()


def test_a_poll_ends(b: Any) -> None:
    for policy in simulated.POLICIES:
        with simulated.configured(policy=policy):
            x, host = b.xp.ones(4, np.float32), pinned(b, 4)
            side = b.stream()
            side.wait_event(b.current_stream().record_event())
            b.copy_async(host, x, side)
            event = side.record_event()
            while not event.query():
                pass
            assert host.sum() == 4
            b.copy_async(host, x, side)
            while not side.query():
                pass
            assert host.sum() == 4


def schedule(b: Any, seed: int) -> list[bool]:
    """Which of many copies had happened when the host looked."""
    simulated.reset()
    with simulated.configured(policy="random", seed=seed):
        x, seen = b.xp.ones(4, np.float32), []
        streams = [b.stream() for _ in range(3)]
        for stream in streams:
            stream.wait_event(b.current_stream().record_event())
        hosts = [pinned(b, 4) for _ in range(30)]
        for i, host in enumerate(hosts):
            b.copy_async(host, x, streams[i % 3])
            seen += [not np.isnan(np.asarray(h)).any() for h in hosts[: i + 1]]
        b.synchronize()
    return seen


def test_a_seed_is_a_schedule(b: Any) -> None:
    found = [tuple(schedule(b, seed)) for seed in range(8)]
    assert found == [tuple(schedule(b, seed)) for seed in range(8)]
    assert len(set(found)) > 4


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="want one of earliest, latest, random, timed"):
        simulated.set_policy("late")
    with pytest.raises(ValueError, match="got 'V100', want one of A100, H100, H200, GH200"):
        simulated.configure("V100")


@pytest.mark.parametrize("seed", range(50))
def test_offloaded_training_is_exact_under_every_schedule(seed: int) -> None:
    def step(offload: bool) -> Any:
        cugrad.manual_seed(1)
        w = cugrad.rand(16, 16, device="simulated", requires_grad=True)
        for _ in range(2):
            x = cugrad.rand(8, 16, device="simulated")
            with save_on_cpu(pin_memory=True) if offload else cugrad.enable_grad():
                y = ((x @ w).tanh() @ w).sigmoid().sum()
            y.backward()
        assert w.grad is not None
        return w.grad.cpu().tolist()

    policy = simulated.POLICIES[seed % 3]
    with simulated.configured(policy=policy, seed=seed):
        assert step(True) == step(False)


# Virtual time: schedules computed by hand ---------------------------------------------------------


def timed(**changes: Any) -> Any:
    return simulated.configured(ROUND, policy="timed", **changes)


def test_a_kernel_costs_its_bytes_or_its_flops(b: Any) -> None:
    with timed():
        x = b.xp.zeros(1_000_000, np.float32)
        with simulated.record() as t:
            x + x  # twice 4 MB in, 4 MB out at 1 GB/s; a million flops take less
        assert t.step_time == pytest.approx(0.012)
        a = b.xp.zeros((500, 500), np.float32)
        with simulated.record() as t:
            b.xp.matmul(a, a)  # 2 * 500^3 flops at 1 Gflop/s
        assert t.step_time == pytest.approx(0.25)
        assert [r.flops for r in t.records] == [2.5e8]


def test_what_is_repeated_or_not_asked_for_costs_nothing(b: Any) -> None:
    table, rows = b.xp.zeros((1000, 250), np.float32), b.xp.asarray(np.arange(10))
    one = b.xp.broadcast_to(b.xp.zeros((), np.float32), (1000, 250))
    with timed(), simulated.record() as t:
        b.xp.take(table, rows, 0)  # 10 rows of 1000 bytes read and written, 80 bytes of indices
        b.xp.index_add(table, rows, table[:10])  # 10 rows read, and 10 read and written
        table + one  # 1 MB read, 1 MB written; of `one` four bytes are there
        b.xp.negative(table)
    assert [r.nbytes for r in t.records] == [20_080, 30_080, 2_000_004, 2_000_000]


def test_several_kernels_cost_as_one(b: Any) -> None:
    x = b.xp.ones((1000, 250), np.float32)

    @simulated.one_kernel
    def gram(x: Any) -> Any:
        return simulated.one_kernel(lambda y: y * 2 + 1)(x) @ x.T

    with timed(), simulated.record() as t:
        gram(x)
        with pytest.raises(ValueError):
            simulated.one_kernel(lambda x: x.reshape(3, 3))(x)
        x + x
    assert [(r.name, r.nbytes, r.flops) for r in t.records] == [
        ("gram", 5_000_000, 5e8), ("add", 3_000_000, 250_000.0),
    ]  # fmt: skip
    assert t.records[0].end - t.records[0].start == pytest.approx(0.5)


def overlapped(b: Any) -> Any:
    """A kernel of 20 ms, a copy out of 10 ms behind it, beside it another kernel of 20 ms."""
    x, host = b.xp.zeros(250_000, np.float32), pinned(b, 250_000)
    big = b.xp.zeros(2_500_000, np.float32)
    compute, side = b.current_stream(), b.stream()
    with simulated.record() as t:
        b.xp.negative(big)
        side.wait_event(compute.record_event())
        b.copy_async(host, x, side)
        b.xp.negative(big)
        b.synchronize()
    return t


def test_a_copy_beside_a_kernel_costs_nothing(b: Any) -> None:
    with timed():
        t = overlapped(b)
        assert t.step_time == pytest.approx(0.040)
        assert t.busy("d2h") == pytest.approx(0.010) and t.overlap == pytest.approx(1.0)
        copy = next(r for r in t.records if r.kind == "d2h")
        assert (copy.start, copy.end) == pytest.approx((0.020, 0.030))
        wait = next(r for r in t.records if r.kind == "wait")
        assert (wait.start, wait.end) == pytest.approx((0.0, 0.020))
        assert (t.moved("d2h"), t.moved("h2d")) == (1_000_000, 0)


@pytest.mark.parametrize("duplex, seconds", [(True, 0.02), (False, 0.03)])
def test_duplex(b: Any, duplex: bool, seconds: float) -> None:
    """2 MB one way and 1 MB the other, at 100 MB/s, at the same time or in turn."""
    with timed(duplex=duplex):
        out, back = b.stream(), b.stream()
        x, y = b.xp.zeros(500_000, np.float32), b.xp.zeros(250_000, np.float32)
        to, of = pinned(b, 500_000), pinned(b, 250_000)
        of[...] = 1
        b.synchronize()
        with simulated.record() as t:
            b.copy_async(to, x, out)
            b.copy_async(y, of, back)
            b.synchronize()
        assert t.step_time == pytest.approx(seconds)


def test_two_copies_one_way_share_the_link(b: Any) -> None:
    with timed():
        streams, x = [b.stream(), b.stream()], b.xp.zeros(250_000, np.float32)
        hosts = [pinned(b, 250_000), pinned(b, 250_000)]
        b.synchronize()
        with simulated.record() as t:
            for stream, host in zip(streams, hosts):
                b.copy_async(host, x, stream)
            b.synchronize()
        assert t.step_time == pytest.approx(0.020)


def test_a_host_that_is_slow_to_launch_bounds_the_step(b: Any) -> None:
    with timed(launch=0.001, latency=0.0001):
        x = b.xp.zeros(1, np.float32)
        with simulated.record() as t:
            for _ in range(10):
                x = x + 1
        assert t.step_time == pytest.approx(10 * 0.001 + 0.0001, rel=1e-3)


def test_a_stall_is_seen(b: Any) -> None:
    with timed():
        host, side, target = pinned(b, 250_000), b.stream(), b.xp.zeros(250_000, np.float32)
        host[...] = 1
        b.synchronize()
        with simulated.record() as t:
            b.copy_async(target, host, side)
            b.current_stream().wait_event(side.record_event())
            target + 1
        assert t.stalls[0].stream == "default"
        assert t.summary()["stalled"] == pytest.approx(0.010)
        assert t.overlap == 0.0


def test_scale_makes_a_small_network_stand_for_a_large_one(b: Any) -> None:
    with timed(scale=1000.0):
        x = b.xp.zeros(1000, np.float32)
        with simulated.record() as t:
            x + x
        assert t.step_time == pytest.approx(0.012)


def test_queries_answer_by_virtual_time(b: Any) -> None:
    with timed(launch=0.004):
        side, host = b.stream(), pinned(b, 250_000)
        x = b.xp.zeros(250_000, np.float32)
        b.synchronize()
        b.copy_async(host, x, side)  # 10 ms; a question costs 1 ms of the host's time
        event, asked = side.record_event(), 0
        while not event.query():
            asked += 1
        assert asked in (8, 9)


def test_elapsed_time_is_virtual(b: Any) -> None:
    with timed():
        big = b.xp.zeros(2_500_000, np.float32)
        start, end = b.event(timing=True), b.event(timing=True)
        start.record()
        b.xp.negative(big)
        end.record()
        end.synchronize()
        assert start.elapsed_time(end) == pytest.approx(20.0)


def test_presets() -> None:
    h200, gh200 = simulated.preset("H200"), simulated.preset("gh200")
    assert h200.copy(52_000_000_000, "d2h") == pytest.approx(1.0, rel=1e-3)
    assert gh200.to_device > gh200.to_host > h200.to_host
    assert h200.kernel(0, 6e14, "bfloat16") == pytest.approx(1.0, rel=1e-3)
    assert h200.copy(10**9, "h2d", pageable=True) > 2 * h200.copy(10**9, "h2d")


def test_a_resource_fills_its_gaps() -> None:
    r = Resource()
    assert r.take(0.0, 1.0) == 0.0
    assert r.take(5.0, 1.0) == 5.0
    assert r.take(0.0, 3.0) == 1.0
    assert r.take(0.0, 2.0) == 6.0
    assert r.take(0.5, 1.0) == 4.0


def test_who_goes_before_others_displaces_them() -> None:
    r = Resource()
    assert r.take(0.0, 2.0) == 0.0
    assert r.take(2.0, 2.0) == 2.0
    assert r.cut_in(1.0, 1.0) == (2.0, 5.0)
    assert r.take(0.0, 1.0) == 5.0
    assert r.cut_in(9.0, 1.0) == (9.0, 0.0)
    assert r.take(0.0, 3.0) == 6.0


def test_kernels_of_a_stream_with_priority_begin_when_they_can(b: Any) -> None:
    """And all of them take as long as they would in order."""
    x = b.xp.zeros(MB, np.uint8)
    y = b.xp.zeros(MB, np.uint8)
    with timed():
        seconds = []
        for priority in (0, -1):
            first = b.stream(priority)
            b.synchronize()
            began = b.current_stream().record_event(b.event(timing=True))
            for _ in range(4):
                x += 1
            with b.use_stream(first):
                y += 1
                ended = first.record_event(b.event(timing=True))
            b.current_stream().wait_event(ended)
            last = b.current_stream().record_event(b.event(timing=True))
            seconds.append((began.elapsed_time(ended), began.elapsed_time(last)))
    (late, whole), (early, same) = seconds
    assert early < late / 2 and whole == pytest.approx(same)


def test_the_timeline_is_drawn(b: Any, tmp_path: Path) -> None:
    with timed():
        t = overlapped(b)
    text = str(t)
    assert "default |####" in text and "<" in text and "step 40.000 ms" in text
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    t.draw(str(tmp_path / "timeline.png"))
    assert (tmp_path / "timeline.png").stat().st_size > 1000


# Standing in for CUDA -----------------------------------------------------------------------------

DOCUMENTED = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import cugrad as torch
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    x = torch.randn(64, 64, device="cuda")
    y = torch.ones(3).cuda()
assert sum("simulated" in str(w.message) for w in caught) == 1, caught
assert x.is_cuda and str(x.device) == "cuda:0" and torch.ones(1).device.type == "cuda"
s, e = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
begin = torch.cuda.Event(enable_timing=True)
begin.record()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    assert torch.cuda.current_stream() == s
    z = x @ x
    e.record()
torch.cuda.current_stream().wait_event(e)
(z + 1).sum().item()
torch.cuda.synchronize()
assert begin.elapsed_time(e) > 0
assert torch.cuda.memory_allocated() >= 2 * 64 * 64 * 4
assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
assert "H200" in torch.cuda.get_device_name()
p = torch.ones(5, device="cpu").pin_memory()
assert p.is_pinned() and p.to("cuda", non_blocking=True).sum().item() == 5
with torch.cuda.stream(s):
    w = x * 2
try:
    w + 1
except Exception as error:
    assert type(error).__name__ == "RaceError", error
else:
    raise SystemExit("a missing wait_stream was not found")
"""


def test_documented_cuda_code_runs() -> None:
    import os

    env = {**os.environ, "CUGRAD_SIMULATE_CUDA": "1", "PYTHONPATH": str(ROOT)}
    env.pop("CUGRAD_DEVICE", None)
    done = subprocess.run(
        [sys.executable, "-c", DOCUMENTED], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
