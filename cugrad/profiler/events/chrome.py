"""Writes events as a Chrome trace."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .event import DeviceType, FunctionEvent, RecordScope

__all__ = ["write_trace"]

CATEGORIES = {
    RecordScope.FUNCTION: "cpu_op", RecordScope.BACKWARD_FUNCTION: "cpu_op",
    RecordScope.USER_SCOPE: "user_annotation", RecordScope.MODULE: "python_function",
    RecordScope.OPTIMIZER: "user_annotation", RecordScope.COPY: "copy",
    RecordScope.STALL: "stall", RecordScope.PREFETCH: "prefetch",
    RecordScope.RECOMPUTE: "recompute", RecordScope.MEMORY: "cpu_instant_event",
}  # fmt: skip
MOVES = (RecordScope.COPY, RecordScope.PREFETCH)
ON_DEVICE = {RecordScope.COPY: "gpu_memcpy", RecordScope.PREFETCH: "gpu_memcpy",
             RecordScope.STALL: "stall"}  # fmt: skip


def write_trace(
    events: Iterable[Any], path: str | Path, metadata: dict[str, Any] | None = None
) -> None:
    """Writes events as the JSON object format of Chrome traces; `metadata` are further entries.

    Entries are written one by one: a long trace needs no memory for its text.
    """
    target = Path(path)
    opened = gzip.open if target.suffix == ".gz" else open
    with opened(target, "wt", encoding="utf-8") as file:
        head = {"schemaVersion": 1, "displayTimeUnit": "ms", **(metadata or {})}
        file.write(_json(head)[:-1] + ', "traceEvents": [\n')
        for index, entry in enumerate(entries_of(events)):
            file.write((",\n" if index else "") + _json(entry))
        file.write("\n]}\n")


def _json(entry: dict[str, Any]) -> str:
    """An entry as JSON. Infinite numbers become texts, because JSON has none."""
    try:
        return json.dumps(entry, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(entry), default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def entries_of(events: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The entries of a trace: lanes, events, kernels, memory, and arrows from op to node."""
    process = os.getpid()
    shown = sorted((e for e in events if isinstance(e, FunctionEvent)),
                   key=lambda e: (e.time_range.start, -e.time_range.end))  # fmt: skip
    own = any(event.device_type != DeviceType.CPU for event in shown)
    yield _named("process_name", process, 0, "python: ops, nodes, ranges")
    lanes: set[tuple[Any, int]] = set()
    ops: dict[tuple[int, int | None], FunctionEvent] = {}
    arrows = 0
    for event in shown:
        lane = _lane(event, process)
        if lane not in lanes and event.trace_name is not None:
            if isinstance(lane[0], str) and not any(p == lane[0] for p, _ in lanes):
                yield _named("process_name", lane[0], 0, lane[0])
            lanes.add(lane)
            text = f"stream {lane[1]}" if isinstance(lane[0], str) else f"thread {lane[1]}"
            yield _named("thread_name", *lane, text)
        if event.trace_name is None:
            continue
        yield _complete(event, lane)
        key = event.sequence_nr, event.fwd_thread
        if event.scope == RecordScope.FUNCTION and event.sequence_nr >= 0:
            ops.setdefault((event.sequence_nr, event.thread), event)
        elif event.scope == RecordScope.BACKWARD_FUNCTION and key in ops:
            arrows += 1
            yield from _arrow(ops[key], event, arrows, process, "fwdbwd")
    if not own:
        yield from _kernels(shown)
    yield from _memory(shown, process)


