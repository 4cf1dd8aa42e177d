"""A device's saved tensors pass to a disk and back through page-locked memory, without a wait."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.backends import simulated
from cugrad.memory import DiskStore, offload, save_on_disk
from cugrad.memory.disk.files import DiskFullError, ScratchFile
from cugrad.memory.disk.span import DiskSpan
from cugrad.memory.offloading.engine import CopyEngine, engine_of
from cugrad.memory.offloading.staging import Staging

POLICIES = pytest.mark.parametrize("policy", simulated.POLICIES)
N = 64  # rows and columns: 16 KiB


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CopyEngine]:
    """An engine that has learned nothing, and that holds nothing at the end; no file is left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = engine_of(backends.get("simulated"), 0)
    found.drain()
    found._plans.clear()
    found._thread.current = None
    yield found
    simulated.reset()
    found.drain()
    staging = found.out.staging
    assert (found.ledger.ahead, found.out.leaving_bytes, found.out.slab.used_bytes) == (0, 0, 0)
    assert (staging.bytes, len(staging._copied), len(staging._writing)) == (0, 0, 0)
    assert staging.reading == [] and os.listdir(tmp_path) == []


def leaf() -> Any:
    values = np.random.default_rng(0).uniform(-1, 1, (N, N)).astype(np.float32)
    return cugrad.tensor(values, device="simulated", requires_grad=True)


def loss(x: Any, layers: int = 8) -> Any:
    for _ in range(layers):
        x = (x @ x / 8).tanh()
    return x.sum()


def gradient(context: Any, layers: int = 8) -> bytes:
    x = leaf()
    with context:
        y = loss(x, layers)
    y.backward()
    found: Any = x.grad
    return bytes(found.cpu().numpy().tobytes())


def everything(**options: Any) -> save_on_disk:
    return save_on_disk(**{"min_bytes": 0, **options})


@pytest.fixture
def a_fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun has ended when it is asked for."""

    def query(span: DiskSpan) -> bool:
        span.synchronize()
        return True

    def is_here(span: DiskSpan) -> bool:
        if span.reading is not None:
            span.reading[0].finish()
        return span.reading is not None

    monkeypatch.setattr(DiskSpan, "query", query)
    monkeypatch.setattr(DiskSpan, "is_here", is_here)


@pytest.fixture
def a_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each span takes some milliseconds."""

    def slowed(how: Any) -> Any:
        def slow(*args: Any) -> None:
            time.sleep(0.003)
            how(*args)

        return slow

    for name in ("read", "write"):
        monkeypatch.setattr(ScratchFile, name, slowed(getattr(ScratchFile, name)))


CHOICES = pytest.mark.parametrize("choices", [
    {}, {"backlog": 0, "lookahead": 0}, {"backlog": 40_000, "lookahead": 40_000},
    {"lookahead": 1 << 40}, {"timing": False},
])  # fmt: skip


@POLICIES
@CHOICES
@pytest.mark.usefixtures("a_slow_disk")
def test_a_slow_disk_changes_no_bit(policy: str, choices: dict[str, Any]) -> None:
    plain = gradient(nullcontext())
    saving = everything(**choices)
    with simulated.configured(policy=policy, seed=3):
        for _ in range(2):
            assert gradient(saving) == plain
    assert saving.stats.copied_ratio == 1 and saving.stats.disk_bytes > 0


@CHOICES
@pytest.mark.usefixtures("a_fast_disk")
def test_every_byte_is_written_and_read_once(choices: dict[str, Any]) -> None:
    saving, x = everything(**choices), leaf()
    with simulated.configured(policy="random", seed=1):
        with saving:
            y = loss(x)
        engine_of(backends.get("simulated"), 0).drain()
        saving.store.flush()
        disk, stats = saving.store.stats, saving.stats
        assert stats.disk_bytes == stats.moved_to_host_bytes == disk.written_bytes > 0
        y.backward()
    assert stats.moved_back_bytes == disk.read_bytes <= disk.written_bytes


def step(context: Any) -> Any:
    """What happened in the third step, when the plan is learned, in virtual time."""
    for _ in range(3):
        with simulated.record() as timeline:
            gradient(context)
    return timeline


