"""Proves on files with the real schemas that each kernel finds its op, by every route to it."""

from __future__ import annotations

import functools
import gc
import json
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cugrad.profiler import load_nsys, load_nvprof
from cugrad.profiler.correlation.attribution import (
    Activity,
    TraceError,
    TraceRange,
    attributed,
    said_by,
)
from cugrad.profiler.correlation.joining import Correlation, Correlator, correlate
from cugrad.profiler.events.event import FunctionEvent, RecordScope
from cugrad.profiler.events.event_list import EventList
from cugrad.profiler.traces.files import spans_of_file
from cugrad.profiler.traces.nvprof import demangled
from tests.profiler.profiler_files import (
    PREFIX,
    PROCESS,
    THREAD,
    US,
    Step,
    training_step,
    write_chrome,
    write_nsys,
    write_nvprof,
)  # fmt: skip

pytestmark = pytest.mark.host_only

Writer = Callable[[Path, Step], Path]
WRITERS: dict[str, Writer] = {
    "nsys": write_nsys,
    "old nsys": lambda path, step: write_nsys(path, step, new=False),
    "nvprof": write_nvprof,
    "chrome": write_chrome,
}
SPELLINGS = {"cugrad": ("cugrad", False), "payload": ("cugrad", True), "torch": ("torch", False)}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Writer:
    return WRITERS[request.param]


def read(path: Path) -> Correlation:
    adding = Correlator()
    spans = spans_of_file(path)
    next(spans)
    for each in spans:
        assert isinstance(each, (TraceRange, Activity))
        adding.add(each)
    return Correlation(adding.rows.values(), [])


def spans_in(path: Path) -> Iterator[TraceRange]:
    return (each for each in spans_of_file(path) if isinstance(each, TraceRange))


# What belongs to what --------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_step(write: Writer, spelling: str, tmp_path: Path) -> None:
    """Kernels of both APIs, copies and waits, by op, backward and double backward."""
    found = read(write(tmp_path / "trace", training_step(*SPELLINGS[spelling])))
    prefix = "aten::" if spelling == "torch" else ""
    mul, total = found.row(f"{prefix}mul"), found.row(f"{prefix}sum")
    assert (mul.forward.calls, mul.forward.kernels, mul.forward.kernel_us) == (1, 2, 8.0)
    assert mul.nodes == mul.double_nodes == {"MulBackward0": 1}
    assert (mul.backward.kernels, mul.backward.kernel_us) == (1, 4.0)
    assert (mul.double_backward.kernels, mul.double_backward.kernel_us) == (1, 9.0)
    assert (total.forward.kernels, total.forward.kernel_us) == (1, 7.0)
    assert (total.forward.copies, total.forward.copy_bytes) == (1, 4096)
    assert (total.forward.stalls, total.forward.stall_us) == (1, 10.0)
    assert total.nodes == {"SumBackward0": 1} and total.backward.kernel_us == 2.0
    leaf = next(row for row in found.rows if row.kind == "node")
    assert leaf.nodes == {"AccumulateGrad": 1}
    assert (leaf.backward.copies, leaf.backward.copy_bytes) == (1, 512)
    assert found.row("optimizer.step").kind == "range"
    assert found.row("(outside ranges)").forward.kernel_us == 100.0
    everything = found.total
    assert (everything.kernels, everything.copies) == (8, 2)


def test_all_readers_agree(tmp_path: Path) -> None:
    tables = [str(read(each(tmp_path / "trace", training_step()))) for each in WRITERS.values()]
    assert set(tables) == {tables[0]}
    head = [each.strip() for each in tables[0].splitlines()[0].split("|")]
    assert head == ["forward op", "calls", "kernels", "backward", "kernels", "double backward",
                    "kernels", "copies", "stalls"]  # fmt: skip


