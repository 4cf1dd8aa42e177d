"""The tests in several processes, each of which takes the next file when it has run one: the slow
ones first, so that no process waits for them at the end.

    python -m tests.support.in_turns 2 -q tests/autograd

Further words go to pytest. One process collects the tests, and the others are forks of it: each
knows of all of them, and of what their files have imported.
"""

from __future__ import annotations

import collections
import ctypes
import fcntl
import gc
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TextIO

import pytest

OPTION = "--in-turns"  # the number of processes, a colon, and the folder that they share
NO_MORE = "no more"  # stands where a file would that all of them have
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)\b")
# What tests beside PyTorch import as they run, and would in each process.
LATER = ("torch._dynamo", "numba")
PR_SET_PDEATHSIG = 1  # prctl(2): the signal that a process gets when its parent ends


class Turns:
    """What has been taken, one line each, in a file that the processes share."""

    def __init__(self, told: str) -> None:
        number, _, folder = told.partition(":")
        self._number, self._folder = int(number), Path(folder)
        self._children: list[int] = []

    @contextmanager
    def _alone(self) -> Iterator[TextIO]:
        """No other process is inside."""
        with open(self._folder / "turns", "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            yield file

    def takes(self, name: str) -> bool:
        """Whether it is this process that has it: the first to ask."""
        with self._alone() as file:
            file.seek(0)
            if {name, NO_MORE} & {*file.read().splitlines()}:
                return False
            file.write(f"{name}\n")
            return True

    def fork(self, config: pytest.Config) -> None:
        """Starts the other processes, which come back from here, too."""
        if self._number > 1 and "torch" in sys.modules:
            for name in LATER:
                if importlib.util.find_spec(name.partition(".")[0]) is not None:
                    importlib.import_module(name)
        gc.collect()
        gc.freeze()  # else each process would walk through all of it, and have a copy by that
        for k in range(1, self._number):
            sys.stdout.flush(), sys.stderr.flush()
            child = os.fork()
            if not child:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
                self._children = []
                write_to(self._folder / f"output {k}", config)
                return
            self._children.append(child)

    def wait(self) -> None:
        """Until the other processes have ended; notes how."""
        while self._children:
            _, status = os.waitpid(self._children[0], 0)
            del self._children[0]
            with open(self._folder / "codes", "a", encoding="utf-8") as file:
                file.write(f"{os.waitstatus_to_exitcode(status)}\n")


def write_to(path: Path, config: pytest.Config) -> None:
    """Has what this process prints from now on written to a file, and pytest know of it."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
    capture.start_global_capturing()
    capture.suspend_global_capture()


def run(session: pytest.Session, turns: Turns) -> None:
    """Runs the session's tests, as pytest does, but for files that another process takes.

    The next test is taken before one runs: fixtures are left for that one.
    """
    turns.fork(session.config)
    try:
        _run(session, turns)
    finally:
        turns.wait()


def _run(session: pytest.Session, turns: Turns) -> None:
    files = [(name, [*items]) for name, items in groupby(session.items, lambda x: str(x.path))]
    files.sort(key=lambda file: file[1][0].get_closest_marker("slow") is None)
    mine = chain.from_iterable(items for name, items in files if turns.takes(name))
    item = next(mine, None)
    while item is not None:
        following = next(mine, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail or session.shouldstop:
            turns.takes(NO_MORE)  # the others end with what they have
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            raise session.Interrupted(session.shouldstop)
        item = following


def main(words: list[str]) -> int:
    """Prints what the first process says as it goes, then what the others have said, and how many
    tests passed in all; the first status that is not 0 becomes this one's.
    """
    number, *rest = words or [""]
    if not number.isdecimal() or not int(number):
        print(f"in_turns: got {number!r}, want a number of processes first", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", OPTION, f"{number}:{folder}", *rest]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        last = [""]
        try:
            assert first.stdout is not None
            for line in first.stdout:
                text = line.decode(errors="replace")
                last[0] = text if COUNT.search(text) else last[0]
                print(text, end="", flush=True)
            codes = [first.wait()]
        except KeyboardInterrupt:  # it is theirs too, if it comes from the terminal
            codes = [_ended(first)]
        for path in sorted(Path(folder).glob("output *")):
            text = path.read_text("utf-8", "replace")
            print(text, flush=True)
            last += [line for line in text.splitlines() if COUNT.search(line)][-1:]
        ends = Path(folder, "codes")
        codes += [int(code) for code in ends.read_text().split()] if ends.exists() else []
        counts: collections.Counter[str] = collections.Counter()
        for count, what in COUNT.findall("\n".join(last)):
            counts[what] += int(count)
        told = ", ".join(f"{count} {what}" for what, count in counts.items())
        print(f"in all: {told or 'no tests'}", flush=True)
        return next((code for code in codes if code), 0)


def _ended(process: subprocess.Popen[Any]) -> int:
    try:
        return process.wait(10)
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
