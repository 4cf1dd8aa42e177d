"""Finds for each kernel of a trace the innermost range that was open where it was launched."""

from __future__ import annotations

import heapq
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Activity", "Said", "Span", "TraceError", "attributed", "said_by"]

FOREVER = 2**63 - 1


class TraceError(ValueError):
    """A file that is no trace, or a broken one; the text says what it is and what would do."""


class Activity(NamedTuple):
    """One thing that a device did: a kernel, a copy, or a memset. Times are in nanoseconds."""

    kind: str  # "kernel", "copy" or "memset"
    name: str
    start: int
    end: int
    device: int
    stream: int
    nbytes: int


class Said(NamedTuple):
    """What the text of a range says; `node` is the name of the node that runs in it, if any."""

    name: str
    seq: int | None
    node: str | None
    sizes: list[list[int]] | None


class Span:
    """A range of one thread, from `start` to `end` in nanoseconds, and what was launched in it."""

    __slots__ = ("said", "process", "thread", "start", "end", "parent", "activities", "inside")

    def __init__(
        self, said: Said, process: int, thread: int, start: int, end: int, parent: Span | None
    ) -> None:
        self.said, self.process, self.thread = said, process, thread
        self.start, self.end, self.parent = start, end, parent
        self.activities: list[Activity] = []
        self.inside = 0  # nanoseconds of the ranges directly in it that have ended


# What cugrad and PyTorch write: `mul, seq=3`, `MulBackward0, stashed seq=3, sizes=[[2], []]`,
# `aten::mul, seq = 3, op_id = 7, sizes = [[2], []], input_op_ids = [(6, 0)]`, and, where the number
# is the range's payload, `mul, seq`.
_SEQ = re.compile(r", (stashed )?seq(?:\s*=\s*(-?\d+))?(?=,|$)")
_REST = re.compile(r", (?:op_id|sizes|input_op_ids|id)\s*=")
_SIZES = re.compile(r", sizes\s*=\s*(\[[\[\]\d, ]*\])")
_NODE = re.compile(r"(?:autograd::engine::evaluate_function: )?(?:torch::autograd::)?"
                   r"(\w*Backward\d*|AccumulateGrad|GraphRoot)$")  # fmt: skip
LEAVES = 2**62  # nodes that accumulate into leaves carry larger numbers, which say nothing


def said_by(text: str, payload: int | None = None) -> Said:
    """The name, sequence number, direction and sizes that the text of a range carries.

    >>> said_by("mul, seq=3, sizes=[[2, 3], []]")
    Said(name='mul', seq=3, node=None, sizes=[[2, 3], []])
    >>> said_by("autograd::engine::evaluate_function: MulBackward0, seq = 3, op_id = 8")[1:]
    (3, 'MulBackward0', None)
    >>> said_by("MulBackward0, stashed seq", 3)
    Said(name='MulBackward0', seq=3, node='MulBackward0', sizes=None)
    """
    found, rest = _SEQ.search(text), _REST.search(text)
    ends = [each.start() for each in (found, rest) if each is not None]
    name = sys.intern(text[: min(ends)] if ends else text)
    seq, stashed = None, False
    if found is not None:
        number = payload if found[2] is None else int(found[2])
        seq = number if number is not None and 0 <= number < LEAVES else None
        stashed = found[1] is not None
    sizes = _SIZES.search(text) if rest else None
    node = _NODE.match(name)
    inner = sys.intern(node[1]) if node else name if stashed else None
    return Said(name, seq, inner, sizes and _sizes(sizes[1]))


def _sizes(text: str) -> list[list[int]]:
    """The lists of numbers in a text; lists of lists of tensors are one entry for each tensor."""
    return [
        [int(number) for number in each.split(",") if number.strip()]
        for each in re.findall(r"\[([\d, ]*)\]", text[1:-1])
    ]


def attributed(
    ranges: Iterable[tuple[int, int, int, int, str, int | None]],
    launches: Iterable[tuple[int | None, int | None, int | None, Activity]],
) -> Iterator[Span | Activity]:
    """The ranges as they end, each with what was launched in it, and activities outside all ranges.

    `ranges` are (start, end, process, thread, text, payload) by ascending start, the outer one
    first; `launches` are (time of the call, process, thread, activity) by ascending time, None
    where the call is not known. Only the ranges that are open are held, so a trace of any length
    passes through in little memory. An activity belongs to the innermost open range of the thread
    that launched it, whenever it ran.
    """
    open_in: dict[Any, list[Span]] = {}
    merged: Iterable[Any] = heapq.merge(
        ((row[0], 0, row) for row in ranges),
        ((-1 if row[0] is None else row[0], 1, row) for row in launches),
        key=itemgetter(0, 1),
    )
    for time, what, row in merged:
        for stack in open_in.values():  # of all threads: backward runs where forward did not
            if stack and stack[-1].end < time:
                yield from _closed(stack, time)
        if what == 0:
            _, end, process, thread, text, payload = row
            stack = open_in.setdefault((process, thread), [])
            parent = next((each for each in reversed(stack) if each.end >= end), None)
            stack.append(Span(said_by(text, payload), process, thread, time, end, parent))
            continue
        _, process, thread, activity = row
        inside = next((each for each in reversed(open_in.get((process, thread), ()))
                       if each.end > time), None)  # fmt: skip
        if inside is None:
            yield activity
        else:
            inside.activities.append(activity)
    for stack in open_in.values():
        yield from _closed(stack, FOREVER + 1)


def _closed(stack: list[Span], time: int) -> Iterator[Span]:
    """Takes away, innermost first, what has ended before `time`, also where it is not nested."""
    ended = [each for each in reversed(stack) if each.end < time]
    stack[:] = [each for each in stack if each.end >= time]
    yield from ended


# ---------------------------------------------------------------------- databases


@contextmanager
def opened(path: str | Path, tool: str) -> Iterator[sqlite3.Connection]:
    """A trace in SQLite, open for reading; TraceError where it cannot be read as that."""
    file = Path(path)
    with file.open("rb") as stream:  # OSError where it is missing, is a directory, is forbidden
        head = stream.read(16)
    if not head:
        raise TraceError(f"{file}: the file is empty")
    if head != b"SQLite format 3\0":
        raise TraceError(f"{file}: not a SQLite database, which {tool} writes")
    try:
        connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        try:
            yield connection
        finally:
            connection.close()
    except TraceError as error:
        said = str(error)
        raise TraceError(said if str(file) in said else f"{file}: {said}") from error
    except (sqlite3.Error, OverflowError) as error:
        raise TraceError(f"{file}: a broken database: {error}") from error


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table; none where it does not exist."""
    return {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}


def tables_of(connection: sqlite3.Connection) -> set[str]:
    """The names of the tables."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {row[0] for row in rows}


def whole(value: Any) -> int:
    """A number of a column; TraceError for anything else."""
    if not isinstance(value, int):
        raise TraceError(f"a broken trace: got {value!r} in a column, want a whole number")
    return value


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
