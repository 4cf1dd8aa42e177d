"""Proves that a memory timeline knows what each byte is for, where it went, and who made it."""

from __future__ import annotations

import gc
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cugrad
from cugrad import memory, nn
from cugrad.backends import get
from cugrad.memory.usage import bytes_elsewhere
from cugrad.profiler import MemorySample, MemoryTimeline
from cugrad.profiler.memory.storages import StorageTracker

MIB = 2**20
WIDTH, ROWS = 256, 1024  # an activation is 1 MiB, a weight a quarter of that
LAYER = WIDTH * WIDTH * 4 + WIDTH * 4


def network(device: str) -> nn.Module:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers).to(device)


def run(model: nn.Module, device: str, context: Any = None) -> MemoryTimeline:
    """A step: its input is made inside."""
    with MemoryTimeline(device) as timeline:
        x = cugrad.ones(ROWS, WIDTH, device=device)
        if context is None:
            loss = model(x).sum()
        else:
            with context:
                loss = model(x).sum()
        loss.backward()
    return timeline


def last(timeline: MemoryTimeline, name: str) -> MemorySample:
    return [each for each in timeline.samples if each.name == name][-1]


@pytest.fixture
def timeline(device: str) -> MemoryTimeline:
    if device == "cpu":
        pytest.skip("on the CPU what is older than the block is not counted: test_on_the_cpu")
    return run(network(device), device)


# What it is for --------------------------------------------------------------------------------


def test_categories(timeline: MemoryTimeline) -> None:
    """Results that are saved, and those that are not; parameters, inputs and gradients."""
    for i, sample in enumerate(each for each in timeline.samples if each.name == "relu"):
        assert sample.saved == (i + 1) * MIB
        assert sample.activations == MIB  # the linear's, which a ReLU does not keep
        assert (sample.parameters, sample.inputs, sample.gradients) == (4 * LAYER, MIB, 0)
    end = timeline.samples[-1]
    assert (end.saved, end.gradients) == (0, 4 * LAYER)
    assert end.activations <= 512  # the loss


def test_all_bytes_have_a_place(timeline: MemoryTimeline) -> None:
    for each in timeline.samples:
        known = each.saved + each.parameters + each.inputs + each.gradients + each.activations
        assert known + each.before + each.other == each.bytes
        if each.phase == "forward":
            assert each.other <= MIB / 4  # in the blocks of a pool, and in workspaces


def test_what_was_there_before_is_known_when_it_is_used() -> None:
    """Also for the samples before its first use."""
    gc.collect()
    of_other_tests = get("simulated").memory_allocated()
    model = network("simulated")
    run(model, "simulated")  # makes gradients
    again = run(model, "simulated")
    assert again.samples[0].parameters == again.samples[0].gradients == 4 * LAYER
    assert again.samples[0].before <= of_other_tests + 1024


def test_a_graph_that_is_dropped_saves_nothing() -> None:
    x = cugrad.ones(ROWS, WIDTH, device="simulated", requires_grad=True)
    with MemoryTimeline("simulated") as timeline:
        y = x.exp().exp()
        before = timeline.samples[-1].saved
        del y
        x * 2
        after = timeline.samples[-1].saved
        x.exp()
    assert (before, after) == (2 * MIB, 0)


def test_a_graph_that_is_retained_stays_saved() -> None:
    x = cugrad.ones(ROWS, WIDTH, device="simulated", requires_grad=True)
    with MemoryTimeline("simulated") as timeline:
        y = x.exp().sum()
        y.backward(retain_graph=True)
        x * 2
        kept = timeline.samples[-1].saved
        y.backward()
        x * 2
    assert (kept, timeline.samples[-1].saved) == (MIB, 0)


def test_views_and_results_in_place_count_once() -> None:
    with MemoryTimeline("simulated") as timeline:
        x = cugrad.ones(ROWS, WIDTH, device="simulated") + 1
        x.reshape(-1)[5:].t().mul_(2)
        x.add_(1)
    assert timeline.samples[-1].activations == MIB
    assert timeline.samples[-1].bytes - timeline.start <= 2 * MIB


def test_on_the_cpu() -> None:
    """Arrays that tracemalloc has not seen are not counted; Python itself is other."""
    timeline = run(network("cpu"), "cpu")
    sample = last(timeline, "relu")
    assert (sample.saved, sample.inputs, sample.parameters) == (4 * MIB, MIB, 0)
    for each in timeline.samples:
        if each.phase == "forward":
            assert each.other < MIB / 2


