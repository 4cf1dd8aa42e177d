"""Ranges and marks of the user's own in an attached profiler's timeline.

They go where the ranges of `emit_nvtx` go, and work without a GPU; see `emitter.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from .emitter import emitter, numbered_emitter

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Depth(threading.local):
    value = 0


_depth = _Depth()


def range_push(msg: str) -> int:
    """Opens a range in this thread, inside the one that is open; its depth, from 0."""
    library = emitter()
    if library is not None:
        library.push(msg)
    _depth.value += 1
    return _depth.value - 1


def range_pop() -> int:
    """Closes the range that this thread opened last; its depth."""
    library = emitter()
    if library is not None:
        library.pop()
    _depth.value = max(_depth.value - 1, 0)
    return _depth.value


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


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """A range around a block; `msg.format(*args, **kwargs)` is its name."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
