"""Tables, averages, stacks and schedules are PyTorch's, character by character."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad.autograd import profiler as ours
from cugrad.profiler import sessions
from cugrad.profiler.events import event as events
from cugrad.profiler.events import event_list

pytestmark = pytest.mark.host_only

torch = pytest.importorskip("torch")
util = pytest.importorskip("torch.autograd.profiler_util")
theirs = torch.autograd.profiler


def example(module: Any, lists: Any, device: str | None, rich: str) -> Any:
    """The same events in either library: nested ones, of two threads, with what a profile has.

    That is memory, and stacks or operations: in a table of both PyTorch swaps the two columns.
    """
    found: list[Any] = []

    def event(name: str, start: float, end: float, thread: int = 1, **more: Any) -> Any:
        made = module.FunctionEvent(
            len(found), name, thread, start, end, overload_name="", trace_name=name,
            use_device=device, **{"input_shapes": [], "stack": [], **more},
        )  # fmt: skip
        found.append(made)
        return made

    line = "/a/long/path/to/the/program/that/is/being/profiled/by/somebody.py(12): step"
    shapes: dict[str, Any] = {"input_shapes": [[2, 3], [3, 4]]}
    shapes |= {"flops": 48} if rich == "flops" else {"stack": [line, "b.py(3): main"]}
    event("train", 0, 2_500_000, scope=7, is_user_annotation=True)
    product = event("mm", 10, 1500.5, sequence_nr=7, **(shapes if rich else {}))
    for depth in range(3):  # each alone in one of its name: one event
        event("again", 1600 + depth, 1700 - depth)
    event("copy", 20, 30, cpu_memory_usage=-300 if rich else 0)
    event("mm", 2000, 2500, sequence_nr=8, cpu_memory_usage=5_000_000, **(shapes if rich else {}))
    event("an_op_with_a_name_" * 5, 3000, 3000.25, flops=3_000_000 if rich == "flops" else 0)
    node = event("MmBackward0", 5, 900, 2, sequence_nr=7, scope=1, fwd_thread=1)
    event("mul", 6, 8, 2, device_memory_usage=1 << 31 if device and rich else 0)
    if device:
        product.append_kernel("gemm", 0, 700.5)
        node.append_kernel("gemm", 0, 1200.0)
        event("gemm", 100, 800.5, device_type=module.DeviceType.CUDA)
        event("gemm", 900, 2100, device_type=module.DeviceType.CUDA)
    for each in found:
        each.flops = each.flops or 0
    return lists(found, use_device=device, profile_memory=bool(rich), with_flops=rich == "flops")


def both(device: str | None = None, rich: str = "stack") -> tuple[Any, Any]:
    one = example(util, util.EventList, device, rich)
    one._build_tree()
    return one, example(events, event_list.EventList, device, rich).build_tree()


@pytest.mark.parametrize("rich", ["", "stack", "flops"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sort_by": "self_cpu_time_total", "row_limit": 3},
        {"sort_by": "count", "header": "A header", "row_limit": -1},
        {"max_name_column_width": 20, "max_src_column_width": 30, "max_shapes_column_width": 10},
        {"max_name_column_width": None},
        {"top_level_events_only": True, "time_unit": "ms"},
    ],
)
def test_tables_are_theirs(options: dict[str, Any], rich: str) -> None:
    expected, found = both(rich=rich)
    assert found.table(**options) == expected.table(**options)
    for n in (0, 1, 5):
        for shapes in (False, True):
            expected_average = expected.key_averages(shapes, n)
            assert found.key_averages(shapes, n).table(**options) == (
                expected_average.table(**options)
            )


@pytest.mark.parametrize("rich", ["", "stack", "flops"])
def test_tables_with_a_device_have_their_columns(rich: str) -> None:
    expected, found = both("cuda", rich)
    for sort_by in (None, "cuda_time_total", "self_cuda_time_total"):
        mine = found.key_averages().table(sort_by=sort_by)
        assert mine == expected.key_averages().table(sort_by=sort_by)
        assert mine.splitlines()[-1] == "Self CUDA time total: 1.901ms"
    assert [(e.key, e.device_time_total, e.self_device_time_total) for e in found.key_averages()] \
        == [(e.key, e.device_time_total, e.self_device_time_total)
            for e in expected.key_averages()]  # fmt: skip


def test_sums_and_trees_are_theirs() -> None:
    expected, found = both("cuda")
    for each, mine in zip(expected, found, strict=True):
        assert [child.name for child in each.cpu_children] == [c.name for c in mine.cpu_children]
        assert each.self_cpu_time_total == mine.self_cpu_time_total
        assert (each.cpu_time_str, each.stack) == (mine.cpu_time_str, mine.stack)
    total, mine = expected.total_average(), found.total_average()
    for name in ("key", "count", "cpu_time_total", "self_cpu_time_total", "device_time_total",
                 "cpu_memory_usage", "self_device_memory_usage", "flops"):  # fmt: skip
        assert getattr(total, name) == getattr(mine, name), name
    assert repr(total) == repr(mine)
    assert expected.self_cpu_time_total == found.self_cpu_time_total
    assert [each.name for each in found].count("again") == 1


def test_stacks_are_theirs(tmp_path: Path) -> None:
    expected, found = both()
    for metric in ("self_cpu_time_total", "self_cuda_time_total"):
        expected.export_stacks(str(tmp_path / "theirs"), metric)
        found.export_stacks(tmp_path / "ours", metric)
        assert (tmp_path / "theirs").read_text() == (tmp_path / "ours").read_text()
    assert (tmp_path / "ours").read_text() == ""
    found.export_stacks(tmp_path / "ours")
    assert (tmp_path / "ours").read_text().startswith("b.py(3):_main;/a/long/path")
    for each in (expected, found):
        with pytest.raises(ValueError, match="metric should be one of"):
            each.export_stacks("nowhere", "self_time")


@pytest.mark.parametrize(
    "name, extra",
    [("profile", {"names"}), ("record_function", set()), ("EventList.table", set()),
     ("EventList.key_averages", set()), ("profile.table", set()), ("profile.key_averages", set()),
     ("profile.export_stacks", set()), ("profile.export_chrome_trace", set()),
     ("FunctionEvent", {"nbytes", "module_hierarchy"})],
)  # fmt: skip
def test_arguments_are_theirs(name: str, extra: set[str]) -> None:
    def of(module: Any) -> dict[str, Any]:
        for part in name.split("."):
            module = getattr(module, part)
        return dict(inspect.signature(module).parameters)

    expected, found = of(theirs), of(ours)
    assert list(expected) == [each for each in found if each not in extra]
    for each, parameter in expected.items():
        assert parameter.kind == found[each].kind
        if each not in ("use_python_export", "device_type"):
            assert parameter.default == found[each].default, each


def test_arguments_of_sessions_are_theirs() -> None:
    for name in (
        "profile", "schedule", "tensorboard_trace_handler", "profile.key_averages", "profile.step",
        "profile.export_chrome_trace", "profile.add_metadata",
    ):  # fmt: skip
        one, two = torch.profiler, sessions
        for part in name.split("."):
            one, two = getattr(one, part), getattr(two, part)
        expected, found = inspect.signature(one).parameters, inspect.signature(two).parameters
        assert list(expected) == [each for each in found if each != "names"], name


@pytest.mark.parametrize("wait", [0, 2])
@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize("skip_first_wait", [0, 1])
def test_schedules_are_theirs(wait: int, warmup: int, skip_first_wait: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for active in (1, 3):
            for repeat in (0, 2):
                for skip_first in (0, 2):
                    how = {
                        "wait": wait, "warmup": warmup, "active": active, "repeat": repeat,
                        "skip_first": skip_first, "skip_first_wait": skip_first_wait,
                    }  # fmt: skip
                    expected, found = torch.profiler.schedule(**how), sessions.schedule(**how)
                    for step in range(20):
                        assert expected(step).name == found(step).name, (how, step)


@pytest.mark.parametrize("wait, warmup, active, repeat, steps", [
    (1, 1, 2, 1, 7), (0, 1, 1, 2, 5), (1, 1, 2, 0, 6), (0, 1, 3, 0, 2), (2, 1, 1, 1, 2),
])  # fmt: skip
def test_traces_are_ready_when_theirs_are(
    wait: int, warmup: int, active: int, repeat: int, steps: int, capfd: Any
) -> None:
    def run(lib: Any) -> list[Any]:
        seen: list[Any] = []

        def ready(prof: Any) -> None:
            events = [e for e in prof.events() if e.name.split("::")[-1] == "exp"]
            labels = [e.trace_name for e in prof.events() if e.name == "ProfilerStep*"]
            seen.append((prof.step_num, len(events), sorted(labels)))

        plan = lib.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with lib.profiler.profile(
                activities=[lib.profiler.ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready
            ) as prof:
                for _ in range(steps):
                    lib.ones(3).exp()
                    prof.step()
        return seen

    assert run(cugrad) == run(torch)


def test_flops_are_theirs() -> None:
    def counted(lib: Any, profiler: Any) -> list[int]:
        x, w = lib.ones(2, 3, 8, 8), lib.ones(5, 3, 3, 3)
        with profiler.profile(with_flops=True) as prof:
            lib.mm(lib.ones(3, 4), lib.ones(4, 5))
            lib.bmm(lib.ones(2, 3, 4), lib.ones(2, 4, 5))
            lib.nn.functional.conv2d(x, w, stride=2, padding=1)
            lib.nn.functional.linear(lib.ones(6, 4), lib.ones(5, 4), lib.ones(5))
            lib.mul(x, x)
            lib.add(x, x)
        return [e.flops for e in prof.function_events if e.flops]

    assert counted(cugrad, ours) == counted(torch, theirs)


def test_the_documented_example_prints_the_documented_columns() -> None:
    def table(lib: Any, profiler: Any) -> list[str]:
        x = lib.randn((1, 1), requires_grad=True)
        with profiler.profile() as prof:
            for _ in range(100):
                y = x**2
                y.backward()
        return list(prof.key_averages().table(sort_by="self_cpu_time_total").splitlines())

    mine, their = table(cugrad, ours), table(torch, theirs)
    assert mine[1].split() == their[1].split()
    assert mine[-1].startswith("Self CPU time total: ") and their[-1].startswith("Self CPU time")
    rows = {line.split()[0]: line.split()[-1] for line in mine[3:-2]}
    assert rows == {"pow": "100", "PowBackward0": "100", "torch::autograd::AccumulateGrad": "100"}
    their_rows = {line.split()[0]: line.split()[-1] for line in their[3:-2]}
    assert {name: their_rows[name] for name in ("PowBackward0", "torch::autograd::AccumulateGrad")}


def test_shapes_and_values_of_arguments_are_theirs() -> None:
    def shown(lib: Any, profiler: Any) -> dict[str, Any]:
        x = lib.ones(2, 3)
        with profiler.profile(record_shapes=True) as prof:
            lib.mm(x, lib.ones(3, 4))
            lib.cat([x, x])
        found = {}
        for event in prof.function_events:
            name = event.name.split("::")[-1]
            if name in ("mm", "cat"):
                found[name] = (event.input_shapes[:2], event.structured_input_shapes[:2],
                               event.structured_input_strides[0])  # fmt: skip
        return found

    mine, their = shown(cugrad, ours), shown(torch, theirs)
    assert mine["mm"] == their["mm"]
    assert mine["cat"][1][0] == their["cat"][1][0] == [[2, 3], [2, 3]]
    assert mine["cat"][0][0] == their["cat"][0][0] == []
