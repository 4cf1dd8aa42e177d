"""Profiles: the files that they write, and the steps of a loop that they see."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad.autograd import profiler
from cugrad.profiler import (
    EventList,
    FunctionEvent,
    ProfilerAction,
    ProfilerActivity,
    schedule,
    tensorboard_trace_handler,
)
from cugrad.profiler import profile as session
from tests.profiler.profiler_cases import leaf, trained
from tests.support import ROOT

pytestmark = pytest.mark.host_only


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    with cugrad.device("cpu"):
        yield


PHASES = {"X": {"name", "ph", "ts", "dur", "pid", "tid"}, "M": {"name", "ph", "pid", "args"},
          "C": {"name", "ph", "ts", "pid", "args"}, "s": {"name", "ph", "ts", "pid", "tid", "id"},
          "f": {"name", "ph", "ts", "pid", "tid", "id"}}  # fmt: skip


def check_trace(path: Path) -> list[dict[str, Any]]:
    """The events of a file, which is what the Trace Event Format asks for."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    trace = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
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
            cugrad.ones(2) * float("inf")
            cugrad.stack([cugrad.ones(1)] * 100)
    prof.export_chrome_trace(tmp_path / "trace.json", {"my": "note"})
    events = check_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["my"] == "note"
    by_category = {event.get("cat") for event in events}
    assert {"cpu_op", "kernel", "python_function", "user_annotation", "fwdbwd", "copy"} <= (
        by_category
    )
    exp = next(e for e in events if e["name"] == "exp" and e["ph"] == "X")
    assert exp["args"]["Input Dims"] == [[3]] and "Sequence number" in exp["args"]
    assert "test_sessions.py" in exp["args"]["Call stack"]
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
import cugrad.profiler.traces.nsys, cugrad.profiler.correlation as module
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