def _kernels(shown: list[FunctionEvent]) -> Iterator[dict[str, Any]]:
    """What events launched: a row for each stream of a device, at the times of the device.

    Where these are not known, one after the other, and no sooner than its event.
    """
    rows: dict[tuple[int, int], dict[str, None]] = {}  # what copies of a stream are called
    free: dict[tuple[int, int], float] = {}
    for event in shown:
        for kernel in event.kernels if event.trace_name is not None else ():
            row, scope = (kernel.device, kernel.stream), RecordScope(event.scope)
            rows.setdefault(row, {})[kernel.name if scope in MOVES else ""] = None
            spans = kernel.spans
            if not spans:
                start = max(event.time_range.start, free.get(row, 0.0))
                free[row] = start + kernel.duration
                spans = ((start, free[row]),)
            for part, (start, end) in enumerate(spans):
                more = {"part": part} if part else {}
                yield {
                    "ph": "X", "cat": ON_DEVICE.get(scope, "kernel"), "name": kernel.name,
                    "pid": f"device {kernel.device}", "tid": kernel.stream, "ts": start,
                    "dur": end - start, "args": {"External id": event.id, "device": kernel.device,
                                                 "stream": kernel.stream, **more},
                }  # fmt: skip
    clock = "virtual time" if any(e.use_device == "simulated" for e in shown) else "its own time"
    for device in sorted({device for device, _ in rows}):
        yield _named("process_name", f"device {device}", 0, f"device {device}, {clock}")
    for (device, stream), names in sorted(rows.items()):
        text = "" if "" in names else f": {', '.join(names)}"
        yield _named("thread_name", f"device {device}", stream, f"stream {stream}{text}")


def _lane(event: FunctionEvent, process: int) -> tuple[Any, int]:
    """The process and the thread in which a viewer shows an event."""
    if event.device_type == DeviceType.CPU:
        return process, event.thread
    name = DeviceType(event.device_type).name
    return f"{name} {event.device_index}", event.device_resource_id or 0


def _named(what: str, process: Any, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}


def _complete(event: FunctionEvent, lane: tuple[Any, int]) -> dict[str, Any]:
    """An event with its duration; the arguments carry PyTorch's names."""
    arguments: dict[str, Any] = {"External id": event.external_id or event.id}
    if event.sequence_nr >= 0:
        arguments["Sequence number"] = event.sequence_nr
    if event.fwd_thread is not None:
        arguments["Fwd thread id"] = event.fwd_thread
    for name, value in (
        ("Input Dims", event.structured_input_shapes or event.input_shapes),
        ("Input Strides", event.structured_input_strides),
        ("Input type", event.input_dtypes),
        ("Concrete Inputs", event.concrete_inputs),
        ("Call stack", ";".join(event.stack) if event.stack else None),
        ("Module Hierarchy", event.module_hierarchy),
        ("flops", event.flops),
        ("bytes", event.nbytes),
    ):
        if value:
            arguments[name] = value
    if event.device_type != DeviceType.CPU:
        arguments |= {"device": event.device_index, "stream": event.device_resource_id}
    category = None
    if event.device_type != DeviceType.CPU:
        category = {"copy": "gpu_memcpy", "memset": "gpu_memset"}.get(event.activity_type or "")
        category = category or "kernel"
    if event.is_user_annotation and category is not None:
        category = "gpu_user_annotation"
    return {
        "ph": "X", "cat": category or CATEGORIES.get(RecordScope(event.scope), "cpu_op"),
        "name": event.trace_name, "pid": lane[0], "tid": lane[1], "ts": event.time_range.start,
        "dur": event.time_range.elapsed_us(), "args": arguments,
    }  # fmt: skip


def _memory(shown: list[FunctionEvent], process: int) -> Iterator[dict[str, Any]]:
    """Counters of the memory taken since the profile began, after each event that changed it."""
    for name in ("cpu", "device"):
        taken = 0
        for event in sorted(shown, key=lambda e: e.time_range.end):
            change: int = getattr(event, f"self_{name}_memory_usage")
            taken += change
            if change:
                yield {
                    "ph": "C", "name": f"memory, {name}", "pid": process, "tid": 0,
                    "ts": event.time_range.end, "args": {"bytes since the beginning": taken},
                }  # fmt: skip


def _arrow(
    start: FunctionEvent, end: FunctionEvent, number: int, process: int, category: str
) -> Iterator[dict[str, Any]]:
    """An arrow from one event to another."""
    common = {"cat": category, "name": category, "id": number, "pid": process}
    yield {"ph": "s", **common, "tid": start.thread, "ts": start.time_range.start}
    yield {"ph": "f", "bp": "e", **common, "tid": end.thread, "ts": end.time_range.start}
