"""Tells an attached profiler which part of the program to collect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .devices import cuda_backend

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """cudaProfilerStart: an attached profiler begins to collect; RuntimeError without CUDA.

    For `nsys profile --capture-range=cudaProfilerApi` and `nvprof --profile-from-start off`.
    """
    cuda_backend().profiler_start()


def stop() -> None:
    """cudaProfilerStop: an attached profiler stops collecting; RuntimeError without CUDA."""
    cuda_backend().profiler_stop()


@contextmanager
def profile() -> Iterator[None]:
    """Collects inside the block; RuntimeError without CUDA."""
    start()
    try:
        yield
    finally:
        stop()
