"""Device memory: CuPy's caching pool twice, so that small blocks lie apart from large ones.

A small tensor that lives long pins no large block then. What the driver is asked for are segments,
as PyTorch asks for them: 2 MiB for small blocks, 20 MiB for what has less than 10, else whole
multiples of 2 MiB. CuPy's pool would ask for each block as it is; so its miss is seen, a segment is
put into it whole, and it takes the block out of that.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import cupy

from ...errors import FULL_WORDS, OutOfMemoryError
from ...runtime.kept import of_thread
from ..allocations import (
    SMALL_BLOCK,
    Block,
    Held,
    Ledger,
    Reserved,
    Segment,
    Taken,
    history,
    statistics_of,
)

__all__ = ["SizedPools", "install"]

SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20
OF_ITS_OWN, GRAIN = 10 << 20, 2 << 20  # blocks from here on have segments of their own, rounded up
ROUND = 512  # CuPy's blocks
FULL = 2  # cudaErrorMemoryAllocation
Address = int


class Missing(Exception):
    """A pool has no block for a request."""


class DeviceFull(OutOfMemoryError, cupy.cuda.memory.OutOfMemoryError):
    """What a program, and CuPy, knows where a device has no more; it has PyTorch's first words."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(size, total, limit)  # CuPy's
        self.args = (FULL_WORDS + str(self.args[0]),)


class _Asking(threading.local):
    """Whether this thread asks for a segment, and not for a block; and was refused one so far."""

    segment = False
    refused = False


asking = of_thread(_Asking())


class DriverMemory(cupy.cuda.Memory):
    """A segment; cudaMalloc's memory, which is given back with the last reference to it."""

    def __init__(self, size: int, source: Source) -> None:
        super().__init__(size)
        self.stream = cupy.cuda.get_current_stream().ptr
        self.source: Source | None = source  # which keeps no reference to it
        source.gave(self)

    def __del__(self) -> None:
        source = getattr(self, "source", None)
        if source is not None and sys is not None and not sys.is_finalizing():
            source.took_back(self.device_id, self.ptr, self.size, self.stream)


class Source:
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
        found: dict[int, list[tuple[int, int, list[int]]]] = {}
        for stream in {memory.stream for memory in self.of_device(device)} if pool else ():
            for size, chunk in pool._debug_arena_get_index(stream):  # type: ignore[union-attr]
                begins, part = [chunk.offset], chunk
                while (part := part.prev) is not None:
                    begins.append(part.offset)
                part = chunk
                while (part := part.next) is not None:
                    begins.append(part.offset)
                place = chunk.offset, chunk.offset + size, begins
                found.setdefault(chunk.mem.ptr, []).append(place)
        return found


def references_to(reference: Any) -> int:
    return sys.getrefcount(reference)


def _by_itself() -> int:
    """What `references_to` answers of one that a pool and a Source have."""

    class Pool:
        def __init__(self) -> None:
            self.reference = weakref.ref(self)

    pool = Pool()
    source = {0: pool.reference}
    reference = source.get(0)
    return references_to(reference)


BY_ITSELF = _by_itself()


class SizedPools:
    """A pool for small blocks and one for large ones; `malloc` is an allocator of CuPy's."""

    def __init__(self, identity: tuple[int, int] = (0, 0)) -> None:
        self.identity = identity
        self.sources = Source(False, identity), Source(True, identity)
        self.pools = tuple([cupy.cuda.MemoryPool(source) for source in self.sources])
        self.malloc = _allocator(self.pools, self.sources)
        _enter(self)


def _allocator(pools: tuple[Any, ...], sources: tuple[Source, ...]) -> Callable[[int], Any]:
    (small_pool, large_pool), (of_small, of_large) = pools, sources
    small, large = small_pool.malloc, large_pool.malloc

    def malloc(size: int) -> Any:
        try:
            return small(size) if size <= SMALL_BLOCK else large(size)
        except Missing:
            pass
        if size <= SMALL_BLOCK:
            return _from_segment(small_pool, of_small, size)
        return _from_segment(large_pool, of_large, size)

    return malloc


