"""Writes traces with the schemas of nsys and nvprof, for the tests of what reads them."""

from __future__ import annotations

import json
import sqlite3
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROCESS, THREAD, BACKWARD_THREAD = 4321, 77, 78
US = 1000  # nanoseconds


@dataclass
class Step:
    """What a program did: ranges, and launches by the time of the call."""

    ranges: list[tuple[int, int, int, str, int | None]] = field(default_factory=list)
    launches: list[tuple[str, int, int, str, int, int, int]] = field(default_factory=list)
    waits: list[tuple[int, int, int]] = field(default_factory=list)

    def range(
        self, start: int, end: int, text: str, thread: int = THREAD, payload: int | None = None
    ) -> None:
        self.ranges.append((start * US, end * US, thread, text, payload))

    def launch(
        self, kind: str, call: int, start: int, us: int, name: str = "", thread: int = THREAD,
        nbytes: int = 0,
    ) -> None:  # fmt: skip
        """`kind`: driver or runtime (a kernel), copy (from host), back (to it), memset."""
        self.launches.append((kind, call * US, thread, name, start * US, us * US, nbytes))

    def wait(self, start: int, end: int, thread: int = THREAD) -> None:
        self.waits.append((start * US, end * US, thread))


def training_step(spelling: str = "cugrad", payload: bool = False) -> Step:
    """mul, sum, their backward under create_graph, double backward; a copy, a wait, a loose kernel.

    Kernels run long after they were launched, and overlap other ranges in time.
    """
    step, torch = Step(), spelling == "torch"
    thread = BACKWARD_THREAD if torch else THREAD

    def forward(start: int, end: int, name: str, seq: int, sizes: str, at: int = THREAD) -> None:
        if payload:
            step.range(start, end, f"{name}, seq", at, seq)
        elif torch:
            text = f"aten::{name}, seq = {seq}, op_id = {start}, sizes = {sizes}"
            step.range(start, end, f"{text}, input_op_ids = [(3, 0), (-1, -1)]", at)
        else:
            step.range(start, end, f"{name}, seq={seq}, sizes={sizes}", at)

    def node(start: int, end: int, name: str, seq: int | None) -> None:
        if torch:
            numbered = "" if seq is None else f", seq = {seq}, op_id = {start}"
            outer = "autograd::engine::evaluate_function: "
            inner = "torch::autograd::" if name == "AccumulateGrad" else ""
            step.range(start, end, f"{outer}{inner}{name}{numbered}", thread)
            step.range(start, end, f"{inner}{name}{numbered}", thread)
        elif seq is None:
            step.range(start, end, name, thread)
        else:
            said = f"{name}, stashed seq" if payload else f"{name}, stashed seq={seq}"
            step.range(start, end, said, thread, seq if payload else None)

    step.range(0, 1000, "step")
    forward(10, 50, "mul", 12, "[[2, 3], []]")
    step.launch("driver", 20, 600, 5, "_Z9mul_floatPfi")
    step.launch("runtime", 25, 610, 3, "mul_tail")
    forward(60, 100, "sum", 13, "[[2, 3]]")
    step.launch("driver", 70, 620, 7, "sum_kernel")
    step.launch("copy", 80, 630, 11, nbytes=4096)
    step.wait(85, 95)
    node(200, 240, "SumBackward0", 13)
    step.launch("driver", 210, 650, 2, "fill", thread)
    node(250, 300, "MulBackward0", 12)
    forward(255, 290, "mul", 14, "[[2, 3], []]", thread)
    step.launch("driver", 260, 660, 4, "_Z9mul_floatPfi", thread)
    node(310, 320, "AccumulateGrad", None)
    step.launch("back", 312, 670, 6, nbytes=512, thread=thread)
    node(400, 440, "MulBackward0", 14)
    step.launch("runtime", 410, 680, 9, "mul_tail", thread)
    step.range(500, 560, "optimizer.step")
    step.launch("memset", 510, 700, 1, nbytes=64)
    step.launch("driver", 1500, 1600, 100, "loose")
    return step


