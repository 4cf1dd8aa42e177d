"""A profile and the file that it exports say the same, and the file says when and where it ran."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import cugrad as torch
import cugrad.nn.functional as F
from cugrad import nn
from cugrad.profiler import ProfilerActivity, correlate, profile
from cugrad.profiler import __main__ as command
from cugrad.profiler.events.build import without
from cugrad.utils.checkpoint import checkpoint

DEVICES = {"cpu": ProfilerActivity.CPU, "simulated": ProfilerActivity.PrivateUse1}


def network(device: str) -> Callable[[], Any]:
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device)
    x, labels = torch.ones(6, 8, device=device), torch.arange(6, device=device) % 4
    return lambda: F.cross_entropy(net(x), labels)


def offloaded(device: str) -> None:
    forward = network(device)
    with torch.memory.offload(min_bytes=1):
        loss = forward()
    loss.backward()


def plain(device: str) -> None:
    network(device)().backward()


def optimized(device: str) -> None:
    weight = torch.ones(8, requires_grad=True, device=device)
    adam = torch.optim.Adam([weight])
    with torch.profiler.record_function("a step"):
        (weight * weight).sum().backward()
        adam.step()


def twice(device: str) -> None:
    x = torch.ones(8, requires_grad=True, device=device)
    (g,) = torch.autograd.grad((x.exp() * x).sum(), x, create_graph=True)
    (g * g).sum().backward()


def checkpointed(device: str) -> None:
    x = torch.ones(8, requires_grad=True, device=device)
    checkpoint(lambda x: x.exp().sin() * x, x, use_reentrant=False).sum().backward()


def recomputed(device: str) -> None:
    x = torch.ones(8, requires_grad=True, device=device)
    with torch.memory.recompute():
        y = (x.exp().sin() * x).sum()
    y.backward()


def custom(device: str) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2 + x.exp()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = torch.ones(8, requires_grad=True, device=device)
    Double.apply(x).sum().backward()


def transformed(device: str) -> None:
    x = torch.ones(3, 4, device=device)
    torch.func.vmap(torch.func.grad(lambda r: (r * r).exp().sum()))(x)
    torch.func.jvp(lambda r: r.sin() * r, (x,), (x,))


def in_place(device: str) -> None:
    x = torch.ones(3, 4, requires_grad=True, device=device)
    y = x * 2
    y[0].mul_(3)
    y.view(-1)[2:5].add_(1)
    y.register_hook(lambda g: g * 2)
    y.sum().backward()


def threaded(device: str) -> None:
    x = torch.ones(4, requires_grad=True, device=device)
    y = (x * x).sum()
    other = threading.Thread(target=y.backward)
    other.start()
    other.join()


def raising(device: str) -> None:
    def refuse(g: Any) -> Any:
        raise ValueError("a hook that raises")

    x = torch.ones(4, requires_grad=True, device=device)
    y = x * 2
    y.register_hook(refuse)
    with pytest.raises(ValueError, match="a hook that raises"):
        (y * y).sum().backward()
    with pytest.raises(RuntimeError):
        torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device)
    (x * 3).sum().backward()


PROGRAMS = [
    offloaded, plain, optimized, twice, checkpointed, recomputed, custom, transformed, in_place,
    threaded, raising,
]  # fmt: skip


def profiled(program: Callable[[str], None], device: str, **more: Any) -> profile:
    with profile(
        activities=[ProfilerActivity.CPU, DEVICES[device]][device == "cpu" :], **more
    ) as p:
        program(device)
    return p


def reported(path: Path) -> str:
    """The table that the command prints."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert command.main(["report", str(path), "--limit", "1000"]) == 0
    return said.getvalue().split("\n\n", 1)[1].rstrip("\n")


@pytest.mark.parametrize("names", ["cugrad", "aten"])
@pytest.mark.parametrize("device", list(DEVICES))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_tables_agree(
    program: Callable[[str], None], device: str, names: str, tmp_path: Path
) -> None:
    """That of the events, and that of the file: calls, kernels, copies, stalls, and their times."""
    more = {"record_shapes": True, "with_flops": True} if names == "aten" else {}
    prof = profiled(program, device, names=names, **more)
    path = tmp_path / ("trace.json" if names == "aten" else "trace.json.gz")
    prof.export_chrome_trace(path)
    assert reported(path) == correlate(prof.events()).table(1000)


