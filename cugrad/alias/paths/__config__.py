"""torch.__config__: what a program prints of how PyTorch was built."""

from __future__ import annotations

from ...functions.switches import get_num_interop_threads, get_num_threads
from ...version import __version__

__all__ = ["parallel_info", "show"]


def show() -> str:
    """A line about this library, which is Python and is not built."""
    return f"cugrad {__version__}: Python, with NumPy and CuPy\n"


def parallel_info() -> str:
    """The numbers of threads that were chosen."""
    return (
        f"ATen/Parallel:\n\tat::get_num_threads() : {get_num_threads()}\n"
        f"\tat::get_num_interop_threads() : {get_num_interop_threads()}\n"
    )
