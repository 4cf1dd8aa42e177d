"""Host arrays that come to a device on a side stream, ahead of the stream that uses them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import Array, Backend, Event
from .pinned import pinned_memory
from .streams import lent_memory

__all__ = ["CopiesAhead", "SideStream"]


class SideStream:
    """A stream of a device that copies to it from the host, beside those that compute."""

    def __init__(self, backend: Backend, index: int | None) -> None:
        self.backend = backend
        self.index = backend.current_device() if index is None else index
        with backend.use_device(self.index):
            self.stream = backend.stream()


class CopiesAhead:
    """Copies that belong together: each is added, then all begin, then who uses them waits.

    The device's arrays are made on the stream that is current then. Their memory may be in use by
    what that stream has queued before, so the copies wait for it: they run beside what follows.
    While they run, the memory is lent to their stream: the arrays may go at any time.
    """

    __slots__ = ("_side", "_stream", "_copies", "_event")

    def __init__(self, side: SideStream) -> None:
        self._side = side
        with side.backend.use_device(side.index):
            self._stream = side.backend.current_stream()
        self._copies: list[tuple[Array, np.ndarray[Any, Any]]] = []
        self._event: Event | None = None

    @property
    def nbytes(self) -> int:
        """The bytes to be copied."""
        return sum(source.nbytes for _, source in self._copies)

    def add(self, source: np.ndarray[Any, Any]) -> Array:
        """The device's array that a contiguous array of the host will be copied to.

        The host does not wait where `source` is page-locked memory.
        """
        backend = self._side.backend
        with backend.use_device(self._side.index), backend.use_stream(self._stream):
            array = backend.xp.empty(source.shape, source.dtype)
        self._copies.append((array, source))
        return array

    def begin(self) -> None:
        """Starts the copies."""
        if not self._copies:
            return
        backend, copying = self._side.backend, self._side.stream
        memory, lent = pinned_memory(backend), lent_memory(backend)
        with backend.use_device(self._side.index):
            copying.wait_event(self._stream.record_event())
            for array, source in self._copies:
                lent.record(array, copying)
                memory.copy(array, source, copying)
            self._event = copying.record_event()

    def wait(self) -> None:
        """Makes the current stream wait for the copies that have begun; the host does not."""
        event, self._event = self._event, None
        if event is None:
            return
        backend, copying = self._side.backend, self._side.stream
        with backend.use_device(self._side.index):
            stream, lent = backend.current_stream(), lent_memory(backend)
            stream.wait_event(event)
            for array, _ in self._copies:
                if stream.ptr != self._stream.ptr:
                    lent.record(array, stream)
                lent.end(array, copying)  # who uses it has waited
        self._copies.clear()
