"""The simulated device's memory: a caching pool, one arena a stream, and page-locked buffers."""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict, deque
from math import prod
from typing import Any
from weakref import WeakSet

import numpy as np

from ...errors import OutOfMemoryError
from ..allocations import (
    SMALL_BLOCK,
    AllocationLedger,
    InUse,
    MemoryBlock,
    MemorySegment,
    Reserved,
    history,
)
from ..reclaimers import told
from .races import HOST, Shadow

__all__ = ["Allocation", "OutOfMemoryError", "PinnedArray", "Pool", "address_of", "empty_pinned",
           "pinned_of"]  # fmt: skip

Host = np.ndarray[Any, Any]
POISON = 0xFF  # NaN in every float dtype, -1 in the integers
ROUND = 512  # CuPy's blocks
numbers = itertools.count(1)  # of allocations


def address_of(memory: Host) -> int:
    """Where the first byte of an array is."""
    address: int = memory.__array_interface__["data"][0]
    return address


class Chunk:
    """A piece of memory, which the pool keeps when its tenant has gone."""

    __slots__ = ("memory", "address", "shadow", "size", "arena", "pending", "is_used",
                 "__weakref__")  # fmt: skip

    def __init__(self, memory: Host, shadow: Shadow, size: int, arena: Any) -> None:
        self.memory, self.shadow, self.size, self.arena = memory, shadow, size, arena
        self.address = address_of(memory)
        self.pending = 0  # queued operations on it that have not run
        self.is_used = False


class Allocation:
    """A tenancy of a chunk. With its last reference the chunk goes back, at once, with no event."""

    __slots__ = ("chunk", "memory", "address", "shadow", "returned", "ticket", "number")

    def __init__(self, chunk: Chunk, returned: deque[Chunk] | None) -> None:
        self.chunk, self.returned = chunk, returned
        self.memory, self.address, self.shadow = chunk.memory, chunk.address, chunk.shadow
        self.ticket: Any = None
        self.number = next(numbers)  # later ones have larger numbers

    def __del__(self) -> None:
        # the garbage collector may call this inside any lock; an interrupt may have kept __init__
        # from its first line, and then the chunk is still its maker's
        returned = getattr(self, "returned", None)
        if returned is not None:
            returned.append(self.chunk)


