"""Saved tensors in host memory: copied out on one side stream, and back on another."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, fields
from typing import Any

from ..autograd.graph import saved_tensors_hooks
from ..backends import Backend, backend_of
from ..tensor import Tensor, make
from .slab import Block, PinnedSlab

__all__ = ["OffloadStats", "save_on_cpu"]


@dataclass
class OffloadStats:
    """What went through a `save_on_cpu`: counts of tensors, and bytes.

    `already_on_host` counts the bytes of saved tensors that were in host memory and stayed there.
    """

    saved_tensors: int = 0
    saved_bytes: int = 0
    moved_to_host_bytes: int = 0
    moved_back_bytes: int = 0
    already_on_host: int = 0

    def reset(self) -> None:
        """Sets every count to zero."""
        for field in fields(self):
            setattr(self, field.name, 0)


class CopyEngine:
    """Moves arrays between one device and pinned host memory, without the host waiting.

    Three streams take part: the compute stream that made the array and will use it, and two
    non-blocking side streams, one each way. Memory that a copy still touches is referenced here
    until its event has happened: CuPy hands a dropped block to the next allocation at once.
    """

    MAX_PENDING = 1 << 28  # bytes on their way before compute is made to wait for the oldest copy

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.outward, self.inward = backend.stream(), backend.stream()
        self.slab = PinnedSlab(backend)
        # copies out on their way: (event, source, its bytes, the stream whose memory it is)
        self._pending: deque[tuple[Any, Any, int, Any]] = deque()
        self._pending_bytes = 0
        self._lock = threading.Lock()

    def to_host(self, array: Any) -> tuple[Block, Any]:
        """Starts the copy of a contiguous array; the pinned block, and the event of its end."""
        compute = self.backend.current_stream()
        self._drop_finished()
        block = self.slab.take(array.nbytes)
        if block is None:
            raise MemoryError(
                f"save_on_cpu: got a tensor of {array.nbytes:,} bytes, and the host has no more "
                f"page-locked memory ({self.slab.allocated_bytes:,} bytes are taken); "
                "use pin_memory=False"
            )
        for event in block.events:
            self.outward.wait_event(event)
        self.outward.wait_event(compute.record_event())
        self.backend.copy_async(block.array[: array.nbytes], array, self.outward)
        copied = self.outward.record_event()
        with self._lock:
            self._pending.append((copied, array, array.nbytes, compute))
            self._pending_bytes += array.nbytes
        return block, copied

    def to_device(self, packed: Offloaded) -> Any:
        """Starts the copy back; the compute stream will wait for it, the host does not."""
        compute = self.backend.current_stream()
        self._drop_finished()
        array = self.backend.xp.empty(packed.shape, packed.dtype)  # its block may be in use there
        self.inward.wait_event(compute.record_event())
        self.inward.wait_event(packed.copied)
        with self._lock:  # of two threads, the one that copies last says when the buffer is free
            self.backend.copy_async(array, packed.block.array[: array.nbytes], self.inward)
            packed.last_use = self.inward.record_event()
            arrived = packed.last_use
        compute.wait_event(arrived)
        return array

    def _drop_finished(self) -> None:
        """Lets go of sources whose copy has ended; too many on their way make compute wait.

        The stream to wait is the one that allocated the source: its memory goes back there.
        """
        dropped = []  # freed outside of the lock
        with self._lock:
            while self._pending:
                event, array, nbytes, compute = self._pending[0]
                if not event.query():
                    if self._pending_bytes <= self.MAX_PENDING:
                        return
                    compute.wait_event(event)
                self._pending.popleft()
                self._pending_bytes -= nbytes
                dropped.append(array)


_engines: dict[tuple[str, int | None], CopyEngine] = {}
_engines_lock = threading.Lock()


def engine_of(backend: Backend, index: int | None) -> CopyEngine:
    """The one copy engine of a device."""
    with _engines_lock:
        found = _engines.get((backend.device_type, index))
        if found is None:
            with backend.use_device(index):
                found = _engines[backend.device_type, index] = CopyEngine(backend)
        return found


class Offloaded:
    """A saved tensor in pinned host memory. It can come back any number of times."""

    __slots__ = ("engine", "index", "block", "copied", "last_use", "shape", "dtype", "order")

    def __init__(self, engine: CopyEngine, index: int | None, array: Any) -> None:
        self.engine, self.index = engine, index
        self.order = tuple(sorted(range(array.ndim), key=lambda i: -array.strides[i]))
        dense = array.transpose(self.order)
        if not dense.flags.c_contiguous:
            self.order = tuple(range(array.ndim))
            dense = array.copy(order="C")
        self.shape, self.dtype = dense.shape, dense.dtype
        self.block, self.copied = engine.to_host(dense)
        self.last_use = self.copied

    def restore(self) -> Any:
        """The array on its device, in the layout that it had."""
        with self.engine.backend.use_device(self.index):
            array = self.engine.to_device(self)
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        return array.transpose(inverse)

    def __del__(self) -> None:
        try:
            self.engine.slab.give_back(self.block, self.last_use)
        except (AttributeError, TypeError):
            pass  # half made, or the interpreter is shutting down


class Copied:
    """A saved tensor in ordinary host memory."""

    __slots__ = ("host", "backend", "index")

    def __init__(self, backend: Backend, index: int | None, array: Any) -> None:
        self.backend, self.index = backend, index
        with backend.use_device(index):
            self.host = backend.to_host(array)

    def restore(self) -> Any:
        with self.backend.use_device(self.index):
            return self.backend.asarray(self.host)


class save_on_cpu(saved_tensors_hooks):
    """Within it, tensors saved for backward live in host memory, and come back when needed.

    Tensors that are on the host already are not copied. With `pin_memory` the copies go to
    page-locked memory on side streams, and the host waits for none of them; without, each copy is
    synchronous. `stats` counts what passed; see `OffloadStats`.

    Args:
        pin_memory: use page-locked memory and asynchronous copies.
        device_type: the kind of device whose tensors are moved.

    >>> import cugrad as torch
    >>> a = torch.tensor([1., 2.], requires_grad=True)
    >>> with torch.autograd.graph.save_on_cpu(pin_memory=True) as offload:
    ...     y = (a * a).sum()
    >>> y.backward()
    >>> a.grad, offload.stats.saved_tensors
    (tensor([2., 4.]), 2)
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        if device_type not in ("cuda", "cpu", "simulated"):
            raise ValueError(
                f"save_on_cpu: device_type: got {device_type!r}, want 'cuda', 'simulated' or 'cpu'"
            )
        self.pin_memory, self.device_type = pin_memory, device_type
        self.stats = OffloadStats()

    def __enter__(self) -> save_on_cpu:  # type: ignore[override]
        super().__enter__()
        return self

    def pack_hook(self, tensor: Tensor) -> Any:
        array, stats = tensor._array, self.stats
        stats.saved_tensors += 1
        stats.saved_bytes += array.nbytes
        backend = backend_of(array)
        if backend.device_type == "cpu":
            stats.already_on_host += array.nbytes
            return tensor
        if backend.device_type not in (self.device_type, "simulated"):
            return tensor
        index = backend.device_index(array)
        stats.moved_to_host_bytes += array.nbytes
        if not self.pin_memory or array.nbytes == 0:
            return Copied(backend, index, array)
        with backend.use_device(index):
            return Offloaded(engine_of(backend, index), index, array)

    def unpack_hook(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        array = packed.restore()
        self.stats.moved_back_bytes += array.nbytes
        return make(array)