def test_names_and_nesting(tmp_path: Path) -> None:
    for write in (write_nsys, write_nvprof):
        spans = list(spans_in(write(tmp_path / "trace", training_step())))
        mul = next(each for each in spans if each.said.seq == 12 and each.said.node is None)
        assert (mul.process, mul.thread, mul.start, mul.end) == (PROCESS, THREAD, 10_000, 50_000)
        assert mul.said.sizes == [[2, 3], []]
        assert mul.parent is not None and mul.parent.said.name == "step"
        inner = next(each for each in spans if each.said.seq == 14 and each.said.node is None)
        assert inner.parent is not None and inner.parent.said.node == "MulBackward0"
        copies = [x.name for each in spans for x in each.activities if x.kind == "copy"]
        back, out = "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pinned -> Device)"
        assert sorted(copies) == [back, out]


def test_recomputed_ops_are_no_double_backward(write: Writer, tmp_path: Path) -> None:
    """A checkpoint's node runs its ops again, and their nodes inside of itself."""
    step = Step()
    step.range(0, 50, "checkpoint, seq=1")
    step.range(100, 300, "CheckpointBackward, stashed seq=1")
    step.range(110, 140, "exp, seq=2")
    step.launch("driver", 120, 400, 5, "exp_again")
    step.range(200, 240, "ExpBackward0, stashed seq=2")
    step.launch("driver", 210, 410, 3, "exp_back")
    found = read(write(tmp_path / "trace", step))
    assert found.row("checkpoint").backward.kernel_us == 5.0
    again = found.row("exp (recomputed)")
    assert (again.backward.kernel_us, again.nodes) == (3.0, {"ExpBackward0": 1})
    assert not any(row.double_nodes for row in found.rows)


def test_the_maker_is_named_like_its_node(write: Writer, tmp_path: Path) -> None:
    """PyTorch numbers ops around and inside the one that makes a node alike."""
    step = Step()
    step.range(0, 100, "aten::linear, seq = 5")
    step.range(10, 20, "aten::t, seq = 5")
    step.range(30, 80, "aten::addmm, seq = 5")
    step.range(40, 50, "aten::empty, seq = 5")
    step.launch("runtime", 60, 300, 9, "gemm")
    step.range(200, 250, "AddmmBackward0, seq = 5")
    step.launch("runtime", 210, 400, 8, "gemm")
    row = read(write(tmp_path / "trace", step)).row("aten::addmm")
    assert (row.forward.kernel_us, row.backward.kernel_us) == (9.0, 8.0)
    assert row.nodes == {"AddmmBackward0": 1}


def test_threads_do_not_mix(write: Writer, tmp_path: Path) -> None:
    """A launch inside the time of a range, but from another thread, is not the range's."""
    step = Step()
    step.range(0, 100, "mul, seq=1", thread=1)
    step.range(0, 100, "add, seq=2", thread=2)
    step.launch("driver", 50, 300, 9, "of two", thread=2)
    step.launch("driver", 51, 310, 4, "of nobody", thread=3)
    found = read(write(tmp_path / "trace", step))
    assert found.row("add").forward.kernel_us == 9.0
    assert found.row("mul").forward.kernels == 0
    assert found.row("(outside ranges)").forward.kernel_us == 4.0


def test_processes_do_not_mix(tmp_path: Path) -> None:
    """Correlation numbers, thread numbers and sequence numbers are a process's own."""
    step = training_step()
    path = write_nsys(tmp_path / "trace", step)
    other = sqlite3.connect(path)
    other.execute(f"INSERT INTO {PREFIX}KERNEL (start, end, correlationId, globalPid) "
                  f"VALUES (1, 50001, 1, {9999 * 0x1000000})")  # fmt: skip
    other.commit()
    other.close()
    assert read(path).row("mul").forward.kernel_us == 8.0


def test_a_range_that_never_ended(tmp_path: Path) -> None:
    path = write_nsys(tmp_path / "trace", training_step())
    database = sqlite3.connect(path)
    database.execute("UPDATE NVTX_EVENTS SET end = NULL WHERE start = 0 AND eventType = 59")
    database.commit()
    database.close()
    found = read(path)
    assert found.row("step").forward.kernel_us == 100.0  # the one that was launched last


