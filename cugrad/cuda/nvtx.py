"""Ranges and marks of the user's own in an attached profiler's timeline.

They go where the ranges of `emit_nvtx` go, and work without a GPU; see `emitter.py`.
"""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from copy import copy
from itertools import count
from typing import Any

from ..runtime.kept import OPEN, Switch, of_thread
from .emitter import OpenRange, call_of, emitter, numbered_emitter

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Here(threading.local):
    def __init__(self) -> None:
        self.ranges = OpenRange()


_here = of_thread(_Here(), OPEN)


def range_push(msg: str) -> int:
    """Opens a range in this thread, inside the one that is open; its depth, from 0."""
    library = emitter()
    _here.ranges.push(call_of(str) if library is None else library.push, msg)
    return len(_here.ranges) - 1


def range_pop() -> int:
    """Closes the range that this thread opened last; its depth."""
    library = emitter()
    _here.ranges.pop_by(str if library is None else library.pop)
    return len(_here.ranges)


_numbers = count(1).__next__
_started: dict[int, Any] = {}  # what the library knows ranges by that have been started


def range_start(msg: str) -> int:
    """Opens a range that any thread may close, with `range_end(id)`; its id.

    It needs the nvtx package, as CuPy's binding has no such call; ImportError where it is missing.
    """
    library, number = numbered_emitter(), _numbers()
    if library is not None and library.start is not None:
        _started[number] = library.start(msg)
    return number


def range_end(range_id: int) -> None:
    """Closes the range that `range_start` has given this id; any other id closes nothing."""
    handle, library = _started.pop(range_id, None), numbered_emitter()
    if handle is not None and library is not None and library.end is not None:
        library.end(handle)


def mark(msg: str) -> None:
    """Marks this moment."""
    library = emitter()
    if library is not None:
        library.mark(msg)


class range(Switch, ContextDecorator):
    """A range around a block; `msg.format(*args, **kwargs)` is its name."""

    def __init__(self, msg: str, *args: object, **kwargs: object) -> None:
        self._msg = msg.format(*args, **kwargs)

    def as_is(self) -> int:
        return len(_here.ranges)

    def change(self, before: int) -> None:
        range_push(self._msg)

    def put_back(self, before: int) -> None:
        while len(_here.ranges) > before:  # that of the block, and what was left open in it
            range_pop()

    def _recreate_cm(self) -> range:  # for each call of what it decorates
        return copy(self)