def rows_of(path: Path) -> tuple[dict[Any, str], dict[Any, list[dict[str, Any]]]]:
    """The names of a trace's rows, and the events of each by their beginning."""
    names, rows = {}, dict[Any, list[dict[str, Any]]]()
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X" and str(event["pid"]).startswith("device"):
            rows.setdefault((event["pid"], event["tid"]), []).append(event)
    return names, {row: sorted(each, key=lambda e: e["ts"]) for row, each in rows.items()}


def test_a_row_for_each_stream_at_the_device_s_own_times(tmp_path: Path) -> None:
    """Nothing overlaps on one stream; copies run beside the kernels of the other one."""
    path = tmp_path / "trace.json"
    offloaded("simulated")
    prof = profiled(offloaded, "simulated")
    prof.export_chrome_trace(path)
    names, rows = rows_of(path)
    assert [names[row] for row in sorted(rows)][:2] == [
        "stream 0",
        "stream 1: offload: copy to host",
    ]
    assert len(rows) == 3 and "prefetch" in names["device 0", 2]
    for events in rows.values():
        for one, two in zip(events, events[1:]):
            assert one["ts"] + one["dur"] <= two["ts"] + 2e-3
    kernels, copies = rows["device 0", 0], rows["device 0", 1]
    assert {e["cat"] for e in kernels} <= {"kernel", "stall"}
    assert {e["cat"] for e in copies} == {"gpu_memcpy"}
    assert any(k["ts"] < c["ts"] < k["ts"] + k["dur"] for c in copies for k in kernels)
    host = {e.id: e.time_range.start for e in prof.events()}
    assert all(e["ts"] >= 0 for events in rows.values() for e in events)
    assert any(abs(e["ts"] - host[e["args"]["External id"]]) > 1 for e in kernels)


def test_kernels_of_unknown_times_follow_their_events(tmp_path: Path) -> None:
    from cugrad.profiler.events.event import FunctionEvent
    from cugrad.profiler.events.event_list import EventList

    event = FunctionEvent(1, "mul", 7, 10, 20, use_device="cuda", trace_name="mul")
    assert event.device_resource_id == 7, "its thread, where it is of no stream"
    event.append_kernel("one", 0, 30.0)
    event.append_kernel("two", 0, 5.0)
    path = tmp_path / "trace.json"
    EventList([event], use_device="cuda").build_tree().export_chrome_trace(path)
    (events,) = rows_of(path)[1].values()
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [("one", 10, 30), ("two", 40, 5)]


def test_what_parts_leave_of_a_span() -> None:
    whole = (0.0, 10.0)
    assert list(without(whole, [])) == [whole]
    assert list(without(whole, [(-5.0, 20.0)])) == []
    assert list(without(whole, [(0.0, 4.0), (4.0, 10.0)])) == []
    assert list(without(whole, [(2.0, 8.0), (3.0, 4.0)])) == [(0.0, 2.0), (8.0, 10.0)]


def test_at_a_prompt() -> None:
    """Each says what it is of, where it stands, and how to go on; a correlation is its table."""
    prof = profile(activities=[ProfilerActivity.CPU], schedule=torch.profiler.schedule(
        wait=0, warmup=1, active=2))  # fmt: skip
    timeline = torch.profiler.MemoryTimeline("simulated")
    assert repr(prof) == "<profile of CPU: not started>"
    assert repr(timeline) == "<MemoryTimeline of simulated: not entered>"
    with prof, timeline:
        assert repr(timeline) == "<MemoryTimeline of simulated: running>"
        prof.step()
        assert repr(prof) == "<profile of CPU: in step 1, RECORD>"
        (torch.ones(1024, device="simulated", requires_grad=True) * 2).sum().backward()
        assert repr(timeline).endswith("running>")
    assert repr(prof) == (
        f"<profile of CPU: {len(prof.events())} events; key_averages(), events(), "
        "export_chrome_trace(path)>"
    )
    assert repr(prof).startswith(f"<profile of CPU: {len(prof.events())} events")
    assert "MemoryTimeline of simulated: 5 samples, peak " in repr(timeline)
    assert "KiB" in repr(timeline) and repr(timeline).endswith("; explain(), to_html(path)>")
    found = correlate(prof.events())
    assert repr(found) == str(found) == found.table()


def test_profiles_in_one_another() -> None:
    """The inner one has what ran in it, the outer one all."""
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities) as outer:
        torch.ones(2, device="simulated").exp()
        with profile(activities=activities) as inner:
            torch.ones(2, device="simulated").sin()
    assert [e.name for e in inner.events()] == ["sin"]
    assert [e.name for e in outer.events()] == ["exp", "sin"]
