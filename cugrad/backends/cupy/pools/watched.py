"""What comes and goes in the pools, once someone asks: statistics, segments and blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from ...allocations import (
    AllocationLedger,
    InUse,
    MemoryBlock,
    MemorySegment,
    TakenBlock,
    statistics_of,
)
from .registry import all_pools, collect, default_pool, reserved_of
from .segments import DriverMemory

__all__ = [
    "forget_peaks", "forget_sums", "segments", "statistics", "watch", "watching",
]  # fmt: skip

ledgers: dict[int, AllocationLedger] = {}  # by device, where someone has asked


def held_on(device: int) -> InUse:
    """What is in use on the current device, which that is."""
    numbers, nbytes = [0, 0], [0, int(default_pool().used_bytes())]
    for pools in all_pools():
        for source, pool in zip(pools.sources, pools.pools, strict=True):
            numbers[source.is_large] += source.blocks_in_use(device)
            nbytes[source.is_large] += int(pool.used_bytes())
    return InUse(*numbers, *nbytes)


def watch(device: int) -> AllocationLedger:
    """The ledger of the current device, from now on kept."""
    ledger = ledgers.get(device)
    if ledger is None:
        ledger = ledgers[device] = AllocationLedger(device, lambda: held_on(device))
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
    ledger, parts = watch(device), segments(device)
    collect()
    return statistics_of(ledger, parts, reserved_of(device))


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


def segments(device: int) -> list[MemorySegment]:
    """All that pools hold of a device, with what is in it.

    Where a segment is in use from end to end, and its blocks were given before someone watched,
    they are one.
    """
    ledger = ledgers.get(device)
    live = {} if ledger is None else ledger.live()
    parts = []
    for pools in all_pools():
        for source in pools.sources:
            free = source.free_parts(device)
            for memory in source.of_device(device):
                parts.append(MemorySegment(
                    device, memory.ptr, memory.size, memory.stream, source.is_large,
                    pools.identity, _blocks(memory, free.get(memory.ptr, []), live),
                ))  # fmt: skip
    return sorted(parts, key=lambda segment: segment.address)


def _blocks(
    memory: DriverMemory, free: list[tuple[int, int, list[int]]], live: dict[int, TakenBlock]
) -> list[MemoryBlock]:
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
        blocks.append(MemoryBlock(address, end - begin, requested, is_used, stack))
    return blocks
