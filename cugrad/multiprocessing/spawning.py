"""`spawn`: one function in several processes, whose errors arrive with their traceback."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

__all__ = [
    "ProcessContext", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn",
    "start_processes",
]  # fmt: skip


class ProcessException(Exception):
    """A process did not end well: which one, and its number in the system."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process has raised an exception, whose traceback is in the text."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process has ended by a signal, or with another exit code than 0."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int,
        signal_name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., Any], index: int, args: tuple[Any, ...], error_file: str) -> None:
    """Runs the function in the new process; what it raises is written to the file."""
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent has it, too
    except Exception:
        Path(error_file).write_bytes(pickle.dumps(traceback.format_exc()))
        sys.exit(1)


class ProcessContext:
    """The processes that `spawn(join=False)` has started."""

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int | None]:
        """Their numbers in the system."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until a process has ended, at most `timeout` seconds: whether all have.

        When one has failed, the others are ended, by force after `grace_period` seconds (30 by
        default), and ProcessRaisedException or ProcessExitedException is raised.
        """
        if not self.sentinels:
            return True
        for sentinel in connection.wait(list(self.sentinels), timeout):
            index = self.sentinels.pop(sentinel)
            process = self.processes[index]
            process.join()
            if process.exitcode != 0:
                self._end_others(30.0 if grace_period is None else grace_period)
                raise self._failure(index)
        if self.sentinels:
            return False
        self._clean_up()
        return True

    def _end_others(self, seconds: float) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def _failure(self, index: int) -> ProcessException:
        process, path = self.processes[index], Path(self.error_files[index])
        written = path.read_bytes() if path.exists() else b""
        self._clean_up()
        if written:
            text = pickle.loads(written)
            head = f"\n\n-- Process {index} terminated with the following error:\n"
            return ProcessRaisedException(head + text, index, process.pid)
        code = process.exitcode
        if code < 0:
            name = signal.Signals(-code).name
            return ProcessExitedException(
                f"process {index} terminated with signal {name}", index, process.pid, code, name
            )
        return ProcessExitedException(
            f"process {index} terminated with exit code {code}", index, process.pid, code
        )

    def _clean_up(self) -> None:
        for path in self.error_files:
            if os.path.exists(path):
                os.unlink(path)


class SpawnContext(ProcessContext):
    """PyTorch's older name of `ProcessContext`."""


def start_processes(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
    daemon: bool = False, start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """Runs `fn(i, *args)` in `nprocs` processes, i = 0, 1, ...

    With `join` it waits for all: None, or the exception of the first that failed, while the others
    are ended. Else it returns a ProcessContext, whose `join()` must be called. `daemon` processes
    end with this one; `start_method` is "spawn", "fork" or "forkserver".
    """
    context: Any = get_context(start_method)
    processes, error_files = [], []
    for index in range(nprocs):
        descriptor, path = tempfile.mkstemp(prefix="cugrad-spawn-", suffix=".pickle")
        os.close(descriptor)
        process = context.Process(target=_run, args=(fn, index, args, path), daemon=daemon)
        process.start()
        processes.append(process)
        error_files.append(path)
    started = SpawnContext(processes, error_files)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True,
    daemon: bool = False, start_method: str = "spawn",
) -> ProcessContext | None:  # fmt: skip
    """`start_processes` by "spawn": each process begins with a new interpreter."""
    if start_method != "spawn":
        raise ValueError(
            f"spawn(): start_method must be 'spawn', got {start_method!r}: use start_processes"
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method)
