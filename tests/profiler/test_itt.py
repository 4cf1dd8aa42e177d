"""Proves with an ITT collector attached that what emit_itt emits is what it says."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

import cugrad
from cugrad.autograd import mode
from cugrad.cuda.emitter import Emitter, call_of
from cugrad.profiler import itt
from tests.profiler.nvtx_capture.capture import ROOT, compiler
from tests.support.warm import LIBRARY

pytestmark = pytest.mark.host_only

SOURCE = Path(__file__).resolve().parent / "itt_capture" / "itt_capture.c"


class Task(NamedTuple):
    """A task that the collector saw, and the tasks around it, the outermost first."""

    name: str
    domain: str
    thread: int
    parents: tuple[str, ...]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("ittapi") is None:
        pytest.skip("ittapi is not installed")
    if compiler() is None:
        pytest.skip("no C compiler (cc, gcc or clang) to build the ITT collector with")
    made = tmp_path_factory.mktemp("itt") / "libitt_capture.so"
    options = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler() or "cc", *options, "-o", str(made), str(SOURCE)], check=True)
    return made


def collected(script: str, library: Path, output: Path) -> list[Task]:
    """The tasks of a script, in the order of their begins; AssertionError unless they balance."""
    environment = os.environ | {
        "INTEL_LIBITTNOTIFY64": str(library),
        "ITT_CAPTURE_FILE": str(output),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = LIBRARY.run("-c", script, environment=environment)
    assert done.returncode == 0, done.stderr
    found: list[Task] = []
    open_in: dict[int, list[str]] = defaultdict(list)
    for line in output.read_text().splitlines():
        _, thread, event, domain, name = line.split("\t")
        stack = open_in[int(thread)]
        if event == "begin":
            found.append(Task(name, domain, int(thread), tuple(stack)))
            stack.append(name)
        else:
            assert stack, "a task ended that had not begun"
            stack.pop()
    assert not any(open_in.values()), f"tasks that never ended: {dict(open_in)}"
    return found


STEP = """
import cugrad as torch
from cugrad.autograd.profiler import emit_itt
def step():
    x = torch.ones(2, 3, requires_grad=True)
    (x * x).exp().sum().backward()
"""


def test_a_step(library: Path, tmp_path: Path) -> None:
    script = STEP + "with emit_itt():\n    step()\n    step()\nstep()\n"
    tasks = collected(script, library, tmp_path / "events.tsv")
    names = ["mul", "exp", "sum", "SumBackward0", "ExpBackward0", "MulBackward0"]
    assert [each.name for each in tasks if "::" not in each.name] == names * 2
    assert [each.name for each in tasks].count("torch::autograd::AccumulateGrad") == 2
    assert {each.domain for each in tasks} == {"cugrad"}
    assert not any(each.parents for each in tasks)


def test_shapes(library: Path, tmp_path: Path) -> None:
    script = STEP + "with emit_itt(record_shapes=True):\n    step()\n    torch.ones(2) * 2\n"
    names = [each.name for each in collected(script, library, tmp_path / "events.tsv")]
    assert names[0] == "mul, sizes=[[2, 3], [2, 3]]"
    assert "mul, sizes=[[2], []]" in names
    assert "MulBackward0" in names


def test_threads_and_nesting(library: Path, tmp_path: Path) -> None:
    script = (
        STEP
        + """
import threading
def double():
    with emit_itt():
        x = torch.ones(2, requires_grad=True)
        torch.autograd.grad((x * x).sum(), x, create_graph=True)
threads = [threading.Thread(target=double) for _ in range(2)]
for each in threads: each.start()
for each in threads: each.join()
"""
    )
    tasks = collected(script, library, tmp_path / "events.tsv")
    assert len({each.thread for each in tasks}) == 2
    assert [each.parents for each in tasks if each.parents].count(("MulBackward0",)) >= 2


def test_an_exception_leaves_them_balanced(library: Path, tmp_path: Path) -> None:
    script = (
        STEP
        + """
try:
    with emit_itt():
        torch.ones(2) + torch.ones(3)
except RuntimeError:
    pass
with emit_itt():
    torch.ones(2).exp()
"""
    )
    tasks = collected(script, library, tmp_path / "events.tsv")
    assert [(each.name, each.parents) for each in tasks] == [("add", ()), ("exp", ())]


# Without a collector ---------------------------------------------------------------------------


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    emitter = Emitter("itt", call_of(names.append), lambda: names.append("end"), print)
    monkeypatch.setattr(itt, "_library", lambda: emitter)
    return names


def test_not_reentrant(heard: list[str]) -> None:
    with itt.emit_itt() as outer:
        for inner in (outer, itt.emit_itt()):
            with pytest.raises(RuntimeError, match="ITT annotation .* not reentrant"), inner:
                pass
        cugrad.ones(2) * 2
    assert heard == ["mul", "end"]
    with outer:
        cugrad.ones(2) * 2
    assert len(heard) == 4
    assert not mode.state.observers


def test_disabled(heard: list[str]) -> None:
    with itt.emit_itt(enabled=False), itt.emit_itt(False):
        cugrad.ones(2) * 2
    assert heard == []


def test_without_ittapi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ittapi", None)
    itt._library.cache_clear()
    with pytest.raises(ImportError, match="pip install ittapi"), itt.emit_itt():
        pass
    itt._library.cache_clear()
    assert not mode.state.observers
