"""Profiles: what they see, in which thread, on which device, and the files that they write."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad import memory, nn
from cugrad.autograd import mode, profiler
from cugrad.backends import simulated
from cugrad.cuda.emitter import Emitter
from cugrad.profiler import (
    EventList,
    FunctionEvent,
    ProfilerAction,
    ProfilerActivity,
    RecordScope,
    schedule,
    tensorboard_trace_handler,
)
from cugrad.profiler import profile as session
from cugrad.profiler.nvtx import Ranges
from cugrad.utils.checkpoint import checkpoint

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    with cugrad.device("cpu"):
        yield


def names(prof: Any) -> list[str]:
    return [event.name for event in prof.function_events]


def leaf(*shape: int, device: str = "cpu") -> cugrad.Tensor:
    return cugrad.ones(*shape, device=device, requires_grad=True)


# ---------------------------------------------------------------------- what is seen


def test_ops_and_their_nodes_share_a_number() -> None:
    x = leaf(3)
    with profiler.profile() as prof:
        (x * x).sum().backward()
        cugrad.ones(3) + 1
    mul, total, back_total, back_mul, leaves, add = prof.function_events
    assert names(prof) == ["mul", "sum", "SumBackward0", "MulBackward0",
                           "torch::autograd::AccumulateGrad", "add"]  # fmt: skip
    assert mul.sequence_nr == back_mul.sequence_nr >= 0
    assert total.sequence_nr == back_total.sequence_nr > mul.sequence_nr
    assert back_mul.fwd_thread == mul.thread
    assert leaves.sequence_nr == add.sequence_nr == -1  # no node is made where none is needed
    assert [str(each.scope) for each in (mul, back_mul)] == ["function", "backward"]
    assert all(0 <= each.time_range.start <= each.time_range.end for each in prof.function_events)
    assert prof.self_cpu_time_total > 0
    assert prof.total_average().count == 6


def test_double_backward_is_nested_and_numbered() -> None:
    x = leaf(3)
    with profiler.profile() as prof:
        (g,) = cugrad.autograd.grad((x**3).sum(), x, create_graph=True)
        g.sum().backward()
    node = next(each for each in prof.function_events if each.name == "PowBackward0")
    inside = [each.name for each in node.cpu_children]
    assert "mul" in inside
    made = {each.sequence_nr for each in node.cpu_children if each.sequence_nr >= 0}
    again = {e.sequence_nr for e in prof.function_events if e.scope == 1 and e is not node}
    assert made & again


def test_nothing_is_left_behind() -> None:
    with pytest.raises(ZeroDivisionError), profiler.profile() as prof:
        cugrad.ones(2).exp()
        raise ZeroDivisionError
    assert not mode.state.observers and not mode.state.ranges
    cugrad.ones(2).exp()
    assert names(prof) == ["exp"]


def test_an_op_that_fails_is_seen() -> None:
    with profiler.profile(record_shapes=True) as prof, pytest.raises(RuntimeError):
        cugrad.ones(2, 3) + cugrad.ones(2, 4)
    assert names(prof) == ["add"]
    assert prof.function_events[0].input_shapes[:2] == [[2, 3], [2, 4]]


def test_a_profile_is_of_its_thread_and_of_what_backward_starts() -> None:
    def other() -> None:
        cugrad.ones(2).exp()

    class Deep(cugrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: cugrad.Tensor, depth: int) -> cugrad.Tensor:
            ctx.depth = depth
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: cugrad.Tensor) -> Any:
            if ctx.depth:
                with cugrad.enable_grad():
                    Deep.apply(leaf(2), ctx.depth - 1).sum().backward()
            return g, None

    with profiler.profile() as prof:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        Deep.apply(leaf(2), 200).sum().backward()  # half the stack is full: other threads
    assert "exp" not in names(prof)
    assert names(prof).count("DeepBackward") == 201
    assert len({each.thread for each in prof.function_events}) > 1
    for each in prof.function_events:
        if each.name == "DeepBackward":
            assert each.fwd_thread is not None


def test_profiles_may_be_nested_but_not_entered_twice() -> None:
    with profiler.profile() as outer:
        cugrad.ones(2).exp()
        with profiler.profile() as inner:
            cugrad.ones(2).sin()
        with pytest.raises(RuntimeError, match="not reentrant"), outer:
            pass
    assert (names(outer), names(inner)) == (["exp", "sin"], ["sin"])


def test_accumulated_events() -> None:
    for accumulate in (False, True):
        prof = profiler.profile(acc_events=accumulate)
        for _ in range(3):
            with prof:
                cugrad.ones(2).exp()
        assert len(prof.function_events) == (3 if accumulate else 1)
        assert prof.key_averages()[0].count == len(prof.function_events)


def test_a_profile_that_is_off_or_not_over() -> None:
    off = profiler.profile(enabled=False)
    with off:
        cugrad.ones(2).exp()
    with pytest.raises(AssertionError, match="Expected profiling results"):
        off.key_averages()
    on = profiler.profile()
    assert str(on) == repr(on) == "<unfinished torch.autograd.profile>"
    with on:
        assert str(on) == "<unfinished torch.autograd.profile>"
        with pytest.raises(AssertionError, match="has not ended"):
            on.table()
    assert str(on) == ""


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(AssertionError, match="use_kineto=True"):
        profiler.profile(use_cpu=False)
    with pytest.raises(AssertionError, match="No activities"):
        profiler.profile(use_cpu=False, use_kineto=True)
    with pytest.raises(ValueError, match="non-negative"):
        profiler.profile(post_processing_timeout_s=-1.0)
    with pytest.raises(TypeError, match="experimental_config"):
        profiler.profile(experimental_config=object())
    with pytest.warns(UserWarning, match="not a valid device option"):
        assert profiler.profile(use_device="toaster").use_device is None
    if not cugrad.cuda.is_available():
        with pytest.warns(FutureWarning, match="use_cuda"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "CUDA is not available")
            profiler.profile(use_cuda=True)
    with profiler.profile() as prof:
        pass
    with pytest.raises(AssertionError, match="with_stack=True"):
        prof.export_stacks("nowhere")
    with pytest.raises(ValueError, match="Kineto"):
        prof.export_chrome_trace("nowhere", use_python_export=False)


def test_a_timeout_gives_part_of_the_events() -> None:
    with profiler.profile(post_processing_timeout_s=0.0) as prof:
        for _ in range(50):
            cugrad.ones(2).exp()
    assert 0 < len(prof.function_events) < 50


# ---------------------------------------------------------------------- ranges


def test_ranges_of_the_user() -> None:
    @profiler.record_function("decorated")
    def step(x: cugrad.Tensor) -> cugrad.Tensor:
        with profiler.record_function("inner", "3"):
            return x.exp()

    x = cugrad.ones(2)
    with profiler.record_function("nobody looks"):
        pass
    with profiler.profile() as prof:
        step(x)
        step(x)
    assert names(prof) == ["decorated", "inner(3)", "exp"] * 2
    outer, inner, exp = prof.function_events[:3]
    assert exp.cpu_parent is inner and inner.cpu_parent is outer
    assert outer.scope == RecordScope.USER_SCOPE and outer.is_user_annotation
    assert outer.self_cpu_time_total == pytest.approx(
        outer.cpu_time_total - inner.cpu_time_total, abs=1e-6
    )


def test_optimizers_and_recomputes_are_events() -> None:
    w = nn.Parameter(cugrad.ones(3))
    optimizer = cugrad.optim.SGD([w], lr=0.1)
    for reentrant in (False, True):
        with profiler.profile() as prof:
            checkpoint(lambda w: w.exp().sin(), w, use_reentrant=reentrant).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        found = {event.name: event for event in prof.function_events}
        assert str(found["checkpoint: recompute"].scope) == "recompute"
        inside = [event.name for event in found["checkpoint: recompute"].cpu_children]
        assert "exp" in inside
        assert str(found["Optimizer.step#SGD.step"].scope) == "optimizer"
        assert "Optimizer.zero_grad#SGD.zero_grad" in found


def test_modules() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with profiler.profile() as plain:
        net(cugrad.ones(1, 2))
    assert names(plain) == ["linear", "relu", "linear"]
    with profiler.profile(with_modules=True) as prof:
        net(cugrad.ones(1, 2))
        net(cugrad.ones(1, 2))
    assert names(prof)[:7] == [
        "nn.Module: Sequential_0", "nn.Module: Linear_0", "linear", "nn.Module: ReLU_0", "relu",
        "nn.Module: Linear_1", "linear",
    ]  # fmt: skip
    assert names(prof)[7:] == names(prof)[:7]
    relu = prof.function_events[4]
    assert relu.module_hierarchy == "Sequential.1"
    assert relu.cpu_parent.scope == RecordScope.MODULE


def test_stacks(tmp_path: Path) -> None:
    x = leaf(3)

    def forward() -> cugrad.Tensor:
        return (x * x).sum()

    with profiler.profile(with_stack=True) as prof:
        forward().backward()
    mul = prof.function_events[0]
    assert re.match(r".*test_profiler.py\(\d+\): forward$", mul.stack[0])
    assert mul.stack[1].endswith("test_stacks")
    node = next(each for each in prof.function_events if each.name == "MulBackward0")
    assert node.stack == mul.stack
    assert all("cugrad/autograd" not in line for line in mul.stack)
    averages = prof.key_averages(group_by_stack_n=2)
    assert [len(each.stack) for each in averages if each.key == "mul"] == [2]
    assert "Source Location" in averages.table()
    prof.export_stacks(tmp_path / "stacks.txt")
    for line in (tmp_path / "stacks.txt").read_text().splitlines():
        stack, weight = line.rsplit(" ", 1)
        assert int(weight) > 0 and stack.count(";") > 1 and " " not in stack


# ---------------------------------------------------------------------- shapes, flops, memory


def test_shapes_group() -> None:
    with profiler.profile(record_shapes=True) as prof:
        for n in (2, 2, 3):
            cugrad.ones(n, 4) @ cugrad.ones(4, 5)
            cugrad.ones(n).sum(0, keepdim=True)
    counts = {(e.key, str(e.input_shapes)): e.count for e in prof.key_averages(True)}
    assert counts["mm", "[[2, 4], [4, 5]]"] == 2
    assert counts["mm", "[[3, 4], [4, 5]]"] == 1
    total = next(each for each in prof.function_events if each.name == "sum")
    assert (total.input_dtypes[0], total.input_shapes[0]) == ("float32", [2])
    assert total.kwinputs["keepdim"] is True


def test_flops_of_backward_and_of_attention() -> None:
    with profiler.profile(with_flops=True) as prof:
        (leaf(3, 4) @ leaf(4, 5)).sum().backward()
        (leaf(3, 4) @ cugrad.ones(4, 5)).sum().backward()
    flops = [event.flops for event in prof.function_events if event.flops]
    assert flops == [120, 240, 120, 120]
    with profiler.profile(with_flops=True) as prof:
        (leaf(3, 4) @ leaf(4, 5)).sum().backward(create_graph=True)
    flops = [event.flops for event in prof.function_events if event.flops]
    assert flops == [120, 120, 120]  # the products within the node, and not the node besides
    q = leaf(2, 6, 8)
    with profiler.profile(with_flops=True) as prof:
        nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
    found = prof.key_averages()
    products = [e.flops for e in found if e.key in ("matmul", "bmm", "mm")]
    forward = 2 * (2 * 2 * 6 * 6 * 8)
    assert sum(products) == 3.5 * forward  # backward computes the weights again
    assert "Total " in found.table() and "FLOPs" in found.table()


def test_memory_of_the_host() -> None:
    with profiler.profile(profile_memory=True) as prof:
        kept = cugrad.ones(1000, 1000).exp()
        del kept
        cugrad.ones(3).sin()
    exp = next(each for each in prof.function_events if each.name == "exp")
    assert exp.cpu_memory_usage == pytest.approx(4_000_000, abs=50_000)
    given_back = sum(e.cpu_memory_usage for e in prof.function_events if e.name == "[memory]")
    assert given_back == pytest.approx(-4_000_000, abs=4_100_000)
    assert "Self CPU Mem" in prof.key_averages().table()
    assert not tracemalloc.is_tracing()


# ---------------------------------------------------------------------- the device


def trained(device: str = "simulated") -> Any:
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])
    net = net.to(device)
    x = cugrad.randn(128, 64, device=device)
    optimizer = cugrad.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        with memory.offload(min_bytes=1, keep_last=0, device_type=device):
            loss = net(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_device_times_add_up_to_the_step() -> None:
    links = {"to_host": 1e13, "to_device": 1e13}
    with simulated.configured("H200", policy="timed", scale=3e3, **links):  # the host is ahead
        step = trained()
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


ON_FAKE_CUDA = """
from tests import fake_cuda
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
    library = Emitter("test", seen.append, lambda: seen.append("end"), seen.append)
    ranges = Ranges(library)
    step = trained()
    mode.push_observer(ranges)
    try:
        with profiler.record_function("mine"):
            step()
    finally:
        mode.pop_observer(ranges)
    text = "\n".join(seen)
    for name in ("mine", "nn.Module: Linear", "linear, seq=", "offload: copy to host",
                 "offload: stall", "AddmmBackward0, stashed seq=", "Optimizer.step#SGD.step"):
        assert name in text, name
    assert seen.count("end") * 2 == len(seen)


