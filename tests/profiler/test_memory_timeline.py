"""Proves that MemoryTimeline counts the bytes that a step holds, op by op."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import pytest

import cugrad
from cugrad.autograd import mode
from cugrad.profiler import MemoryTimeline

MIB = 2**20
N = 3 * MIB // 4  # 3 MiB of float32


def step(device: str) -> None:
    """Three ops whose results are saved, then backward: memory rises, then falls."""
    x = cugrad.ones(N, requires_grad=True, device=device)
    x.exp().exp().exp().sum().backward()


def test_memory_rises_in_forward_and_falls_in_backward(device: str) -> None:
    with MemoryTimeline(device) as timeline:
        step(device)
    exps = [each.bytes for each in timeline.samples if each.name == "exp"]
    assert [(b - a) / MIB for a, b in zip(exps, exps[1:])] == [pytest.approx(3, abs=0.1)] * 2
    backward = [each for each in timeline.samples if each.phase == "backward"]
    assert backward[0].name == "SumBackward0"
    nodes = [each.bytes for each in backward if each.name == "ExpBackward0"]
    assert nodes[-1] < nodes[0] - 2 * MIB
    assert timeline.peak >= max(each.bytes for each in timeline.samples) >= exps[-1]
    assert timeline.samples == sorted(timeline.samples, key=lambda each: each.t)


def test_numbers_join_forward_and_backward(device: str) -> None:
    with MemoryTimeline(device) as timeline:
        step(device)
    forward = {each.seq: each.name for each in timeline.samples if each.phase == "forward"}
    nodes = [each for each in timeline.samples if each.name.endswith("Backward0")]
    assert [(forward[each.seq], each.name) for each in nodes] == [
        ("sum", "SumBackward0"),
        *[("exp", "ExpBackward0")] * 3,
    ]


def test_ops_inside_backward_count_as_backward(device: str) -> None:
    x = cugrad.ones(4, requires_grad=True, device=device)
    with MemoryTimeline(device) as timeline:
        (g,) = cugrad.autograd.grad(x.exp().sum(), x, create_graph=True)
    phases = [each.phase for each in timeline.samples]
    assert phases == sorted(phases, reverse=True)  # forward, then nothing but backward
    inside = {each.name for each in timeline.samples if each.phase == "backward"}
    assert any(not name.endswith("Backward0") for name in inside)


def test_an_op_that_raises_is_sampled_and_leaves_the_phase_right(device: str) -> None:
    x = cugrad.ones(4, requires_grad=True, device=device)
    y = x * 2

    def fail(g: Any) -> None:
        raise ValueError("hook")

    y.register_hook(fail)
    with MemoryTimeline(device) as timeline:
        with pytest.raises(ValueError, match="hook"):
            y.sum().backward()
        x.exp()
    assert timeline.samples[-1][:2] == ("exp", "forward")


PACKED = [
    (lambda v: (v.detach().clone(),), lambda p: p[0]),
    (lambda v: [3, v.detach().clone().to_sparse()], lambda p: p[1].to_dense()),
    (lambda v: {"value": v.detach().clone()}, lambda p: p["value"]),
    (lambda v: (v.cpu().numpy(), v.device), lambda p: cugrad.from_numpy(p[0]).to(p[1])),
    (lambda v: (memoryview(b"ab"), v.detach().clone()), lambda p: p[1]),
]


@pytest.mark.parametrize("pack, unpack", PACKED)
def test_hooks_may_pack_anything(device: str, pack: Any, unpack: Any) -> None:
    layer = cugrad.nn.Linear(3, 2, device=device)
    x = cugrad.ones(4, 3, device=device, requires_grad=True)
    with MemoryTimeline(device), cugrad.autograd.graph.saved_tensors_hooks(pack, unpack):
        layer(x).sum().backward()
    assert layer.weight.grad.tolist() == [[4.0] * 3] * 2


def test_tracemalloc_is_left_as_it_was() -> None:
    was = tracemalloc.is_tracing()
    try:
        tracemalloc.stop()
        with MemoryTimeline("cpu"), MemoryTimeline("cpu"):
            assert tracemalloc.is_tracing()
        assert not tracemalloc.is_tracing()
        tracemalloc.start()
        with pytest.raises(ZeroDivisionError), MemoryTimeline("cpu"):
            raise ZeroDivisionError
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
        if was:
            tracemalloc.start()


def test_entering_twice(device: str) -> None:
    with MemoryTimeline(device) as timeline:
        cugrad.ones(2, device=device) * 2
        with pytest.raises(RuntimeError, match="not reentrant"), timeline:
            pass
    assert len(timeline.samples) == 1
    assert not mode.state.observers
    with timeline:
        pass
    assert timeline.samples == []
    assert timeline.peak >= timeline.start


def test_an_unusable_device() -> None:
    if cugrad.backends.is_usable("cuda"):
        pytest.skip("cuda is usable here")
    with pytest.raises(RuntimeError, match="cuda"):
        MemoryTimeline("cuda")


# Drawing ---------------------------------------------------------------------------------------


class Axes:
    """The part of matplotlib's Axes that plot() needs, so that drawing is tested without it."""

    def __init__(self) -> None:
        self.lines: list[tuple[list[float], list[float]]] = []
        self.said: list[Any] = []

    def plot(self, x: list[float], y: list[float], *form: str, **options: Any) -> list[Axes]:
        self.lines.append((x, y))
        self.said.append(options.get("label"))
        return [self]

    def get_color(self) -> str:
        return "red"

    def set_xlabel(self, text: str) -> None:
        self.said.append(text)

    def set_ylabel(self, text: str) -> None:
        self.said.append(text)

    def legend(self) -> None:
        self.said.append("legend")


@pytest.fixture
def timeline() -> MemoryTimeline:
    with MemoryTimeline("cpu") as timeline:
        step("cpu")
    return timeline


def test_plot_draws_what_was_sampled(timeline: MemoryTimeline) -> None:
    axes: Any = Axes()
    assert timeline.plot(axes, label="offload") is axes
    (x, y), turn = axes.lines
    assert x == [0] + [each.t * 1e3 for each in timeline.samples]
    most = max(each.bytes for each in timeline.samples)
    assert max(y) == pytest.approx((most - timeline.start) / MIB)
    index = next(i for i, each in enumerate(timeline.samples, 1) if each.phase == "backward")
    assert turn == ([x[index]], [y[index]])
    assert "offload" in axes.said
    assert "legend" in axes.said


def test_plot_by_op(timeline: MemoryTimeline) -> None:
    axes: Any = Axes()
    timeline.plot(axes, by="op")
    assert axes.lines[0][0] == list(range(len(timeline.samples) + 1))
    with pytest.raises(ValueError, match="want 'time' or 'op'"):
        timeline.plot(axes, by="step")  # type: ignore[arg-type]


def test_plot_makes_axes(timeline: MemoryTimeline) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert timeline.plot(label="step").get_legend() is not None


def test_plot_without_matplotlib(timeline: MemoryTimeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        timeline.plot()
