"""Processes that share the tests run each of them once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.in_turns import Turns, run

pytestmark = pytest.mark.host_only


class Session:
    """One of those that run the same items; `ran` are those it ran, each with the next."""

    Failed, Interrupted = RuntimeError, KeyboardInterrupt
    shouldfail = shouldstop = ""

    def __init__(self, files: dict[str, int], slow: str = "") -> None:
        self.ran: list[tuple[str, str | None]] = []
        hook = SimpleNamespace(pytest_runtest_protocol=self.protocol)
        self.config: Any = SimpleNamespace(hook=hook)
        marker = lambda path: lambda name: name if path in slow else None
        self.items = [
            SimpleNamespace(path=path, name=f"{path} {k}", config=self.config,
                            get_closest_marker=marker(path))
            for path, count in files.items() for k in range(count)
        ]  # fmt: skip

    def protocol(self, item: Any, nextitem: Any) -> None:
        self.ran.append((item.name, nextitem and nextitem.name))


def test_each_file_is_run_by_the_first_that_asks(tmp_path: Path) -> None:
    files = {"a": 3, "b": 1, "c": 2}
    turns = [Turns(f"1:{tmp_path}") for _ in range(2)]
    first, second = Session(files), Session(files)
    assert turns[1].takes("b")
    run(first, turns[0])
    run(second, turns[1])
    assert [name for name, _ in first.ran] == ["a 0", "a 1", "a 2", "c 0", "c 1"]
    assert [following for _, following in first.ran] == ["a 1", "a 2", "c 0", "c 1", None]
    assert second.ran == []


def test_slow_files_are_taken_first(tmp_path: Path) -> None:
    session = Session({"a": 2, "b": 2, "c": 1, "d": 1}, slow="bd")
    run(session, Turns(f"1:{tmp_path}"))
    assert [name for name, _ in session.ran] == ["b 0", "b 1", "d 0", "a 0", "a 1", "c 0"]


def test_a_failure_that_ends_the_run_ends_it(tmp_path: Path) -> None:
    session, other = Session({"a": 3, "b": 1}), Session({"a": 3, "b": 1})
    session.shouldfail = "stopping after 1 failures"
    turns = Turns(f"1:{tmp_path}")
    with pytest.raises(RuntimeError, match="stopping"):
        run(session, turns)
    assert len(session.ran) == 1
    run(other, turns)
    assert other.ran == []


def said(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tests.support.in_turns", *words], cwd=ROOT,
                          capture_output=True, text=True)  # fmt: skip


def test_the_processes_say_what_they_ran_in_all() -> None:
    words = ["-q", "-p", "no:cacheprovider", "tests/project/test_sealed_state.py",
             "tests/documents/test_defects_page.py"]  # fmt: skip
    alone, both = said("1", *words), said("2", *words)
    assert alone.returncode == both.returncode == 0, both.stdout + both.stderr
    last = both.stdout.splitlines()[-1]
    assert alone.stdout.splitlines()[-1] == last and re.fullmatch(r"in all: \d+ passed", last)


@pytest.mark.parametrize("words", [[], ["many"], ["0"], ["-1"]])
def test_what_is_no_number_of_processes(words: list[str]) -> None:
    done = said(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert "want a number of processes first" in done.stderr and done.stderr.count("\n") == 1
