"""Ranges and marks of the user's own in an attached profiler's timeline.

They go where the ranges of `emit_nvtx` go, and work without a GPU; see `emitter.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .emitter import emitter

__all__ = ["mark", "range", "range_pop", "range_push"]


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