def segment_size(size: int) -> int:
    """Bytes to ask the driver for where a block of `size` is wanted.

    >>> segment_size(100) >> 20, segment_size(3 << 20) >> 20, segment_size((11 << 20) + 1) >> 20
    (2, 20, 12)
    """
    if size <= SMALL_BLOCK:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < OF_ITS_OWN else -(-size // GRAIN) * GRAIN


def _from_segment(pool: Any, source: Source, size: int) -> Any:
    """A block of a new segment."""
    while True:
        try:
            _put_segment(pool, source, segment_size(size))
        except MemoryError:  # the last bytes of a device go as they are asked for
            _put_last(pool, source, size)
        try:
            return pool.malloc(size)
        except Missing:
            continue  # another thread has taken it


def _put_segment(pool: Any, source: Source, size: int) -> None:
    """Has a pool get a segment, all of which is free then."""
    asking.segment, asking.refused = True, False
    try:
        whole = pool.malloc(size)
    finally:
        asking.segment = False
    source.pools.setdefault(whole.device_id, whole.mem.pool)


def _put_last(pool: Any, source: Source, size: int) -> None:
    try:
        _put_segment(pool, source, -(-size // ROUND) * ROUND)
    except MemoryError:
        device = cupy.cuda.runtime.getDevice()
        reserved_of(device).refusals += 1
        history.note("oom", device, cupy.cuda.runtime.memGetInfo()[0], size,
                     cupy.cuda.get_current_stream().ptr, source.identity)  # fmt: skip
        raise DeviceFull(size, bytes_reserved(device), limit_of(device)) from None


# All pools ----------------------------------------------------------------------------------------

_all_pools: dict[int, weakref.ref[SizedPools]] = {}
_reserved: dict[int, Reserved] = {}  # by device
returned: deque[tuple[int, bool, int]] = deque()  # segments that the driver has again
limits: dict[int, int] = {}  # by device, the bytes that all pools may hold
ledgers: dict[int, Ledger] = {}  # by device, where someone has asked


# `used_bytes` of each pool, CuPy's default pool included, and of nothing that keeps SizedPools.
_used: tuple[Callable[[], int], ...] = ()


def _enter(pools: SizedPools) -> None:
    """Counts a pair of pools from now on, for as long as it is there."""
    key = id(pools)

    def leave(gone: Any) -> None:
        _all_pools.pop(key, None)
        _count_anew()

    _all_pools[key] = weakref.ref(pools, leave)
    _count_anew()


def _count_anew() -> None:
    global _used
    every = [pool for pools in all_pools() for pool in pools.pools]
    _used = tuple([pool.used_bytes for pool in (default_pool(), *every)])


def all_pools() -> list[SizedPools]:
    """Those that there are: the process's, and those of CUDA graphs."""
    found = [reference() for reference in list(_all_pools.values())]
    return [pools for pools in found if pools is not None]


def reserved_of(device: int) -> Reserved:
    return _reserved.setdefault(device, Reserved())


def collect() -> None:
    """Counts what went back to the driver."""
    while returned:
        device, is_large, size = returned.popleft()
        reserved_of(device).took_back(is_large, size)


def bytes_reserved(device: int) -> int:
    """Bytes that pools hold of a device, CuPy's default pool included: of the current one."""
    collect()
    return reserved_of(device).bytes.of["all"].current + default_pool().total_bytes()


def most_reserved(device: int) -> int:
    """The most bytes that pools have held of the current device."""
    collect()
    return reserved_of(device).bytes.of["all"].peak + default_pool().total_bytes()


def bytes_allocated() -> int:
    """Bytes of blocks in use on the current device."""
    used = 0
    for of_pool in _used:
        used += of_pool()
    return used


def held_on(device: int) -> Held:
    """What is in use on the current device, which that is."""
    numbers, nbytes = [0, 0], [0, int(default_pool().used_bytes())]
    for pools in all_pools():
        for source, pool in zip(pools.sources, pools.pools, strict=True):
            numbers[source.is_large] += source.blocks_in_use(device)
            nbytes[source.is_large] += int(pool.used_bytes())
    return Held(*numbers, *nbytes)


def give_up_free_blocks() -> None:
    """Gives free blocks of all pools of the current device back to the driver."""
    default_pool().free_all_blocks()
    for pools in all_pools():
        for pool in pools.pools:
            pool.free_all_blocks()


def default_pool() -> Any:
    """CuPy's own, which has what was allocated before."""
    return cupy.get_default_memory_pool()


def set_limit(device: int, nbytes: int) -> None:
    limits[device] = nbytes


def limit_of(device: int) -> int:
    """Bytes that pools may hold of the current device; 0 for all that there are."""
    return limits.get(device) or int(default_pool().get_limit())


def install() -> None:
    """Makes the process's memory ours, unless the program has chosen an allocator of its own."""
    if cupy.cuda.get_allocator() == default_pool().malloc:
        cupy.cuda.set_allocator(process_pools().malloc)


_process: list[SizedPools] = []


def process_pools() -> SizedPools:
    if not _process:
        _process.append(SizedPools())
    return _process[0]


# What is watched ----------------------------------------------------------------------------------


def watch(device: int) -> Ledger:
    """The ledger of the current device, from now on kept."""
    ledger = ledgers.get(device)
    if ledger is None:
        ledger = ledgers[device] = Ledger(device, lambda: held_on(device))
    return ledger


def watching(allocate: Callable[[int], Any]) -> Callable[[int], Any]:
    """An allocator that notes what it gives on devices that are watched."""

    def watched(size: int) -> Any:
        memory = allocate(size)
        ledger = ledgers.get(memory.device_id)
        if ledger is not None and size:
            block = memory.mem
            ticket = ledger.took(memory.ptr, block.size, size, cupy.cuda.get_current_stream().ptr)
            try:
                block.ticket = ticket
            except AttributeError:  # memory of an allocator that is not a pool of CuPy's
                pass
        return memory

    return watched


def statistics(device: int) -> dict[str, Any]:
    """PyTorch's nested dict, of the current device."""
    ledger, found = watch(device), segments(device)
    collect()
    return statistics_of(ledger, found, reserved_of(device))


def forget_peaks(device: int) -> None:
    """Peaks of the current device begin again from what is there."""
    collect()
    reserved_of(device).forget_peaks()
    if device in ledgers:
        ledgers[device].forget_peaks()


def forget_sums(device: int) -> None:
    """What came and went on the current device is counted from now on."""
    collect()
    reserved_of(device).forget_sums()
    watch(device).forget_sums()


def segments(device: int) -> list[Segment]:
    """All that pools hold of a device, with what is in it.

    Where a segment is in use from end to end, and its blocks were given before someone watched,
    they are one.
    """
    ledger = ledgers.get(device)
    live = {} if ledger is None else ledger.live()
    found = []
    for pools in all_pools():
        for source in pools.sources:
            free = source.free_parts(device)
            for memory in source.of_device(device):
                found.append(Segment(
                    device, memory.ptr, memory.size, memory.stream, source.is_large,
                    pools.identity, _blocks(memory, free.get(memory.ptr, []), live),
                ))  # fmt: skip
    return sorted(found, key=lambda segment: segment.address)


def _blocks(
    memory: DriverMemory, free: list[tuple[int, int, list[int]]], live: dict[int, Taken]
) -> list[Block]:
    """The blocks of a segment, of where free ones lie and which others were seen."""
    ends = {begin: end for begin, end, _ in free}
    begins = {0} | {begin for *_, all_begins in free for begin in all_begins}
    if not free:  # then none says where the others begin
        begins |= {
            place for a, t in live.items()
            for place in (a - memory.ptr, a - memory.ptr + t.size)
            if memory.ptr <= a < memory.ptr + memory.size and place < memory.size
        }  # fmt: skip
    places = sorted(begins)
    blocks = []
    for begin, end in zip(places, [*places[1:], memory.size], strict=True):
        is_used, address = begin not in ends, memory.ptr + begin
        taken = live.get(address) if is_used else None
        requested = 0 if not is_used else end - begin if taken is None else taken.requested
        stack = [] if taken is None else taken.stack
        blocks.append(Block(address, end - begin, requested, is_used, stack))
    return blocks
