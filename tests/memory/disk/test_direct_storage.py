"""A GPU's saved tensors pass to a file and back by kvikio, over a fake of it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.memory import DiskStore, offload, save_on_disk
from cugrad.memory.disk import direct_storage
from cugrad.memory.disk.files import DiskFullError
from cugrad.memory.offloading.engine import engine_of
from tests.support import fake_cuda
from tests.support.patience import eventually

HAS_CUDA = backends.is_usable("cuda")
on_cuda = pytest.mark.skipif(not HAS_CUDA, reason="no usable GPU, and no fake one")


class CuFile:
    """kvikio.CuFile, which really reads and writes the file; `faults` say what goes wrong."""

    faults: dict[str, Any] = {}
    moved: dict[str, int] = {}

    def __init__(self, file: str, flags: str = "r") -> None:
        if "open" in self.faults:
            raise self.faults["open"]
        assert flags == "r+", "opened for both ways, and not emptied"
        self.fd = os.open(file, os.O_RDWR)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)

    def write(self, buf: Any, size: int | None = None, file_offset: int = 0) -> int:
        return self._move("write", buf, size, file_offset)

    def read(self, buf: Any, size: int | None = None, file_offset: int = 0) -> int:
        return self._move("read", buf, size, file_offset)

    def _move(self, how: str, buf: Any, size: int | None, file_offset: int) -> int:
        assert type(buf) in backends.get("cuda").array_types and buf.flags.c_contiguous
        assert size == buf.nbytes and file_offset % 4096 == 0
        if isinstance(fault := self.faults.get(how), Exception):
            raise fault
        host = buf.get()
        if how == "read":
            moved = os.preadv(self.fd, [host], file_offset)
            buf[:] = cugrad.tensor(host, device="cuda")._array
        else:
            moved = os.pwrite(self.fd, host, file_offset)
        self.moved[how] = self.moved.get(how, 0) + moved
        return moved // 2 if fault == "short" else moved


@pytest.fixture(autouse=True)
def kvikio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The fake in the place of kvikio, and an engine that has learned nothing; no file is left."""
    if HAS_CUDA:
        engine = engine_of(backends.get("cuda"), 0)
        engine._plans.clear()
        engine._thread.current = None
    module: Any = ModuleType("kvikio")
    module.CuFile = CuFile
    monkeypatch.setitem(sys.modules, "kvikio", module)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(CuFile, "faults", {})
    monkeypatch.setattr(CuFile, "moved", {})
    yield
    assert os.listdir(tmp_path) == []


def gradient(context: Any) -> Any:
    values = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 37 / 37 - 0.5
    x = cugrad.tensor(values, device="cuda", requires_grad=True)
    with context:
        h = (x @ x / 8).tanh()
        y = ((h * h.t().contiguous().t()).exp() * h)[:, 1:50].sum() + h[3].sin().sum()
    cugrad.cuda.synchronize()  # what is leaving can go to the disk, however slow the copies are
    y.backward(retain_graph=True)
    y.backward()
    found: Any = x.grad
    return found.cpu().numpy()


def bytes_on_device(n: int) -> Any:
    return cugrad.tensor(np.arange(n) % 251, device="cuda").to(cugrad.uint8)._array


@on_cuda
@pytest.mark.parametrize("options", [
    {}, {"lookahead": 0, "backlog": 0}, {"lookahead": 1 << 40}, {"direct": False},
])  # fmt: skip
def test_every_byte_passes_by_the_host(options: dict[str, Any]) -> None:
    plain = gradient(nullcontext())
    saving = save_on_disk(min_bytes=0, **options)
    for _ in range(3):
        assert gradient(saving).tobytes() == plain.tobytes()
    engine = engine_of(backends.get("cuda"), 0)
    engine.drain()
    saving.store.flush()
    stats, disk = saving.stats, saving.store.stats
    assert stats.disk_bytes == stats.moved_to_host_bytes > 0 and stats.copied_ratio == 1
    assert CuFile.moved["write"] == disk.written_bytes > 0
    assert CuFile.moved.get("read", 0) == disk.read_bytes  # what is not written yet is not read
    assert (engine.ledger.ahead, engine.out.leaving_bytes, saving.store._extents.used) == (0, 0, 0)