def test_ranges_that_overlap_without_nesting() -> None:
    ranges = [(0, 50, 1, 1, "a", None), (20, 80, 1, 1, "b", None), (60, 90, 1, 1, "c", None)]
    launches: list[Any] = [(at, 1, 1, Activity("kernel", str(at), 0, 1, 0, 0, 0))
                           for at in (10, 30, 55, 85, 95)]  # fmt: skip
    found = list(attributed(ranges, launches))
    by = {each.said.name: [x.name for x in each.activities] for each in found
          if isinstance(each, TraceRange)}  # fmt: skip
    assert by == {"a": ["10"], "b": ["30", "55"], "c": ["85"]}
    assert [each.name for each in found if isinstance(each, Activity)] == ["95"]
    assert not any(each.parent for each in found if isinstance(each, TraceRange))


@pytest.mark.parametrize(
    "text, name, seq, node",
    [
        ("mul", "mul", None, None),
        ("forward(a, b)", "forward(a, b)", None, None),
        ("mul, seq=0", "mul", 0, None),
        ("torch::autograd::AccumulateGrad, seq = -1, op_id = 3", "torch::autograd::AccumulateGrad",
         None, "AccumulateGrad"),
        ("torch::autograd::AccumulateGrad, seq = 18446744073709551615",
         "torch::autograd::AccumulateGrad", None, "AccumulateGrad"),
        ("My, seq 3", "My, seq 3", None, None),
        ("TwiceBackward, stashed seq=7", "TwiceBackward", 7, "TwiceBackward"),
        ("odd name, stashed seq = 7", "odd name", 7, "odd name"),
        ("aten::add, op_id = 12, sizes = [[], [2]]", "aten::add", None, None),
    ],
)  # fmt: skip
def test_texts(text: str, name: str, seq: int | None, node: str | None) -> None:
    said = said_by(text)
    assert (said.name, said.seq, said.node) == (name, seq, node)


def test_names_of_kernels_are_demangled(tmp_path: Path) -> None:
    assert demangled("not a C++ name") == "not a C++ name"
    assert demangled("_Znonsense!") == "_Znonsense!"
    if demangled("_Z9mul_floatPfi") == "_Z9mul_floatPfi":
        pytest.skip("the C++ library is missing")
    spans = spans_in(write_nvprof(tmp_path / "trace", training_step()))
    names = {x.name for each in spans for x in each.activities}
    assert "mul_float(float*, int)" in names


# Size ------------------------------------------------------------------------------------------


def huge(n: int) -> Step:
    step = Step()
    for i in range(n):
        step.range(100 * i, 100 * i + 90, f"mul, seq={i}")
        for k in range(3):
            step.launch("driver", 100 * i + 10 + k, 100 * i + 20, 5, "mul_kernel")
    return step


@pytest.mark.parametrize("name", ["nsys", "nvprof"])
def test_a_long_trace_passes_through(name: str, tmp_path: Path) -> None:
    """Twice as many rows take no more memory, apart from what joins a node to its op."""
    peaks = []
    for n in (1500, 3000):
        path = WRITERS[name](tmp_path / "trace", huge(n))
        gc.collect()  # from here on, when it comes again depends on what is allocated alone
        tracemalloc.start()
        try:
            seen = sum(len(each.activities) for each in spans_in(path))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert seen == 3 * n
    assert peaks[1] < 2**19 and peaks[1] < peaks[0] * 1.5


# Chrome traces ---------------------------------------------------------------------------------


def test_begin_and_end_events(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"ph": "B", "name": "mul, seq=1", "ts": 10, "pid": "a", "tid": "b"},
        {"ph": "B", "name": "inner", "ts": "11.5", "pid": "a", "tid": "b", "args": None},
        {"ph": "E", "ts": 12, "pid": "a", "tid": "b"},
        {"ph": "E", "ts": 20, "pid": "a", "tid": "b"},
        {"ph": "E", "ts": 30, "pid": "a", "tid": "b"},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))  # a list alone is a trace as well
    spans = list(spans_in(path))
    assert [(each.said.name, each.start, each.end) for each in spans] == [
        ("inner", 11_500, 12 * US), ("mul", 10 * US, 20 * US),
    ]  # fmt: skip
    assert spans[0].parent is spans[1]


