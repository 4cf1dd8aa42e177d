"""Profiles of a device: simulated, pretended, and real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import cugrad
from cugrad import nn
from cugrad.autograd import mode, profiler
from cugrad.backends import simulated
from cugrad.cuda.emitter import Emitter, call_of
from cugrad.profiler import ProfilerActivity
from cugrad.profiler import profile as session
from cugrad.profiler.nvidia.nvtx import Ranges
from cugrad.utils.checkpoint import checkpoint
from tests.profiler.profiler_cases import leaf, names, trained
from tests.support import ROOT, fake_cuda


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    with cugrad.device("cpu"):
        yield


def test_device_times_add_up_to_the_step() -> None:
    links = {"to_host": 1e13, "to_device": 1e13}
    with simulated.configured("H200", policy="timed", scale=3e3, **links):  # the host is ahead
        step = trained(waits=True)
        step()
        step()
        with simulated.record() as timeline, profiler.profile(use_device="simulated") as prof:
            step()
        kernels = timeline.busy("kernel", "d2d") * 1e6
        copies = timeline.moved("d2h"), timeline.moved("h2d")
    averages = {each.key: each for each in prof.key_averages()}
    work = {"offload: copy to host", "offload: copy to device", "offload: prefetch"}
    waits = {"offload: stall"}
    ops = sum(e.self_device_time_total for k, e in averages.items() if k not in work | waits)
    assert ops == pytest.approx(kernels, rel=0.05)
    assert averages["offload: copy to host"].nbytes == copies[0] > 0
    back = [e.nbytes for k, e in averages.items() if k in work - {"offload: copy to host"}]
    assert sum(back) == copies[1] > 0
    table = prof.key_averages().table(sort_by="self_device_time_total")
    assert "Self SIMULATED %" in table and "Self SIMULATED time total: " in table
    assert table.splitlines()[3].split()[0] in ("AddmmBackward0", "linear", "TanhBackward0", "tanh")
    stall = next(e for e in prof.function_events if e.name == "offload: stall")
    assert str(stall.scope) == "stall"


def test_what_a_node_launched_is_not_what_ran_in_it() -> None:
    with simulated.configured("H200", scale=3000.0):
        x = leaf(64, 64, device="simulated")
        with profiler.profile(use_device="simulated") as prof:
            checkpoint(lambda x: (x @ x).tanh(), x, use_reentrant=True).sum().backward()
    node = next(e for e in prof.function_events if e.name == "CheckpointFunctionBackward")
    inside = sum(each.device_time_total for each in node.cpu_children)
    assert node.device_time_total == pytest.approx(inside + node.self_device_time_total)
    assert node.self_device_time_total < inside


def test_only_the_device() -> None:
    x = leaf(64, 64, device="simulated")
    with profiler.profile(use_device="simulated", use_kineto=True, use_cpu=False) as prof:
        (x @ x).sum().backward()
        cugrad.ones(3).exp()
    assert {event.device_type.name for event in prof.function_events} == {"PrivateUse1"}
    assert "mm" in names(prof) and "exp" not in names(prof)  # which ran on the host
    assert prof.function_events[0].device_time_total > 0 == prof.self_cpu_time_total


def test_filters_and_toggling() -> None:
    step = trained()
    CPU, DEVICE = ProfilerActivity.CPU, ProfilerActivity.PrivateUse1
    step()
    with session(activities=[CPU, {DEVICE: ["GPU_MEMCPY"]}]) as prof:
        step()
    timed = {event.name for event in prof.events() if event.kernels}
    assert timed and all(name.startswith("offload: ") for name in timed)
    x = cugrad.ones(8, device="simulated")
    with session(activities=[CPU, DEVICE]) as prof:
        x.exp()
        prof.toggle_collection_dynamic(False, [DEVICE])
        x.sin()
        prof.toggle_collection_dynamic(False, [CPU])
        x.cos()
        prof.toggle_collection_dynamic(True, [CPU, DEVICE])
        x.tan()
    assert [(e.name, bool(e.kernels)) for e in prof.events()] == [
        ("exp", True), ("sin", False), ("tan", True)
    ]  # fmt: skip


def test_memory_of_the_device() -> None:
    x = leaf(1000, device="simulated")
    with profiler.profile(use_device="simulated", profile_memory=True) as prof:
        y = (x * x).exp()
        del y
        x.sin()
    found = {event.name: event.device_memory_usage for event in prof.function_events}
    assert found["mul"] >= 4000 and found["[memory]"] <= -4000
    assert "SIMULATED Mem" in prof.key_averages().table()


@pytest.mark.skipif(not cugrad.cuda.is_available() or fake_cuda.REAL is not None, reason="no GPU")
@pytest.mark.parametrize("use_kineto", [False, True])
def test_on_a_gpu_times_add_up_to_the_step(use_kineto: bool) -> None:
    net = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(6)]).to("cuda")
    x = cugrad.randn(4096, 4096, device="cuda")

    def step() -> None:
        net(x).sum().backward()

    step()
    step()
    begin, end = (cugrad.cuda.Event(enable_timing=True) for _ in range(2))
    with profiler.profile(use_device="cuda", use_kineto=use_kineto) as prof:
        begin.record()
        step()
        end.record()
    elapsed = begin.elapsed_time(end) * 1e3
    ops = [event for event in prof.function_events if event.device_type == 0]
    assert sum(event.self_device_time_total for event in ops) == pytest.approx(elapsed, rel=0.05)
    averages = {each.key: each for each in prof.key_averages()}
    forward, backward = averages["linear"], averages["AddmmBackward0"]
    assert 1.4 < backward.device_time_total / forward.device_time_total < 2.6


ON_FAKE_CUDA = """
from tests.support import fake_cuda
fake_cuda.install()
import cupy
cupy.cuda.get_elapsed_time = lambda begin, end: 0.25  # milliseconds
import cugrad as torch
from cugrad.profiler import ProfilerActivity, profile

net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 8)
with profile(profile_memory=True, with_flops=True) as prof:
    assert prof.activities == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    with torch.memory.offload(min_bytes=1, keep_last=0):
        loss = net(x).sum()
    loss.backward()
    optimizer.step()
averages = {each.key: each for each in prof.key_averages()}
assert averages["linear"].device_time_total >= 250.0
assert averages["AddmmBackward0"].device_time_total >= 250.0
assert "offload: copy to host" in averages and "Optimizer.step#SGD.step" in averages
assert averages["linear"].device_memory_usage > 0
table = prof.key_averages().table(sort_by="cuda_time_total")
assert "Self CUDA" in table and "CUDA Mem" in table and "Total FLOPs" in table
print("seen")
"""


def test_over_the_fake_cuda() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    done = subprocess.run(
        [sys.executable, "-c", ON_FAKE_CUDA], cwd=ROOT, env={**os.environ, "CUGRAD_DEVICE": "cuda"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "seen\n"), done.stderr[-2000:]


def test_tools_see_the_same_ranges() -> None:
    seen: list[str] = []
    library = Emitter("test", call_of(seen.append), lambda: seen.append("end"), seen.append)
    ranges = Ranges(library)
    step = trained()
    mode.push_observer(ranges)
    try:
        with profiler.record_function("mine"):
            step()
    finally:
        mode.pop_observer(ranges)
    text = "\n".join(seen)
    for name in (
        "mine",
        "nn.Module: Linear",
        "linear, seq=",
        "offload: copy to host",
        "offload: stall",
        "AddmmBackward0, stashed seq=",
        "Optimizer.step#SGD.step",
    ):
        assert name in text, name
    assert seen.count("end") * 2 == len(seen)