@pytest.mark.usefixtures("a_fast_disk")
def test_nobody_waits_where_the_link_has_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    link: dict[str, Any] = {"to_host": 1e12, "to_device": 1e12, "pageable": 0.1}
    with simulated.configured("H200", policy="timed", scale=4096, **link):
        plain, found = step(nullcontext()), step(everything(backlog=40_000, lookahead=1 << 30))
        monkeypatch.setattr(Staging, "serves", lambda *args: False)
        monkeypatch.setattr(DiskStore, "takes", property())  # a store that does not know
        by_turns = step(everything())
    assert 4 * N * N * 4 < found.moved("h2d") <= found.moved("d2h") == by_turns.moved("d2h")
    assert found.step_time < 1.05 * plain.step_time < 1.1 * plain.step_time < by_turns.step_time


def test_page_locked_memory_is_bounded(engine: CopyEngine) -> None:
    engine.out.slab.release()
    engine.out.slab.peak_bytes = 0
    saving = everything(backlog=32768, lookahead=32768)
    for _ in range(3):
        gradient(saving, 12)
        engine.drain()
    assert saving.stats.disk_bytes > 10 * 16384
    assert engine.out.slab.peak_bytes <= 6 * 16384


@pytest.mark.parametrize("limit", [0, 16384, 65536, 1 << 20])
def test_a_limit_of_page_locked_memory_holds_for_what_passes(
    limit: int, engine: CopyEngine
) -> None:
    engine.out.slab.release()
    engine.out.slab.peak_bytes = 0
    saving = offload(min_bytes=0, keep_last=0, host_limit=limit, spill=DiskStore(), backlog=32768,
                     lookahead=32768)  # fmt: skip
    plain = gradient(nullcontext())
    for _ in range(3):
        assert gradient(saving) == plain
    engine.drain()
    assert engine.out.slab.peak_bytes <= limit
    assert (saving.stats.disk_bytes > 0) == (limit < 1 << 20)


@pytest.mark.filterwarnings("ignore:save_on_disk.* is full:UserWarning")
@pytest.mark.parametrize("limit", [0, 50_000])
def test_what_finds_no_room_on_disk_stays_in_ordinary_memory(limit: int) -> None:
    plain, saving = gradient(nullcontext()), everything(limit=limit)
    for _ in range(2):
        assert gradient(saving) == plain
    saving = everything(limit=limit)
    with saving:
        y = loss(leaf())
    engine_of(backends.get("simulated"), 0).drain()
    stats = saving.stats
    assert 0 < stats.pageable_bytes == stats.moved_to_host_bytes - stats.disk_bytes
    assert (stats.disk_bytes > 0) == (limit > 0)
    del y


def test_a_full_disk_is_an_error_where_that_was_asked_for(engine: CopyEngine) -> None:
    saving = everything(limit=0, when_full="error", backlog=0)
    with pytest.raises(DiskFullError, match=r"save_on_disk: .* is full"), saving:
        loss(leaf())
    assert gradient(nullcontext()) == gradient(everything())


def test_a_disk_that_fails_loses_nothing_on_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gradient(nullcontext())

    def fail(*args: Any) -> None:
        raise OSError(errno.EIO, "bad sector")

    saving, x = everything(backlog=0), leaf()
    monkeypatch.setattr(ScratchFile, "write", fail)
    with pytest.raises(OSError, match="bad sector"), saving:
        loss(x)
    monkeypatch.undo()
    assert gradient(nullcontext()) == plain


def test_a_disk_that_fails_on_the_way_back_is_an_error_in_backward(engine: CopyEngine) -> None:
    saving, x = everything(), leaf()
    with saving:
        y = loss(x)
    engine.drain()
    file: Any = saving.store._file
    os.ftruncate(file.fd, 0)
    with pytest.raises(OSError, match="has lost what was written"):
        y.backward()


@pytest.mark.usefixtures("a_slow_disk")
def test_what_is_dropped_on_its_way_leaves_nothing(engine: CopyEngine) -> None:
    for when in ("copied", "written", "read"):
        saving, x = everything(lookahead=1 << 30), leaf()
        with saving:
            y = loss(x)
        if when != "copied":
            simulated.MACHINE.synchronize()
            engine.release_finished()
        if when == "read":
            engine.drain()
            cugrad.autograd.grad(y, y, retain_graph=True)
            assert y.grad_fn.next_functions[0][0]._saved_result is not None  # and reads ahead
        del y
        engine.drain()
        saving.store.flush()
        assert engine.out.slab.used_bytes == 0 and saving.store._extents.used == 0
