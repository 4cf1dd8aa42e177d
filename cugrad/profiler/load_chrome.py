"""Reads traces in the Chrome trace format, as cugrad's and PyTorch's profilers export them."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .attribution import Activity, Span, TraceError, attributed

__all__ = ["load_chrome_spans"]

DEVICE = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset", "memcpy": "copy",
          "memset": "memset"}  # fmt: skip
NOT_RANGES = {"python_function", "ac2g", "fwdbwd", "async_cpu_to_gpu", "gpu_user_annotation",
              "overhead", "trace", "async", "cuda_sync"}  # fmt: skip
LEAVES = 2**62


def load_chrome_spans(path: str | Path) -> Iterator[Span | Activity]:
    """The ranges of a trace as they end, and what was launched outside of all of them.

    ValueError where the file is no such trace; OSError where it cannot be read.
    """
    return attributed(*_read(Path(path)))


def _events_of(path: Path) -> list[Any]:
    """The list of events in a file, which may be compressed."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        found = json.loads(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: a broken gzip file: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: neither a database nor JSON: {error}") from error
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise TraceError(f"{path}: JSON, but no Chrome trace: want a list of traceEvents")
    return events


def _read(path: Path) -> tuple[list[Any], list[Any]]:
    """Ranges and launches, sorted, as `attributed` wants them."""
    ranges: list[tuple[int, int, int, int, str, int | None]] = []
    calls: dict[Any, tuple[int, int, int]] = {}  # by correlation number
    ops: dict[Any, tuple[int, int, int]] = {}  # by external id
    activities: list[tuple[Any, Any, Activity]] = []
    numbers: dict[Any, int] = {}
    open_at: dict[tuple[int, int], list[tuple[Any, int]]] = {}
    for event in _events_of(path):
        if not isinstance(event, dict):
            raise TraceError(f"{path}: no Chrome trace: an event is of {type(event).__name__}")
        phase, args = event.get("ph"), event.get("args")
        if phase not in ("X", "B", "E"):
            continue
        args = args if isinstance(args, dict) else {}
        start = _nanoseconds(event.get("ts"), path)
        process, thread = (_number(event.get(key), numbers) for key in ("pid", "tid"))
        if phase == "B":
            open_at.setdefault((process, thread), []).append((event, start))
            continue
        end = start
        if phase == "X":
            end += _nanoseconds(event.get("dur", 0), path)
        else:
            stack = open_at.get((process, thread))
            if not stack:
                continue
            event, start = stack.pop()
            args = event.get("args") if isinstance(event.get("args"), dict) else {}
        name, kind = str(event.get("name", "")), str(event.get("cat", "")).lower()
        place = start, process, thread
        if kind in DEVICE:
            where = [_whole(args.get(key)) for key in ("device", "stream", "bytes")]
            activity = Activity(DEVICE[kind], name, start, end, *where)
            activities.append((args.get("correlation"), args.get("External id"), activity))
            continue
        if kind in NOT_RANGES:
            continue
        if kind in ("cuda_runtime", "cuda_driver"):
            _first(calls, args.get("correlation"), place)
            if "Synchronize" not in name:
                continue
        else:
            _first(ops, args.get("External id"), place)
        ranges.append((start, end, process, thread, *_numbered(name, args)))
    launches = []
    for correlation, external, activity in activities:
        call = _found(calls, correlation) or _found(ops, external) or (None, None, None)
        launches.append((*call, activity))
    ranges.sort(key=lambda row: (row[0], -row[1]))
    launches.sort(key=lambda row: (-1 if row[0] is None else row[0], row[3].start))
    return ranges, launches


def _numbered(name: str, args: dict[str, Any]) -> tuple[str, int | None]:
    """The text of a range, with the sequence number that stands among the arguments."""
    number = args.get("Sequence number")
    if not isinstance(number, int) or not 0 <= number < LEAVES or ", seq" in name:
        return name, None
    return f"{name}, seq", number


def _first(places: dict[Any, tuple[int, int, int]], key: Any, place: tuple[int, int, int]) -> None:
    if isinstance(key, (int, str)):
        places.setdefault(key, place)


def _found(places: dict[Any, tuple[int, int, int]], key: Any) -> tuple[int, int, int] | None:
    return places.get(key) if isinstance(key, (int, str)) else None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _number(name: Any, numbers: dict[Any, int]) -> int:
    """A number for the id of a process or thread, which may be a text."""
    return numbers.setdefault(f"{type(name).__name__}{name}", len(numbers))


def _nanoseconds(value: Any, path: Path) -> int:
    """Microseconds of the format in nanoseconds."""
    if isinstance(value, str):  # which the format allows
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TraceError(f"{path}: no Chrome trace: an event has the time {value!r}")
    return round(value * 1000)
