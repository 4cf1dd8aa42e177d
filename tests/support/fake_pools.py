"""CuPy's caching pool as it is written in its sources: arenas, best fit, splitting and merging.

Addresses are promised and stand for no memory: the fake's arrays have NumPy's. `cudaMalloc` gives
up to CAPACITY bytes.
"""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from bisect import bisect_left, insort
from collections.abc import Callable
from functools import wraps
from typing import Any

from tests.support import fake_streams

ROUND = 512
ADDRESSES = itertools.count(2**44, 2**34)  # of segments, which never meet


class Driver:
    """What cudaMalloc has given of each device, and may give."""

    capacity = 2**34
    given: dict[int, int] = {}

    @classmethod
    def take(cls, device: int, size: int) -> int:
        if cls.given.get(device, 0) + size > cls.capacity:
            raise fake_streams.failure(2)
        cls.given[device] = cls.given.get(device, 0) + size
        return next(ADDRESSES)


class Memory:
    """cupy.cuda.Memory: cudaMalloc's."""

    def __init__(self, size: int) -> None:
        self.size, self.device_id = size, fake_streams.HERE.device
        self.ptr = Driver.take(self.device_id, size) if size else 0
        weakref.finalize(self, _free, self.device_id, size).atexit = False


def memory_info() -> tuple[int, int]:
    """What cudaMemGetInfo says of the current device: another process has half of it."""
    half = Driver.capacity // 2
    return max(0, half - Driver.given.get(fake_streams.HERE.device, 0)), Driver.capacity


def _free(device: int, size: int) -> None:
    Driver.given[device] -= size


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
            + (f", limit set to: {limit:,} bytes)." if limit else ").")
        )


class Chunk:
    """A part of a segment; `prev` and `next` are its neighbours."""

    def __init__(self, mem: Any, offset: int, size: int, arena: list[Any] | None) -> None:
        self.mem, self.offset, self.size, self.arena = mem, offset, size, arena
        self.prev: Chunk | None = None
        self.next: Chunk | None = None

    def split(self, size: int) -> Chunk | None:
        if self.size == size:
            return None
        rest = Chunk(self.mem, self.offset + size, self.size - size, self.arena)
        self.size = size
        rest.prev, rest.next = self, self.next
        if rest.next is not None:
            rest.next.prev = rest
        self.next = rest
        return rest

    def merge_next(self) -> None:
        gone = self.next
        assert gone is not None
        self.size += gone.size
        self.next = gone.next
        if self.next is not None:
            self.next.prev = self
        gone.prev = gone.next = gone.arena = None


class PooledMemory:
    """A tenancy of a chunk, as CuPy's with room for attributes and for no weak reference."""

    __slots__ = ("chunk", "pool", "ptr", "size", "device_id", "__dict__")

    def __init__(self, chunk: Chunk, pool: Any) -> None:
        self.chunk, self.pool = chunk, pool
        self.ptr, self.size = chunk.mem.ptr + chunk.offset, chunk.size
        self.device_id = chunk.mem.device_id

    def __del__(self) -> None:
        pool = self.pool()
        if pool is not None:
            pool.free(self.chunk)


class MemoryPointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


def alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that one thread at a time runs of an object."""

    @wraps(method)
    def run(self: Any, *args: Any) -> Any:
        with self._lock:
            return method(self, *args)

    return run


class SingleDeviceMemoryPool:
    """A device's part. Free chunks of an arena are sorted by size; what a destructor gives back
    waits in `_pending` for the next request.
    """

    def __init__(self, allocator: Callable[[int], Any]) -> None:
        self._allocator, self._weakref = allocator, weakref.ref(self)
        self._arenas: dict[int, list[tuple[int, int, Chunk]]] = {}
        self._pending: list[tuple[int, Chunk]] = []
        self._lock = threading.RLock()
        self.used = self.total = self.limit = 0

    def _insert(self, index: list[tuple[int, int, Chunk]], chunk: Chunk) -> None:
        def remove(other: Chunk | None) -> bool:
            if other is None:
                return False
            place = bisect_left(index, (other.size, id(other)))
            if place < len(index) and index[place][2] is other:
                del index[place]
                return True
            return False

        while remove(chunk.next):
            chunk.merge_next()
        while remove(chunk.prev):
            assert chunk.prev is not None
            chunk = chunk.prev
            chunk.merge_next()
        insort(index, (chunk.size, id(chunk), chunk))

    @alone
    def _collect(self) -> None:
        while True:
            try:  # a destructor that ran here may have taken the last
                _, chunk = self._pending.pop()
            except IndexError:
                return
            self.used -= chunk.size
            assert chunk.arena is not None
            self._insert(chunk.arena, chunk)

    def free(self, chunk: Chunk) -> None:
        self._pending.append((0, chunk))

    @alone
    def malloc(self, size: int) -> MemoryPointer:
        size = -(-size // ROUND) * ROUND
        if not size:
            return MemoryPointer(Memory(0), 0)
        self._collect()
        arena = self._arenas.setdefault(fake_streams.current().ptr, [])
        place = bisect_left(arena, (size, 0))
        if place < len(arena):
            chunk = arena.pop(place)[2]
            rest = chunk.split(size)
            if rest is not None:
                insort(arena, (rest.size, id(rest), rest))
        else:
            chunk = Chunk(self._try(size), 0, size, arena)
        self.used += size
        return MemoryPointer(PooledMemory(chunk, self._weakref), 0)

    def _try(self, size: int) -> Any:
        if self.limit and self.total + size > self.limit:
            self.free_all_blocks()
            if self.total + size > self.limit:
                raise OutOfMemoryError(size, self.total, self.limit)
        self.total += size
        memory = None
        try:
            for attempt in range(3):
                try:
                    memory = self._allocator(size).mem
                    return memory
                except Exception as error:
                    if getattr(error, "status", None) != 2:
                        raise
                    if attempt:
                        gc.collect()
                    self.free_all_blocks()
        finally:
            if memory is None:
                self.total -= size
        raise OutOfMemoryError(size, self.total, self.limit)

    @alone
    def free_all_blocks(self) -> None:
        self._collect()
        for arena in self._arenas.values():
            whole = [c for *_, c in arena if c.next is None and c.prev is None]
            arena[:] = [entry for entry in arena if entry[2] not in whole]
            self.total -= sum(chunk.size for chunk in whole)

    def _debug_arena_get_index(self, stream: int) -> list[tuple[int, Chunk]]:
        self._collect()
        return [(size, chunk) for size, _, chunk in self._arenas.get(stream, [])]

    def used_bytes(self) -> int:
        self._collect()
        return self.used


class MemoryPool:
    """cupy.cuda.MemoryPool; as CuPy's, it knows no weak references."""

    __slots__ = ("_allocator", "_devices")

    def __init__(self, allocator: Callable[[int], Any] | None = None) -> None:
        self._allocator = allocator or (lambda size: MemoryPointer(Memory(size), 0))
        self._devices: dict[int, SingleDeviceMemoryPool] = {}

    def _here(self) -> SingleDeviceMemoryPool:
        device = fake_streams.HERE.device
        if device not in self._devices:
            self._devices[device] = SingleDeviceMemoryPool(self._allocator)
        return self._devices[device]

    def malloc(self, size: int) -> MemoryPointer:
        return self._here().malloc(size)

    def used_bytes(self) -> int:
        return self._here().used_bytes()

    def total_bytes(self) -> int:
        return self._here().total

    def free_bytes(self) -> int:
        return self.total_bytes() - self.used_bytes()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._here().limit = size or 0

    def get_limit(self) -> int:
        return self._here().limit

    def free_all_blocks(self, stream: Any = None) -> None:
        fake_streams.all_run()
        self._here().free_all_blocks()