def test_custom_functions() -> None:
    class Keeps(cugrad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    x = cugrad.ones(ROWS, WIDTH, device="simulated", requires_grad=True)
    with MemoryTimeline("simulated") as timeline:
        y = Keeps.apply(x)
        y.sum().backward()
    assert last(timeline, "Keeps").saved == MIB
    assert timeline.samples[-1].saved == 0


# Where it went ---------------------------------------------------------------------------------


def test_offloaded_bytes() -> None:
    before = bytes_elsewhere("simulated").disk  # of what other tests have left
    timeline = run(network("simulated"), "simulated", memory.offload(min_bytes=0))
    end = last(timeline, "sum")
    assert end.offloaded + end.in_flight >= 3 * MIB
    assert end.pinned >= 3 * MIB and end.disk <= before
    assert max(each.in_flight for each in timeline.samples) >= MIB
    assert timeline.samples[-1].offloaded == 0  # what no longer need leave may still be on its way
    plain = run(network("simulated"), "simulated")
    assert last(timeline, "sum").saved < last(plain, "sum").saved


def test_bytes_on_disk(tmp_path: Path) -> None:
    before = bytes_elsewhere("simulated").disk
    timeline = run(network("simulated"), "simulated", memory.save_on_disk(tmp_path, min_bytes=0))
    assert last(timeline, "sum").disk - before >= 3 * MIB
    assert timeline.samples[-1].disk <= before


# Who made it -----------------------------------------------------------------------------------


def test_the_peak_by_op_and_line() -> None:
    with MemoryTimeline("simulated") as timeline:
        x = cugrad.ones(ROWS, WIDTH, device="simulated", requires_grad=True)
        line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
        y = x.exp()
        z = y * y
        del z
        y.sum()
    found = {(each.op, each.category): each for each in timeline.alive_at_peak()}
    exp = found["exp", "saved"]
    assert exp.line == f"{__file__}:{line} in {test_the_peak_by_op_and_line.__name__}"
    assert (exp.bytes, exp.tensors, exp.phase) == (MIB, 1, "forward")
    assert found["mul", "activation"].line.startswith(f"{__file__}:{line + 1}")
    assert found["exp", "parameter"].bytes == MIB
    assert timeline.peak == 3 * MIB + timeline.start
    text = timeline.explain()
    assert text.startswith("peak: ") and "at the end of mul (forward, seq=" in text
    assert f"{__file__}:{line} in " in text


def test_a_short_explanation() -> None:
    with MemoryTimeline("simulated") as timeline:
        kept = [cugrad.ones(ROWS, device="simulated") + i for i in range(3)]
        kept += [cugrad.ones(ROWS, device="simulated").exp()]
    lines = timeline.explain(row_limit=1).splitlines()
    assert any("more" in line for line in lines)
    with timeline:
        pass
    assert timeline.explain() == "no op ran inside the timeline"


def test_by_op(timeline: MemoryTimeline) -> None:
    rows = {row["op"]: row for row in timeline.by_op()}
    assert (rows["linear"]["calls"], rows["linear"]["bytes"]) == (4, 4 * MIB)
    assert (rows["relu"]["calls"], rows["relu"]["bytes"]) == (4, 4 * MIB)
    assert rows["relu"]["saved_at_peak"] >= 3 * MIB
    assert rows["torch::autograd::AccumulateGrad"]["bytes"] == 4 * LAYER


def test_json(timeline: MemoryTimeline, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    timeline.to_json(path)
    found = json.loads(path.read_text())
    assert found == timeline.as_dict()
    assert found["samples"][found["peak_sample"]]["bytes"] <= found["peak"] == timeline.peak
    assert len(found["samples"]) == len(timeline.samples)


def test_nothing_is_kept_alive(device: str) -> None:
    """A timeline holds numbers, no tensors: memory goes as it would without it."""
    gone: list[bool] = []

    def step(watch: Callable[[], Any]) -> int:
        with watch():
            x = cugrad.ones(ROWS, WIDTH, device=device, requires_grad=True)
            x.exp().sum().backward()
        gone.append(True)
        return cugrad.backends.get(device).memory_allocated()

    import contextlib

    if device == "cpu":
        pytest.skip("what the CPU has allocated includes the timeline's own numbers")
    without = step(contextlib.nullcontext)
    assert step(lambda: MemoryTimeline(device)) == without


def test_changes_add_up(timeline: MemoryTimeline) -> None:
    """The live sums are those of the storages that are alive, at every sample."""
    storages: StorageTracker = timeline._storages
    for i, sample in enumerate(timeline.samples):
        sums = dict.fromkeys(storages.live, 0)
        for storage, category in storages.alive_at(i):
            sums[category] += storage.nbytes
        assert (sums["saved"], sums["activation"]) == (sample.saved, sample.activations)


def test_threads_of_a_parallel_module() -> None:
    """They have the observers of the one that asks; ops of several threads do not mix."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    x = cugrad.ones(64, WIDTH)
    with MemoryTimeline("cpu") as timeline:
        found = nn.parallel.parallel_apply([model] * 4, [(x,)] * 4)
        sum(each.sum() for each in found).backward()
    assert [each.name for each in timeline.samples].count("tanh") == 4
    assert {each.phase for each in timeline.samples if each.name == "tanh"} == {"forward"}
    assert last(timeline, "tanh").saved >= 64 * WIDTH * 4
    assert timeline.samples[-1].saved == 0