def test_kernels_with_an_external_id_alone(tmp_path: Path) -> None:
    common = {"ph": "X", "pid": 1, "dur": 5}
    events = [
        {**common, "cat": "cpu_op", "name": "aten::mul", "ts": 10, "tid": 3,
         "args": {"External id": 8, "Sequence number": 4}},
        {**common, "cat": "kernel", "name": "k", "ts": 90, "tid": "stream 7",
         "args": {"External id": 8}},
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    row = read(path).row("aten::mul")
    assert (row.forward.kernels, row.forward.calls) == (1, 1)


def test_a_trace_that_pytorch_wrote(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(4, 4, requires_grad=True)
    with torch.profiler.profile() as profile:
        (x @ x).exp().sum().backward()
    path = tmp_path / "trace.json"
    profile.export_chrome_trace(str(path))
    found = read(path)
    assert "MmBackward0" in found.row("aten::mm").nodes
    assert found.row("aten::exp").nodes == {"ExpBackward0": 1}
    assert found.row("aten::sum").nodes == {"SumBackward0": 1}


def test_a_trace_that_cugrad_wrote(tmp_path: Path) -> None:
    """Copies and stalls of an offload, device times of pairs of events: as in the profile."""
    make = functools.partial(FunctionEvent, use_device="cuda", trace_name="", thread=1)
    op = make(1, "mul", start_us=0, end_us=90, sequence_nr=4)
    copy = make(2, "out", start_us=20, end_us=40, scope=RecordScope.COPY, nbytes=4096)
    node = make(3, "MulBackward0", start_us=200, end_us=290, sequence_nr=4, fwd_thread=1,
                scope=RecordScope.BACKWARD_FUNCTION)  # fmt: skip
    back = make(4, "back", start_us=210, end_us=220, scope=RecordScope.PREFETCH, nbytes=4096)
    stall = make(5, "wait", start_us=230, end_us=260, scope=RecordScope.STALL)
    again = make(6, "wait again", start_us=240, end_us=250, scope=RecordScope.STALL)
    events = EventList([op, copy, node, back, stall, again], use_device="cuda").build_tree()
    for each, us in ((op, 7.0), (copy, 3.0), (node, 5.0)):
        each.append_kernel(each.name, 0, us)
    for each in events:
        each.trace_name = each.name
    found = correlate(events)
    row = found.row("mul")
    assert (row.forward.kernel_us, row.forward.copies, row.forward.copy_us) == (7.0, 1, 3.0)
    assert (row.backward.kernel_us, row.backward.copy_us) == (5.0, 10.0)
    assert (row.backward.stalls, row.backward.stall_us) == (1, 30.0)
    events.export_chrome_trace(tmp_path / "trace.json")
    assert str(read(tmp_path / "trace.json")) == str(found)


# Broken files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nsys", "nvprof"])
def test_columns_of_the_wrong_type(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path / "trace", training_step())
    table = "NVTX_EVENTS" if name == "nsys" else f"{PREFIX}CONCURRENT_KERNEL"
    database = sqlite3.connect(path)
    database.execute(f"UPDATE {table} SET end = 'soon'")
    database.commit()
    database.close()
    with pytest.raises(TraceError, match="trace: a broken trace: got 'soon'"):
        list(spans_of_file(path))


# Events ----------------------------------------------------------------------------------------

LOADERS: dict[str, tuple[Writer, Callable[[Path], EventList]]] = {
    "nsys": (write_nsys, load_nsys),
    "nvprof": (write_nvprof, load_nvprof),
}


@pytest.fixture(params=LOADERS)
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Step], EventList]:
    """Writes a file, and loads it."""
    write, read_events = LOADERS[request.param]
    return lambda step: read_events(write(tmp_path / "trace", step))


