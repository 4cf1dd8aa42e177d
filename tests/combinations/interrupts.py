"""Interrupts a program at any of the instructions of the library's that it runs.

A signal's handler runs where CPython looks for one. That is as a function begins or a generator
goes on (RESUME), and behind calls and jumps back: on 3.10 behind CALL_FUNCTION, CALL_METHOD,
CALL_FUNCTION_KW, CALL_FUNCTION_EX and jumps, unless SETUP_FINALLY or SETUP_WITH come next; on 3.11
behind CALL, CALL_FUNCTION_EX, JUMP_BACKWARD and POP_JUMP_BACKWARD_IF_*; from 3.12 on behind CALL,
CALL_FUNCTION_EX and JUMP_BACKWARD; 3.13 has CALL_KW, too. An exception that another thread sets
(PyThreadState_SetAsyncExc) comes there as well. Here any instruction may be one before
which it is raised, where CPython never would: what holds there needs no promise of CPython's.

Nothing that is written in Python can hold where an exception comes between what a `with` has
entered and the instruction that says so, or the end of its block and the call of `__exit__`. So
there are left out: what `__enter__` and `__exit__` do outside of a `try`, and the instructions of
a `with` itself at its end. CPython lets signals come there only as `__enter__` and `__exit__` that
are written in Python begin. Callbacks of the collector are left out, as Python prints and forgets
what is raised in them.
"""

from __future__ import annotations

import dis
import functools
import gc
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from opcode import opname
from types import CodeType, FrameType
from typing import Any

import cugrad
from cugrad import backends
from cugrad.autograd import mode
from cugrad.memory.disk import files
from cugrad.memory.disk import store as disk_store
from cugrad.memory.offloading import engine as engine_module
from tests.support.patience import eventually

LIBRARY = os.path.dirname(cugrad.__file__)
COMPILED = "cugrad fast path"
DRIVER = tuple(os.path.join(LIBRARY, "backends", name)
               for name in ("simulated", "races", "allocations"))  # fmt: skip
COLLECTORS = ("__del__", "forget", "gone")
ENDS = ("__enter__", "__exit__")
LOOKS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_METHOD",
         "JUMP_BACKWARD", "JUMP_ABSOLUTE")  # fmt: skip


class Interrupt(BaseException):
    """What is raised, as KeyboardInterrupt would be."""


class Ways:
    """What an exception may do to a function: by instruction, whether it may come before it."""

    def __init__(self, code: CodeType) -> None:
        self.code, self.ends = code.co_code, code.co_name in ENDS
        self.handlers = _handlers(code)
        left_out = _ends_of_with(code)
        if code.co_name in ENDS:
            left_out |= set(range(0, len(code.co_code), 2)) - self.handlers.keys()
        offsets = range(len(code.co_code))
        names = [opname[self.code[i]] if i % 2 == 0 else "" for i in offsets]
        self.may = bytes(i not in left_out for i in offsets)
        self.resumes = bytes(name == "RESUME" for name in names)
        self.looks = bytes(name in LOOKS or name.startswith("POP_JUMP_BACKWARD") for name in names)


@functools.cache
def ways_of(code: CodeType) -> Ways | None:
    """Those of a function of the library's that may be interrupted; None of any other."""
    ours = code.co_filename.startswith((LIBRARY, COMPILED)) and (
        code.co_name not in COLLECTORS and not code.co_filename.startswith(DRIVER)
    )
    return Ways(code) if ours else None


def _handlers(code: CodeType) -> dict[int, int]:
    """Of the instructions that are in a `try`, or in what such a one does then: where that is."""
    if sys.version_info < (3, 11):
        return {}
    found: dict[int, int] = {}
    for entry in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        found.update(dict.fromkeys(range(entry.start, entry.end, 2), entry.target))
    return found


def _ends_of_with(code: CodeType) -> set[int]:
    """The instructions with which a `with` comes to call `__exit__`; and the NOP with which a `try`
    begins, which CPython takes out of the `with` or `try` around it.
    """
    found: set[int] = set()
    steps = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    for k, step in enumerate(steps):
        if step.opname == "NOP":
            found.add(step.offset)
        if step.opname == "WITH_EXCEPT_START":
            found.update(s.offset for s in steps[k - 1 : k + 1])
        none = [s.opname == "LOAD_CONST" and s.argval is None for s in steps[k : k + 3]]
        calls = [s for s in steps[k + 3 : k + 5] if s.opname in ("CALL", "PRECALL")]
        if none == [True] * 3 and calls and calls[0].argval == 2:
            found.update(s.offset for s in steps[max(k - 2, 0) : k + 5] if not _stores(s))
    return found


