"""Page-locked host memory in large chunks, cut to size, and reused behind events."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict, deque
from typing import Any

import numpy as np

from ...runtime.kept import Guarded, whole
from ..protocol import Backend

__all__ = ["SlabBlock", "PinnedSlab"]

ALIGNMENT = 512  # bytes; copy engines want no more
FIRST = 1 << 20  # bytes of the first chunk


class SlabBlock:
    """A piece of a chunk. `events` are the last uses that a new user's stream has to wait for."""

    __slots__ = ("chunk", "start", "size", "array", "events", "taken", "__weakref__")

    def __init__(self, chunk: Any, start: int, size: int, events: tuple[Any, ...] = ()) -> None:
        self.chunk, self.start, self.size, self.events = chunk, start, size, events
        self.array = chunk[start : start + size]
        self.taken: Any = None  # by which the slab knows that it is held


class PinnedSlab(Guarded):
    """Pinned blocks of exact size, apart from alignment.

    Page-locking costs milliseconds and may synchronise the device, so chunks of `chunk` bytes (less
    at first) are locked at a time and cut. A block that is given back is reused by the next request
    of its size, at once: the request's stream waits for the events of its last use, the host never
    does. Where no block fits, neighbours that are free are joined before more memory is locked.
    What is free is what is not held: a block that its holder has lost comes back as well.

    >>> from cugrad.backends import get
    >>> slab = PinnedSlab(get("cpu"), limit=1 << 20, chunk=4096)
    >>> block = slab.take(1000)
    >>> block.size, slab.allocated_bytes
    (1024, 4096)
    >>> slab.give_back(block, None)
    >>> slab.take(2 << 20) is None
    True
    """

    def __init__(self, backend: Backend, limit: int | None = None, chunk: int = 1 << 30) -> None:
        self.backend, self.limit, self.chunk = backend, limit, chunk
        self.allocated_bytes = 0  # page-locked
        self.peak_bytes = self._used = 0  # in blocks that are taken
        self._free: defaultdict[int, deque[SlabBlock]] = defaultdict(deque)
        self._chunks: list[Any] = []
        self._returned: deque[tuple[SlabBlock, Any]] = deque()  # given back, not yet sorted
        self._taken: dict[weakref.ref[SlabBlock], tuple[Any, int, int]] = {}  # chunk, start, size
        self._lost: deque[Any] = deque()  # references to blocks that were not given back
        self._lock = threading.RLock()

    @property
    def used_bytes(self) -> int:
        """The bytes of the blocks that are taken."""
        return self._sorted()

    @whole
    def _sorted(self) -> int:
        self._sort()
        return self._used

    @whole
    def take(self, nbytes: int, within: int | None = None) -> SlabBlock | None:
        """A block of at least `nbytes` bytes; None where the limit, or the host, has no more, or
        where more than `within` bytes would be taken.
        """
        return self.taken(nbytes, within)

    def taken(self, nbytes: int, within: int | None = None) -> SlabBlock | None:
        """As `take`, for a caller that calls `mend` after an exception."""
        with self._lock:
            size = -(-nbytes // ALIGNMENT) * ALIGNMENT or ALIGNMENT
            if self._returned or self._lost:
                self._sort()
            if within is not None and self._used + size > within:
                return None
            same = self._free.get(size)
            if same:
                block: SlabBlock | None = same.popleft()  # its last use ends first
            else:
                block = self._cut(size)
                if block is None and self._join():
                    block = self._cut(size)
                if block is None:
                    block = self._grown(size)
            if block is not None:
                block.taken = taken = weakref.ref(block, self._lost.append)  # never interrupted
                self._taken[taken] = block.chunk, block.start, size
                self._used = used = self._used + size
                if used > self.peak_bytes:
                    self.peak_bytes = used
            return block

    def give_back(self, block: SlabBlock, event: Any) -> None:
        """Lets a block be used again behind `event` (None: at once); once, however often called.

        Takes no lock: the garbage collector may call this inside any of ours.
        """
        self._returned.append((block, event))

    @whole
    def release(self) -> None:
        """Unlocks the chunks that are wholly free, once no copy uses them."""
        self._sort()
        self._join()
        for blocks in self._free.values():
            for block in [b for b in blocks if b.size == b.chunk.nbytes]:
                for event in block.events:
                    event.synchronize()
                blocks.remove(block)
                self._chunks = [c for c in self._chunks if c is not block.chunk]
                self.allocated_bytes -= block.size

    def _cut(self, size: int) -> SlabBlock | None:
        """A block of this size, or the smallest larger one, cut."""
        same = self._free.get(size)
        if same:  # joined
            return same.popleft()
        larger = [s for s, blocks in self._free.items() if s > size and blocks]
        if not larger:
            return None
        smallest = min(larger)
        block = self._free[smallest].popleft()
        if not self._free[smallest]:  # or each cut would leave a size to look at
            del self._free[smallest]
        rest = SlabBlock(block.chunk, block.start + size, block.size - size, block.events)
        self._free[rest.size].appendleft(rest)
        return SlabBlock(block.chunk, block.start, size, block.events)

    def _grown(self, size: int) -> SlabBlock | None:
        """A block of a new chunk, if the limit and the host allow one."""
        usual = min(self.chunk, max(self.allocated_bytes, FIRST))  # doubling, up to whole chunks
        for nbytes in (max(size, usual), size):
            if self.limit is not None and self.allocated_bytes + nbytes > self.limit:
                continue
            try:
                chunk = self.backend.empty_pinned((nbytes,), np.dtype(np.uint8))
            except MemoryError:
                continue
            self._chunks.append(chunk)
            self.allocated_bytes += nbytes
            if nbytes > size:
                self._free[nbytes - size].append(SlabBlock(chunk, size, nbytes - size))
            return SlabBlock(chunk, 0, size)
        return None

    def _join(self) -> bool:
        """Joins free neighbours of one chunk; whether there were any."""
        by_chunk: defaultdict[int, list[SlabBlock]] = defaultdict(list)
        for blocks in self._free.values():
            for block in blocks:
                by_chunk[id(block.chunk)].append(block)
        self._free.clear()
        joined = False
        for blocks_of_one in by_chunk.values():
            blocks_of_one.sort(key=lambda b: b.start)
            run: list[SlabBlock] = []
            for block in blocks_of_one:
                if run and run[-1].start + run[-1].size != block.start:
                    self._keep(run)
                    run = []
                run.append(block)
                joined = joined or len(run) > 1
            self._keep(run)
        return joined

    def _keep(self, run: list[SlabBlock]) -> None:
        """Files neighbours as one block, behind all their events."""
        events = {id(e): e for b in run for e in b.events if len(run) == 1 or not e.query()}
        whole = SlabBlock(
            run[0].chunk, run[0].start, sum(b.size for b in run), tuple(events.values())
        )
        self._free[whole.size].append(whole)

    def _sort(self) -> None:
        """Files what was given back under its size; the lock is held."""
        while self._returned:
            block, event = self._returned.popleft()
            if self._taken.pop(block.taken, None) is None:
                continue
            self._used -= block.size
            if event is not None:
                block.events = (event,)
            self._free[block.size].append(block)
        while self._lost:
            lost = self._forget()
            if lost is not None:
                self.backend.synchronize()  # its last use is not known
                self._used -= lost[2]
                self._free[lost[2]].append(SlabBlock(*lost))

    def _forget(self) -> Any:
        """What is said of the next block that was lost; None if an interrupt came before that."""
        try:
            return self._taken.pop(self._lost.popleft(), None)
        except TypeError:  # a reference that was never looked up has no hash
            return None

    @whole
    def mend(self) -> None:
        """Puts in order what an exception has left."""
        self._mend()

    def _mend(self) -> None:
        """Finds what is free as what is not taken: in none of the blocks that are held."""
        self.backend.synchronize()
        while self._returned:
            self._taken.pop(self._returned.popleft()[0].taken, None)
        while self._lost:
            self._forget()
        taken = sorted([(id(chunk), start, size) for chunk, start, size in self._taken.values()])
        self._free.clear()
        for chunk in self._chunks:
            at = 0
            for start, size in [t[1:] for t in taken if t[0] == id(chunk)] + [(chunk.nbytes, 0)]:
                if start > at:
                    self._free[start - at].append(SlabBlock(chunk, at, start - at))
                at = start + size
        self._used = sum([size for _, _, size in taken])
        self.allocated_bytes = sum([chunk.nbytes for chunk in self._chunks])
