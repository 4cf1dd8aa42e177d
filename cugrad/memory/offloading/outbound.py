"""The way out: bytes of storages on a side stream, until they have left the device."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from ...autograd.mode import watch_writes, writes_watched
from ...autograd.ranges import ranged
from ...backends import Backend
from ...backends.batched.arrays import plain
from ...tensor import Tensor
from ..geometry import in_memory_order, memory_of, root_of
from .owner import Owner
from .pieces import adopt, covered_by, gaps_between, send
from .session import Stored, bytes_under_way
from .slab import Block, PinnedSlab
from .staging import HostCopy, Staging
from .stats import Meter, wait_for
from .storages import Storages

__all__ = ["Outbound"]

CHECKED = 64  # storages of which the error of a codec is measured
SAMPLE = 1 << 14  # elements of them, about


def _sample(dense: Any) -> Any:
    """The first rows of an array."""
    if dense.size <= SAMPLE:
        return dense
    rows = dense.reshape(-1, dense.shape[-1])
    return rows[: max(1, SAMPLE // rows.shape[1]), :SAMPLE].copy()


class Outbound:
    """Copies from a device to host memory. Calls are made under the engine's lock.

    `write_begins`, the engine's, calls `before_write` with memory that is about to be written to.
    """

    def __init__(
        self, backend: Backend, storages: Storages, write_begins: Callable[[Any], None]
    ) -> None:
        self.backend, self._storages, self._write_begins = backend, storages, write_begins
        self.stream = backend.stream()
        self.slab = PinnedSlab(backend)
        self.staging = Staging(self.slab)
        self.away = 0  # bytes that are not on the device, of storages that are still wanted
        self.leaving_bytes = 0
        self._leaving: deque[tuple[Any, weakref.ref[Stored], int, Any, Any]] = deque()
        self._staying: list[weakref.ref[Stored]] = []  # in memory that somebody may write to
        self._watches = False  # whether it is shown what is about to be written to

    def send(
        self, stored: Stored, source: Any, stays: str | None, encode: bool, meter: Meter | None,
        others: Sequence[Stored] = (),
    ) -> None:  # fmt: skip
        """Starts the copy out of a storage, unless the plan says that it stays; what the others
        have of it need not leave again.
        """
        owner, compute = stored.owner, self.backend.current_stream()
        stored.stream = compute
        flat = memory_of(self.backend.xp, source)
        if stored.nbytes != flat.nbytes:
            flat = flat[stored.low : stored.low + stored.nbytes]
        if stays is not None:
            self._stay(stored, flat, stays)
            return
        errors = None
        if encode and owner.codec.applies(source.dtype):
            flat, errors = self._encoded(stored, source, flat, owner, meter)
        inner = None
        if others and stored.form is None:
            inner = covered_by(stored, others)
        self._copy(stored, flat, owner, meter, inner)
        if stored.form is not None:
            owner.stats.encoded_bytes += stored.nbytes
        if errors is not None:
            owner.errors.append(errors)

    def _stay(self, stored: Stored, flat: Any, why: str) -> None:
        """Leaves bytes where they are."""
        stored.device, stored.stays = flat, why
        stored.owner.stats.keep(why, stored.nbytes)
        self._staying.append(weakref.ref(stored))
        self._watch()

    def evict(self, stored: Stored) -> None:
        """Sends out what stayed."""
        owner, flat, why = stored.owner, stored.device, stored.stays
        assert why is not None
        stored.stays = None
        try:
            self._copy(stored, flat, owner, None)
        except BaseException:
            stored.stays = why
            raise
        owner.stats.keep(why, -stored.nbytes)

    def _copy(
        self, stored: Stored, flat: Any, owner: Owner, meter: Meter | None,
        inner: list[Stored] | None = None,
    ) -> None:  # fmt: skip
        """Starts the copy of some bytes, and holds them until they have left. What the inner ones
        have already sent of them becomes a part of this.
        """
        stats, compute, nbytes = owner.stats, stored.stream, flat.nbytes
        stored.sent = nbytes
        gaps = None
        if inner:
            gaps = gaps_between(stored, inner)
            nbytes = sum([high - low for low, high in gaps])
        if owner.pinned and owner.spill is None:
            block, staged = self.slab.take(nbytes, owner.host_limit), False
        else:
            block, staged = self._block(stored, flat, owner)
        if block is None:
            self._copy_unpinned(stored, flat, owner)
            return
        stored.block = block
        try:
            for event in block.events:
                self.stream.wait_event(event)
            self.stream.wait_event(compute.record_event())
            began = None if meter is None else meter.mark(self.stream)
            with ranged("offload: copy to host", "copy", nbytes, self.stream):
                if gaps is None:
                    self.backend.copy_async(block.array[:nbytes], flat, self.stream)
                else:
                    send(self.backend, flat, block, gaps, self.stream)
            left = self.stream.record_event() if meter is None else meter.mark(self.stream)
        except BaseException:
            self.stream.synchronize()  # what has begun must not outlive its memory
            stored.block = None
            self.slab.give_back(block, None)
            raise
        stats.moved_to_host_bytes += nbytes
        stored.copied = stored.last_use = left
        if meter is not None:
            meter.out.append((began, left, nbytes))
        if gaps is not None and inner:
            adopt(stored, inner, gaps)
        self._hold(stored, flat)
        if staged:
            self.staging.send(stored)

    def _block(self, stored: Stored, flat: Any, owner: Owner) -> tuple[Block | None, bool]:
        """Page-locked memory to copy to, where there is some; and whether it is on the way to a
        file, for which a part of what the owner allows is set aside.
        """
        if not self._stages(owner, flat):
            return (self.slab.take(flat.nbytes, owner.host_limit) if owner.pinned else None), False
        limit = bytes_under_way(owner.backlog, max(flat.nbytes, stored.session.largest_moved))
        within = owner.host_limit
        if owner.pinned:
            lasting = None if within is None else within - min(2 * limit, within // 2)
            block = self.slab.take(flat.nbytes, lasting)
            if block is not None:
                return block, False
        return self.staging.block(flat.nbytes, limit, within), True

    def _stages(self, owner: Owner, flat: Any) -> bool:
        """Whether bytes pass to the owner's store through page-locked memory."""
        if self.backend.device_type == "cpu" or not hasattr(owner.spill, "takes"):
            return False
        return not owner.spill.takes(flat)

    def _encoded(
        self, stored: Stored, source: Any, flat: Any, owner: Owner, meter: Meter | None
    ) -> tuple[Any, Any]:  # fmt: skip
        """The bytes that a codec makes of a storage, which need not live on; and what it loses, of
        the first storages.
        """
        from ..codecs import error_terms  # a codec has been chosen: it is imported

        xp, codec = self.backend.xp, owner.codec
        dense = in_memory_order(source) if stored.nbytes == source.nbytes else None
        if dense is None:
            dense = flat.view(source.dtype)
        errors = None
        timed = lambda *a: nullcontext() if meter is None else meter.codes(stored.stream, *a)
        with self.backend.quiet():
            with timed():
                payload = codec.encode(xp, dense)
            if len(owner.errors) < CHECKED and owner.sessions <= 1:  # later ones are timed
                with timed(True):
                    part = _sample(dense)
                    back = codec.decode(xp, codec.encode(xp, part), part.dtype, part.shape)
                    errors = error_terms(xp, part, back)
        stored.form = codec, source.dtype, dense.shape
        return payload, errors

    def _copy_unpinned(self, stored: Stored, flat: Any, owner: Owner) -> None:
        """Copies to ordinary memory, or to where the owner wants it; the host waits for the device.

        What finds no room stays. Bytes of the host are not copied, but held until the store has
        them.
        """
        stats, on_host = owner.stats, self.backend.device_type == "cpu"
        try:
            as_it_is = on_host or hasattr(owner.spill, "takes") and owner.spill.takes(flat)
            with ranged("offload: copy to host", "copy", flat.nbytes):
                host = flat if as_it_is else self.backend.to_host(flat)
                found = HostCopy(host) if owner.spill is None else owner.spill.write(host)
        except MemoryError:
            self._stay(stored, flat, "host full")
            return
        if found.on_disk:
            stats.disk_bytes += flat.nbytes
        elif as_it_is and stored.form is None:
            self._stay(stored, flat, "disk full")
            return
        elif owner.pinned or owner.spill is not None:
            stats.pageable_bytes += flat.nbytes
        stats.moved_to_host_bytes += flat.nbytes
        stored.host = stored.copied = found
        if as_it_is and not found.query():
            self._hold(stored, flat)
        else:
            self._has_left(stored)

    def _hold(self, stored: Stored, flat: Any) -> None:
        """Keeps bytes where they are until they have left."""
        stored.device = flat
        self._leaving.append((stored.copied, weakref.ref(stored), flat.nbytes, stored.stream, flat))
        self.leaving_bytes += flat.nbytes
        self._watch()

    def _has_left(self, stored: Stored) -> None:
        """The device's memory is no longer held."""
        stored.device = None
        if getattr(stored.host, "resident", None) is not None:  # the disk has refused it
            self._staying.append(weakref.ref(stored))
        if stored.restored is None:
            stored.away = stored.nbytes
            self.away += stored.nbytes

    def settle(self, backlog: int, meter: Meter | None = None) -> None:
        """Lets go of what has left; more bytes on their way than `backlog` make compute wait.

        The stream to wait is the one that allocated the storage: its memory goes back there.
        """
        if self.staging.bytes:
            self.staging.settle()
        while self._leaving:
            event, ref, nbytes, compute, _ = self._leaving[0]
            if not event.query():
                if self.leaving_bytes <= backlog:
                    return
                if meter is None:
                    wait_for(compute, event)
                else:
                    meter.wait(compute, event, ("backlog", 0))
            self._leaving.popleft()
            self.leaving_bytes -= nbytes
            stored = ref()
            if stored is not None and stored.device is not None:
                self._has_left(stored)
        if self._watches:
            self._watch()

    def _watch(self) -> None:
        """Is shown what is about to be written to as long as that may be what has been saved."""
        wanted = bool(self._leaving or self._staying)
        if wanted != self._watches:
            self._watches = wanted
            watch_writes(self._before_write, wanted)

    def _keep(self, stored: Stored, root: Any) -> None:
        """Makes a copy of bytes of a root that is about to be written to, where there is none."""
        if stored.is_only_here and stored.gathered is None:
            self.evict(stored)
            if stored.is_only_here:  # there was no room
                stored.device = stored.device.copy()
        resident = getattr(stored.host, "resident", None)
        if resident is not None and root_of(resident) is root:
            stored.host.detach()

    def _before_write(self, tensor: Tensor) -> None:
        array = plain(tensor._array)
        if type(array) in self.backend.array_types:  # else it need not wait for the lock
            self._write_begins(root_of(array))

    def before_write(self, root: Any) -> None:
        """Memory is about to be changed in place: what leaves of it leaves first, and what stays
        is copied.
        """
        for stored in self._storages.of(root):
            self._keep(stored, root)
        for event, _, _, _, flat in self._leaving:
            if root_of(flat) is root:
                wait_for(self.backend.current_stream(), event)

    def mend(self, live: list[Stored]) -> None:
        """Notes anew what leaves, and what has left; no stream copies meanwhile."""
        for s in live:
            if s.block is not None and s.copied is None:  # nothing was copied to it
                self.slab.give_back(s.block, None)
                s.block = None
            if s.device is not None and (s.block is not None or s.host is not None):
                s.device = None if s.host is None or s.host.query() else s.device
            s.away = s.nbytes if s.device is None and s.home is None else 0
        self.away = sum([s.away for s in live if s.entered])
        held = [s for s in live if s.device is not None]
        self._leaving = deque([
            (s.copied, weakref.ref(s), s.device.nbytes, s.stream, s.device)
            for s in held if s.host is not None
        ])  # fmt: skip
        self.leaving_bytes = sum([entry[2] for entry in self._leaving])
        refused = [s for s in live if getattr(s.host, "resident", None) is not None]
        self._staying = [weakref.ref(s) for s in (*held, *refused)]
        while self._before_write in writes_watched:
            watch_writes(self._before_write, False)
        self._watches = False
        self._watch()
        self.staging.mend(live)

    def abandon(self) -> None:
        """Gets back the memory of what is still leaving and is no longer wanted; compute waits."""
        wanted = []
        for entry in self._leaving:
            event, ref, nbytes, compute, _ = entry
            if ref() is not None:  # asked once: it may be dropped meanwhile by another thread
                wanted.append(entry)
                continue
            wait_for(compute, event)
            self.leaving_bytes -= nbytes
        self._leaving = deque(wanted)
        self._staying = [ref for ref in self._staying if ref() is not None]
        self._watch()