def test_events_of_a_file(load: Callable[[Step], EventList]) -> None:
    events = load(training_step())
    assert type(events) is EventList
    by = {(each.name, each.sequence_nr): each for each in events}
    mul = by["mul", 12]
    assert (mul.time_range.start, mul.time_range.end) == (10.0, 50.0)
    assert mul.input_shapes == [[2, 3], []]
    assert [kernel.duration for kernel in mul.kernels] == [5.0, 3.0]
    assert mul.device_time_total == 8.0
    assert mul.cpu_parent is by["step", -1]
    node = by["MulBackward0", 12]
    assert node.scope == RecordScope.BACKWARD_FUNCTION and node.fwd_thread == mul.thread
    assert node.cpu_children == [by["mul", 14]]
    assert (node.self_device_time_total, node.device_time_total) == (0.0, 4.0)
    wait = next(each for each in events if each.scope == RecordScope.STALL)
    assert "Synchronize" in wait.name and wait.cpu_parent is by["sum", 13]
    assert by["sum", 13].nbytes == 4096
    assert [each.id for each in events] == list(range(1, len(events) + 1))


def test_the_table_counts_each_kernel_once(load: Callable[[Step], EventList]) -> None:
    averages = load(training_step()).key_averages()
    by = {each.key: each for each in averages}
    assert by["mul"].count == 2 and by["mul"].device_time_total == 12.0
    assert by["(outside ranges)"].self_device_time_total == 100.0
    assert averages.table().splitlines()[-1] == "Self CUDA time total: 148.000us"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_events_correlate_as_files_do(
    load: Callable[[Step], EventList], spelling: str, tmp_path: Path
) -> None:
    step = training_step(*SPELLINGS[spelling])
    found = correlate(load(step))
    assert str(found) == str(read(tmp_path / "trace"))
    first, second = found.calls
    assert first.forward.name.endswith("mul") and second.forward.name.endswith("sum")
    assert [each.sequence_nr for each in first.backward] == [12]
    assert [each.sequence_nr for each in first.double_backward] == [14]
    assert [each.sequence_nr for each in second.backward] == [13]


def test_events_of_several_processes(tmp_path: Path) -> None:
    path = write_nsys(tmp_path / "trace", training_step())
    database = sqlite3.connect(path)
    step = 0x1000000
    for table, columns in (("NVTX_EVENTS", ["globalTid"]), (f"{PREFIX}RUNTIME", ["globalTid"]),
                           (f"{PREFIX}KERNEL", ["globalPid"])):  # fmt: skip
        for column in columns:
            database.execute(f"CREATE TABLE copied AS SELECT * FROM {table}")
            database.execute(f"UPDATE copied SET {column} = {column} + {step}")
            database.execute(f"INSERT INTO {table} SELECT * FROM copied")
            database.execute("DROP TABLE copied")
    database.commit()
    database.close()
    events = load_nsys(path)
    assert {each.node_id for each in events} == {-1, PROCESS, PROCESS + 1}
    row = correlate(events).row("mul")
    assert (row.forward.calls, row.forward.kernel_us, row.double_backward.kernel_us) == (2, 16, 18)


def test_recomputed_calls(tmp_path: Path) -> None:
    step = Step()
    step.range(0, 50, "checkpoint, seq=1")
    step.range(100, 300, "CheckpointBackward, stashed seq=1")
    step.range(110, 140, "exp, seq=2")
    step.range(200, 240, "ExpBackward0, stashed seq=2")
    calls = correlate(load_nsys(write_nsys(tmp_path / "trace", step))).calls
    assert [each.forward.name for each in calls] == ["checkpoint", "exp"]
    assert [each.name for each in calls[1].backward] == ["ExpBackward0"]


def test_a_missing_row() -> None:
    with pytest.raises(KeyError, match="no op 'mul'"):
        correlate([]).row("mul")


@pytest.mark.parametrize("load_file", [load_nsys, load_nvprof])
def test_what_is_no_trace(load_file: Callable[[Path], EventList], tmp_path: Path) -> None:
    """ValueError with one line, which names the file."""
    path = tmp_path / "some.file"
    with pytest.raises(FileNotFoundError):
        load_file(path)
    for content in (b"", b"nonsense", b"SQLite format 3\0", b"SQLite format 3\0" + b"x" * 4000):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"some\.file: ") as caught:
            load_file(path)
        assert "\n" not in str(caught.value)
    other = write_nvprof if load_file is load_nsys else write_nsys
    other(path, training_step())
    with pytest.raises(ValueError, match="some.file: no table of"):
        load_file(path)