@on_cuda
def test_what_page_locked_memory_has_no_room_for_goes_the_same_way() -> None:
    plain = gradient(nullcontext())
    saving = offload(min_bytes=0, keep_last=0, host_limit=0, spill=DiskStore())
    assert gradient(saving).tobytes() == plain.tobytes()
    assert saving.stats.disk_bytes == saving.stats.unique_bytes and CuFile.moved["write"] > 0


@on_cuda
@pytest.mark.parametrize("fault", [ImportError("no kvikio"), RuntimeError("no cuFile"),
                                   OSError(errno.EACCES, "may not")])  # fmt: skip
def test_where_the_file_cannot_be_opened_the_host_is_the_way(fault: Exception) -> None:
    plain = gradient(nullcontext())
    CuFile.faults["open"] = fault
    saving = save_on_disk(min_bytes=0)
    assert gradient(saving).tobytes() == plain.tobytes()
    assert saving.stats.disk_bytes == saving.stats.unique_bytes > 0 and CuFile.moved == {}


@on_cuda
def test_without_kvikio_the_host_is_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gradient(nullcontext())
    monkeypatch.setitem(sys.modules, "kvikio", None)
    saving = save_on_disk(min_bytes=0)
    assert gradient(saving).tobytes() == plain.tobytes()
    assert saving.stats.disk_bytes == saving.stats.unique_bytes > 0 and CuFile.moved == {}


@on_cuda
@pytest.mark.filterwarnings("ignore:save_on_disk.* is full:UserWarning")
def test_a_short_write_means_a_full_disk_and_the_bytes_stay() -> None:
    array = bytes_on_device(10_000)
    CuFile.faults["write"] = "short"
    store = DiskStore()
    assert store.takes(array)
    span = store.write(array)
    span.synchronize()
    assert not span.on_disk and bytes(span.read().get()) == bytes(array.get())
    with pytest.warns(UserWarning, match="is full"):
        store.flush()
    del span
    strict = DiskStore(when_full="error")
    span = strict.write(array)
    with pytest.raises(DiskFullError, match="is full"):
        strict.flush()
    with pytest.raises(DiskFullError):
        span.read()
    plain = gradient(nullcontext())
    saving = save_on_disk(min_bytes=0)
    for _ in range(2):
        assert gradient(saving).tobytes() == plain.tobytes()


@on_cuda
@pytest.mark.parametrize("fault", [RuntimeError("cuFileWrite failed"), OSError(errno.EIO, "bad"),
                                   KeyError("not foreseen")])  # fmt: skip
def test_a_failed_write_is_told_by_the_next_one_and_loses_nothing(fault: Exception) -> None:
    array = bytes_on_device(5000)
    CuFile.faults["write"] = fault
    store = DiskStore()
    span = store.write(array)
    span.synchronize()
    assert bytes(span.read().get()) == bytes(array.get())
    with pytest.raises(OSError, match=str(fault.args[-1])):
        store.write(array)


@on_cuda
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("fault", [RuntimeError("cuFileRead failed"), "short"])
def test_a_failed_read_raises(fault: Any, ahead: bool) -> None:
    array = bytes_on_device(5000)
    store = DiskStore()
    span = store.write(array)
    store.flush()
    CuFile.faults["read"] = fault
    if ahead:
        span.prefetch()
    with pytest.raises(OSError, match="cuFileRead failed|kvikio moved 2500 of 5000 bytes"):
        span.read()
    CuFile.faults.clear()
    assert bytes(span.read().get()) == bytes(array.get())  # it was the way, not the bytes


@on_cuda
def test_a_handle_goes_with_its_file() -> None:
    before, others = len(os.listdir("/proc/self/fd")), len(direct_storage._handles)
    store = DiskStore()
    span = store.write(bytes_on_device(5000)) if store.takes(bytes_on_device(1)) else None
    store.flush()
    assert span is not None and len(os.listdir("/proc/self/fd")) == before + 2
    del span, store
    # a thread of the pool lets go when it gets to run
    assert eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert len(os.listdir("/proc/self/fd")) == before and len(direct_storage._handles) == others


def test_a_host_array_never_goes_that_way() -> None:
    store = DiskStore()
    assert not store.takes(np.zeros(3))
    span = store.write(np.arange(9, dtype=np.uint8))
    store.flush()
    assert span.read().tolist() == [*range(9)] and CuFile.moved == {}


@pytest.mark.skipif(HAS_CUDA, reason="the tests above have run")
def test_over_the_fake_cuda() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    assert "19 passed" in fake_cuda.passed(__file__, without="TMPDIR")
