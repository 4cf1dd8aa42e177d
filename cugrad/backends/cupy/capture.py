"""CUDA graphs over CuPy's: what a stream is told to do is written down once and done many times.

All memory of a capture comes from a pool of its own, which nothing else is given, so that the
addresses in the graph stay its own. Random numbers are drawn from where their stream stands when
the graph is replayed: kernels read that from the device, and a replay writes it there first.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import cupy
import numpy as np

from ...runtime.kept import of_thread
from .fused.reductions import of_capture, tickets_of_stream
from .pools import SizedPools

__all__ = ["CudaCapture", "capturing"]

Array = Any  # cupy.ndarray


class _Capturing(threading.local):
    """The capture that this thread is in."""

    now: CudaCapture | None = None


capturing = of_thread(_Capturing())


class Draws:
    """What a graph draws of one random stream: where it begins is on the device, for a replay."""

    def __init__(self) -> None:
        self.place = cupy.ndarray((2,), np.uint64)  # the seed, and the position of the first
        self.blocks = 0


class CudaCapture:
    """One graph: begun, ended, and then replayed."""

    def __init__(self, pool: Any, handle: tuple[int, int]) -> None:
        self.pool = SizedPools(handle) if pool is None else pool
        self._graph: Any = None
        self._stream: Any = None
        self._memory = ExitStack()
        self._draws: dict[Any, Draws] = {}  # by random stream
        self._tickets: dict[Any, Array] = {}  # by stream: what counts the blocks of its kernels
        self._plans: dict[int, Any] = {}  # cuFFT's, by their ids

    def begin(self) -> None:
        """From now on what the current stream is told is written down and not done."""
        stream = cupy.cuda.get_current_stream()
        if stream.ptr in (0, 1, 2):
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, "
                "it's ok to replay them on the default stream.) Capture within cuda.graph(g), or "
                "within cuda.stream(cuda.Stream())"
            )
        if stream.is_capturing():
            raise RuntimeError("cuda graph: the stream is capturing another graph; end that first")
        cupy.cuda.get_cublas_handle()  # what is made once a device is not the graph's
        try:
            self._memory.callback(setattr, of_capture, "tickets", None)
            of_capture.tickets = self._tickets
            tickets_of_stream()
            stream.synchronize()  # until they are zeros: another stream may replay
            self._memory.enter_context(cupy.cuda.using_allocator(self.pool.malloc))
            stream.begin_capture()
        except BaseException:
            self._memory.close()
            raise
        self._stream, capturing.now = stream, self

    def end(self) -> None:
        """Ends the capture; it can be replayed."""
        capturing.now = None
        self._memory.close()
        stream, self._stream = self._stream, None
        self._graph = stream.end_capture()

    @property
    def ended(self) -> bool:
        return self._graph is not None

    def replay(self) -> None:
        """Does on the current stream what was written down; the host does not wait."""
        for rng, draws in self._draws.items():
            rng.place(draws.place, draws.blocks)
        self._graph.launch(cupy.cuda.get_current_stream())

    def drawn(self, rng: Any, blocks: int) -> tuple[int, int]:
        """Where the next blocks of a random stream begin, from the place at an address."""
        draws = self._draws.get(rng)
        if draws is None:
            draws = self._draws[rng] = Draws()
        start = draws.blocks
        draws.blocks += blocks
        return start, draws.place.data.ptr

    def keep_plans(self) -> None:
        """Keeps cuFFT's plans of this thread: kernels read what is in them, and work in their
        memory, and CuPy lets go of all but the last sixteen.
        """
        plans = cupy.fft.config.get_plan_cache()
        self._plans.update({id(node.plan): node.plan for _, node in plans})

    def text(self) -> str:
        """The graph in DOT, Graphviz's language."""
        return str(self._graph.debug_dot_str())
