"""Proves that the command opens every trace by its content, and says one line of what is none."""

from __future__ import annotations

import gzip
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cugrad.profiler.__main__ import main
from tests.profiler.profiler_files import (
    Step,
    training_step,
    write_chrome,
    write_nsys,
    write_nvprof,
)
from tests.support import ROOT

pytestmark = pytest.mark.host_only

Writer = Callable[[Path, Step], Path]


def write_gzip(path: Path, step: Step) -> Path:
    path.write_bytes(gzip.compress(write_chrome(path, step).read_bytes()))
    return path


def write_old_nsys(path: Path, step: Step) -> Path:
    return write_nsys(path, step, new=False)


WRITERS: dict[str, Writer] = {
    "nsys": write_nsys, "old nsys": write_old_nsys, "nvprof": write_nvprof,
    "Chrome trace": write_chrome, "compressed Chrome trace": write_gzip,
}  # fmt: skip


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], str]:
    """The one line about a file that is no good."""

    def run(path: Path) -> str:
        assert main(["report", str(path)]) == 2
        printed, said = capsys.readouterr()
        assert printed == ""
        assert said.count("\n") == 1 and said.startswith("cugrad.profiler: ")
        return said

    return run


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_is_known_by_its_content(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it is called."""
    path = WRITERS[kind](tmp_path / "a file.of any kind", training_step())
    assert main(["report", str(path)]) == 0
    printed, said = capsys.readouterr()
    head, _, table = printed.partition("\n\n")
    tool = kind.removeprefix("old ").removeprefix("compressed ")
    assert head.startswith(f"{path}: {tool}; ") and not said
    assert "8 kernels, 2 copies, 1 stalls" in head
    assert [word.strip() for word in table.splitlines()[0].split("|")][:5] == [
        "forward op", "calls", "kernels", "backward", "kernels",
    ]  # fmt: skip
    row = next(line for line in table.splitlines() if line.startswith("sum"))
    assert "SumBackward0" in row and "4 KiB" in row


def test_as_a_command(tmp_path: Path) -> None:
    path = write_nsys(tmp_path / "a.sqlite", training_step())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "cugrad.profiler", "report"]
    page = tmp_path / "out.html"
    done = subprocess.run(
        [*command, str(path), "--html", str(page)], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "MulBackward0" in done.stdout and page.read_text().startswith("<!DOCTYPE html>")
    done = subprocess.run(
        [*command, str(tmp_path / "none")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"cugrad.profiler: {tmp_path / 'none'}: No such file or directory\n"


def test_rows_beyond_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_nsys(tmp_path / "a.sqlite", training_step())
    assert main(["report", str(path), "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "... and 3 more"


def test_without_numbers_it_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = Step()
    step.range(0, 50, "step")
    step.launch("driver", 10, 20, 5, "kernel")
    assert main(["report", str(write_nvprof(tmp_path / "a.nvprof", step))]) == 0
    assert "was emit_nvtx() on?" in capsys.readouterr().out


def test_a_profile_of_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is no kernel the times of ops and nodes themselves stand there."""
    step = Step()
    step.range(0, 100, "mul, seq=1")
    step.range(20, 30, "inner")
    step.range(200, 300, "MulBackward0, stashed seq=1")
    assert main(["report", str(write_chrome(tmp_path / "trace.json", step))]) == 0
    printed = capsys.readouterr().out
    assert "the times are those of the host" in printed
    row = next(line for line in printed.splitlines() if line.startswith("mul"))
    assert [cell.strip() for cell in row.split("|")][1:5] == [
        "1", "1 / 100.000us", "MulBackward0", "1 / 100.000us",
    ]  # fmt: skip
    assert "inner" not in printed


# What is no trace ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "the file is empty"),
        (b"\n  \n", "not a trace"),
        (b"\x7fELF", "not a trace"),
        (b"\x89PNG\r\n", "not a trace"),
        (b"name,time\nmul,3\n", "not a trace"),
        (b"SQLite format 3\0", "a broken database"),
        (b"SQLite format 3\0" + bytes(5000), "a broken database"),
        (b"{}", "want a list of traceEvents"),
        (b"[1, 2]", "an event is of int"),
        (b'{"traceEvents": {}}', "want a list of traceEvents"),
        (b'{"traceEvents": []}', "holds no range and no kernel"),
        (b'[{"ph": "X", "name": "a"}]', "the time None"),
        (b'[{"ph": "X", "name": "a", "ts": "soon"}]', "the time None"),
        (b'[{"ph": "X", "name": "a", "ts": NaN}]', "the time nan"),
        (b'[{"ph": "X", "name": "a", "ts": 1e999}]', "the time inf"),
        (b'[{"ph": "X", "name": "a", "ts": true}]', "the time True"),
        (b'{"traceEvents": [', "neither a database nor JSON"),
        (b'{"a": "\xff\xfe"}', "neither a database nor JSON"),
        (b"[" * 200_000, "neither a database nor JSON"),
        (b"\x1f\x8b nonsense", "a broken gzip file"),
        (gzip.compress(b"[]" * 500, mtime=0)[:-9], "a broken gzip file"),
        (gzip.compress(b"plain text", mtime=0), "neither a database nor JSON"),
    ],
)
def test_one_line(
    content: bytes, said: str, tmp_path: Path, refused: Callable[[Path], str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    line = refused(path)
    assert said in line and str(path) in line


def test_other_databases(tmp_path: Path, refused: Callable[[Path], str]) -> None:
    path = tmp_path / "other.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.commit()
    assert "a database, but not of a profiler" in refused(path)
    connection.execute("CREATE TABLE StringIds (id, value)")
    connection.execute("CREATE TABLE NVTX_EVENTS (start, end)")
    connection.commit()
    connection.close()
    assert "a file of nsys that holds no range and no kernel" in refused(path)


def test_directories_and_other_formats(tmp_path: Path, refused: Callable[[Path], str]) -> None:
    assert "Is a directory" in refused(tmp_path)
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"NSYS binary")
    assert "nsys export --type sqlite a.nsys-rep" in refused(path)


def test_a_page_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_nsys(tmp_path / "a.sqlite", training_step())
    assert main(["report", str(path), "--html", str(tmp_path / "no" / "out.html")]) == 2
    assert "No such file or directory" in capsys.readouterr().err
