"""Bytes between a device and a file: page-locked memory that streams fill and threads empty."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np

from ...backends.lending.slab import PinnedSlab, SlabBlock
from .places import OnDisk, OnHost, Pageable
from .span import Span

__all__ = ["HostCopy", "Staging", "for_threads"]


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
        """Whether the bytes are where they shall be."""
        return True

    def synchronize(self) -> None:
        """Waits until the bytes are where they shall be."""


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
        self._copied: deque[tuple[weakref.ref[Span], int, Any]] = deque()  # behind an event
        self._writing: deque[tuple[weakref.ref[Span], int]] = deque()
        self.reading: list[tuple[weakref.ref[Span], SlabBlock, Any]] = []  # read, not fetched

    # ------------------------------------------------------------------ out

    def block(self, nbytes: int, limit: int, within: int | None) -> SlabBlock | None:
        """A block to copy to, if no more than `limit` bytes are then under way. None if there is no
        page-locked memory, of which at most `within` bytes may be taken.
        """
        self.advance(max(0, limit - nbytes))
        return self._slab.taken(nbytes, within)

    def send(self, span: Span) -> None:
        """Notes that a copy to a block has begun."""
        host = span.copy
        self._copied.append((span.ref, host.nbytes, host.copied))
        self.bytes += host.nbytes

    def advance(self, limit: int = 1 << 62) -> None:
        """Lets threads write what has been copied. Waits while more than `limit` bytes are under
        way. OSError if a disk fails, or is full and `when_full` forbids that: the bytes stay in
        memory.
        """
        while True:
            while self._copied and self._copied[0][2].query():
                self._write(*self._copied.popleft()[:2])
            while self._writing and self._has_written(self._writing[0][0]()):
                self.bytes -= self._writing.popleft()[1]
            if self.bytes <= limit:
                return
            span = self._writing[0][0]() if self._writing else None
            if span is not None:
                span.copy.file.synchronize()
            elif self._copied:
                self._copied[0][2].synchronize()

    def _write(self, ref: weakref.ref[Span], nbytes: int) -> None:
        """The bytes are in a block: threads may write them, if they are still wanted."""
        span = ref()
        if span is None:
            self.bytes -= nbytes
            return
        options = span.options
        try:
            file = options.spill.write(for_threads(span.copy.block.array[:nbytes], False))
            span.write(file)
        except BaseException:  # it stays in its block
            self.bytes -= nbytes
            raise
        self._writing.append((ref, nbytes))
        if file.on_disk:
            options.counts.stats.disk_bytes += nbytes

    def _has_written(self, span: Span | None) -> bool:
        """Whether the block is no longer needed. Bytes that do not fit the disk leave it too."""
        if span is None:
            return True
        host = span.copy
        if not host.file.query():
            return False
        place: Pageable = OnDisk(host.file, host.nbytes)
        if not host.file.on_disk:
            span.options.spill.settle()
            span.options.counts.stats.pageable_bytes += host.nbytes
            place = Pageable(HostCopy(host.file.resident.copy()), host.nbytes)
        self._slab.give_back(span.written(place), host.last_use)
        return True

    # ------------------------------------------------------------------ back

    def serves(self, file: Any) -> bool:
        """Whether the bytes of a file come back through page-locked memory here."""
        return self._on_device and getattr(file, "home", file) is None

    def fetch(self, span: Span, within: int | None) -> bool:
        """Lets threads read a span into a block; False where none is free now."""
        place = span.copy
        block = self._slab.taken(place.nbytes, within)
        if block is None:
            return False
        if not all(event.query() for event in block.events):
            self._slab.give_back(block, None)
            return False
        file = place.file
        try:
            file.prefetch(for_threads(block.array[: place.nbytes], True))
            self.reading.append((span.ref, block, file))
        except BaseException:
            file.abandon()
            self._slab.give_back(block, None)
            raise
        return True

    def has_come(self) -> list[Span]:
        """The spans that threads have read ahead, and whose copy has not begun."""
        spans, waiting = [], []
        for entry in self.reading:
            ref, block, file = entry
            span = ref()
            if span is None:
                file.abandon()
                self._slab.give_back(block, None)
            elif file.is_here():
                spans.append(span)
                waiting.append(entry)
            else:
                waiting.append(entry)
        self.reading = waiting
        return spans

    def read(self, span: Span, within: int | None) -> SlabBlock | None:
        """The block with the bytes of a span; waits for the disk. None where there is no block."""
        place, entries = span.copy, [entry for entry in self.reading if entry[0]() is span]
        block = entries[0][1] if entries else self._slab.taken(place.nbytes, within)
        if block is None:
            return None
        try:
            if entries:
                self.reading.remove(entries[0])
            for event in block.events:  # long past, unless the block was given back just now
                event.synchronize()
            place.file.read_into(for_threads(block.array[: place.nbytes], True))
        except BaseException:
            place.file.abandon()
            self._slab.give_back(block, None)
            raise
        return block

    def mend(self, live: list[Span]) -> None:
        """Counts anew what is under way, and starts nothing. No stream copies meanwhile."""
        for _, block, file in self.reading:
            file.abandon()
            self._slab.give_back(block, None)
        self.reading = []
        self._copied = deque([entry for entry in self._copied if _is_to_write(entry[0]())])
        self._writing = deque([
            (s.ref, s.copy.nbytes) for s in live
            if type(s.copy) is OnHost and s.copy.file is not None
        ])  # fmt: skip
        self.bytes = sum([e[1] for e in self._copied]) + sum([e[1] for e in self._writing])


def _is_to_write(span: Span | None) -> bool:
    """Whether a store has not yet been given the bytes of a block."""
    return span is not None and type(span.copy) is OnHost and span.copy.file is None


def for_threads(array: Any, writes: bool) -> Any:
    """Page-locked bytes as a plain array for threads to use beside NumPy's functions.

    The simulated device checks that use here.
    """
    touch = getattr(array, "_touch", None)
    if touch is not None:
        touch("host read from a file" if writes else "host write to a file", writes)
    return array.view(np.ndarray)
