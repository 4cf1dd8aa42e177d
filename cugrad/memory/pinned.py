"""Pinned host buffers, reused when no copy can still touch them."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Any

import numpy as np

from ..backends import Backend

Buffer = np.ndarray[Any, Any]


class PinnedPool:
    """Page-locked buffers by exact size; one that is given back comes with the event of its last
    use.

    Page-locking costs milliseconds and may synchronise the device, so a training loop must stop
    doing it after its first steps, however far the host is ahead of the device.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free: defaultdict[int, deque[tuple[Any, Buffer]]] = defaultdict(deque)
        self._returned: deque[tuple[Any, Buffer]] = deque()  # given back, not yet sorted by size
        self._lock = threading.Lock()
        self.allocated_bytes = 0

    def take(self, nbytes: int) -> tuple[Buffer, Any]:
        """A buffer of `nbytes` bytes, as uint8, and the event to wait for before writing, or None.

        The one given back first, since its last use ends first; a new one if none is free.
        """
        with self._lock:
            self._sort()
            waiting = self._free[nbytes]
            if waiting:
                event, buffer = waiting.popleft()
                return buffer, event
            self.allocated_bytes += nbytes
        return self._backend.empty_pinned((nbytes,), np.dtype(np.uint8)), None

    def give_back(self, buffer: Buffer, event: Any) -> None:
        """Lets a buffer be used again behind `event` (None: at once).

        Takes no lock: the garbage collector may call this inside any of ours.
        """
        self._returned.append((event, buffer))

    def clear(self) -> None:
        """Forgets the buffers that are free; they are unlocked when no copy uses them."""
        with self._lock:
            self._sort()
            gone, self._free = self._free, defaultdict(deque)
        for waiting in gone.values():
            for event, buffer in waiting:
                if event is not None:
                    event.synchronize()
                self.allocated_bytes -= buffer.nbytes

    def _sort(self) -> None:
        """Files what was given back under its size; the lock is held."""
        while self._returned:
            event, buffer = self._returned.popleft()
            self._free[buffer.nbytes].append((event, buffer))
