"""Runs an update on arrays: by blocks on the CPU, whole elsewhere; halves in single precision."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ...backends.numpy.threads import get_num_threads

__all__ = ["as_reals", "computing_dtype", "run"]

BLOCK = 1 << 19  # bytes of each array: few enough for the caches, enough to be worth the calls
LINE = 64  # bytes that a cache takes at once
LEAST = 4  # blocks for which a thread is worth its start
SINGLE = np.dtype(np.float32)


def computing_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which arrays of another are updated."""
    if dtype.itemsize < 4:
        return SINGLE
    return np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype


def as_reals(arrays: Sequence[Any]) -> list[list[Any]]:
    """Arrays as real ones that share their memory: a complex number is two independent reals."""
    if arrays[0].dtype.kind != "c":
        return [list(arrays)]
    return [[array.real for array in arrays], [array.imag for array in arrays]]


def run(
    update: Callable[..., None],
    arrays: list[Any],
    constants: Sequence[Any],
    scratch: int,
    writes: Sequence[int],
    xp: Any,
    on_host: bool,
) -> None:
    """`update(*arrays, *constants, *scratch arrays)` on real arrays of one shape, in place.

    `writes` are the positions of the arrays that it changes. Large arrays are shared out among as
    many threads of the host as `set_num_threads` says.
    """
    first = arrays[0]
    dtype = computing_dtype(first.dtype)
    alike = all(array.dtype == dtype for array in arrays)
    length = BLOCK // dtype.itemsize if on_host else first.size
    count = scratch + (0 if alike else len(arrays))
    if length >= first.size or not all(array.flags.c_contiguous for array in arrays):
        spare = [xp.empty_like(first, dtype=dtype) for _ in range(count)]
        _part(update, arrays, constants, spare, alike, writes)
        return
    arrays = [array.reshape(-1) for array in arrays]
    # Blocks begin with a line of the cache, to which large arrays lie alike: a line that two
    # vectors share comes twice where a cache cannot hold lines of all arrays at once.
    before = first.ctypes.data % LINE // dtype.itemsize
    blocks = -(-(first.size + before) // length)
    threads = min(_threads(), blocks // LEAST) if on_host and blocks > LEAST else 1

    def run_from(first_block: int, behind: int, spare: list[Any]) -> None:
        for at in range(first_block, behind):
            block = slice(max(at * length - before, 0), (at + 1) * length - before)
            parts = [array[block] for array in arrays]
            rooms = [array[: parts[0].size] for array in spare]
            _part(update, parts, constants, rooms, alike, writes)

    # a host that is full is so before the first block, not between two
    spares = [[xp.empty(length, dtype=dtype) for _ in range(count)] for _ in range(threads)]
    bounds = [blocks * k // threads for k in range(threads + 1)]
    runs = [partial(run_from, *pair, spare) for pair, spare in zip(pairwise(bounds), spares)]
    if threads < 2:
        runs[0]()
    else:
        _in_threads(runs)


def _threads() -> int:
    """As many threads as products are computed with; one where that cannot be asked."""
    try:
        return get_num_threads()
    except RuntimeError:
        return 1


class _Workers:
    """Threads that update blocks of large arrays, made when they are needed, in each process."""

    pool: ThreadPoolExecutor | None = None
    count = process = 0

    def of(self, count: int) -> ThreadPoolExecutor:
        if self.pool is None or self.count < count or self.process != os.getpid():
            if self.pool is not None and self.process == os.getpid():
                self.pool.shutdown(wait=False)
            self.pool = ThreadPoolExecutor(count, "cugrad-update")
            self.count, self.process = count, os.getpid()
        return self.pool


_workers = _Workers()


class _Share:
    """A part of the work, which is done once, by the thread that comes first."""

    __slots__ = ("run", "begins", "ended")

    def __init__(self, run: Callable[[], None]) -> None:
        self.run, self.begins, self.ended = run, threading.Lock(), threading.Event()

    def __call__(self) -> None:
        if self.begins.acquire(False):
            try:
                self.run()
            finally:
                self.ended.set()


def _in_threads(runs: Sequence[Callable[[], None]]) -> None:
    """Runs functions beside one another, and waits for all, come what may: they write to arrays.

    What no thread can be had for is run here.
    """
    shares, futures = [_Share(run) for run in runs], list[Future[None]]()
    try:
        try:
            pool = _workers.of(len(shares) - 1)
            for share in shares[1:]:  # with NumPy's error state
                futures.append(pool.submit(copy_context().run, share))
        except RuntimeError:  # no more threads, or the interpreter ends
            pass
        for share in (shares[0], *shares[1 + len(futures) :]):
            share()
            share.ended.wait()
    finally:
        wait(futures)
    for future in futures:
        future.result()


def _part(
    update: Callable[..., None],
    arrays: list[Any],
    constants: Sequence[Any],
    spare: list[Any],
    alike: bool,
    writes: Sequence[int],
) -> None:
    """An update of arrays as they are, or, where they are not alike, of copies in `spare`."""
    if alike:
        update(*arrays, *constants, *spare)
        return
    copies, scratch = spare[: len(arrays)], spare[len(arrays) :]
    for copy, array in zip(copies, arrays):
        copy[...] = array
    update(*copies, *constants, *scratch)
    for at in writes:
        arrays[at][...] = copies[at]
