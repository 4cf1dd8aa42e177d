"""Proves that what emit_nvtx emits of a real step is what the loaders of traces understand."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from cugrad.profiler import correlate, load_nsys, load_nvprof
from tests.profiler.nvtx_capture import capture
from tests.profiler.profiler_files import Step, write_nsys, write_nvprof

pytestmark = pytest.mark.host_only

SCRIPT = """
import cugrad as torch
from cugrad import nn
from cugrad.profiler import emit_nvtx
from cugrad.utils.checkpoint import checkpoint

model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(3, 4, requires_grad=True)
with emit_nvtx(record_shapes=True, payload=PAYLOAD):
    loss = checkpoint(model, x, use_reentrant=REENTRANT).sum()
    loss.backward()
    optimizer.step()
    y = (x.sin() * x).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (g * g).sum().backward()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if capture.compiler() is None:
        pytest.skip("no C compiler (cc, gcc or clang) to build the NVTX tool with")
    if importlib.util.find_spec("nvtx") is None:
        pytest.skip("nvtx is not installed")
    return capture.build(tmp_path_factory.mktemp("nvtx"))


def trace_of(events: list[capture.Event]) -> Step:
    """The ranges of a run, in a time of its own, with a kernel that each launches at once."""
    step, stacks = Step(), dict[int, list[tuple[int, capture.Event]]]()
    for now, event in enumerate(events, 1):
        stack = stacks.setdefault(event.thread, [])
        if event.kind == "push":
            stack.append((now * 10, event))
            step.launch("driver", now * 10 + 1, 100_000 + now, 1, "kernel", thread=event.thread)
        else:
            start, pushed = stack.pop()
            payload = int(pushed.payload) if pushed.payload else None
            step.range(start, now * 10, pushed.message, event.thread, payload)
    return step


@pytest.mark.parametrize("payload, reentrant", [(False, False), (True, False), (False, True)])
def test_a_step(library: Path, tmp_path: Path, payload: bool, reentrant: bool) -> None:
    script = SCRIPT.replace("PAYLOAD", str(payload)).replace("REENTRANT", str(reentrant))
    events = capture.run(script, library, tmp_path / "events.tsv", "nvtx").events
    step = trace_of(events)
    pushes = sum(event.kind == "push" for event in events)
    found = correlate(load_nsys(write_nsys(tmp_path / "trace", step)))
    assert str(found) == str(correlate(load_nvprof(write_nvprof(tmp_path / "trace", step))))
    assert found.total.kernels == pushes
    mul = found.row("mul")
    assert mul.nodes["MulBackward0"] == 2 and mul.double_nodes["MulBackward0"] >= 2
    assert found.row("sin").nodes == {"SinBackward0": 2}  # of the double backward again
    assert found.row("sin").double_nodes  # of the cosine in its formula, and what multiplies it
    made = Counter[str]()
    for row in found.rows:
        if row.kind == "node":
            made.update(row.nodes)
    assert set(made) <= {"AccumulateGrad"}, "a node found no op that made it"
    linear = [row for row in found.rows if "AddmmBackward0" in row.nodes]
    assert linear and ("recomputed" in linear[0].name) == reentrant
