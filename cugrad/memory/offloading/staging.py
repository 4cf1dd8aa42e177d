"""Bytes between a device and a file: page-locked memory that streams fill and threads empty."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np

from .session import Stored
from .slab import Block, PinnedSlab

__all__ = ["HostCopy", "Staging"]


class HostCopy:
    """Bytes in ordinary host memory; what a store of spilled bytes answers looks like this.

    It is an event as well, which has happened when the bytes need the memory that was given no
    more. `on_disk` is false of bytes that found no room, and are still in that memory.
    """

    __slots__ = ("_array",)
    on_disk = False

    def __init__(self, array: Any) -> None:
        self._array = array

    def read(self) -> Any:
        """The bytes."""
        return self._array

    def prefetch(self) -> None:
        """Begins to read: there is nothing to wait for."""

    def query(self) -> bool:
        """Whether they are where they shall be."""
        return True

    def synchronize(self) -> None:
        """Waits until they are."""


class Staging:
    """What is on its way between a device and a store of files. Neither of them makes the host wait
    for the other, unless more bytes are on their way than it is told may be.

        out   a copy to a block; when it has ended, threads write that; then the block is free
        back  threads read into a block; when they have, a copy to the device may begin

    Calls are made under the engine's lock.
    """

    def __init__(self, slab: PinnedSlab) -> None:
        self._slab, self._on_device = slab, slab.backend.device_type != "cpu"
        self.bytes = 0  # on their way out
        self._copied: deque[tuple[weakref.ref[Stored], int, Any]] = deque()  # behind an event
        self._writing: deque[tuple[weakref.ref[Stored], int]] = deque()
        self.reading: list[tuple[weakref.ref[Stored], Block, Any]] = []  # or read, and not fetched

    # ------------------------------------------------------------------ out

    def block(self, nbytes: int, limit: int, within: int | None) -> Block | None:
        """A block to copy to, when no more than `limit` bytes are under way with it; None where
        there is no page-locked memory to be had, of `within` bytes at most.
        """
        self.settle(max(0, limit - nbytes))
        return self._slab.take(nbytes, within)

    def send(self, stored: Stored) -> None:
        """Takes note of a copy to a block that has begun."""
        self._copied.append((weakref.ref(stored), stored.sent, stored.copied))
        self.bytes += stored.sent

    def settle(self, limit: int = 1 << 62) -> None:
        """Lets threads write what has been copied; waits while more than `limit` bytes are under
        way. OSError where a disk fails, or is full and must not be: the bytes stay in memory.
        """
        while True:
            while self._copied and self._copied[0][2].query():
                self._write(*self._copied.popleft()[:2])
            while self._writing and self._has_written(self._writing[0][0]()):
                self.bytes -= self._writing.popleft()[1]
            if self.bytes <= limit:
                return
            stored = self._writing[0][0]() if self._writing else None
            if stored is not None:
                stored.host.synchronize()
            elif self._copied:
                self._copied[0][2].synchronize()

    def _write(self, ref: weakref.ref[Stored], nbytes: int) -> None:
        """The bytes are in a block: threads may write them, if anybody still wants them."""
        stored = ref()
        if stored is None:
            self.bytes -= nbytes
            return
        try:
            host = _for_threads(stored.block.array[:nbytes], False)
            stored.host = stored.owner.spill.write(host)
        except BaseException:  # it stays in its block
            self.bytes -= nbytes
            raise
        self._writing.append((ref, nbytes))
        if stored.host.on_disk:
            stored.owner.stats.disk_bytes += nbytes

    def _has_written(self, stored: Stored | None) -> bool:
        """Whether the block is needed no more; what finds no room on the disk leaves it, too."""
        if stored is None:
            return True
        span = stored.host
        if not span.query():
            return False
        if not span.on_disk:
            stored.owner.spill.settle()
            stored.owner.stats.pageable_bytes += stored.sent
            stored.host = HostCopy(span.resident.copy())
        block, stored.block = stored.block, None
        self._slab.give_back(block, stored.last_use)
        return True

    # ------------------------------------------------------------------ back

    def serves(self, host: Any) -> bool:
        """Whether it is by this way that bytes come back: from a file, and not without the host."""
        return self._on_device and getattr(host, "home", host) is None

    def fetch(self, stored: Stored, within: int | None) -> bool:
        """Lets threads read a span into a block; False where none is free now."""
        block = self._slab.take(stored.sent, within)
        if block is None:
            return False
        if not all(event.query() for event in block.events):
            self._slab.give_back(block, None)
            return False
        span = stored.host
        try:
            span.prefetch(_for_threads(block.array[: stored.sent], True))
            self.reading.append((weakref.ref(stored), block, span))
        except BaseException:
            span.abandon()
            self._slab.give_back(block, None)
            raise
        return True

    def has_come(self) -> list[Stored]:
        """The storages that threads have read ahead, and whose copy has not begun."""
        found, waiting = [], []
        for entry in self.reading:
            ref, block, span = entry
            stored = ref()
            if stored is None:
                span.abandon()
                self._slab.give_back(block, None)
            elif span.is_here():
                found.append(stored)
                waiting.append(entry)
            else:
                waiting.append(entry)
        self.reading = waiting
        return found

    def read(self, stored: Stored, within: int | None) -> Block | None:
        """The block with the bytes of a span; waits for the disk. None where there is no block."""
        found = [entry for entry in self.reading if entry[0]() is stored]
        block = found[0][1] if found else self._slab.take(stored.sent, within)
        if block is None:
            return None
        try:
            if found:
                self.reading.remove(found[0])
            for event in block.events:  # long past, unless the block was given back just now
                event.synchronize()
            stored.host.read_into(_for_threads(block.array[: stored.sent], True))
        except BaseException:
            stored.host.abandon()
            self._slab.give_back(block, None)
            raise
        return block

    def mend(self, live: list[Stored]) -> None:
        """Begins nothing anew that is under way, and counts it; no stream copies meanwhile."""
        for _, block, span in self.reading:
            span.abandon()
            self._slab.give_back(block, None)
        self.reading = []
        self._copied = deque([entry for entry in self._copied if _is_to_write(entry[0]())])
        self._writing = deque(
            [(weakref.ref(s), s.sent) for s in live if s.block is not None and s.host is not None]
        )
        self.bytes = sum([e[1] for e in self._copied]) + sum([e[1] for e in self._writing])


def _is_to_write(stored: Stored | None) -> bool:
    """Whether a store has not yet been given the bytes of a block."""
    return stored is not None and stored.block is not None and stored.host is None


def _for_threads(array: Any, writes: bool) -> Any:
    """Page-locked bytes as a plain array for threads to use beside NumPy's functions.

    The simulated device checks that use here.
    """
    touch = getattr(array, "_touch", None)
    if touch is not None:
        touch("host read from a file" if writes else "host write to a file", writes)
    return array.view(np.ndarray)