# ---------------------------------------------------------------------- files


PHASES = {"X": {"name", "ph", "ts", "dur", "pid", "tid"}, "M": {"name", "ph", "pid", "args"},
          "C": {"name", "ph", "ts", "pid", "args"}, "s": {"name", "ph", "ts", "pid", "tid", "id"},
          "f": {"name", "ph", "ts", "pid", "tid", "id"}}  # fmt: skip


def check_trace(path: Path) -> list[dict[str, Any]]:
    """The events of a file, which is what the Trace Event Format asks for."""
    raw = path.read_bytes()
    trace = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    assert trace["schemaVersion"] == 1 and trace["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, Any]] = trace["traceEvents"]
    lanes: dict[Any, list[float]] = {}
    flows: dict[Any, list[str]] = {}
    for event in events:
        assert PHASES[event["ph"]] <= set(event), event
        assert event.get("dur", 0) >= 0 and event.get("ts", 0) >= 0
        if event["ph"] == "X":
            ends = lanes.setdefault((event["pid"], event["tid"]), [])
            while ends and ends[-1] <= event["ts"] + 1e-6:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1] + 1e-3, "events of a lane are nested"
            ends.append(end)
        elif event["ph"] in "sf":
            flows.setdefault(event["id"], []).append(event["ph"])
            assert event["ph"] == "s" or event["bp"] == "e"
    assert all(phases == ["s", "f"] for phases in flows.values())
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert set(lanes) <= named
    return events


