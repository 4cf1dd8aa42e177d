"""Reads traces in the Chrome trace format, as cugrad's and PyTorch's profilers export them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...autograd.recording.node import SEQ_LIMIT
from ..correlation.attribution import (
    Activity,
    TraceError,
    TraceRange,
    activity_of,
    attributed,
    whole,
)
from ..nvidia.nvtx import range_text

__all__ = ["load_chrome_spans"]

DEVICE = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset", "memcpy": "copy",
          "memset": "memset"}  # fmt: skip
NOT_RANGES = {"python_function", "ac2g", "fwdbwd", "async_cpu_to_gpu", "gpu_user_annotation",
              "overhead", "trace", "async", "cuda_sync"}  # fmt: skip
COPIES = ("copy", "prefetch")  # of an offload
API = ("cuda_runtime", "cuda_driver")
LATEST = 2**52  # microseconds: more than a century, and nanoseconds in 64 bits
SMALL, TIGHTEST = 1 << 24, 100  # bytes, and times the bytes of the file: what gzip may unpack to


def load_chrome_spans(path: str | Path) -> Iterator[TraceRange | Activity]:
    """The ranges of a trace as they end, and what was launched outside of all of them.

    ValueError where the file is no such trace; OSError where it cannot be read.
    """
    return attributed(*_read(Path(path)))


def _events_of(path: Path) -> list[Any]:
    """The list of events in a file, which may be compressed."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            most = SMALL + TIGHTEST * len(raw)
            with gzip.open(path) as file:
                raw = file.read(most + 1)
            if len(raw) > most:
                raise TraceError(f"{path}: more than {most} bytes within; unpack it first: gunzip")
        data = json.loads(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: a broken gzip file: {error}") from error
    except TraceError:
        raise
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: neither a database nor JSON: {error}") from error
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise TraceError(f"{path}: JSON, but no Chrome trace: want a list of traceEvents")
    return events


Place = tuple[int, int, int]  # a time, a process and a thread
NOWHERE = (None, None, None)


class _Trace:
    """What the events of a file say: ranges, and what was launched where."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ranges: list[tuple[int, int, int, int, str, int | None]] = []
        self.calls: dict[Any, Place] = {}  # by correlation number
        self.ops: dict[Any, Place] = {}  # by external id
        self.activities: list[tuple[Any, Any, Activity]] = []
        self.copies: dict[Any, Activity] = {}  # of ranges that are copies, by external id
        self._numbers: dict[Any, int] = {}
        self._open: dict[tuple[int, int], list[tuple[dict[str, Any], int]]] = {}

    def take(self, event: Any) -> None:
        """Reads one event."""
        if not isinstance(event, dict):
            raise TraceError(f"{self.path}: no Chrome trace: an event is of {type(event).__name__}")
        phase = event.get("ph")
        if phase not in ("X", "B", "E"):
            return
        start = end = _nanoseconds(event.get("ts"), self.path)
        process, thread = (_number(event.get(key), self._numbers) for key in ("pid", "tid"))
        if phase == "B":
            self._open.setdefault((process, thread), []).append((event, start))
            return
        if phase == "X":
            end += _nanoseconds(event.get("dur", 0), self.path)
        else:
            stack = self._open.get((process, thread))
            if not stack:
                return
            event, start = stack.pop()
        args = event.get("args")
        self._add(event, args if isinstance(args, dict) else {}, end, (start, process, thread))

    def _add(self, event: dict[str, Any], args: dict[str, Any], end: int, place: Place) -> None:
        """Adds an event with its arguments, its end, and where it began."""
        name, kind = _text(event.get("name")), _text(event.get("cat")).lower()
        external, correlation = args.get("External id"), args.get("correlation")
        device, stream, nbytes = (args.get(key) for key in ("device", "stream", "bytes"))
        start, process, thread = place
        if kind in DEVICE or kind == "stall" and device is not None:
            what = "copy" if name.startswith("Memcpy") else DEVICE.get(kind, kind)
            activity = activity_of(what, name, start, end, device, stream, nbytes)
            if args.get("part") and self.activities and self.activities[-1][1] == external:
                before = self.activities.pop()[2]  # other work of its stream interrupted it
                activity = before._replace(end=before.end + activity.end - activity.start)
            self.activities.append((correlation, external, activity))
        elif kind in COPIES:
            _first(self.ops, external, place)
            copy = activity_of("copy", name, start, end, device, 0, nbytes)
            _first(self.copies, external, copy)
        elif kind in API:
            _first(self.calls, correlation, place)
            if "Synchronize" in name:
                self.ranges.append((start, end, process, thread, name, None))
        elif kind not in NOT_RANGES:
            _first(self.ops, external, place)
            text = range_text(name, kind)
            self.ranges.append((start, end, process, thread, *_numbered(text, args)))

    def launches(self) -> list[Any]:
        """What was launched, with the place of its call, by time."""
        rows: list[Any] = []
        for correlation, external, what in self.activities:
            copy = _found(self.copies, external)
            if copy is not None and correlation is None:  # what a copy took on the device
                del self.copies[external]
                what = what._replace(kind="copy", nbytes=copy.nbytes)
            call = _found(self.calls, correlation) or _found(self.ops, external)
            rows.append((*(call or NOWHERE), what))
        rows += [(*self.ops[external], copy) for external, copy in self.copies.items()]
        return sorted(rows, key=lambda row: (-1 if row[0] is None else row[0], row[3].start))


def _read(path: Path) -> tuple[list[Any], list[Any]]:
    """Ranges and launches, sorted, as `attributed` wants them."""
    trace = _Trace(path)
    for event in _events_of(path):
        trace.take(event)
    trace.ranges.sort(key=lambda row: (row[0], -row[1]))
    return trace.ranges, trace.launches()


def _numbered(name: str, args: dict[str, Any]) -> tuple[str, int | None]:
    """The text of a range, with the sequence number that stands among the arguments."""
    number = args.get("Sequence number")
    if not isinstance(number, int) or not 0 <= number < SEQ_LIMIT or ", seq" in name:
        return name, None
    return f"{name}, seq", number


def _first(places: dict[Any, Any], key: Any, value: Any) -> None:
    if isinstance(key, (int, str)):
        places.setdefault(key, value)


def _found(places: dict[Any, Any], key: Any) -> Any:
    return places.get(key) if isinstance(key, (int, str)) else None


def _text(value: Any) -> str:
    """A text, or a number as one; nothing of a list, which can be of any depth."""
    return str(value) if isinstance(value, (str, int, float)) else ""


def _number(name: Any, numbers: dict[Any, int]) -> int:
    """A number for the id of a process or thread, which may be a text."""
    return numbers.setdefault(f"{type(name).__name__}{_text(name)}", len(numbers))


def _nanoseconds(value: Any, path: Path) -> int:
    """Microseconds of the format in nanoseconds."""
    if isinstance(value, str):  # which the format allows
        try:
            value = float(value)
        except ValueError:
            value = None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) < LATEST:
        raise TraceError(f"{path}: no Chrome trace: an event has the time {repr(value)[:80]}")
    return whole(round(value * 1000))