class Strings:
    """A table of strings: a number for each."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers) + 1)


def execute(path: Path, schema: list[str], rows: dict[str, list[tuple[Any, ...]]]) -> Path:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    for statement in schema:
        connection.execute(statement)
    for table, values in rows.items():
        if values:
            marks = ", ".join("?" * len(values[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
    connection.commit()
    connection.close()
    return path


PREFIX = "CUPTI_ACTIVITY_KIND_"


def write_nsys(path: Path, step: Step, new: bool = True) -> Path:
    """As `nsys export --type sqlite` does: with the columns of 2025, or with those of 2019."""
    strings, base = Strings(), PROCESS * 0x1000000
    nvtx = "start, end, eventType, rangeId, category, color, text, globalTid, endGlobalTid, "
    nvtx += "textId, domainId, uint64Value, int64Value, doubleValue, uint32Value, int32Value, "
    nvtx += "floatValue"
    kernel = "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, "
    kernel += "shortName"
    copy = "start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, copyKind"
    memset = "start, end, deviceId, contextId, streamId, correlationId, globalPid, value, bytes"
    if new:
        nvtx += ", jsonTextId, jsonText, binaryData"
        kernel = kernel.replace("contextId", "contextId, greenContextId")
        kernel += ", mangledName, launchType, cacheConfig, registersPerThread, gridX, gridY, gridZ"
        kernel += ", graphNodeId"
        copy += ", srcKind, dstKind, graphNodeId"
    api = "start, end, eventClass, globalTid, correlationId, nameId, returnValue"
    schema = [
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
        f"CREATE TABLE NVTX_EVENTS ({nvtx})",
        f"CREATE TABLE {PREFIX}RUNTIME ({api}{', callchainId' if new else ''})",
        f"CREATE TABLE {PREFIX}KERNEL ({kernel})",
        f"CREATE TABLE {PREFIX}MEMCPY ({copy})",
        f"CREATE TABLE {PREFIX}MEMSET ({memset})",
    ]
    rows: dict[str, list[tuple[Any, ...]]] = {each.split("(")[0].split()[-1]: [] for each in schema}
    rest = (None, None, None) if new else ()
    events = rows["NVTX_EVENTS"]
    events.append((0, None, 75, None, None, None, "cugrad", base + 1, None, None, 1) + (None,) * 6
                  + rest)  # fmt: skip
    events.append((5, None, 34, None, None, None, "a mark", base + THREAD, None, None, 0)
                  + (None,) * 6 + rest)  # fmt: skip
    events.append((5, 400, 60, 1, None, None, "a handle's", base + THREAD, base + 99, None, 0)
                  + (None,) * 6 + rest)  # fmt: skip
    for i, (start, end, thread, text, payload) in enumerate(step.ranges):
        plain, number = (text, None) if i % 2 or not new else (None, strings(text))
        events.append(
            (start, end, 59, None, None, None, plain, base + thread, None, number, 0, None, payload,
             None, None, None, None, *rest)
        )  # fmt: skip
    calls = rows[f"{PREFIX}RUNTIME"]
    for i, (kind, call, thread, name, start, length, nbytes) in enumerate(step.launches, 1):
        used = {"driver": "cuLaunchKernel", "runtime": "cudaLaunchKernel_v7000"}.get(kind, "memcpy")
        more = (None,) if new else ()
        calls.append((call, call + 2 * US, 0, base + thread, i, strings(used), 0, *more))
        if kind in ("driver", "runtime"):
            head: tuple[Any, ...] = (start, start + length, 0, 1, *((None,) if new else ()), 7, i)
            names = (strings(name), strings(name[:8]))
            tail = (None, 0, 0, 32, 1, 1, 1, None) if new else ()
            rows[f"{PREFIX}KERNEL"].append((*head, base, *names, *tail))
        elif kind == "memset":
            rows[f"{PREFIX}MEMSET"].append((start, start + length, 0, 1, 7, i, base, 0, nbytes))
        else:
            kinds = (1, 2, 3) if kind == "copy" else (2, 3, 2)
            tail = (*kinds[1:], None) if new else ()
            rows[f"{PREFIX}MEMCPY"].append(
                (start, start + length, 0, 1, 7, i, base, nbytes, kinds[0], *tail)
            )
    for i, (start, end, thread) in enumerate(step.waits, 10_000):
        used = "cudaStreamSynchronize_v3020"
        more = (None,) if new else ()
        calls.append((start, end, 0, base + thread, i, strings(used), 0, *more))
    rows["StringIds"] = [(number, text) for text, number in strings.numbers.items()]
    return execute(path, schema, rows)


def write_nvprof(path: Path, step: Step) -> Path:
    """As `nvprof -o` does."""
    strings = Strings()
    api = "_id_ INTEGER PRIMARY KEY, cbid, start, end, processId, threadId, correlationId, "
    api += "returnValue"
    schema = [
        "CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL)",
        f"CREATE TABLE {PREFIX}MARKER (_id_ INTEGER PRIMARY KEY, flags, timestamp, id, objectKind, "
        "objectId BLOB, name, domain)",
        f"CREATE TABLE {PREFIX}MARKER_DATA (_id_ INTEGER PRIMARY KEY, flags, id, payloadKind, "
        "payload, color, category)",
        f"CREATE TABLE {PREFIX}RUNTIME ({api})",
        f"CREATE TABLE {PREFIX}DRIVER ({api})",
        f"CREATE TABLE {PREFIX}CONCURRENT_KERNEL (_id_ INTEGER PRIMARY KEY, cacheConfig, "
        "registersPerThread, start, end, completed, deviceId, contextId, streamId, gridX, gridY, "
        "gridZ, correlationId, gridId, name)",
        f"CREATE TABLE {PREFIX}MEMCPY (_id_ INTEGER PRIMARY KEY, copyKind, srcKind, dstKind, "
        "flags, bytes, start, end, deviceId, contextId, streamId, correlationId, "
        "runtimeCorrelationId)",
        f"CREATE TABLE {PREFIX}MEMSET (_id_ INTEGER PRIMARY KEY, value, start, end, deviceId, "
        "contextId, streamId, correlationId, bytes)",
    ]
    rows: dict[str, list[tuple[Any, ...]]] = {each.split("(")[0].split()[-1]: [] for each in schema}
    for i, (start, end, thread, text, payload) in enumerate(step.ranges, 1):
        owner = struct.pack("<iq", PROCESS, thread)
        markers = rows[f"{PREFIX}MARKER"]
        markers.append((2 * i, 2, start, i, 2, owner, strings(text), 0))
        markers.append((2 * i + 1, 4, end, i, 2, owner, 0, 0))
        if payload is not None:
            rows[f"{PREFIX}MARKER_DATA"].append((None, 0, i, 4, struct.pack("<q", payload), 0, 0))
    mark = (None, 1, 5, 99_999, 2, struct.pack("<iq", PROCESS, THREAD), strings("a mark"), 0)
    rows[f"{PREFIX}MARKER"].append(mark)
    for i, (kind, call, thread, name, start, length, nbytes) in enumerate(step.launches, 1):
        used = {"driver": 307, "runtime": 211}.get(kind, 41)
        table = "DRIVER" if kind == "driver" else "RUNTIME"
        rows[PREFIX + table].append((None, used, call, call + 2 * US, PROCESS, thread, i, 0))
        where, end = (0, 1, 7), start + length
        if kind in ("driver", "runtime"):
            row: tuple[Any, ...] = (None, 0, 32, start, end, end, *where, 1, 1, 1, i, i)
            rows[f"{PREFIX}CONCURRENT_KERNEL"].append((*row, strings(name)))
        elif kind == "memset":
            rows[f"{PREFIX}MEMSET"].append((None, 0, start, end, *where, i, nbytes))
        else:
            kinds = (1, 2, 3) if kind == "copy" else (2, 3, 2)
            rows[f"{PREFIX}MEMCPY"].append((None, *kinds, 1, nbytes, start, end, *where, i, i))
    for i, (start, end, thread) in enumerate(step.waits, 10_000):
        rows[f"{PREFIX}RUNTIME"].append((None, 131, start, end, PROCESS, thread, i, 0))
    rows["StringTable"] = [(number, text) for text, number in strings.numbers.items()]
    return execute(path, schema, rows)


def write_chrome(path: Path, step: Step) -> Path:
    """As PyTorch's profiler does: calls and kernels share a correlation number."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0}]

    def add(cat: str, name: str, start: int, end: int, tid: Any, **args: Any) -> None:
        times = {"ts": start / US, "dur": (end - start) / US}
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, **times,
                       "args": args})  # fmt: skip

    for start, end, thread, text, payload in step.ranges:
        args = {} if payload is None else {"Sequence number": payload}
        name = text.split(", stashed seq")[0].split(", seq")[0] if args else text
        add("cpu_op", name, start, end, thread, **args)
    for i, (kind, call, thread, name, start, length, nbytes) in enumerate(step.launches, 1):
        api = "cuda_driver" if kind == "driver" else "cuda_runtime"
        add(api, "cuLaunchKernel", call, call + 2 * US, thread, correlation=i)
        cats = {"copy": "gpu_memcpy", "back": "gpu_memcpy", "memset": "gpu_memset"}
        cat = cats.get(kind, "kernel")
        made = {"copy": "Memcpy HtoD", "back": "Memcpy DtoH", "memset": "Memset"}.get(kind, name)
        add(cat, made, start, start + length, "stream 7", correlation=i, bytes=nbytes, device=0)
    for start, end, thread in step.waits:
        add("cuda_runtime", "cudaStreamSynchronize", start, end, thread)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path