def test_traces_are_what_the_format_asks_for(tmp_path: Path) -> None:
    step = trained()
    step()
    with profiler.profile(
        use_device="simulated", record_shapes=True, profile_memory=True, with_stack=True,
        with_modules=True, with_flops=True,
    ) as prof:  # fmt: skip
        step()
        with profiler.record_function('a "quoted" name\n'):
            leaf(3).exp().sum().backward()
    prof.export_chrome_trace(tmp_path / "trace.json", {"my": "note"})
    events = check_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["my"] == "note"
    by_category = {event.get("cat") for event in events}
    assert {"cpu_op", "kernel", "python_function", "user_annotation", "fwdbwd", "copy"} <= (
        by_category
    )
    exp = next(e for e in events if e["name"] == "exp" and e["ph"] == "X")
    assert exp["args"]["Input Dims"] == [[3]] and "Sequence number" in exp["args"]
    assert "test_profiler.py" in exp["args"]["Call stack"]
    prof.export_chrome_trace(tmp_path / "trace.json.gz")
    assert len(check_trace(tmp_path / "trace.json.gz")) == len(events)
    prof.function_events.export_chrome_trace(tmp_path / "list.json")
    assert len(check_trace(tmp_path / "list.json")) == len(events)


def test_a_list_without_a_tree() -> None:
    events = EventList([FunctionEvent(0, "mul", 1, 0, 5)])
    with pytest.raises(AssertionError, match="build_tree"):
        events.key_averages()
    assert "mul" in str(events)
    with pytest.raises(AttributeError, match="sort_by='speed'"):
        events.table(sort_by="speed")


