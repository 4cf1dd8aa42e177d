"""The store of bytes on disk: what it keeps, and what is left of it after each kind of end."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import tracemalloc
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cugrad.memory.disk import files
from cugrad.memory.disk.files import BLOCK, DiskFullError, Extents, ScratchFile
from cugrad.memory.disk.span import DiskSpan
from cugrad.memory.disk.store import DiskStore
from cugrad.memory.disk.transfers import PIECE, Transfer
from tests.support import ROOT
from tests.support.patience import eventually, patient

SIZES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 100_000, PIECE + 17, 2 * PIECE]


def values(nbytes: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def file_of(store: DiskStore) -> ScratchFile:
    assert store._file is not None
    return store._file


@pytest.fixture(params=["nameless", "named", "cached", "in memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DiskStore]:
    """A store of each kind: without a name, with one, through the page cache, and on a file system
    in memory, which takes arrays as they lie.
    """
    kind, directory = request.param, str(tmp_path)
    if kind == "in memory":
        if not os.access("/dev/shm", os.W_OK):
            pytest.skip("no file system in memory")
        directory = tempfile.mkdtemp(dir="/dev/shm")
    made = DiskStore(directory, named=kind == "named", direct=kind != "cached")
    yield made
    made.close()
    assert os.listdir(directory) == []
    os.rmdir(directory)


# What is kept -------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", SIZES)
def test_bytes_come_back_before_and_after_they_are_written(store: DiskStore, nbytes: int) -> None:
    wanted = values(nbytes)
    span = store.write(wanted)
    assert np.array_equal(span.read(), wanted)
    span.synchronize()
    assert span.query() and span.on_disk and span.resident is None
    for _ in range(2):
        assert np.array_equal(span.read(), wanted)
    span.prefetch()
    first, second = span.read(), span.read()
    assert np.array_equal(first, wanted) and not np.shares_memory(first, second)
    into = np.zeros(nbytes + 1, np.uint8)[1:]
    span.read_into(into)
    assert np.array_equal(into, wanted)


def test_an_array_of_any_dtype_and_shape_is_written_as_it_lies(store: DiskStore) -> None:
    wanted = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(store.write(wanted).read().view(float).reshape(2, 3), wanted)
    with pytest.raises(ValueError, match="C-contiguous"):
        store.write(wanted.T)
    with pytest.raises(ValueError, match=r"want uint8 of shape \(48,\)"):
        store.write(wanted).read_into(np.empty(47, np.uint8))


def test_the_array_is_let_go_of_when_it_is_written(store: DiskStore) -> None:
    array = values(100_000)
    gone = weakref.ref(array)
    span = store.write(array)
    del array
    span.synchronize()
    store.flush()
    # the thread that wrote it has still to turn to the next
    assert eventually(lambda: gone() is None) and span.nbytes == 100_000


def test_what_is_read_is_aligned_and_owns_its_memory(store: DiskStore) -> None:
    span = store.write(values(5000))
    span.synchronize()
    array = span.read()
    assert array.ctypes.data % BLOCK == 0 and array.flags.writeable
    assert not isinstance(array.base, np.ndarray)


def test_space_is_used_again(store: DiskStore) -> None:
    for _ in range(3):
        spans = [store.write(values(n, n)) for n in SIZES]
        store.flush()
        assert store._extents.end == store.stats.peak_bytes == store._extents.used
        del spans
    store._settle()
    assert store._extents.used == 0


def test_a_span_that_is_dropped_while_it_is_written_frees_its_space_when_that_has_ended(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    write = ScratchFile.write

    def slowly(self: Any, array: Any, offset: int) -> None:
        begun.set()
        go.wait(patient())
        write(self, array, offset)

    monkeypatch.setattr(ScratchFile, "write", slowly)
    span = store.write(np.full(BLOCK, 1, np.uint8))
    assert begun.wait(patient())
    del span
    other = store.write(np.full(BLOCK, 2, np.uint8))  # not over the one that is under way
    assert other.offset == BLOCK
    go.set()
    other.synchronize()
    assert (other.read() == 2).all()
    store.flush()
    assert store.write(values(1)).offset == 0


def test_a_span_that_is_dropped_before_it_is_written_never_is(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = []
    monkeypatch.setattr("cugrad.memory.disk.store.submit", lambda transfer: None)
    monkeypatch.setattr(Transfer, "_move", lambda self, k: moved.append(k))
    span = store.write(values(100))
    del span
    store.flush()
    assert moved == [] and store.stats.written_bytes == 0


def test_more_than_the_backlog_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cugrad.memory.disk.store.submit", lambda transfer: None)
    store = DiskStore(tmp_path, backlog=3 * BLOCK)
    spans = [store.write(values(BLOCK, k)) for k in range(5)]
    assert [s.query() for s in spans] == [True, True, False, False, False]
    assert store.stats.waited_writing > 0
    large = store.write(values(9 * BLOCK))
    assert all(s.query() for s in spans) and not large.query()


# Threads and the garbage collector ----------------------------------------------------------------


def test_many_threads_write_and_read(store: DiskStore) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        spans: list[tuple[DiskSpan, Any]] = []
        for step in range(40):
            wanted = values(int(rng.integers(0, 40_000)), seed * 1000 + step)
            spans.append((store.write(wanted), wanted))
            if rng.random() < 0.5:
                span, wanted = spans.pop(int(rng.integers(len(spans))))
                if rng.random() < 0.5:
                    span.prefetch()
                if not np.array_equal(span.read(), wanted):
                    wrong.append(step)
        for span, wanted in spans:
            if not np.array_equal(span.read(), wanted):
                wrong.append(-1)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    store.flush()
    assert store._extents.used == 0


def test_the_collector_may_drop_spans_inside_any_lock(store: DiskStore) -> None:
    class Holder:
        def __init__(self, span: DiskSpan) -> None:
            self.span, self.itself = span, self

    Holder(store.write(values(100)))
    with store._lock:
        dropping = threading.Thread(target=gc.collect)
        dropping.start()
        dropping.join(patient())
        assert not dropping.is_alive()
    store.flush()
    assert store._extents.used == 0


# A full disk --------------------------------------------------------------------------------------


def test_at_its_limit_a_span_stays_in_host_memory_with_one_warning(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, limit=2 * BLOCK)
    kept = [store.write(values(BLOCK, k)) for k in range(2)]
    with pytest.warns(UserWarning, match=f"{tmp_path} is full: wanted 5 bytes, 0 of its limit are"):
        full = store.write(values(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.write(values(6))
    assert not full.on_disk and full.query() and full.resident is not None
    assert np.array_equal(full.read(), values(5)) and store.stats.host_bytes == 11
    del kept
    assert store.write(values(7)).on_disk


def test_at_its_limit_what_was_closed_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, waited = threading.Event(), threading.Event()
    write, finish = ScratchFile.write, Transfer.finish

    def slowly(file: Any, part: Any, offset: int) -> None:
        begun.set()
        waited.wait()
        write(file, part, offset)

    def told(transfer: Transfer) -> None:
        waited.set()
        finish(transfer)

    monkeypatch.setattr(ScratchFile, "write", slowly)
    monkeypatch.setattr(Transfer, "finish", told)
    store = DiskStore(tmp_path, BLOCK, when_full="error")
    span = store.write(values(BLOCK))
    begun.wait()
    span.close()  # a thread is in the middle of it
    assert not waited.is_set()
    assert np.array_equal(store.write(values(5)).read(), values(5))


def test_at_its_limit_an_error_says_where_what_and_how_much(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, BLOCK, when_full="error")
    with pytest.raises(DiskFullError, match="wanted 4097 bytes, 4096 of its limit are free") as e:
        store.write(values(BLOCK + 1))
    assert e.value.errno == errno.ENOSPC and isinstance(e.value, OSError)
    assert store.write(values(BLOCK)).read().nbytes == BLOCK


def test_a_disk_with_too_little_space_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(tmp_path, when_full="error")
    monkeypatch.setattr(ScratchFile, "free_bytes", lambda self: 1000)
    with pytest.raises(DiskFullError, match="wanted 4096 bytes, 1000 are free"):
        store.write(values(BLOCK))
    assert store.stats.written_bytes == 0


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes a disk full in the middle of a span: one piece is written, in part, and then no more.
    The list holds the error numbers to come.
    """
    errors = [errno.ENOSPC]
    pwrite = os.pwrite
    written = [0]

    def partial(fd: int, data: Any, offset: int) -> int:
        if offset == 0 or not errors:
            return pwrite(fd, data, offset)
        written[0] += 1
        if written[0] == 1:
            return pwrite(fd, data[: data.nbytes // 2 // BLOCK * BLOCK], offset)
        raise OSError(errors[0], os.strerror(errors[0]))

    monkeypatch.setattr(files.os, "pwrite", partial)
    return errors


def test_a_disk_that_runs_full_in_the_middle_of_a_span_loses_nothing(
    tmp_path: Path, breaking: list[int]
) -> None:
    store = DiskStore(tmp_path)
    span = store.write(values(4 * BLOCK))
    span.synchronize()
    assert not span.on_disk and np.array_equal(span.read(), values(4 * BLOCK))
    with pytest.warns(UserWarning, match="wanted 16384 bytes"):
        store.flush()
    breaking.clear()
    again = store.write(values(BLOCK, 1))
    again.synchronize()
    assert again.on_disk and store.stats.host_bytes == 4 * BLOCK
    del span
    store.flush()
    assert store._extents.used == BLOCK


def test_a_disk_that_runs_full_in_the_middle_raises_in_the_next_call(
    tmp_path: Path, breaking: list[int]
) -> None:
    store = DiskStore(tmp_path, when_full="error")
    span = store.write(values(4 * BLOCK))
    span.synchronize()
    with pytest.raises(DiskFullError, match="wanted 16384 bytes") as caught:
        store.write(values(1))
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(DiskFullError):
        span.read()


def test_another_fault_of_the_disk_raises_whatever_was_asked_for(
    tmp_path: Path, breaking: list[int]
) -> None:
    breaking[0] = errno.EIO
    store = DiskStore(tmp_path)
    span = store.write(values(4 * BLOCK))
    span.synchronize()
    with pytest.raises(OSError, match="Input/output error"):
        store.flush()
    assert np.array_equal(span.read(), values(4 * BLOCK))


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = DiskStore(tmp_path, when_full="error")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(DiskFullError) as caught:
            store.write(values(1 << 21))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EFBIG


def test_a_disk_too_full_for_a_file_keeps_all_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files, "_open_nameless", fail)
        store = DiskStore(tmp_path)
        with pytest.warns(UserWarning, match="is full"):
            span = store.write(values(10))
    span.synchronize()
    assert np.array_equal(span.read(), values(10))
    assert store.write(values(10)).on_disk


def test_a_file_that_was_cut_off_is_an_error_and_no_zeros(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    span = store.write(values(100))
    span.synchronize()
    os.ftruncate(file_of(store).fd, 0)
    with pytest.raises(OSError, match="has lost what was written"):
        span.read()
    span.prefetch()
    with pytest.raises(OSError, match="has lost what was written"):
        span.read()


# Directories --------------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileNotFoundError, match="absent' does not exist; make it with os.makedirs"):
        DiskStore(tmp_path / "absent")
    with pytest.raises(NotADirectoryError, match="is a file, want a directory"):
        DiskStore(tmp_path / "file")
    monkeypatch.setattr(files.os, "access", lambda path, mode: False)  # root may do all
    with pytest.raises(PermissionError, match="is not writable by this process"):
        DiskStore(tmp_path)


@pytest.mark.parametrize(
    "arguments, words",
    [({"limit": -1}, "limit: got -1, want bytes"), ({"backlog": 1.5}, "backlog: got 1.5"),
     ({"when_full": "wait"}, "when_full: got 'wait', want 'host' or 'error'")],
)  # fmt: skip
def test_arguments_that_mean_nothing(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DiskStore(**arguments)


def test_a_file_system_without_nameless_files_or_direct_io_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(files.os, "O_TMPFILE", raising=False)
    monkeypatch.delattr(files.os, "O_DIRECT", raising=False)
    store = DiskStore(tmp_path)
    assert file_of(store).path is not None and not file_of(store).direct
    span = store.write(values(5000))
    span.synchronize()
    assert np.array_equal(span.read(), values(5000))


def test_one_that_refuses_direct_io_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, refused = os.pwrite, list[int]()

    def refusing(fd: int, data: Any, offset: int) -> int:
        if len(refused) < 2:
            refused.append(offset)
            raise OSError(errno.EINVAL, "no")
        return pwrite(fd, data, offset)

    monkeypatch.setattr(files.os, "pwrite", refusing)
    monkeypatch.setattr(ScratchFile, "_switch_direct", lambda self, on: True)
    store = DiskStore(tmp_path)
    assert not file_of(store).direct and file_of(store).aligned == 1


# Ends ---------------------------------------------------------------------------------------------

BEGINNING = """
import os, signal, sys, threading, time
import numpy as np
from cugrad.memory.disk.store import DiskStore
store = DiskStore(sys.argv[1], named=sys.argv[2] == "named")
spans = [store.write(np.full(20_000, k, np.uint8)) for k in range(5)]
"""


def run(code: str, directory: Path, kind: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", BEGINNING + code, str(directory), kind],
        env=environment, capture_output=True, text=True, timeout=patient(),
    )  # fmt: skip


KINDS = ["nameless", "named"]
ENDS = [
    "",
    "store.flush()",
    "raise SystemExit(0)",
    "sys.modules['keep'] = spans",  # alive until the interpreter is gone
    "import atexit; atexit.register(lambda: [s.read() for s in spans] and store.write(b))\n"
    "b = np.zeros(10**7, np.uint8); store.write(b)",
    "threading.Thread(target=lambda: (time.sleep(.05), [s.read() for s in spans])).start()",
]


# A nameless file leaves nothing, however a process ends: what it says is asked in half of the ways.
@pytest.mark.parametrize(
    ("kind", "code"), [(kind, code) for kind in KINDS for code in ENDS[kind == "nameless" :: 2]]
)
def test_a_process_that_ends_leaves_no_file_and_says_nothing(
    tmp_path: Path, kind: str, code: str
) -> None:
    done = run(code, tmp_path, kind)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_process_has_left_goes_when_the_next_one_starts(
    tmp_path: Path, kind: str
) -> None:
    done = run("store.flush(); os.kill(os.getpid(), signal.SIGKILL)", tmp_path, kind)
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == (kind == "named")
    files._swept.discard(os.path.realpath(tmp_path))
    store = DiskStore(tmp_path)
    assert os.listdir(tmp_path) == []
    del store


def test_only_files_of_the_dead_are_removed(tmp_path: Path) -> None:
    foreign = {
        "cugrad-0123456789abcdef.spans": "not ours, though it is called so",
        "cugrad-0123.spans": "", "data.spans": "", "cugrad-0123456789abcdef.spans.bak": "",
    }  # fmt: skip
    for name, text in foreign.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "cugrad-1123456789abcdef.spans").mkdir()
    (tmp_path / "cugrad-2123456789abcdef.spans").symlink_to(tmp_path / "data.spans")
    os.mkfifo(tmp_path / "cugrad-3123456789abcdef.spans")
    before = set(os.listdir(tmp_path))
    ours = tmp_path / "cugrad-4123456789abcdef.spans"
    ours.write_bytes(files.MAGIC)
    living = run_in_background(tmp_path)
    try:
        alive = set(os.listdir(tmp_path)) - before - {ours.name}
        assert len(alive) == 1
        ours.write_bytes(files.MAGIC)
        files._swept.discard(os.path.realpath(tmp_path))
        DiskStore(tmp_path)
        assert set(os.listdir(tmp_path)) == before | alive
    finally:
        living.kill()
        living.communicate()


def run_in_background(directory: Path) -> subprocess.Popen[bytes]:
    """A process with a named file, that waits."""
    code = BEGINNING + "print('ready', flush=True); sys.stdin.read()"
    living = subprocess.Popen(
        [sys.executable, "-c", code, str(directory), "named"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert living.stdout is not None and living.stdout.readline() == b"ready\n"
    return living


def test_a_new_file_that_a_sweep_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, seen = files._lock, list[str]()

    def late(fd: int) -> bool | None:
        if not seen:  # another process sweeps just now
            seen.append(os.listdir(tmp_path)[0])
            os.unlink(tmp_path / seen[0])
        return lock(fd)

    monkeypatch.setattr(files, "_lock", late)
    store = DiskStore(tmp_path, named=True)
    names = os.listdir(tmp_path)
    assert len(names) == 1 and names != seen
    del store
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_has_a_store_of_its_own(tmp_path: Path, kind: str) -> None:
    store = DiskStore(tmp_path, named=kind == "named")
    spans = [store.write(values(20_000, k)) for k in range(3)]
    store.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            mine = store.write(values(30_000, 7))
            mine.synchronize()
            assert mine.on_disk and np.array_equal(mine.read(), values(30_000, 7))
            with pytest.raises(RuntimeError, match="saved before the process was forked"):
                spans[0].read()
            spans.clear()
            store.flush()
            assert store._extents.used == 32768
            del mine
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    more = [store.write(values(20_000, k)) for k in range(3, 6)]
    store.flush()
    for k, span in enumerate(spans + more):
        assert np.array_equal(span.read(), values(20_000, k))
    assert len(os.listdir(tmp_path)) == (kind == "named")


def test_a_child_does_not_keep_the_files_of_its_parent_open(tmp_path: Path) -> None:
    done = run(
        "store.flush()\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "if os.fork() == 0:\n"
        "    try: os.fstat(store._file.fd)\n"
        "    except OSError: os._exit(0)\n"
        "    os._exit(1)\n"
        "assert os.wait()[1] == 0",
        tmp_path, "named",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == []


def test_what_threads_copy_through_counts_to_no_step(tmp_path: Path) -> None:
    """Each has its own: a budget would ask for more where there are more of them."""
    file = ScratchFile(str(tmp_path))
    file.direct, file.aligned = True, 1 << 62  # no address will do
    array, again = np.arange(5000, dtype=np.uint8), np.zeros(5000, np.uint8)
    offset = 0
    file.grow(1 << 20)

    def copy() -> None:
        file.write(array, offset)
        file.read(again, offset)

    tracemalloc.start()
    thread = threading.Thread(target=copy)
    thread.start()
    thread.join()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (again == array).all() and most < files.BOUNCE // 8


def test_a_closed_store_gives_its_space_back_and_says_so(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, named=True)
    span = store.write(values(20_000))
    store.flush()
    store.close()
    assert os.fstat(file_of(store).fd).st_size == 0 and os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="is closed"):
        store.write(values(1))
    with pytest.raises(OSError, match="has lost"):
        span.read()
    span.close()
    span.close()
    with pytest.raises(ValueError, match="this span is closed"):
        span.read()


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3):
        store = DiskStore(tmp_path)
        spans = [store.write(values(100)) for _ in range(3)]
        store.flush()
        del spans, store
    assert eventually(lambda: not before or len(os.listdir("/proc/self/fd")) <= before)


# Extents ------------------------------------------------------------------------------------------


def test_extents_never_overlap_and_join_again() -> None:
    rng = np.random.default_rng(0)
    extents = Extents()
    taken: dict[int, int] = {}
    for _ in range(2000):
        if taken and rng.random() < 0.5:
            start = list(taken)[int(rng.integers(len(taken)))]
            extents.give_back(start, taken.pop(start))
        else:
            nbytes = int(rng.integers(1, 20 * BLOCK))
            found = extents.take(nbytes)
            assert found is not None
            taken[found] = nbytes
        ends = sorted((s, s + -(-n // BLOCK) * BLOCK) for s, n in taken.items())
        assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:]))
        assert extents.used == sum(e - s for s, e in ends)
        assert not ends or ends[-1][1] <= extents.end
    for start, nbytes in taken.items():
        extents.give_back(start, nbytes)
    assert (extents.used, extents._starts, extents._sizes) == (0, [0], [extents.end])
