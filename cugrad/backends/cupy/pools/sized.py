"""A pool for small blocks and one for large ones, given a segment where they have no block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from ...allocations import SMALL_BLOCK, history
from ...reclaimers import told
from .registry import bytes_reserved, default_pool, enter, limit_of, reserved_of
from .segments import DeviceFull, Missing, Retried, SegmentSource, asking

__all__ = ["SizedPools", "in_place_of", "pool_of", "process_pools"]

SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20
OF_ITS_OWN, GRAIN = 10 << 20, 2 << 20  # blocks from here on have segments of their own, rounded up
ROUND = 512  # CuPy's blocks


class SizedPools:
    """A pool for small blocks and one for large ones; `malloc` is an allocator of CuPy's."""

    def __init__(self, identity: tuple[int, int] = (0, 0)) -> None:
        self.identity = identity
        self.sources = SegmentSource(False, identity), SegmentSource(True, identity)
        self.pools = tuple([cupy.cuda.MemoryPool(source) for source in self.sources])
        self.malloc = _allocator(self.pools, self.sources)
        self.workspaces: dict[int, Any] = {}  # of cuBLAS in the graphs of this pool, by stream
        enter(self)


def _allocator(pools: tuple[Any, ...], sources: tuple[SegmentSource, ...]) -> Callable[[int], Any]:
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


def pool_of(size: int) -> str:
    """Which of the two pools has blocks of a size: "small" or "large"."""
    return "small" if size <= SMALL_BLOCK else "large"


def segment_size(size: int) -> int:
    """Bytes to ask the driver for where a block of `size` is wanted.

    >>> segment_size(100) >> 20, segment_size(3 << 20) >> 20, segment_size((11 << 20) + 1) >> 20
    (2, 20, 12)
    """
    if size <= SMALL_BLOCK:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < OF_ITS_OWN else -(-size // GRAIN) * GRAIN


def _from_segment(pool: Any, source: SegmentSource, size: int) -> Any:
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


def _put_segment(pool: Any, source: SegmentSource, size: int) -> None:
    """Has a pool get a segment, all of which is free then."""
    asking.segment = True
    try:
        whole = pool.malloc(size)
    finally:
        asking.segment = asking.refused = False
    source.pools.setdefault(whole.device_id, whole.mem.pool)


def _put_last(pool: Any, source: SegmentSource, size: int) -> None:
    try:
        _put_segment(pool, source, -(-size // ROUND) * ROUND)
    except MemoryError:
        device = cupy.cuda.runtime.getDevice()
        reserved_of(device).refusals += 1
        history.note("oom", device, cupy.cuda.runtime.memGetInfo()[0], size,
                     cupy.cuda.get_current_stream().ptr, source.identity)  # fmt: skip
        raise _full(size, device) from None


def _full(size: int, device: int) -> MemoryError:
    """The error, which no local of a frame that it shows may hold."""
    error = DeviceFull(size, bytes_reserved(device), limit_of(device))
    return error if Retried.now else told(error, cupy.ndarray)


def in_place_of(allocate: Callable[[int], Any]) -> Callable[[int], Any]:
    """The allocator of the process's pools in the place of CuPy's default one; any other, which the
    program has chosen, stays.
    """
    return process_pools().malloc if allocate == default_pool().malloc else allocate


_process: list[SizedPools] = []


def process_pools() -> SizedPools:
    if not _process:
        _process.append(SizedPools())
    return _process[0]