# ---------------------------------------------------------------------- sessions


def test_steps_of_a_loop(tmp_path: Path) -> None:
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    handler = tensorboard_trace_handler(tmp_path / "new" / "logs", "worker", use_gzip=True)
    x = cugrad.ones(3)
    with session(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=handler) as prof:
        prof.add_metadata("note", 'with "quotes"')
        prof.add_metadata_json("number", "3")
        for _ in range(10):
            x.exp()
            prof.step()
    files = sorted((tmp_path / "new" / "logs").iterdir())
    assert len(files) == 2 and files[0].name.startswith("worker.")
    assert files[0].name.endswith(".pt.trace.json.gz")
    with gzip.open(files[0], "rt") as file:
        trace = json.load(file)
    assert (trace["note"], trace["number"]) == ('with "quotes"', 3)
    labels = [e["name"] for e in trace["traceEvents"] if e["ph"] == "X"]
    assert labels == ["ProfilerStep#2", "exp", "ProfilerStep#3", "exp"]
    assert [each.key for each in prof.key_averages()] == ["ProfilerStep*", "exp"]


def test_a_session_without_a_schedule() -> None:
    ready: list[int] = []
    prof = session(on_trace_ready=lambda p: ready.append(len(p.events())))
    assert prof.get_trace_id() is None
    with pytest.raises(AssertionError, match="must be initialized"):
        prof.events()
    with prof:
        cugrad.ones(2).exp()
        prof.step()
        cugrad.ones(2).exp()
    assert ready == [2] and len(str(prof.get_trace_id())) == 32


