"""Reads and writes of files by a few threads. A thread that waits for one helps with it."""

from __future__ import annotations

import atexit
import errno
import itertools
import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import Any

__all__ = ["PIECE", "Transfer", "submit"]

PIECE = 1 << 23  # bytes of a read or write that one thread does at a time


class Transfer:
    """Bytes on their way between an array and an extent of a file.

    Any number of threads may `run` it, each doing piece after piece. The array of a write is let go
    of when all of it is written; after a failure it stays, for nothing is lost then.
    """

    __slots__ = (
        "file", "offset", "array", "nbytes", "writing", "pieces", "moved", "wanted", "error",
        "_begun", "_ended", "_running", "_lock", "_done",
    )  # fmt: skip

    def __init__(
        self, file: Any, offset: int, array: Any, writing: bool, error: OSError | None = None
    ) -> None:
        self.file, self.offset, self.array, self.writing = file, offset, array, writing
        self.nbytes = array.nbytes
        self.pieces = -(-array.nbytes // PIECE)
        self.moved = 0  # bytes
        self.wanted = True  # any thread may set False, and the transfer stops
        self.error = error
        self._begun = itertools.count()
        self._ended: set[int] = set()  # the pieces that have ended
        self._running: set[int] = set()  # the threads that work at it
        self._lock, self._done = threading.Lock(), threading.Event()
        if error is not None or not self.pieces:
            self._end()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def run(self) -> None:
        """Does the pieces that have not begun, also those that an exception has interrupted."""
        here = threading.get_ident()
        try:
            try:
                self._running.add(here)
                while (k := next(self._begun)) < self.pieces:
                    self._do(k)
            finally:
                self._leave(here)
        except BaseException:
            self._leave(here)
            raise

    def _do(self, k: int) -> None:
        if k in self._ended or not self.wanted or self.error is not None:
            return
        try:
            moved = self._move(k)
        except OSError as error:
            self.error = error.with_traceback(None)  # its frames hold the array
        except MemoryError:
            self.error = OSError(errno.ENOMEM, "no memory to copy through")
        except Exception as error:  # a thread waits for the end of this
            self.error = OSError(errno.EIO, f"{type(error).__name__}: {error}")
        else:
            with self._lock:
                self._ended.add(k)
                self.moved += moved

    def _leave(self, thread: int) -> None:
        """A thread has nothing left to do, or was interrupted. Other threads do the rest."""
        with self._lock:
            self._running.discard(thread)
            if self._running or self.is_done:
                return
            if len(self._ended) < self.pieces and self.wanted and self.error is None:
                self._begun = itertools.count()
            else:
                self._end()

    def _end(self) -> None:
        if self.writing and self.error is None:
            self.array = None
        self._done.set()

    def _move(self, k: int) -> int:
        part = self.array[k * PIECE : (k + 1) * PIECE]
        if self.writing:
            self.file.write(part, self.offset + k * PIECE)
        else:
            self.file.read(part, self.offset + k * PIECE)
        return part.nbytes

    def finish(self) -> None:
        """Helps, and waits until others have done their pieces. At once after a fork, in the child:
        the threads that were at it are the parent's.
        """
        while not self.is_done and self.file.is_mine:
            self.run()
            self._done.wait(0.1)  # for others, one of which may be interrupted


class _Pool:
    """Threads that take reads first, because a thread waits for those, and then writes."""

    def __init__(self) -> None:
        self.process, self._stopping = os.getpid(), False
        self._even = True  # whether there is a token for each that is queued, and no more
        self._reads: deque[Transfer] = deque()
        self._writes: deque[Transfer] = deque()
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        count = 4 if (os.cpu_count() or 1) >= 8 else 2
        self._threads = [
            threading.Thread(target=self._work, name=f"cugrad-disk-{i}", daemon=True)
            for i in range(count)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            for _ in self._threads:
                self._tokens.put(False)
            raise

    def submit(self, transfer: Transfer) -> None:
        queue = self._writes if transfer.writing else self._reads
        try:
            for _ in range(min(transfer.pieces, len(self._threads))):
                queue.append(transfer)
                self._tokens.put(True)
        except BaseException:
            self._even = False
            self._tokens.put(True)  # the transfer would stay in the queue without it
            raise

    def _work(self) -> None:
        while self._tokens.get() and not self._stopping:
            transfer: Transfer | None
            try:
                transfer = self._reads.popleft() if self._reads else self._writes.popleft()
            except IndexError:  # another thread took the last of this kind: take the other
                transfer = self._other()
            if transfer is not None:
                transfer.run()
            del transfer  # its array may wait for the last reference

    def _other(self) -> Transfer | None:
        while True:
            for queue in (self._reads, self._writes):
                try:
                    return queue.popleft()
                except IndexError:
                    pass
            if not self._even:
                return None

    def stop(self) -> None:
        """At exit: running transfers end, and queued ones stay in memory."""
        self._stopping = True
        for _ in self._threads:
            self._tokens.put(False)
        for thread in self._threads:
            thread.join(timeout=2)


_pool: _Pool | None = None
_starting = threading.Lock()


def submit(transfer: Transfer) -> None:
    """Lets the threads work on a transfer."""
    global _pool
    pool = _pool
    if pool is None:
        with _starting:
            if _pool is None:
                try:
                    _pool = _Pool()
                    atexit.register(_stop, _pool)
                except RuntimeError:  # the interpreter is shutting down: `finish` does it all
                    return
            pool = _pool
    pool.submit(transfer)


def _stop(pool: _Pool) -> None:
    if pool.process == os.getpid():
        pool.stop()


def _after_fork() -> None:
    global _pool, _starting
    _pool, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
