"""Reads the SQLite files that nvprof writes."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
import sys
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
from ..events.event import FunctionEvent
from ..events.event_list import EventList
from .database import Database, copy_name, one_each, opened

__all__ = ["load_nvprof", "parse_nvprof_trace"]

KIND = "CUPTI_ACTIVITY_KIND_"
MARKER = f"{KIND}MARKER"
ENDS = f"(SELECT id, min(timestamp) AS timestamp FROM {MARKER} WHERE name = 0 GROUP BY id)"
BACK = re.compile(r"(?:S|T)[0-9A-Z]*_")  # what stands for an earlier part of a C++ name
MOST_BACK = 24  # each may double the length of the name
STRINGS = one_each("StringTable", "_id_", "value")
# Numbers of calls that wait for the device, from cupti_runtime_cbid.h and cupti_driver_cbid.h.
WAITS = {
    "RUNTIME": {126: "cudaThreadSynchronize", 131: "cudaStreamSynchronize",
                137: "cudaEventSynchronize", 165: "cudaDeviceSynchronize",
                239: "cudaStreamSynchronize"},
    "DRIVER": {17: "cuCtxSynchronize", 121: "cuEventSynchronize", 126: "cuStreamSynchronize",
               440: "cuStreamSynchronize"},
}  # fmt: skip


def load_nvprof(path: str | Path) -> EventList:
    """The ranges of an nvprof trace, each with the kernels and copies launched in it.

    For `nvprof -o FILE ...` around a program that uses `emit_nvtx`, cugrad's or PyTorch's; nvprof
    profiles GPUs before compute capability 8.0. Kernels that were launched through the driver API
    (by CuPy) are found like those of the runtime API. A kernel belongs to the innermost range of
    the thread that launched it; `device_time_total` adds up what is inside. Names of kernels are
    demangled where the C++ library is there. Calls that wait for the device are events of their
    own. Rows are read one by one: only the events are in memory, never the file.

    ValueError where the file is none that nvprof wrote; OSError where it cannot be read.
    """
    with opened(path, "nvprof") as database:
        return events_of(spans_of_nvprof(database, Path(path)))


def parse_nvprof_trace(path: str | Path) -> list[FunctionEvent]:
    """The events of `load_nvprof`, as a plain list."""
    return list(load_nvprof(path))


def is_nvprof(tables: set[str]) -> bool:
    """Whether these are the tables of a file of nvprof."""
    return "StringTable" in tables and any(each.startswith(KIND) for each in tables)


def spans_of_nvprof(database: Database, path: Path) -> Iterator[TraceRange | Activity]:
    """The ranges as they end, and activities outside of all, as they come."""
    if not is_nvprof(database.tables):
        raise TraceError(f"{path}: no table of nvprof; want what nvprof -o writes")
    yield from attributed(_ranges(database), _launches(database))


def _ranges(database: Database) -> Iterator[Any]:
    """Ranges, and calls that wait for the device, by time, the outer one first."""
    parts = []
    if {"timestamp", "id", "name", "objectId"} <= database.columns(MARKER):
        payload, join = "NULL", ""
        if {"id", "payload"} <= database.columns(f"{MARKER}_DATA"):
            data = one_each(f"{MARKER}_DATA", "id", "payload")
            payload, join = "d.payload", f"LEFT JOIN {data} d ON d.id = a.id"
        parts.append(  # a range is two rows, of which the one of its end has no name
            f"SELECT a.timestamp, COALESCE(b.timestamp, {FOREVER}), a.objectId, NULL, s.value, "
            f"{payload} FROM {MARKER} a LEFT JOIN {ENDS} b ON b.id = a.id "
            f"CROSS JOIN {STRINGS} s ON s._id_ = a.name {join} WHERE a.name != 0 AND a.flags & 2"
        )
    for api, waits in WAITS.items():
        if {"cbid", "start", "end", "processId", "threadId"} <= database.columns(KIND + api):
            parts.append(
                f"SELECT start, end, processId, threadId, '{api}', cbid FROM {KIND}{api} "
                f"WHERE cbid IN ({', '.join(map(str, waits))})"
            )
    if not parts:
        return
    for start, end, owner, thread, text, number in database.rows(
        " UNION ALL ".join(parts) + " ORDER BY 1, 2 DESC"
    ):
        if thread is None:
            yield start, end, *_owner(owner), text, _payload(number)
        else:
            said = WAITS[text][number]
            yield start, end, owner, whole(thread) & 0xFFFFFFFF, said, None


def _owner(object_id: Any) -> tuple[int, int]:
    """The process and the thread in the bytes of a CUpti_ActivityObjectKindId."""
    if not isinstance(object_id, bytes) or len(object_id) < 8:
        raise TraceError(f"a broken trace: got objectId {object_id!r}, want 8 bytes or more")
    process, thread = struct.unpack_from("<II", object_id)
    return process, thread


def _payload(value: Any) -> int | None:
    """The whole number that a marker carries: a number, or 8 bytes."""
    if isinstance(value, bytes) and len(value) >= 8:
        return int(struct.unpack_from("<q", value)[0])
    return value if isinstance(value, int) else None


def _launches(database: Database) -> Iterator[Any]:
    """Kernels, copies and memsets with the call that launched each, by the time of the call."""
    calls = [
        f"SELECT correlationId, processId, threadId, start FROM {KIND}{api}"
        for api in WAITS
        if {"correlationId", "processId", "threadId", "start"} <= database.columns(KIND + api)
    ]
    parts = [
        part
        for kind, table in (
            ("kernel", "CONCURRENT_KERNEL"),
            ("kernel", "KERNEL"),
            ("copy", "MEMCPY"),
            ("copy", "MEMCPY2"),
            ("memset", "MEMSET"),
        )  # fmt: skip
        if (part := _part(database, kind, KIND + table, calls))
    ]
    if not parts:
        return
    for (
        time,
        process,
        thread,
        kind,
        name,
        start,
        end,
        device,
        stream,
        nbytes,
        *memory,
    ) in database.rows(" UNION ALL ".join(parts) + " ORDER BY 1, 6"):
        if kind == "copy":
            name = copy_name(*memory)
        else:
            name = "Memset (Device)" if kind == "memset" else demangled(str(name))
        if thread is not None:
            thread = whole(thread) & 0xFFFFFFFF
        done = activity_of(kind, name, start, end, device, stream, nbytes)
        yield time, process, thread, done


def _part(database: Database, kind: str, table: str, calls: list[str]) -> str:
    """The statement that reads one table of activities; nothing where it does not exist."""
    columns = database.columns(table)
    if not {"start", "end"} <= columns:
        return ""
    name, join, call = "''", "", "NULL, NULL, NULL"
    if kind == "kernel" and "name" in columns:
        name, join = "COALESCE(s.value, 'kernel')", f"LEFT JOIN {STRINGS} s ON s._id_ = t.name"
    if calls and "correlationId" in columns:
        # one call for each number: with min() SQLite takes the other columns from the same row
        call = "c.start, c.processId, c.threadId"
        join += (
            " LEFT JOIN (SELECT correlationId, processId, threadId, min(start) AS start "
            f"FROM ({' UNION ALL '.join(calls)}) GROUP BY correlationId) c "
            "ON c.correlationId = t.correlationId"
        )
    rest = ["deviceId", "streamId", "bytes", "copyKind", "srcKind", "dstKind"]
    values = ", ".join(f"t.{each}" if each in columns else "NULL" for each in rest)
    return f"SELECT {call}, '{kind}', {name}, t.start, t.end, {values} FROM {table} t {join}"


@functools.lru_cache(maxsize=4096)
def demangled(name: str) -> str:
    """A C++ name as it was written; itself, where it is none, or the C++ library is missing.

    >>> demangled("saxpy")
    'saxpy'
    """
    if not name.startswith("_Z") or len(BACK.findall(name)) > MOST_BACK:
        return sys.intern(name)
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError, TypeError):
        return sys.intern(name)
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    status = ctypes.c_int()
    buffer = demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not buffer:
        return sys.intern(name)
    try:
        return sys.intern((ctypes.string_at(buffer)).decode("utf-8", "replace"))
    finally:
        free(buffer)