class Pool:
    """CuPy's caching pool in small: a block freed on a stream's arena serves that stream next.

    Blocks are reused whole, the one freed last first. Calls are made under the machine's lock.
    """

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._arenas: defaultdict[int, defaultdict[int, list[Chunk]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._returned: deque[Chunk] = deque()
        self._numbers = itertools.count(1)
        self._chunks: WeakSet[Chunk] = WeakSet()
        self.used = self.peak = self.watched = 0  # the last for the library's own watches
        self._blocks, self._bytes = [0, 0], [0, 0]  # of those, of small chunks and of large ones
        self.reserved = Reserved()
        self.ledger: AllocationLedger | None = None  # once someone has asked

    @property
    def held(self) -> int:
        """Bytes that the pool has of the device."""
        return self.reserved.bytes.of["all"].current

    def allocate(self, nbytes: int, arena: int) -> Allocation:
        """Memory of the arena of a stream; OutOfMemoryError when the device is full."""
        if self._returned:
            self.collect()
        if nbytes == 0:
            return Allocation(Chunk(np.empty(0, np.uint8), Shadow("empty memory", 0), 0, 0), None)
        size = -(-nbytes // ROUND) * ROUND
        free = self._arenas[arena][size]
        if free:
            chunk = free.pop()
        else:
            capacity = min(self._machine.limit, self._machine.capacity)
            if self.held + size > capacity:
                self.reserved.retries += 1
                self.release()
                if self.held + size > capacity:
                    if self._machine.reclaimers.ask():
                        return self.allocate(nbytes, arena)
                    self.reserved.refusals += 1
                    history.note("oom", 0, capacity - self.held, nbytes, arena)
                    text = (
                        f"Out of memory allocating {size:,} bytes (allocated so far: "
                        f"{self.used:,} bytes of {capacity:,} of the simulated device)"
                    )
                    raise told(OutOfMemoryError(text), _kind())  # no local, which its frames hold
            memory = np.full(size, POISON, np.uint8)
            shadow = Shadow(f"device block {next(self._numbers)} of {size} bytes", size)
            chunk = Chunk(memory, shadow, size, arena)
            self._chunks.add(chunk)
            self.reserved.gave(size > SMALL_BLOCK, size)
            history.note("segment_alloc", 0, chunk.address, size, arena)
        self._change(chunk, 1)
        self.peak, self.watched = max(self.peak, self.used), max(self.watched, self.used)
        allocation = Allocation(chunk, self._returned)
        if self.ledger is not None:
            allocation.ticket = self.ledger.took(chunk.address, size, nbytes, arena)
        return allocation

    def collect(self) -> None:
        """Puts what was freed back into its arena, poisoned unless a queued copy still needs it."""
        while self._returned:
            chunk = self._returned.popleft()
            self._change(chunk, -1)
            if not chunk.pending:
                chunk.memory.fill(POISON)
            self._arenas[chunk.arena][chunk.size].append(chunk)

    def release(self) -> None:
        """Gives free blocks back to the driver, which waits for the device, as cudaFree does."""
        self._machine.synchronize()
        self.collect()
        for arena in self._arenas.values():
            for size, free in arena.items():
                for chunk in free:
                    self.reserved.took_back(size > SMALL_BLOCK, size)
                    history.note("segment_free", 0, chunk.address, size, chunk.arena)
                    self._chunks.discard(chunk)
                free.clear()

    def watch(self) -> AllocationLedger:
        """What comes and goes, watched from the first call on."""
        self.collect()
        if self.ledger is None:
            self.ledger = AllocationLedger(0, self._in_use)
        return self.ledger

    def _in_use(self) -> InUse:
        return InUse(*self._blocks, *self._bytes)

    def _change(self, chunk: Chunk, by: int) -> None:
        """A chunk is used from now on, or, -1, no more."""
        is_large = chunk.size > SMALL_BLOCK
        self._blocks[is_large] += by
        self._bytes[is_large] += by * chunk.size
        self.used += by * chunk.size
        chunk.is_used = by > 0

    def segments(self) -> list[MemorySegment]:
        """Each chunk: blocks are never parts of larger ones here."""
        self.collect()
        live = {} if self.ledger is None else self.ledger.live()
        parts = []
        for chunk in sorted(self._chunks, key=lambda chunk: chunk.address):
            taken = live.get(chunk.address) if chunk.is_used else None
            requested = chunk.size if taken is None else taken.requested
            stack = [] if taken is None else taken.stack
            block = MemoryBlock(chunk.address, chunk.size, requested * chunk.is_used, chunk.is_used,
                          stack)  # fmt: skip
            parts.append(MemorySegment(0, chunk.address, chunk.size, chunk.arena,
                                 chunk.size > SMALL_BLOCK, (0, 0), [block]))  # fmt: skip
        return parts


# Page-locked host memory --------------------------------------------------------------------------


class PinnedBlock:
    """What a pinned buffer's views share. Freed while a copy uses it, it reports a RaceError."""

    __slots__ = ("memory", "address", "shadow", "machine", "pending")

    def __init__(self, machine: Any, nbytes: int) -> None:
        self.machine, self.pending = machine, 0
        self.memory: Any = np.full(nbytes, POISON, np.uint8)
        self.address = address_of(self.memory)
        label = f"pinned buffer {next(machine.pinned_numbers)} of {nbytes} bytes"
        self.shadow = Shadow(label, nbytes)

    def __del__(self) -> None:
        machine = getattr(self, "machine", None)
        if machine is not None and sys is not None and not sys.is_finalizing():
            machine.freed_pinned.append(self.shadow)


class PinnedArray(np.ndarray):
    """A NumPy array in page-locked memory, whose reads and writes by the host are checked.

    Code that takes the memory past NumPy's functions (`np.asarray(x)`, memoryview) is not seen; it
    reads poison where a copy has not run.
    """

    _block: PinnedBlock | None

    def __array_finalize__(self, parent: Any) -> None:
        self._block = getattr(parent, "_block", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        outs = kwargs.get("out", ())
        with self._checked(ufunc.__name__, inputs, outs):
            if outs:
                kwargs["out"] = tuple([_plain(x) for x in outs])
            result = getattr(ufunc, method)(*[_plain(x) for x in inputs], **kwargs)
        return outs[0] if len(outs) == 1 else result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.may_share_memory or func is np.shares_memory:
            return func(*_plain(args), **_plain(kwargs))
        writes = [kwargs["out"]] if kwargs.get("out") is not None else []
        if func in (np.copyto, np.put, np.place, np.putmask, np.put_along_axis):
            writes, args_read = [args[0]], args[1:]
        else:
            args_read = args
        with self._checked(func.__name__, (*args_read, *kwargs.values()), writes):
            result = func(*_plain(args), **_plain(kwargs))
        if isinstance(result, np.ndarray) and result.base is not None and pinned_of(result):
            return _clothed(result, pinned_of(result))
        return result

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        plain = part.view(np.ndarray) if isinstance(part, PinnedArray) else part
        if plain is not part and np.may_share_memory(plain, self.view(np.ndarray)):
            return part
        self._touch("host read", False)
        return plain

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self.view(np.ndarray)
        _Checked("host write", (value,), ())
        part = target[index]
        is_view = isinstance(part, np.ndarray) and np.may_share_memory(part, target)
        _touch(self._block, part if is_view else self, "host write", True)
        target[index] = _plain(value)

    def _touch(self, what: str, writes: bool) -> None:
        _touch(self._block, self, what, writes)

    def _checked(self, what: str, reads: Any, writes: Any) -> _Checked:
        return _Checked(f"host {what}" if not what.startswith("host") else what, reads, writes)

    def __repr__(self) -> str:
        return repr(self._read("repr"))

    def __str__(self) -> str:
        return str(self._read("str"))

    def __reduce__(self) -> Any:
        return self._read("pickle").__reduce__()

    def _read(self, name: str) -> Host:
        self._touch(f"host {name}", False)
        return self.view(np.ndarray)


def _reader(name: str) -> Any:
    def method(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
        self._touch(f"host {name}", False)
        return getattr(self.view(np.ndarray), name)(*_plain(args), **_plain(kwargs))

    return method


def _writer(name: str) -> Any:
    def method(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
        self._touch(f"host {name}", True)
        return getattr(self.view(np.ndarray), name)(*_plain(args), **_plain(kwargs))

    return method


for _name in ("copy", "astype", "item", "tolist", "tobytes", "sum", "mean", "max", "min", "any",
              "all", "argmax", "argmin", "prod", "dot", "nonzero", "take", "__float__", "__int__",
              "__bool__", "__complex__", "__index__", "__contains__", "tofile",
              "flatten"):  # fmt: skip
    setattr(PinnedArray, _name, _reader(_name))
for _name in ("fill", "sort", "put", "itemset"):
    if hasattr(np.ndarray, _name):
        setattr(PinnedArray, _name, _writer(_name))


class _Checked:
    """Checks an operation of the host's when it is entered."""

    __slots__ = ()

    def __init__(self, what: str, reads: Any, writes: Any) -> None:
        for group, wrote in ((reads, False), (writes, True)):
            for value in group:
                if isinstance(value, PinnedArray):
                    _touch(value._block, value, what, wrote)
                elif isinstance(value, (tuple, list)):
                    _Checked(what, value if not wrote else (), value if wrote else ())

    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...


def _plain(value: Any) -> Any:
    if isinstance(value, PinnedArray):
        return value.view(np.ndarray)
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {k: _plain(v) for k, v in value.items()}
    return value


def _clothed(array: Host, block: Any) -> Any:
    pinned = array.view(PinnedArray)
    pinned._block = block
    return pinned


def bytes_of(address: int, array: Host) -> tuple[int, int]:
    """The first byte of an array within the memory there, and the one behind its last."""
    if array.size == 0:
        return 0, 0
    low = address_of(array) - address
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    high = low + array.itemsize
    for n, step in zip(array.shape, array.strides):
        if step < 0:
            low += (n - 1) * step
        else:
            high += (n - 1) * step
    return low, high


MAX_RUNS = 32


def ranges_of(address: int, array: Host) -> list[tuple[int, int]]:
    """The byte ranges of an array within the memory there: exact up to MAX_RUNS rows, else one
    hull.
    """
    low, high = bytes_of(address, array)
    if high - low <= array.nbytes:  # dense, in whatever order
        return [(low, high)] if high > low else []
    dims = sorted(((abs(s), n) for n, s in zip(array.shape, array.strides) if n > 1 and s),
                  reverse=True)  # fmt: skip
    run = array.itemsize
    while dims and dims[-1][0] == run:
        run *= dims.pop()[1]
    if dims and (prod(n for _, n in dims) > MAX_RUNS or dims[-1][0] < run):
        return [(low, high)]
    starts = [low]
    for step, n in dims:
        starts = [s + i * step for s in starts for i in range(n)]
    return [(s, s + run) for s in sorted(set(starts))]


def _touch(block: PinnedBlock | None, array: Any, what: str, writes: bool) -> None:
    """The host uses part of a pinned buffer, now."""
    if block is None:
        return
    machine, plain = block.machine, array.view(np.ndarray)
    with machine.lock:
        machine.raise_late()
        access = machine.clocks.host_access(what)
        for low, high in ranges_of(block.address, plain):
            machine.clocks.check(block.shadow, low, high, access, writes)


def pinned_of(array: Any) -> PinnedBlock | None:
    """The pinned buffer that a NumPy array lies in, or None."""
    while array is not None:
        block = getattr(array, "_block", None)
        if block is not None:
            return block
        array = getattr(array, "base", None)
    return None


class _Memory(np.ndarray):
    """The bytes of a pinned buffer; every view's chain of bases ends here, and keeps the block."""

    _block: PinnedBlock | None = None


def empty_pinned(machine: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A page-locked host array of exactly its size, poisoned."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes == 0:
        return np.empty(shape, dtype)
    with machine.lock:
        block = PinnedBlock(machine, nbytes)
        machine.host_waited(25e-6 + nbytes / 10e9)  # page-locking is slow
    root = block.memory.view(_Memory)
    root._block = block
    array = np.ndarray(shape, dtype, root)
    return _clothed(array, block)


def check_free(machine: Any, shadow: Shadow) -> Exception | None:
    """The RaceError of a pinned buffer that was freed while a copy used it, or None."""
    for access in machine.clocks.unordered(shadow, HOST):
        free = machine.clocks.host_access("free of pinned memory")
        wrote = any(access == segment[2] for segment in shadow.segments)
        return machine.clocks.race(shadow, [0, shadow.size], access, wrote, free, True)
    return None


def _kind() -> type:
    from .array import SimulatedArray  # which stands above this

    return SimulatedArray
