"""Page-locked memory for programs, which is not used again while a copy reads or writes it."""

from __future__ import annotations

import threading
from collections import deque
from math import prod
from typing import Any

import numpy as np

from ..protocol import Backend, Stream
from .slab import PinnedSlab, SlabBlock

__all__ = ["Held", "PinnedMemory", "pinned_memory"]


class Held(np.ndarray):
    """The memory of a block, for as long as there is a view of it.

    To views it is the end: the chunk of the slab, which has other tenants, is no storage of theirs.
    """

    base = None
    tenancy: tuple[PinnedSlab, SlabBlock] | None = None

    def __del__(self) -> None:
        if self.tenancy is not None:
            slab, block = self.tenancy
            slab.give_back(block, None)


_KINDS: dict[Any, Any] = {np.ndarray: Held}  # Held, for a kind of host arrays


class PinnedMemory:
    """Page-locked arrays of a device, from a slab: what `pin_memory` gives, and copies with it.

    A copy holds the host's array until it has ended. So memory that is not held is used by no
    copy, and the host may have it again at once. The events of copies are looked at when memory is
    asked for and when a copy begins; nothing waits for them.
    """

    def __init__(self, backend: Backend, reserved: int = 0) -> None:
        """`reserved` bytes are locked in one piece when the first array is asked for."""
        self._backend, self._slab, self._reserved = backend, PinnedSlab(backend), reserved
        self._under_way: deque[tuple[Any, Any]] = deque()  # the end of a copy; what it uses

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """A page-locked array; MemoryError where the host has no more."""
        nbytes = prod(shape) * dtype.itemsize
        if nbytes == 0:
            return np.empty(shape, dtype)
        self._let_go()
        if self._reserved:
            self._lock_ahead()
        block = self._slab.take(nbytes)
        if block is None:
            self.release()
            block = self._slab.take(nbytes)
        if block is None:
            raise MemoryError(
                f"cannot page-lock {nbytes:,} bytes of host memory: {self._slab.allocated_bytes:,} "
                "are locked; use ordinary memory, or raise the limit of locked memory (ulimit -l)"
            )
        part = block.array[:nbytes].view(dtype).reshape(shape)
        kind = _KINDS.get(type(part))
        if kind is None:
            kind = _KINDS[type(part)] = type("Held", (Held, type(part)), {})
        held = part.view(kind).view(kind)  # NumPy passes over one that is alone among others
        held.tenancy = self._slab, block
        array: Any = held.view(type(part))
        return array

    def _lock_ahead(self) -> None:
        nbytes, self._reserved = self._reserved, 0
        block = self._slab.take(nbytes)
        if block is not None:
            self._slab.give_back(block, None)

    def copy(self, dst: Any, src: Any, stream: Stream) -> None:
        """Queues a copy of bytes between the host and the device, and returns."""
        host = dst if isinstance(dst, np.ndarray) else src
        self._let_go()
        try:
            self._backend.copy_async(dst, src, stream)
            if not stream.is_capturing():
                self._under_way.append((stream.record_event(), host))
        except BaseException:
            stream.synchronize()  # what has begun must not outlive its memory
            raise

    def release(self) -> None:
        """Unlocks what is not held, after all copies have ended."""
        while self._under_way:
            try:
                self._under_way.popleft()[0].synchronize()
            except IndexError:  # another thread had the last one
                break
        self._slab.release()

    def _let_go(self) -> None:
        """Forgets the copies that have ended."""
        if not self._under_way or self._backend.current_stream().is_capturing():
            return
        for _ in range(len(self._under_way)):
            try:
                copy = self._under_way.popleft()
            except IndexError:  # another thread is here, too
                return
            if not copy[0].query():
                self._under_way.append(copy)


_of: dict[str, PinnedMemory] = {}  # by the type of the device
reserved: dict[str, int] = {}  # bytes to lock ahead, by the type of the device
_lock = threading.Lock()


def pinned_memory(backend: Backend) -> PinnedMemory:
    """The page-locked memory for copies from and to the devices of a backend."""
    memory = _of.get(backend.device_type)
    if memory is None:
        with _lock:
            nbytes = reserved.get(backend.device_type, 0)
            memory = _of.setdefault(backend.device_type, PinnedMemory(backend, nbytes))
    return memory
