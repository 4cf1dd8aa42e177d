"""Opens a trace in SQLite, and reads from it no more than a file of its size can hold."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..correlation.attribution import TraceError

__all__ = ["Database", "copy_name", "opened"]

ROW = 8  # bytes that a row takes at least
STEPS = 100  # of SQLite's machine for a byte of the file, and as many again for a small one:
FEW = 2_000_000
LOOK = 100_000  # steps between two checks of their number


class Database:
    """A trace that is open for reading.

    Only what lies in ordinary tables is read: a view, or a generated column, can be of any size.
    """

    def __init__(self, connection: sqlite3.Connection, nbytes: int) -> None:
        self._connection, self._left = connection, nbytes // ROW
        steps = FEW + STEPS * nbytes
        looks = iter(range(steps // LOOK))
        connection.set_progress_handler(lambda: next(looks, None) is None, LOOK)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(nbytes, 10_000))
        connection.execute("PRAGMA trusted_schema = OFF")
        self.tables: set[str] = {
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' "
                "AND sql NOT LIKE 'CREATE VIRTUAL%'"
            )
        }

    def columns(self, table: str) -> set[str]:
        """The columns of a table; none where it does not exist."""
        if table not in self.tables:
            return set()
        return {row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")')}

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """The rows that a statement finds, one by one."""
        for row in self._connection.execute(statement):
            self._left -= 1
            if self._left < 0:
                raise TraceError("a broken database: more rows than a file of its size can hold")
            yield row


def one_each(table: str, key: str, value: str) -> str:
    """A table for a join that adds no rows: one `value` for each `key`.

    >>> one_each("StringIds", "id", "value")
    '(SELECT id, min(value) AS value FROM StringIds GROUP BY id)'
    """
    return f"(SELECT {key}, min({value}) AS {value} FROM {table} GROUP BY {key})"


@contextmanager
def opened(path: str | Path, tool: str) -> Iterator[Database]:
    """A trace in SQLite; TraceError where it cannot be read as that, also within the block."""
    file = Path(path)
    with file.open("rb") as stream:  # OSError where it is missing, is a directory, is forbidden
        head = stream.read(16)
    if not head:
        raise TraceError(f"{file}: the file is empty")
    if head != b"SQLite format 3\0":
        raise TraceError(f"{file}: not a SQLite database, which {tool} writes")
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        try:
            yield Database(connection, file.stat().st_size)
        finally:
            connection.close()
    except TraceError as error:
        said = str(error)
        raise TraceError(said if str(file) in said else f"{file}: {said}") from error
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise TraceError(f"{file}: a broken database: {error}") from error


COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
          9: "HtoH", 10: "PtoP"}  # fmt: skip
MEMORIES = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed", 6: "Device",
            7: "Managed"}  # fmt: skip


def copy_name(kind: int | None, source: int | None, target: int | None) -> str:
    """A copy as PyTorch names it.

    >>> copy_name(1, 2, 3), copy_name(8, None, None)
    ('Memcpy HtoD (Pinned -> Device)', 'Memcpy DtoD')
    """
    name = f"Memcpy {COPIES.get(kind or 0, 'unknown')}"
    if source in MEMORIES and target in MEMORIES:
        name += f" ({MEMORIES[source]} -> {MEMORIES[target]})"
    return sys.intern(name)