def test_sessions_tell_an_observer_and_number_their_traces() -> None:
    class Watcher:
        calls: list[str] = []

        def __getattr__(self, name: str) -> Any:
            return lambda: self.calls.append(name)

    numbers = iter("abcdef")
    seen: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = schedule(wait=0, warmup=0, active=1, repeat=2)
    with session(
        activities=[ProfilerActivity.CPU], schedule=plan, execution_trace_observer=Watcher(),
        custom_trace_id_callback=lambda: next(numbers),
        on_trace_ready=lambda p: seen.append(p.get_trace_id()),
    ) as prof:  # fmt: skip
        for _ in range(3):
            prof.step()
    assert seen == ["a", "b"]
    assert Watcher.calls == ["start", "stop", "start", "stop", "cleanup"]


def test_a_schedule_of_ones_own_that_is_wrong() -> None:
    actions = [ProfilerAction.WARMUP, ProfilerAction.NONE, ProfilerAction.RECORD,
               ProfilerAction.NONE]  # fmt: skip
    prof = session(activities=[ProfilerActivity.CPU], schedule=lambda step: actions[step % 4])
    with pytest.warns(UserWarning, match="Incorrect schedule: WARMUP followed by NONE"), prof:
        prof.step()
        prof.step()
        with pytest.warns(UserWarning, match="RECORD followed by NONE"):
            prof.step()
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(wait=-1, warmup=1, active=1)
    with pytest.warns(UserWarning, match="won't be using warmup"):
        schedule(wait=1, warmup=0, active=1)


def test_activities() -> None:
    CPU = ProfilerActivity.CPU
    with pytest.raises(ValueError, match="more than once"):
        session(activities=[CPU, {CPU: []}])
    with pytest.raises(TypeError, match="Expected ProfilerActivity or dict"):
        session(activities=["cpu"])
    with pytest.raises(AssertionError, match="No valid profiler activities"):
        session(activities=[])
    with pytest.warns(FutureWarning, match="use_cuda"):
        assert session(activities=[CPU], use_cuda=False).use_device is None


def test_the_profiler_is_imported_when_it_is_used() -> None:
    code = """
import sys, cugrad
print(sorted(name for name in sys.modules if name.startswith("cugrad.profiler")))
import cugrad.profiler.load_nsys, cugrad.profiler.correlate as module
from cugrad.profiler import load_nsys, correlate, profile
from cugrad.autograd.profiler import profile as plain, record_function
print(callable(load_nsys), callable(correlate), profile is not plain)
assert set(cugrad.profiler.__all__) <= set(dir(cugrad.profiler))
for name in cugrad.profiler.__all__:
    getattr(cugrad.profiler, name)
for name in cugrad.autograd.profiler.__all__:
    getattr(cugrad.autograd.profiler, name)
for module in (cugrad.profiler, cugrad.autograd.profiler):
    try:
        module.nonsense
    except AttributeError as error:
        print("nonsense" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "['cugrad.profiler', 'cugrad.profiler.of_autograd']", "True True True", "True", "True"
    ], done.stderr  # fmt: skip
