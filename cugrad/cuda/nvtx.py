"""Ranges and marks of the user's own in an attached profiler's timeline.

They go through CuPy's NVTX or the `nvtx` package, and work without a GPU; where neither is
installed, or CUGRAD_NVTX=none, they do nothing. A tool attaches at a process's first NVTX call or
never, so the library is loaded at the first range.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from ..backends import cupy_nvtx

__all__ = ["mark", "range", "range_pop", "range_push"]


class _Calls(NamedTuple):
    push: Callable[[str], object]
    pop: Callable[[], object]
    mark: Callable[[str], object]


@cache
def _library() -> _Calls | None:
    """The library that CUGRAD_NVTX names, else CuPy's binding, else the package, else None."""
    wanted = os.environ.get("CUGRAD_NVTX", "")
    try:
        if wanted in ("", "cupy"):
            return _Calls(*cupy_nvtx.load())
    except ImportError:
        pass
    try:
        if wanted in ("", "nvtx"):
            import nvtx

            return _Calls(nvtx.push_range, nvtx.pop_range, nvtx.mark)
    except ImportError:
        pass
    return None


class _Depth(threading.local):
    value = 0


_depth = _Depth()


def range_push(msg: str) -> int:
    """Opens a range in this thread, inside the one that is open; its depth, from 0."""
    library = _library()
    if library is not None:
        library.push(msg)
    _depth.value += 1
    return _depth.value - 1


def range_pop() -> int:
    """Closes the range that this thread opened last; its depth."""
    library = _library()
    if library is not None:
        library.pop()
    _depth.value = max(_depth.value - 1, 0)
    return _depth.value


def mark(msg: str) -> None:
    """Marks this moment."""
    library = _library()
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
