"""Interrupts a program wherever Python looks for signals while code of the library runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from opcode import opname
from types import CodeType, FrameType
from typing import Any

import cugrad

LIBRARY = os.path.dirname(cugrad.__file__)
COMPILED = "cugrad fast path"
COLLECTORS = ("__del__", "forget", "gone")  # what is raised there is printed and forgotten
UNGUARDED = ("__enter__", "__exit__", *COLLECTORS)
LOOKS = ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "POP_JUMP_BACKWARD_IF_TRUE",
         "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_NONE")  # fmt: skip


class Interrupt(BaseException):
    """What is raised, as KeyboardInterrupt would be."""


class Interrupter:
    """Counts where Python would look for signals in code of the library, and raises at one of them.

    That is as a function begins, and behind calls and jumps back. Left out are `__enter__` and
    `__exit__` themselves, not what these call: nothing is around them that could put anything back.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at, self.count, self.place = at, 0, ""
        self._known: dict[CodeType, bytes | None] = {}  # the instructions of the library's code
        self._last: dict[int, int] = {}  # by the id of a frame: what it did last

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
        code = frame.f_code
        if code not in self._known:
            ours = code.co_filename.startswith((LIBRARY, COMPILED))
            self._known[code] = code.co_code if ours and code.co_name not in UNGUARDED else None
        if self._known[code] is None:
            return None
        self._last[id(frame)] = -1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._opcode

    def _opcode(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event != "opcode":
            return self._opcode
        code = self._known[frame.f_code]
        assert code is not None
        last, now = self._last[id(frame)], code[frame.f_lasti]
        self._last[id(frame)] = now
        if last >= 0 and opname[last] not in LOOKS and opname[now] != "RESUME":
            return self._opcode
        self.count += 1
        if self.count == self.at and is_unguarded(frame):
            self.at += 1
        elif self.count == self.at:
            code = frame.f_code
            self.place = (
                f"{os.path.relpath(code.co_filename, LIBRARY)}:{frame.f_lineno} in {code.co_name}"
            )
            raise Interrupt(self.place)
        return self._opcode


def is_unguarded(frame: FrameType | None) -> bool:
    """Whether the collector has called a frame."""
    while frame is not None:
        if frame.f_code.co_name in COLLECTORS:
            return True
        frame = frame.f_back
    return False


def interruptions(
    program: Callable[[], Any], numbers: Callable[[int], list[int]]
) -> Iterator[tuple[Any, str]]:
    """Runs a program once for each of `numbers(count)`, interrupted before that instruction.

    Yields what it returned, None where the interrupt ended it, and the place.
    """
    program()
    counter = Interrupter()
    counter.run(program)
    for number in numbers(counter.count):
        interrupter = Interrupter(number)
        result = interrupter.run(program)
        yield result, interrupter.place
