"""What goes wrong in a worker is told, and whatever happens no process and no memory is left."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cugrad.utils import data
from cugrad.utils.data import iterators
from tests.data import samples
from tests.support import ROOT
from tests.support.patience import eventually, patient

PERSISTENT = pytest.mark.parametrize("persistent", [False, True], ids=["once", "persistent"])


def parcels() -> set[str]:
    """The open descriptors of shared memory, on Linux."""
    links = Path("/proc/self/fd").glob("*")
    return {link.name for link in links if "memfd:cugrad" in _to(link)}


def _to(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # that of the listing itself
        return ""


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test whose loaders leave a worker or shared memory."""
    forces: list[Any] = []
    before = parcels()
    start = iterators.Workforce.__init__

    def noted(self: Any, *args: Any) -> None:
        forces.append(self)
        start(self, *args)

    monkeypatch.setattr(iterators.Workforce, "__init__", noted)
    yield
    gc.collect()
    for force in forces:
        assert not any(process.is_alive() for process in force.processes)
        assert not set(force.processes) & set(multiprocessing.active_children())
    assert parcels() <= before


@pytest.mark.parametrize("how, kind, text", [
    ("value", ValueError, "ValueError: this is wrong"),
    ("key", KeyError, "KeyError: 'this is wrong'"),
    ("two", RuntimeError, "NeedsTwo: (1, 2)"),
    ("local", RuntimeError, "Local: this is wrong"),
    ("stop", StopIteration, "StopIteration"),
    ("unsent", AttributeError, "ickle"),
    ("graph", RuntimeError, "Cowardly refusing to serialize non-leaf tensor"),
])  # fmt: skip
def test_an_error_of_a_worker_is_raised_with_its_traceback(how: str, kind: Any, text: str) -> None:
    """As often as it comes; the batches around it come as well."""
    batches = iter(
        data.DataLoader(samples.Failing(how), num_workers=2, collate_fn=samples.identity)
    )
    assert next(batches)[0][0] == 0 and next(batches)[0][0] == 1
    with pytest.raises(Exception) as caught:
        next(batches)
    if how != "unsent":  # Python's versions differ in its type
        assert type(caught.value) is kind
    first, second, *_, last = str(caught.value).splitlines()
    assert first.startswith("Caught ") and first.endswith("in DataLoader worker process 0.")
    assert second == "Original Traceback (most recent call last):" and text in last
    assert next(batches)[0][0] == 3
    assert next(batches, "end") == "end" == next(batches, "end")


@pytest.mark.parametrize("how, text", [
    ("killed", r"DataLoader worker \(pid {}\) is killed by signal: Killed"),
    ("exits", r"DataLoader worker \(pid {}\) exited unexpectedly with exit code 3\."),
])  # fmt: skip
@PERSISTENT
def test_a_worker_that_dies_is_named(how: str, text: str, persistent: bool) -> None:
    loader = data.DataLoader(
        samples.Failing(how), num_workers=2, persistent_workers=persistent,
        collate_fn=samples.identity,
    )  # fmt: skip
    for _ in range(2):  # the loader starts others
        batches: Any = iter(loader)
        pids = [process.pid for process in batches._workers]
        with pytest.raises(RuntimeError, match=text.format(f"({pids[0]})")):
            list(batches)
        with pytest.raises(RuntimeError, match="the workers of this iterator have ended"):
            next(batches)


def test_a_worker_that_dies_while_nobody_waits_is_named() -> None:
    batches: Any = iter(data.DataLoader(samples.Images(100), num_workers=2))
    next(batches)
    victim = batches._workers[1]
    victim.kill()
    victim.join()
    with pytest.raises(RuntimeError, match=rf"pid {victim.pid}\) is killed by signal"):
        list(batches)


def test_a_worker_that_hangs_is_waited_for_as_long_as_was_said() -> None:
    loader = data.DataLoader(samples.Failing("sleeps"), num_workers=2, timeout=0.1, sampler=[2, 2])
    batches = iter(loader)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.1 seconds"):
            next(batches)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """An interrupt is an exception here, though a job in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# Python closes a socket whose `with` an interrupt has kept from beginning, and says so.
CLOSED = "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"


@PERSISTENT
@pytest.mark.usefixtures("interrupts")
@pytest.mark.filterwarnings(CLOSED)
def test_an_interrupt_ends_the_workers(persistent: bool) -> None:
    loader = data.DataLoader(
        samples.Failing("interrupts"), num_workers=2, persistent_workers=persistent
    )
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            list(loader)


def test_an_initialiser_that_fails_is_told() -> None:
    loader = data.DataLoader([1, 2], num_workers=2, worker_init_fn=samples.refuses)
    with pytest.raises(RuntimeError, match="(?s)worker process 0.*RuntimeError: worker 0 will not"):
        list(loader)


def test_workers_that_cannot_be_started_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Process.start

    def fails(self: Any) -> None:
        if not started:
            started.append(self)
            return start(self)
        raise OSError("no more processes")

    started: list[Any] = []
    monkeypatch.setattr(context.Process, "start", fails)
    with pytest.raises(OSError, match="no more processes"):
        iter(data.DataLoader([1, 2], num_workers=2, multiprocessing_context=context))
    assert not started[0].is_alive()


def test_a_forked_copy_of_an_iterator_leaves_the_workers_alone() -> None:
    batches = iter(data.DataLoader(samples.Images(), num_workers=2))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            batches._shutdown_workers()  # type: ignore[attr-defined]
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(batches)) == 7


def gone(pid: int) -> bool:
    """Whether a process has ended; one whose exit code was not asked for has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.usefixtures("interrupts")
def test_programs_that_end_in_an_epoch_leave_nothing() -> None:
    """Those that go to their end, raise, are killed, or are interrupted: alone, as a group."""
    codes = {"exits": 0, "persistent": 0, "raises": 5, "killed": -9, "alone": 7, "group": 7}
    programs = {
        how: subprocess.Popen(
            [sys.executable, "-m", "tests.data.samples", how], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        ) for how in codes
    }  # fmt: skip
    for how, program in programs.items():
        assert program.stdout is not None
        workers = [int(pid) for pid in program.stdout.readline().split()]
        assert len(workers) == 2, program.communicate()[1]
        if how == "alone":
            program.send_signal(signal.SIGINT)
        elif how == "group":
            os.killpg(program.pid, signal.SIGINT)
        _, said = program.communicate(timeout=patient())
        assert program.returncode == codes[how], said
        assert how == "killed" or said == ""
        for pid in workers:
            assert eventually(lambda pid=pid: gone(pid)), how  # type: ignore[misc]
