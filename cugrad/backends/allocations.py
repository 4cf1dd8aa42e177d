"""What is allocated on a device: PyTorch's statistics, blocks and history, of whichever pool."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

__all__ = [
    "MemoryBlock",
    "History",
    "AllocationLedger",
    "MemorySegment",
    "Tally",
    "history",
    "statistics_of",
]

SMALL, LARGE = "small_pool", "large_pool"
POOLS = ("all", LARGE, SMALL)
SMALL_BLOCK = 1 << 20  # bytes: requests up to here are small, as PyTorch's are
Stack = list[tuple[CodeType, int]]  # what runs and at which line, from the inside


class MemoryBlock(NamedTuple):
    """A part of a segment: `requested` are the bytes that were asked for, 0 of a free one."""

    address: int
    size: int
    requested: int
    is_used: bool
    stack: Stack


class MemorySegment(NamedTuple):
    """Memory as the driver gave it, whose blocks lie one after another."""

    device: int
    address: int
    size: int
    stream: int
    is_large: bool
    pool: tuple[int, int]  # (0, 0), or that of a CUDA graph's memory
    blocks: list[MemoryBlock]


class Tally:
    """A number that goes up and down: what it is, was at most, and how much came and went.

    >>> blocks = Tally()
    >>> blocks.change(3); blocks.change(-2); blocks.told()
    {'current': 1, 'peak': 3, 'allocated': 3, 'freed': 2}
    """

    __slots__ = ("current", "peak", "allocated", "freed")

    def __init__(self, current: int = 0) -> None:
        self.current = self.peak = self.allocated = current
        self.freed = 0

    def change(self, by: int) -> None:
        self.current += by
        self.peak = max(self.peak, self.current)
        if by > 0:
            self.allocated += by
        else:
            self.freed -= by

    def told(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}

    def forget_peak(self) -> None:
        self.peak = self.current

    def forget_sums(self) -> None:
        self.allocated = self.freed = 0


class Tallies:
    """Tallies of one kind, of small blocks, of large ones, and of all."""

    def __init__(self) -> None:
        self.of = {pool: Tally() for pool in POOLS}

    def change(self, is_large: bool, by: int) -> None:
        self.of[LARGE if is_large else SMALL].change(by)
        self.of["all"].change(by)

    def become(self, small: int, large: int) -> None:
        """They are so much now, whatever came and went."""
        for is_large, now in ((False, small), (True, large)):
            self.change(is_large, now - self.of[LARGE if is_large else SMALL].current)
        every = self.of["all"]
        if every.current != small + large:  # an interrupt came between two changes
            every.change(small + large - every.current)

    def told(self) -> dict[str, dict[str, int]]:
        return {pool: tally.told() for pool, tally in self.of.items()}


class TakenBlock(NamedTuple):
    """A block that someone has."""

    address: int
    size: int
    requested: int
    stream: int
    is_large: bool
    pool: tuple[int, int]
    stack: Stack


class BlockTicket:
    """Lives as long as a block is held: whose memory it is refers to it, and nothing else."""

    __slots__ = ("ledger", "taken")

    def __init__(self, ledger: AllocationLedger, taken: TakenBlock) -> None:
        self.ledger, self.taken = ledger, taken

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        ledger = getattr(self, "ledger", None)
        if ledger is not None:
            ledger.is_gone(self.taken)


class InUse(NamedTuple):
    """Blocks in use and their bytes, as a pool knows them without watching."""

    small: int
    large: int
    small_bytes: int
    large_bytes: int


class AllocationLedger:
    """One device's allocations from when someone first asked: before, they cost nothing.

    `held` says what is in use now. What had been allocated before counts as allocated then, and as
    asked for in full blocks.
    """

    def __init__(self, device: int, held: Callable[[], InUse]) -> None:
        self.device, self._held = device, held
        self._lock = threading.RLock()  # a destructor that allocates may run within
        self._gone: deque[TakenBlock] = deque()  # a destructor may append here at any time
        self._live: dict[int, TakenBlock] = {}
        self.blocks, self.bytes, self.requested = Tallies(), Tallies(), Tallies()
        self.idle, self.idle_bytes = Tallies(), Tallies()  # free parts of segments in use
        now = held()
        self._follow(now)
        self.requested.become(now.small_bytes, now.large_bytes)

    def took(
        self, address: int, size: int, requested: int, stream: int, pool: tuple[int, int] = (0, 0)
    ) -> BlockTicket:
        """Notes a block that was given; it is taken for as long as the answer lives."""
        taken = TakenBlock(address, size, requested, stream, requested > SMALL_BLOCK, pool,
                      history.stack_for("state"))  # fmt: skip
        with self._lock:
            self._collect()
            now = self._held()
            small, large = (0, 1) if taken.is_large else (1, 0)
            sizes = small * size, large * size
            # what was there before it, so that what came and went since counts
            before = InUse(now.small - small, now.large - large, now.small_bytes - sizes[0],
                          now.large_bytes - sizes[1])  # fmt: skip
            self._follow(before)
            self._follow(now)
            self.requested.change(taken.is_large, requested)
            self._live[address] = taken
        history.note("alloc", self.device, address, size, stream, pool)
        return BlockTicket(self, taken)

    def is_gone(self, taken: TakenBlock) -> None:
        """A block was given back; a destructor says so, and must not wait."""
        self._gone.append(taken)
        for action in ("free_requested", "free_completed"):
            history.note(action, self.device, taken.address, taken.size, taken.stream, taken.pool)

    def _collect(self) -> None:
        while self._gone:
            taken = self._gone.popleft()
            self.requested.change(taken.is_large, -taken.requested)
            if self._live.get(taken.address) is taken:
                del self._live[taken.address]

    def _follow(self, now: InUse) -> None:
        self.blocks.become(now.small, now.large)
        self.bytes.become(now.small_bytes, now.large_bytes)

    def live(self) -> dict[int, TakenBlock]:
        """The blocks in use that were seen to be taken, by address."""
        with self._lock:
            self._collect()
            return dict(self._live)

    def read(self, segments: Sequence[MemorySegment]) -> dict[str, Any]:
        """The statistics of blocks, by PyTorch's names; of free parts of segments that are in use
        peaks and sums are those of the moments at which they are read.
        """
        parts = [
            (s.is_large, b.size)
            for s in segments
            if any(b.is_used for b in s.blocks)
            for b in s.blocks
            if not b.is_used
        ]
        with self._lock:
            self._collect()
            self._follow(self._held())
            of_large = [size for is_large, size in parts if is_large]
            of_small = [size for is_large, size in parts if not is_large]
            self.idle.become(len(of_small), len(of_large))
            self.idle_bytes.become(sum(of_small), sum(of_large))
            blocks, nbytes = self.blocks.told(), self.bytes.told()
            return {
                "allocation": blocks, "active": blocks,
                "allocated_bytes": nbytes, "active_bytes": nbytes,
                "requested_bytes": self.requested.told(),
                "inactive_split": self.idle.told(), "inactive_split_bytes": self.idle_bytes.told(),
            }  # fmt: skip

    def forget_peaks(self) -> None:
        """What is there now is the most that there was."""
        for tally in self._tallies():
            tally.forget_peak()

    def forget_sums(self) -> None:
        """What comes and goes is counted from now on."""
        for tally in self._tallies():
            tally.forget_sums()

    def _tallies(self) -> list[Tally]:
        with self._lock:
            self._collect()
            self._follow(self._held())
        every = (self.blocks, self.bytes, self.requested, self.idle, self.idle_bytes)
        return [tally for tallies in every for tally in tallies.of.values()]


def statistics_of(
    ledger: AllocationLedger, segments: Sequence[MemorySegment], reserved: Reserved
) -> dict[str, Any]:
    """PyTorch's nested dict of a device's memory."""
    never = Tally().told()
    return {
        **ledger.read(segments),
        "segment": reserved.segments.told(), "reserved_bytes": reserved.bytes.told(),
        "oversize_allocations": never, "oversize_segments": never, "max_split_size": -1,
        "num_alloc_retries": reserved.retries, "num_ooms": reserved.refusals,
        "num_sync_all_streams": reserved.retries, "num_oom_rejections": 0,
        "num_device_alloc": reserved.given, "num_device_free": reserved.returned,
    }  # fmt: skip


class Reserved:
    """What a device's driver gave and took back. `retries` are the times that nothing was left, so
    that what was free went back, and `refusals` those after which nothing was left even so.
    """

    def __init__(self) -> None:
        self.segments, self.bytes = Tallies(), Tallies()
        self.retries = self.refusals = self.given = self.returned = 0

    def gave(self, is_large: bool, size: int) -> None:
        self.segments.change(is_large, 1)
        self.bytes.change(is_large, size)
        self.given += 1

    def took_back(self, is_large: bool, size: int) -> None:
        self.segments.change(is_large, -1)
        self.bytes.change(is_large, -size)
        self.returned += 1

    def forget_peaks(self) -> None:
        for tally in (*self.segments.of.values(), *self.bytes.of.values()):
            tally.forget_peak()

    def forget_sums(self) -> None:
        for tally in (*self.segments.of.values(), *self.bytes.of.values()):
            tally.forget_sums()
        self.retries = self.refusals = self.given = self.returned = 0


# History ------------------------------------------------------------------------------------------


class HistoryEntry(NamedTuple):
    """Something that a pool did."""

    action: str
    device: int
    address: int
    size: int
    stream: int
    pool: tuple[int, int]
    microseconds: int
    stack: Stack


CONTEXTS = ("state", "alloc", "all")  # each records what those before it do
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom",
           "snapshot")  # fmt: skip
WITH_FREES = frozenset(["free_requested", "free_completed", "segment_free"])


class History:
    """What all pools do, once it is recorded: the last entries, and the stacks of what is held."""

    def __init__(self) -> None:
        self.enabled: str | None = None  # "state" for stacks of what is held alone, or "all"
        self.context: str | None = None
        self.skipped: frozenset[str] = frozenset()
        self.entries: deque[HistoryEntry] = deque()

    def record(
        self, enabled: str | None, context: str | None, most: int, skipped: Sequence[str]
    ) -> None:
        """Begins, or ends with `enabled` None; what is there stays, up to `most` entries."""
        self.enabled, self.context, self.skipped = enabled, context, frozenset(skipped)
        if enabled is not None and self.entries.maxlen != most:
            self.entries = deque(self.entries, min(most, sys.maxsize))

    def stack_for(self, least: str) -> Stack:
        """Who runs, if stacks are recorded from the context `least` on."""
        if self.enabled is None or self.context is None:
            return []
        if CONTEXTS.index(self.context) < CONTEXTS.index(least):
            return []
        stack, frame = [], sys._getframe(2)
        while frame is not None:
            stack.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]
        return stack

    def note(
        self, action: str, device: int, address: int, size: int, stream: int = 0,
        pool: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        """Writes an entry, if they are asked for."""
        if self.enabled != "all" or action in self.skipped:
            return
        stack = self.stack_for("all" if action in WITH_FREES else "alloc")
        now = time.time_ns() // 1000
        self.entries.append(HistoryEntry(action, device, address, size, stream, pool, now, stack))


history = History()
