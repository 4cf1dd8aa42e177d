"""Changed files end in a result or a documented error, in little memory, time and descriptors."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cugrad.profiler import __main__ as command
from cugrad.profiler.correlation.attribution import TraceError, TraceRange
from cugrad.profiler.correlation.joining import Correlator, waits
from cugrad.profiler.traces.files import spans_of_file
from cugrad.profiler.traces.nvprof import demangled
from tests.profiler.profiler_files import (
    PREFIX,
    Step,
    training_step,
    write_chrome,
    write_nsys,
    write_nvprof,
)
from tests.support import mutations

WRITERS = {"nsys": write_nsys, "nvprof": write_nvprof, "chrome": write_chrome}


def test_changed_files() -> None:
    """Two seconds of other files each time; `python -m tests.support.mutations` for more."""
    seed = str(random.SystemRandom().randrange(10**9))
    print("seed", seed)
    count, wrong = mutations.run(2.0, seed)
    assert not wrong, f"--seed {seed}: {wrong}"


def test_the_machine_sees_what_goes_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error that is not documented is told, with the file."""

    def raises(draw: Any, path: Path) -> None:
        raise KeyError("not documented")

    kind = mutations.FORMATS["archive"]._replace(read=raises)
    monkeypatch.setattr(mutations, "FORMATS", {"archive": kind})
    path = tmp_path / "inner" / "changed"
    path.parent.mkdir()
    said = mutations.attempt("1", 1, {"archive": kind.seeds(tmp_path)}, path)
    assert "KeyError" in said and str(tmp_path) in said


# What it has found ----------------------------------------------------------------------------


def refused(path: Path) -> str:
    """The text of the error that reading a trace ends in."""
    adding = Correlator()
    with pytest.raises(TraceError) as caught:
        for each in spans_of_file(path):
            if isinstance(each, TraceRange):
                adding.add(each)
    assert command.main(["report", str(path)]) == 2
    return str(caught.value)


CELLS = ["soon", b"\xff\x00", 1.5, 1 << 62]


@pytest.mark.parametrize("name", ["nsys", "nvprof"])
def test_any_cell_may_hold_anything(name: str, tmp_path: Path) -> None:
    """SQLite's columns have no types: each in turn holds something else."""
    whole = WRITERS[name](tmp_path / "whole", training_step()).read_bytes()
    path = tmp_path / "changed"
    path.write_bytes(whole)
    database = sqlite3.connect(path)
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE "
              "type = 'table' AND name NOT LIKE 'sqlite%'")]  # fmt: skip
    columns = [(t, row[1]) for t in tables for row in database.execute(f"PRAGMA table_info({t})")]
    database.close()
    for (table, column), cell in zip(columns, CELLS * len(columns)):
        path.write_bytes(whole)
        database = sqlite3.connect(path)
        try:
            database.execute(f"UPDATE {table} SET {column} = ?", (cell,))
            database.commit()
        except sqlite3.Error:  # a column of SQLite's own, the number of the row
            continue
        finally:
            database.close()
        try:
            adding = Correlator()
            for each in spans_of_file(path):
                if not isinstance(each, str):
                    adding.add(each)
        except TraceError:
            pass


def database(path: Path, *statements: str) -> Path:
    """A trace of nsys on which these statements ran."""
    write_nsys(path, training_step())
    connection = sqlite3.connect(path)
    for each in statements:
        connection.execute(each)
    connection.commit()
    connection.close()
    return path


def test_rows_come_from_tables(tmp_path: Path) -> None:
    """A view can have any number of rows."""
    view = f"""CREATE VIEW {PREFIX}MEMCPY AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL
        SELECT x + 1 FROM n) SELECT x AS start, x + 1 AS end FROM n"""
    path = database(tmp_path / "trace", f"DROP TABLE {PREFIX}MEMCPY", view)
    assert sum(isinstance(each, TraceRange) for each in spans_of_file(path)) > 8


def test_strings_that_are_there_again_make_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    whole = list(spans_of_file(write_nsys(path, training_step())))
    again = ["CREATE TABLE copied AS SELECT * FROM StringIds", "DROP TABLE StringIds",
             "ALTER TABLE copied RENAME TO StringIds",
             *["INSERT INTO StringIds SELECT * FROM StringIds"] * 8]  # fmt: skip
    assert len(list(spans_of_file(database(path, *again)))) == len(whole)


def test_a_database_that_takes_too_long(tmp_path: Path) -> None:
    """Pages that lead to one another: more rows than the file has room for."""
    path = database(tmp_path / "trace")
    whole = path.read_bytes()
    connection = sqlite3.connect(path)
    page = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'"
    ).fetchone()[0]
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    at = (page - 1) * size
    leaf = whole[at : at + size]
    # an interior page whose 660 children are the leaf, moved to the end of the file
    cell = (len(whole) // size + 1).to_bytes(4, "big") + b"\x01"
    count = 660
    head = b"\x05" + bytes(2) + count.to_bytes(2, "big") + (size - 5).to_bytes(2, "big") + b"\0"
    head += (len(whole) // size + 1).to_bytes(4, "big") + (size - 5).to_bytes(2, "big") * count
    inner = head + bytes(size - len(head) - 5) + cell
    changed = whole[:at] + inner + whole[at + size :] + leaf
    changed = changed[:28] + (len(changed) // size).to_bytes(4, "big") + changed[32:]
    path.write_bytes(changed)
    assert "more rows than a file of its size can hold" in refused(path)


def chrome(path: Path, events: list[Any], **more: Any) -> Path:
    path.write_text(json.dumps({"traceEvents": events, **more}))
    return path


EVENT = {"ph": "X", "cat": "cpu_op", "name": "mul", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
DEEP: Any = []
for _ in range(800):
    DEEP = [DEEP]
ODD = {
    "a long time": ({"ts": 10**400}, True), "a time of many digits": ({"ts": "9" * 5000}, True),
    "a duration that is none": ({"dur": None}, True), "no end of a number": ({"dur": 1e300}, True),
    "a name that is deep": ({"name": DEEP}, False), "a thread that is deep": ({"tid": DEEP}, False),
    "bytes of many digits": ({"cat": "kernel", "args": {"bytes": 10**400}}, False),
    "an id of a list": ({"args": {"External id": DEEP}}, False),
    "a number of many digits": ({"name": "mul, seq=" + "9" * 4000}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ODD))
def test_odd_values_in_json(name: str, tmp_path: Path) -> None:
    change, wrong = ODD[name]
    path = chrome(tmp_path / "trace.json", [{**EVENT, **change}])
    if wrong:
        assert "an event has the time" in refused(path)
    else:
        assert len(list(spans_of_file(path))) == 2


def test_a_gzip_bomb(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (1 << 25)))
    assert len(path.read_bytes()) < 40_000
    assert "unpack it first" in refused(path)


def test_ranges_without_end_in_one_another(tmp_path: Path) -> None:
    step = Step()
    for i in range(10_100):
        step.range(i, 50_000 - i, "deep")
    assert "10000 ranges are open" in refused(write_nsys(tmp_path / "trace", step))


def test_names_that_take_long_to_look_at() -> None:
    """Expressions that go back as often as the name is long; C++ names that double and double."""
    assert not waits("cuda" + "Synchronize" * 20_000 + "-")
    parts = "".join(f"IS{i}_" for i in range(40))
    bomb = f"_Z1f{parts}" + "E" * 40
    assert demangled(bomb) == bomb
