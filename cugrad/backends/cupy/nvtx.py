"""CuPy's NVTX calls, which register no strings and work without a GPU."""

from __future__ import annotations

from collections.abc import Callable


def load() -> tuple[Callable[[str], object], Callable[[], object], Callable[[str], object]]:
    """(push, pop, mark) in NVTX's default domain; ImportError where CuPy or its NVTX is missing."""
    from cupy.cuda import nvtx

    if not nvtx.available:
        raise ImportError("this build of CuPy has no NVTX")
    return nvtx.RangePush, nvtx.RangePop, nvtx.Mark
