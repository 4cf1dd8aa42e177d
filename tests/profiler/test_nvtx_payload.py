"""Proves that NVTX ranges with numbers as payload say the same, keep nothing, and cost nothing."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import cugrad
from cugrad.autograd import mode
from cugrad.cuda.emitter import Emitter, call_of, numbered_emitter
from cugrad.profiler.correlation.attribution import said_by
from cugrad.profiler.nvidia.nvtx import Ranges, emit_nvtx
from tests.profiler.nvtx_capture import capture

pytestmark = pytest.mark.host_only

nvtx = pytest.importorskip("nvtx")

DOUBLE = """
import cugrad as torch
from cugrad.profiler import emit_nvtx
x = torch.ones(5, 2, requires_grad=True)
for payload in (False, True):
    with emit_nvtx(record_shapes=True, payload=payload):
        y = (x.sin() * x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (g * g).sum().backward()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if capture.compiler() is None:
        pytest.skip("no C compiler (cc, gcc or clang) to build the NVTX tool with")
    return capture.build(tmp_path_factory.mktemp("nvtx"))


def test_payloads_say_what_texts_say(library: Path, tmp_path: Path) -> None:
    events = capture.run(DOUBLE, library, tmp_path / "events.tsv", "nvtx").events
    pushed = [each for each in events if each.kind == "push"]
    said = [said_by(each.message, int(each.payload) if each.payload else None) for each in pushed]
    half = len(said) // 2
    texts, payloads = said[:half], said[half:]
    assert [each[0::2] for each in texts] == [each[0::2] for each in payloads]
    assert [each.sizes for each in texts] == [each.sizes for each in payloads]
    first, later = (next(each.seq for each in part if each.seq) for part in (texts, payloads))
    assert first and later
    assert [each.seq and each.seq - first for each in texts] == [
        each.seq and each.seq - later for each in payloads
    ]
    fixed = {re.sub(r"\[.*", "", each.message) for each in pushed[half:]}
    assert not any(re.search(r"\d{2,}|seq=", text) for text in fixed)


@pytest.mark.parametrize("name, payload", [("nvtx", True), ("nvtx", False), ("cupy", False)])
def test_ranges_without_end_keep_nothing(
    name: str, payload: bool, library: Path, tmp_path: Path
) -> None:
    """With a tool attached the process is as large at the end as it was after a tenth of them."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    script = f"""
import resource
from cugrad.cuda.emitter import emitter, numbered_emitter
from cugrad.profiler.nvidia.nvtx import Ranges
library = numbered_emitter() if {payload} else emitter()
assert library.attached() and library.name == {name!r}
ranges = Ranges(library, payload={payload})
def size():
    return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()
def go(first, last):
    for seq in range(first, last):
        ranges.op_begin('mul', seq, ())
        ranges.op_end('mul', seq, None)
go(0, 10_000)
before = size()
go(10_000, 50_000)
print(size() - before)
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc to read the size of a process from")
    # the tool writes a line each: fifty thousand are what a test has time for
    printed = capture.run(script, library, tmp_path / "events.tsv", name).printed
    assert int(printed) < 2**19


def test_another_layout_of_the_package(library: Path, tmp_path: Path) -> None:
    """Where the structure is not where it was, texts are registered, and say the same."""
    script = """
from cugrad.cuda import nvtx_events
nvtx_events._address_of = lambda attributes: None
nvtx_events.MOST = 3
import cugrad
for payload in (False, True):
    with cugrad.profiler.emit_nvtx(payload=payload):
        for _ in range(5):
            cugrad.ones(2) * 2
"""
    events = capture.run(script, library, tmp_path / "events.tsv", "nvtx").events
    said = [said_by(each.message, int(each.payload) if each.payload else None)
            for each in events if each.kind == "push"]  # fmt: skip
    assert [each.name for each in said if each.name == "mul"] == ["mul"] * 10
    assert len({each.seq for each in said}) == len(said)


def test_no_tool_attached_no_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a listener an op costs what it costs outside of the block."""
    monkeypatch.delenv("CUGRAD_NVTX", raising=False)
    if importlib.util.find_spec("nvtx") is None or nvtx.enabled() is False:
        pytest.skip("the nvtx package is switched off")
    if type(nvtx.get_domain()).__name__ != "DummyDomain":
        pytest.skip("a tool is attached to this process")
    with emit_nvtx(), pytest.raises(RuntimeError, match="not reentrant"), emit_nvtx():
        pass
    for payload in (False, True):
        with emit_nvtx(payload=payload):
            assert not mode.state.observers
            assert (cugrad.ones(2) * 2).shape == (2,)


def test_another_library_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUGRAD_NVTX", "cupy")
    with (
        pytest.raises(ValueError, match="only the nvtx package carries payloads"),
        emit_nvtx(payload=True),
    ):
        pass
    monkeypatch.setenv("CUGRAD_NVTX", "none")
    assert numbered_emitter() is None
    with emit_nvtx(payload=True):
        assert not mode.state.observers


def test_a_failed_entry_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUGRAD_NVTX", "cupy")
    context = emit_nvtx(payload=True)
    with pytest.raises(ValueError, match="CUGRAD_NVTX"):
        context.__enter__()
    monkeypatch.setenv("CUGRAD_NVTX", "none")
    with context:
        pass


def test_started_ranges_belong_to_no_thread(library: Path, tmp_path: Path) -> None:
    script = """
import threading
from cugrad.cuda import nvtx
first, second = nvtx.range_start('first'), nvtx.range_start('second')
assert first != second
thread = threading.Thread(target=nvtx.range_end, args=(first,))
thread.start(); thread.join()
nvtx.range_end(second)
nvtx.range_end(second)
nvtx.range_end(12345)
"""
    events = capture.run(script, library, tmp_path / "events.tsv").events
    assert [(each.kind, each.message) for each in events] == [
        ("start", "first"), ("start", "second"), ("end", ""), ("end", ""),
    ]  # fmt: skip
    assert len({each.thread for each in events}) == 2


def test_started_ranges_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUGRAD_NVTX", "none")
    cugrad.cuda.nvtx.range_end(cugrad.cuda.nvtx.range_start("a"))


def test_numbers_are_payloads_of_few_texts() -> None:
    heard: list[tuple[str, int]] = []
    ranges = Ranges(
        Emitter(
            "test", call_of(print), lambda: None, print, lambda *what: lambda: heard.append(what)
        ),
        payload=True,
    )
    for seq in range(3):
        ranges.op_begin("mul", seq, ())
        ranges.op_end("mul", seq, None)
    assert heard == [("mul, seq", 0), ("mul, seq", 1), ("mul, seq", 2)]