def _stores(step: Any) -> bool:
    return not step.opname.startswith(("LOAD_CONST", "SWAP", "POP_TOP", "PRECALL", "CALL", "NOP"))


class Interrupter:
    """Counts the points of a program at which it may be interrupted, and raises at some of them."""

    def __init__(self, *at: int) -> None:
        self.at, self.count, self.places = set(at), 0, list[str]()
        self.of_signals: list[int] = []  # the points at which CPython would look for signals

    @property
    def place(self) -> str:
        return ", then ".join(self.places)

    def run(self, program: Callable[[], Any]) -> Any:
        """What the program returns, or None if it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            return program()
        except Interrupt:
            return None
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        ways = ways_of(frame.f_code)
        if ways is None:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        last = -1

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "opcode":
                at, last = last, frame.f_lasti
                self._opcode(frame, ways, at, last)
            return trace

        return trace

    def _opcode(self, frame: FrameType, ways: Ways, at: int, now: int) -> None:
        """Before the instruction `now`, behind that `at` the offset; -1: at the beginning."""
        # what a call lets through is raised by the call, and goes to the handler that it has
        if at < 0 or ways.resumes[now]:
            of_signals = not ways.ends
        else:
            of_signals = bool(ways.looks[at]) and ways.handlers.get(at) == ways.handlers.get(now)
        if not of_signals and not ways.may[now]:
            return
        self.count += 1
        if of_signals:
            self.of_signals.append(self.count)
        if self.count in self.at:
            self.at.discard(self.count)
            if is_unguarded(frame):
                self.at.add(self.count + 1)
                return
            code = frame.f_code
            self.places.append(
                f"{os.path.relpath(code.co_filename, LIBRARY)}:{frame.f_lineno} in {code.co_name}"
                f" before {opname[ways.code[now]]} {now}"
            )
            # raising ends tracing of this frame and of those that catch it: begin them again
            raise Interrupt(self.place)


def is_unguarded(frame: FrameType | None) -> bool:
    """Whether the collector has called a frame."""
    while frame is not None:
        if frame.f_code.co_name in COLLECTORS:
            return True
        frame = frame.f_back
    return False


def interruptions(
    program: Callable[[], Any], numbers: Callable[[list[int], int], list[int]]
) -> Iterator[tuple[Any, str]]:
    """Runs a program once for each of the numbers, interrupted before that instruction.

    `numbers` is given those at which CPython looks for signals, and how many instructions there
    are. Yields what the program returned, None where the interrupt ended it, and the place.
    """
    counter = Interrupter()
    counter.run(program)
    for number in numbers(counter.of_signals, counter.count):
        interrupter = Interrupter(number)
        result = interrupter.run(program)
        yield result, interrupter.place


def descriptors() -> list[str]:
    """What the process has open, but for the listing itself."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(path for path in found if not path.startswith("/proc/"))


def are_of_stores() -> bool:
    """Whether no thread that has read or written still holds the file of a store that is gone."""
    held = {id(store._file) for store in files.living(disk_store._stores)}
    return all(id(file) in held for file in files.living(files._files))


def ledger(directory: str | None = None) -> dict[str, Any]:
    """What is held: of streams and memory of the simulated device, of copy engines, of files."""
    gc.collect()
    found: dict[str, Any] = {}
    for key, engine in engine_module._engines.items():
        engine.drain()
        engine._backward_has_ended()
        out, slab = engine.out, engine.out.slab
        used = slab.used_bytes
        free = sum(block.size for blocks in slab._free.values() for block in blocks)
        found[f"engine of {key[0]}"] = {
            "away": engine.ledger.away, "ahead": engine.ledger.ahead, "leaving": (len(out._leaving),
            out.leaving_bytes), "coming": len(engine.ledger.coming), "staging": (out.staging.bytes,
            len(out.staging.reading)), "storages": len(engine.storages.all()),
            "pinned": used, "lost": slab.allocated_bytes - free - used,
            "locked": engine._lock._is_owned(),
            "watching": out._before_write in mode.writes_watched,
        }  # fmt: skip
    backend = backends.get("simulated")
    backend.synchronize()
    found["streams"] = backend.current_stream().name, list(backend.machine.busy)
    found["device bytes"] = backend.memory_allocated()
    found["traces memory"] = tracemalloc.is_tracing()
    found["stores"] = [
        (len(s._writing), s._pending, s._extents.used, s._lock._is_owned())
        for s in disk_store._stores if not s._is_closed and not s._settle()
    ]  # fmt: skip
    if os.path.isdir("/proc/self/fd"):
        eventually(are_of_stores)
        found["descriptors"] = descriptors()
    if directory is not None:
        found["files"] = sorted(os.listdir(directory))
    return found
