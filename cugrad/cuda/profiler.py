"""Tells an attached profiler which part of the program to collect."""

from __future__ import annotations

from ..runtime.contexts import Context
from ..runtime.kept import Switch
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


class profile(Switch, Context):
    """Collects inside the block; RuntimeError without CUDA."""

    def as_is(self) -> None:
        """Whether something is collected cannot be asked."""

    def change(self, before: None) -> None:
        start()

    def put_back(self, before: None) -> None:
        stop()
