"""A store of bytes on disk: threads write, and read ahead of need."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections import deque
from typing import Any

import numpy as np

from ...backends import backend_of
from ...runtime.kept import Guarded, whole
from .direct_storage import DeviceFile, handle_of
from .files import (
    FULL,
    DiskFullError,
    Extents,
    ScratchFile,
    aligned_empty,
    living,
    scratch_directory,
)
from .span import DiskSpan
from .stats import DiskStats
from .transfers import PIECE, Transfer, submit

__all__ = ["DiskStore"]

LEAST = 1 << 26  # bytes under way if the user names no number
# What is said of a disk that is full, by whose store it is: what to do, and what was done.
ADVICE = {
    "save_on_disk": (
        "use another directory, save less (min_bytes, filter), or raise limit; when_full='host' "
        "keeps in host memory what finds no room",
        "that is done now",
    ),
    "offload_states": (
        "use another directory, or let weights or states live on the host",
        "what finds no room stays in the host's ordinary memory now, whatever host_limit says",
    ),
}


class DiskStore(Guarded):
    """Bytes in a file of a directory, which is gone when the store or the process is, crash or not.

    `write` answers at once, and threads do the writing; more than `backlog` bytes not yet written
    make it wait. Space is used again when a span is closed, or dropped. In a child process that was
    forked a store is empty.

    Args:
        directory: where; None: $TMPDIR or /var/tmp.
        limit: bytes to use on disk at most; None: what there is.
        when_full: "host", what finds no room stays in host memory, with one warning; "error",
            `write` raises DiskFullError, an OSError. A disk that runs full while a span is being
            written makes the next `write` raise.
        backlog: in bytes; None: two of the largest spans, and 64 MiB at least.
        direct: pass by the page cache, where the file system can.
        named: use a file with a name even where one without can be had.
        owner: whose store it is, as errors call it.

    >>> store = DiskStore()
    >>> span = store.write(np.arange(5, dtype=np.uint8))
    >>> span.read(), span.read().sum()
    (array([0, 1, 2, 3, 4], dtype=uint8), np.uint64(10))
    >>> store.close()
    """

    def __init__(
        self, directory: Any = None, limit: int | None = None, *, when_full: str = "host",
        backlog: int | None = None, direct: bool = True, named: bool = False,
        owner: str = "save_on_disk",
    ) -> None:  # fmt: skip
        for name, value in {"limit": limit, "backlog": backlog}.items():
            if value is not None and (not isinstance(value, int) or value < 0):
                raise ValueError(f"save_on_disk: {name}: got {value!r}, want bytes, a number >= 0")
        if when_full not in ("host", "error"):
            raise ValueError(f"save_on_disk: when_full: got {when_full!r}, want 'host' or 'error'")
        self.directory, self.limit = scratch_directory(directory), limit
        self.when_full, self.backlog = when_full, backlog
        self.direct, self.named, self.owner = direct, named, owner
        self.stats = DiskStats()
        self._closed: deque[tuple[Any, int, int, Any, Any]] = (
            deque()
        )  # extents that are not free yet
        self._is_closed = False
        self._file: ScratchFile | None = None
        self._begin()
        _stores.add(self)
        try:
            self._open(0)
        except DiskFullError:
            pass  # there may be room by the time of the first write

    def _begin(self) -> None:
        """Empties the store."""
        self._lock = threading.RLock()
        self._extents = Extents(self.limit)
        self._spans: set[weakref.ref[DiskSpan]] = set()  # those that have extents
        self._writing: deque[Transfer] = deque()  # oldest first
        self._pending = 0  # bytes of these writes
        self._largest = 0
        self._failed: OSError | None = None  # the next write raises it
        self._warned = self._torn = self._busy = False

    def _mend(self) -> None:
        """Finds free space anew, as the ranges that no span has, after all writes have ended."""
        closing = [self._closed.popleft() for _ in range(len(self._closed))]
        for transfer in (*self._writing, *[entry[3] for entry in closing]):
            if transfer is not None:
                transfer.finish()
        self._pending = sum([transfer.nbytes for transfer in self._writing])
        spans = [span for ref in self._spans.copy() if (span := ref()) is not None]
        spans = [span for span in spans if span.store is not None and span.offset >= 0]
        self._spans = {span.known for span in spans}
        self._extents.keep([(span.offset, span.nbytes) for span in spans])

    # ------------------------------------------------------------------ out

    def write(self, array: Any) -> DiskSpan:
        """Begins to write the bytes of an array, which must not change until `synchronize`.

        The array is referenced until then; it lies on the host, unless the store `takes` it from a
        GPU, and then what is read does too. DiskFullError where there is no room, and "error" was
        asked for; OSError where the disk fails, or has failed since the last call.
        """
        if not array.flags.c_contiguous:
            raise ValueError("write: got an array with gaps, want one that is C-contiguous")
        span, transfer = self._entered(array.reshape(-1).view(np.uint8))
        if transfer is not None:
            submit(transfer)
        return span

    @whole
    def _entered(self, flat: Any) -> tuple[DiskSpan, Transfer | None]:
        """A span for some bytes, and the transfer that writes them; None: they stay in memory."""
        if self._is_closed:
            raise ValueError(f"save_on_disk: the store in {self.directory} is closed")
        self._settle()
        self._tell()
        self._keep_back(flat.nbytes)
        self.stats.spans += 1
        span = DiskSpan(self, flat.nbytes)
        if not isinstance(flat, np.ndarray):
            backend = backend_of(flat)
            span.home = backend, backend.device_index(flat)
        try:
            span.file = self._open(flat.nbytes)
            span.offset = self._room_for(span.file, flat.nbytes) if flat.nbytes else -1
        except DiskFullError as full:
            if self.when_full == "error":
                raise
            self._stay(span, flat, full)
            return span, None
        self._spans.add(span.known)
        transfer = span.writing = Transfer(self._way(span, flat), span.offset, flat, True)
        self._writing.append(transfer)
        self._pending += flat.nbytes
        self.stats.peak_bytes = max(self.stats.peak_bytes, self._extents.used)
        return span, transfer

    def takes(self, array: Any) -> bool:
        """Whether the store can write a GPU's array without the host: kvikio is installed."""
        backend = backend_of(array)
        on_cuda = backend.device_type == "cuda" and not backend.stands_in and self._file is not None
        return on_cuda and handle_of(self._file) is not None  # type: ignore[arg-type]

    @staticmethod
    def _way(span: DiskSpan, array: Any) -> Any:
        """The file, opened as this array needs it."""
        return span.file if span.home is None else DeviceFile(span.file, array)

    @staticmethod
    def _room_in_memory(span: DiskSpan) -> tuple[Any, Any]:
        """An array to read a span into, and the same up to a multiple of what disks read."""
        if span.home is None:
            return aligned_empty(span.nbytes)
        backend, index = span.home
        with backend.use_device(index):
            array = backend.xp.empty(span.nbytes, "uint8")
        return array, array

    def _keep_back(self, nbytes: int) -> None:
        """Waits until no more than the backlog is on its way."""
        self._largest = max(self._largest, nbytes)
        backlog = max(LEAST, 2 * self._largest) if self.backlog is None else self.backlog
        if self._pending + nbytes <= backlog or not self._writing:
            return
        began = time.perf_counter()
        while self._writing and self._pending + nbytes > backlog:
            self._writing[0].finish()
            self._settle()
        self.stats.waited_writing += time.perf_counter() - began

    def _open(self, nbytes: int) -> ScratchFile:
        """The file, a new one in a child that was forked; DiskFullError if none can be made."""
        if self._file is None or not self._file.is_mine:
            try:
                self._file = ScratchFile(self.directory, named=self.named, direct=self.direct)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise self._full(nbytes) from error
        return self._file

    def _room_for(self, file: ScratchFile, nbytes: int) -> int:
        """The offset of an extent, perhaps that of a closed span; DiskFullError where there is no
        room.
        """
        try:
            return self._extent(file, nbytes)
        except DiskFullError:
            if not self._closed:
                raise
        while self._closed:  # a thread still writes the last piece of it
            writing = self._closed[0][3]
            if writing is not None:
                writing.finish()
            self._settle()
        return self._extent(file, nbytes)

    def _extent(self, file: ScratchFile, nbytes: int) -> int:
        missing = self._extents.missing(nbytes)
        if missing:
            free = file.free_bytes()
            if free is not None and missing > free - self._pending:
                raise self._full(nbytes, max(0, free - self._pending))
            if self.limit is not None and self._extents.end + missing > self.limit:
                raise self._full(nbytes, max(0, self.limit - self._extents.used), "of its limit ")
            try:
                file.grow(self._extents.end + missing)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise self._full(nbytes) from error
        offset = self._extents.take(nbytes)
        assert offset is not None
        return offset

    def _full(self, nbytes: int, free: int | None = None, whose: str = "") -> DiskFullError:
        if free is None and self._file is not None:
            free = self._file.free_bytes()
        left = "" if free is None else f", {free} {whose}are free"
        return DiskFullError(
            FULL[0],
            f"{self.owner}: {self.directory} is full: wanted {nbytes} bytes{left}; "
            f"{ADVICE[self.owner][0]}",
        )

    def _stay(self, span: DiskSpan, flat: Any, full: OSError) -> None:
        """Keeps bytes in host memory for which there is no room."""
        full = full.with_traceback(None)  # its frames refer to this store
        span.writing = Transfer(self._file, -1, flat, True, full)
        self.stats.host_bytes += flat.nbytes
        if not self._warned:
            self._warned = True
            done = ADVICE[self.owner][1]
            warnings.warn(f"{full.args[1]}; {done}", UserWarning, stacklevel=5)

    def _settle(self) -> None:
        """Notes what was written or closed. The lock is held."""
        for _ in range(len(self._closed)):
            file, offset, nbytes, writing, ref = self._closed.popleft()
            if not file.is_mine or ref not in self._spans:
                continue
            if writing is not None:
                writing.run()  # ends the pieces that no thread has begun, without writing them
                if not writing.is_done:
                    self._closed.append((file, offset, nbytes, writing, ref))
                    continue
            self._spans.discard(ref)
            self._extents.give_back(offset, nbytes)
        while self._writing and self._writing[0].is_done:
            self._note(self._writing.popleft())

    def _note(self, transfer: Transfer) -> None:
        self._pending -= transfer.nbytes
        self.stats.written_bytes += transfer.moved
        if transfer.error is not None and transfer.wanted:
            self._failed = transfer.error
            if transfer.error.errno in FULL:
                self._failed = self._full(transfer.nbytes)
                self._failed.__cause__ = transfer.error
            self.stats.host_bytes += transfer.nbytes

    def _tell(self, stacklevel: int = 5) -> None:
        """Raises, or warns of, an error of another thread."""
        failed, self._failed = self._failed, None
        if failed is None:
            return
        if not isinstance(failed, DiskFullError) or self.when_full == "error":
            raise type(failed)(
                *failed.args
            ) from failed  # a new error: the old traceback refers to this store
        if not self._warned:
            self._warned = True
            warnings.warn(f"{failed.args[1]}; that is done now", UserWarning, stacklevel=stacklevel)

    @whole
    def settle(self) -> None:
        """Notes what was written, and errors of writes, which the next `write` reports."""
        self._settle()

    @whole
    def flush(self) -> None:
        """Waits until all is written; raises, or warns, as `write` does."""
        self._settle()
        while self._writing:
            self._writing[0].finish()
            self._settle()
        self._tell(4)

    # ------------------------------------------------------------------ back

    def _read(self, span: DiskSpan, into: Any) -> Any:
        began = time.perf_counter()
        with self._lock:
            held = span.resident
            reading, span.reading = span.reading, None
        if held is not None:
            self._refuse(span)
            self.stats.early_bytes += span.nbytes
            return self._given(held, into, True)
        if not span.file.is_mine:
            raise RuntimeError(
                "save_on_disk: this was saved before the process was forked from another one; run "
                "forward and backward in one process, or start processes by 'spawn'"
            )
        if reading is None:
            array, padded = self._room_in_memory(span) if into is None else (into, into)
            reading = Transfer(self._way(span, padded), span.offset, padded, False), array
            if padded.nbytes > PIECE:
                submit(reading[0])
        else:
            self.stats.ahead_bytes += span.nbytes
        transfer, array = reading
        try:
            transfer.finish()
        except BaseException:  # no thread uses the array any more
            transfer.wanted = False
            transfer.finish()
            raise
        if transfer.error is not None:
            raise transfer.error
        self.stats.read_bytes += span.nbytes
        self.stats.waited_reading += time.perf_counter() - began
        return self._given(array, into, False)

    def _refuse(self, span: DiskSpan) -> None:
        error = None if span.writing is None else span.writing.error
        if error is not None and error.errno in FULL and self.when_full == "error":
            raise self._full(span.nbytes) from error

    @staticmethod
    def _given(array: Any, into: Any, shared: bool) -> Any:
        if into is None:
            return array.copy() if shared else array
        if into is not array:
            into[:] = array
        return into

    def _fetch(self, span: DiskSpan, into: Any) -> None:
        """Begins to read a span, unless it is here."""
        with self._lock:
            under_way = span.reading is not None or span.resident is not None
            if under_way or not span.nbytes or not span.file.is_mine:
                return
            try:
                array, padded = self._room_in_memory(span) if into is None else (into, into)
            except MemoryError:
                return
            transfer = Transfer(self._way(span, padded), span.offset, padded, False)
            span.reading = transfer, array
        submit(transfer)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Gives the disk's space back; what is in the store is lost."""
        with self._lock:
            self._is_closed = True
            for transfer in self._writing:
                transfer.wanted = False
            for transfer in self._writing:
                transfer.finish()
            if self._file is not None:
                self._file.discard()

    def __repr__(self) -> str:
        return f"DiskStore({self.directory!r}, {self._extents.used} bytes)"


_stores: weakref.WeakSet[DiskStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in living(_stores):
        store._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
