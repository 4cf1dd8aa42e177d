"""The tests in several processes of pytest, each of which takes the next file when it has run one.

    python -m tests.support.in_turns 2 -q tests/autograd

Further words go to pytest. Each process knows of all tests; they are collected by one process after
another, since what the first has compiled is there for the next.
"""

from __future__ import annotations

import collections
import fcntl
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path
from typing import Any, TextIO

import pytest

OPTION = "--in-turns"
NO_MORE = "no more"  # stands where a file would that all of them have
COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)\b")


class Turns:
    """What has been taken, one line each, in a file that the processes share."""

    def __init__(self, path: str) -> None:
        self._path = path

    @contextmanager
    def alone(self) -> Iterator[TextIO]:
        """No other process is inside."""
        with open(self._path, "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            yield file

    def takes(self, name: str) -> bool:
        """Whether it is this process that has it: the first to ask."""
        with self.alone() as file:
            file.seek(0)
            if {name, NO_MORE} & {*file.read().splitlines()}:
                return False
            file.write(f"{name}\n")
            return True


def run(session: pytest.Session, turns: Turns) -> None:
    """Runs the session's tests, as pytest does, but for files that another process takes.

    The next test is taken before one runs: fixtures are left for that one.
    """
    files = groupby(session.items, lambda item: str(item.path))
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
        command = [sys.executable, "-m", "pytest", OPTION, str(Path(folder, "turns")), *rest]
        outputs = [Path(folder, f"output {k}") for k in range(1, int(number))]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        begun, last = [first], [""]
        for path in outputs:
            with path.open("wb") as file:
                begun.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
        try:
            assert first.stdout is not None
            for line in first.stdout:
                last[0] = line.decode(errors="replace")
                print(last[0], end="", flush=True)
            codes = [process.wait() for process in begun]
        except KeyboardInterrupt:  # it is theirs too, if it comes from the terminal
            codes = [_ended(process) for process in begun]
        for path in outputs:
            text = path.read_text("utf-8", "replace")
            print(text, flush=True)
            last += text.splitlines()[-1:]
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
