"""Reads the SQLite files that Nsight Systems exports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..correlation.attribution import (
    FOREVER,
    Activity,
    TraceError,
    TraceRange,
    activity_of,
    attributed,
    whole,
)
from ..correlation.loaded import events_of
from ..events.event_list import EventList
from .database import Database, copy_name, one_each, opened

__all__ = ["load_nsys"]

PUSHED = 59  # eventType of a range that was pushed and popped
STRINGS = one_each("StringIds", "id", "value")
API = "CUPTI_ACTIVITY_KIND_RUNTIME"  # calls of the runtime API and of the driver API alike
ID = 0x1000000  # global ids hold a process above, and a thread below, this


def load_nsys(path: str | Path) -> EventList:
    """The ranges of an Nsight Systems trace, each with the kernels and copies launched in it.

    For `nsys profile -t cuda,nvtx ...` around a program that uses `emit_nvtx`, and
    `nsys export --type sqlite FILE.nsys-rep`; files of PyTorch's programs as well. Calls that wait
    for the device (cudaStreamSynchronize) are events of their own. Ranges that were started and
    ended by a handle, which belong to no thread, are left out. Rows are read one by one, in the
    order of time, so that only the events are in memory, never the file.

    ValueError where the file is none that Nsight Systems exports; OSError where it cannot be read.
    """
    with opened(path, "nsys export --type sqlite") as database:
        return events_of(spans_of_nsys(database, Path(path)))


def is_nsys(tables: set[str]) -> bool:
    """Whether these are the tables of a file of Nsight Systems."""
    return bool(
        tables & {"NVTX_EVENTS", "META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME"}
        or {"StringIds", API} <= tables
    )


def spans_of_nsys(database: Database, path: Path) -> Iterator[TraceRange | Activity]:
    """The ranges as they end, and activities outside of all, as they come."""
    if not is_nsys(database.tables):
        raise TraceError(
            f"{path}: no table of Nsight Systems; want what nsys export --type sqlite writes"
        )
    yield from attributed(_ranges(database), _launches(database))


def _or_null(columns: set[str], *names: str) -> str:
    """The first of these columns that the table `t` has, else NULL: versions of nsys differ."""
    return next((f"t.{name}" for name in names if name in columns), "NULL")


def _ranges(database: Database) -> Iterator[Any]:
    """Pushed ranges, and calls that wait for the device, by time, the outer one first."""
    columns, calls = database.columns("NVTX_EVENTS"), database.columns(API)
    strings = database.columns("StringIds")
    parts = []
    if {"start", "end", "eventType", "globalTid"} <= columns:
        text, join = _or_null(columns, "text"), ""
        if strings and "textId" in columns:  # registered strings; `text` is then NULL
            text, join = f"COALESCE({text}, s.value)", f"LEFT JOIN {STRINGS} s ON s.id = t.textId"
        payload = f"COALESCE({', '.join(_payloads(columns))}, NULL)"
        parts.append(
            f"SELECT t.start AS start, COALESCE(t.end, {FOREVER}) AS end, t.globalTid AS tid, "
            f"COALESCE({text}, '') AS text, {payload} AS payload "
            f"FROM NVTX_EVENTS t {join} WHERE t.eventType = {PUSHED} AND t.start IS NOT NULL"
        )
    if strings and {"start", "end", "globalTid", "nameId"} <= calls:
        parts.append(
            f"SELECT t.start, t.end, t.globalTid, s.value, NULL FROM {API} t "
            f"CROSS JOIN {STRINGS} s ON s.id = t.nameId WHERE s.value LIKE '%Synchronize%'"
        )
    if not parts:
        return
    rows = database.rows(" UNION ALL ".join(parts) + " ORDER BY 1, 2 DESC")
    for start, end, tid, text, payload in rows:
        process, thread = ids(tid)
        yield start, end, process, thread, text, payload


def _payloads(columns: set[str]) -> list[str]:
    kinds = ("int64Value", "uint64Value", "int32Value", "uint32Value")
    return [f"t.{each}" for each in kinds if each in columns] or ["NULL"]


def ids(global_id: Any) -> tuple[int, int]:
    """The process and the thread of a global id."""
    number = whole(global_id)
    return number // ID % ID, number % ID


def _launches(database: Database) -> Iterator[Any]:
    """Kernels, copies and memsets with the call that launched each, by the time of the call."""
    parts = [
        part
        for kind, table in (
            ("kernel", "CUPTI_ACTIVITY_KIND_KERNEL"),
            ("copy", "CUPTI_ACTIVITY_KIND_MEMCPY"),
            ("memset", "CUPTI_ACTIVITY_KIND_MEMSET"),
            ("graph", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
        )
        if (part := _part(database, kind, table))
    ]
    if not parts:
        return
    for time, tid, kind, name, start, end, device, stream, nbytes, *memory in database.rows(
        " UNION ALL ".join(parts) + " ORDER BY 1, 5"
    ):
        if kind == "copy":
            name = copy_name(*memory)
        elif kind == "memset":
            name = "Memset (Device)"
        elif kind == "graph":
            kind, name = "kernel", "CUDA graph"
        process, thread = (None, None) if tid is None else ids(tid)
        done = activity_of(kind, name, start, end, device, stream, nbytes)
        yield time, process, thread, done


def _part(database: Database, kind: str, table: str) -> str:
    """The statement that reads one table of activities; nothing where it does not exist."""
    columns, calls = database.columns(table), database.columns(API)
    if not {"start", "end"} <= columns:
        return ""
    name, join = "''", ""
    names = [each for each in ("demangledName", "shortName", "mangledName") if each in columns]
    if kind == "kernel" and names and database.columns("StringIds"):
        name = f"COALESCE({', '.join(f'{each}_.value' for each in names)}, 'kernel')"
        join = " ".join(f"LEFT JOIN {STRINGS} {n}_ ON {n}_.id = t.{n}" for n in names)
    time, tid = "NULL", "NULL"
    if {"correlationId", "globalTid", "start"} <= calls and "correlationId" in columns:
        # one call for each number: with min() SQLite takes the other columns from the same row
        same = f"AND c.process = t.globalPid / {ID}" if "globalPid" in columns else ""
        time, tid = "c.start", "c.globalTid"
        join += (
            f" LEFT JOIN (SELECT correlationId, globalTid / {ID} AS process, globalTid, "
            f"min(start) AS start FROM {API} GROUP BY 1, 2) c "
            f"ON c.correlationId = t.correlationId {same}"
        )
    memory = ", ".join(_or_null(columns, each) for each in ("copyKind", "srcKind", "dstKind"))
    return (
        f"SELECT {time} AS time, {tid} AS tid, '{kind}', {name}, t.start, t.end, "
        f"{_or_null(columns, 'deviceId')}, {_or_null(columns, 'streamId')}, "
        f"{_or_null(columns, 'bytes')}, {memory} FROM {table} t {join}"
    )
