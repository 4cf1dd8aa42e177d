"""Pinned host buffers, reused when no copy can still touch them."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Any

import numpy as np

from ..backends import Backend

Buffer = np.ndarray[Any, Any]


class PinnedPool:
    """Page-locked buffers by exact size; one that is given back waits for its event.

    Page-locking costs milliseconds and may synchronise the device, so a training loop must stop
    doing it after its first steps.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free: defaultdict[int, deque[tuple[Any, Buffer]]] = defaultdict(deque)
        self._lock = threading.Lock()
        self.allocated_bytes = 0

    def take(self, nbytes: int) -> Buffer:
        """A buffer of `nbytes` bytes, as uint8, that nothing else uses."""
        with self._lock:
            waiting = self._free[nbytes]
            if waiting and (waiting[0][0] is None or waiting[0][0].query()):
                return waiting.popleft()[1]
            self.allocated_bytes += nbytes
        return self._backend.empty_pinned((nbytes,), np.dtype(np.uint8))

    def give_back(self, buffer: Buffer, event: Any) -> None:
        """Lets a buffer be used again once `event` has happened (None: at once)."""
        with self._lock:
            self._free[buffer.nbytes].append((event, buffer))

    def clear(self) -> None:
        """Forgets the buffers that are free; they are unlocked when no copy uses them."""
        with self._lock:
            for waiting in self._free.values():
                for event, buffer in waiting:
                    if event is not None:
                        event.synchronize()
                    self.allocated_bytes -= buffer.nbytes
            self._free.clear()
