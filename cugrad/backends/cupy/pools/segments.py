"""Where the blocks of CuPy's pools come from: segments, which the driver gives and takes back."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

import cupy

from ....errors import FULL_WORDS, OutOfMemoryError
from ....runtime.kept import of_thread
from ...allocations import history
from .registry import (
    bytes_reserved,
    collect,
    give_up_free_blocks,
    limit_of,
    reserved_of,
    returned,
)

__all__ = ["DeviceFull", "DriverMemory", "Missing", "Retried", "SegmentSource", "asking"]

FULL = 2  # cudaErrorMemoryAllocation
Address = int


class Missing(Exception):
    """A pool has no block for a request."""


class DeviceFull(OutOfMemoryError, cupy.cuda.memory.OutOfMemoryError):
    """What a program, and CuPy, knows where a device has no more; it has PyTorch's first words."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(size, total, limit)  # CuPy's
        self.args = (FULL_WORDS + str(self.args[0]),)


class Retried:
    """Whether what asks the pools for memory tries again where there is none; else the pools say
    themselves who holds it.
    """

    now = False


class _Asking(threading.local):
    """Whether this thread asks for a segment, and not for a block; and was refused one so far."""

    segment = False
    refused = False


asking = of_thread(_Asking())


class DriverMemory(cupy.cuda.Memory):
    """A segment; cudaMalloc's memory, which is given back with the last reference to it."""

    def __init__(self, size: int, source: SegmentSource) -> None:
        super().__init__(size)
        self.stream = cupy.cuda.get_current_stream().ptr
        self.source: SegmentSource | None = source  # which keeps no reference to it
        source.gave(self)

    def __del__(self) -> None:
        source = getattr(self, "source", None)
        if source is not None and sys is not None and not sys.is_finalizing():
            source.took_back(self.device_id, self.ptr, self.size, self.stream)


class SegmentSource:
    """Where the blocks of one pool come from."""

    def __init__(self, is_large: bool, identity: tuple[int, int]) -> None:
        self.is_large, self.identity = is_large, identity
        self.segments: dict[Address, weakref.ref[DriverMemory]] = {}
        # CuPy's pool of each device, by the reference to it that each of its blocks has
        self.pools: dict[int, weakref.ref[Any]] = {}

    def __call__(self, size: int) -> Any:
        """What CuPy's pool calls where it has no block of a size, or larger."""
        if not asking.segment:
            raise Missing
        device = cupy.cuda.runtime.getDevice()
        try:
            limit = limit_of(device)
            if limit and bytes_reserved(device) + size > limit:
                raise cupy.cuda.runtime.CUDARuntimeError(FULL)
            return cupy.cuda.MemoryPointer(DriverMemory(size, self), 0)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status == FULL:
                reserved_of(device).retries += not asking.refused
                asking.refused = True
                give_up_free_blocks()  # those of the other pools, too; then CuPy calls again
            raise

    def gave(self, memory: DriverMemory) -> None:
        self.segments[memory.ptr] = weakref.ref(memory)
        collect()
        reserved_of(memory.device_id).gave(self.is_large, memory.size)
        history.note("segment_alloc", memory.device_id, memory.ptr, memory.size, memory.stream,
                     self.identity)  # fmt: skip

    def took_back(self, device: int, address: Address, size: int, stream: int) -> None:
        """The driver has a segment again; a destructor says so, and must not wait."""
        self.segments.pop(address, None)
        returned.append((device, self.is_large, size))
        history.note("segment_free", device, address, size, stream, self.identity)

    def of_device(self, device: int) -> list[DriverMemory]:
        """The segments that are there."""
        alive = [reference() for reference in list(self.segments.values())]
        return [memory for memory in alive if memory is not None and memory.device_id == device]

    def blocks_in_use(self, device: int) -> int:
        """How many blocks the device's pool has given away: each refers to the pool, as CuPy keeps
        no count of them.
        """
        reference = self.pools.get(device)
        return 0 if reference is None else references_to(reference) - BY_ITSELF

    def free_parts(self, device: int) -> dict[int, list[tuple[int, int, list[int]]]]:
        """By segment's address its free blocks: where each begins and ends, and where all blocks
        of the segment begin.
        """
        reference = self.pools.get(device)
        pool = None if reference is None else reference()
        places: dict[int, list[tuple[int, int, list[int]]]] = {}
        for stream in {memory.stream for memory in self.of_device(device)} if pool else ():
            for size, chunk in pool._debug_arena_get_index(stream):  # type: ignore[union-attr]
                begins, part = [chunk.offset], chunk
                while (part := part.prev) is not None:
                    begins.append(part.offset)
                part = chunk
                while (part := part.next) is not None:
                    begins.append(part.offset)
                place = chunk.offset, chunk.offset + size, begins
                places.setdefault(chunk.mem.ptr, []).append(place)
        return places


def references_to(reference: Any) -> int:
    return sys.getrefcount(reference)


def _by_itself() -> int:
    """What `references_to` answers of one that a pool and a SegmentSource have."""

    class Referred:
        def __init__(self) -> None:
            self.reference = weakref.ref(self)

    pool = Referred()
    source = {0: pool.reference}
    reference = source.get(0)
    return references_to(reference)


BY_ITSELF = _by_itself()
