"""The way out: bytes of storages on a side stream, until they have left the device."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from ...autograd.mode import watch_writes
from ...autograd.ranges import ranged
from ...autograd.recording.mirrors import written_with
from ...backends import Backend
from ...backends.batched.arrays import plain
from ...backends.lending.slab import PinnedSlab, SlabBlock
from ...tensor import Tensor
from ..geometry import in_memory_order, memory_of, root_of
from .nested_spans import absorb, covered_by, gaps_between, send
from .options import OffloadOptions
from .places import Leaving, OnDisk, OnHost, Pageable
from .session import bytes_under_way
from .span import Span
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
        self.leaving_bytes = 0
        self._leaving: deque[tuple[Any, weakref.ref[Span], int, Any, Any]] = deque()
        self._staying: list[weakref.ref[Span]] = []  # in memory that the program may write to
        self.askers: dict[Any, None] = {}  # the streams that use states, if there are several

    def send(
        self, span: Span, source: Any, stays: str | None, encode: bool, meter: Meter | None,
        others: Sequence[Span] = (),
    ) -> None:  # fmt: skip
        """Starts the copy of a span to the host, unless the plan says that the span stays. Bytes
        that the `others` have are not sent again.
        """
        flat = memory_of(self.backend.xp, source)
        if span.nbytes != flat.nbytes:
            flat = flat[span.low : span.low + span.nbytes]
        if stays is not None:
            self._stay(span, flat, stays)
            return
        if encode and span.options.codec.applies(source.dtype):
            self._send_encoded(span, source, flat, meter)
        else:
            self._copy(span, flat, meter, covered_by(span, others) if others else None)

    def _stay(self, span: Span, flat: Any, why: str) -> None:
        """Leaves bytes where they are."""
        span.stay(flat, why)
        span.options.counts.stats.keep(why, span.nbytes)
        self._staying.append(span.ref)
        self.watch()

    def evict(self, span: Span) -> None:
        """Sends out what stayed."""
        why = span.stays
        assert why is not None
        self._copy(span, span.held, None)
        span.options.counts.stats.keep(why, -span.nbytes)

    def _copy(
        self, span: Span, flat: Any, meter: Meter | None, inner: list[Span] | None = None
    ) -> None:
        """Starts the copy of some bytes, and holds them until they have left. Bytes that inner
        spans have sent already are not sent again; those spans become parts of this one.
        """
        options, nbytes, gaps = span.options, flat.nbytes, None
        if inner:
            gaps = gaps_between(span, inner)
            nbytes = sum([high - low for low, high in gaps])
        if options.pinned and options.spill is None:
            block, staged = self.slab.taken(nbytes, options.host_limit), False
        else:
            block, staged = self._block(span, flat, options)
        if block is None:
            self._copy_unpinned(span, flat)
            return
        stream = self.stream
        try:
            for event in block.events:
                stream.wait_event(event)
            stream.wait_event(span.stream.record_event())
            began = None if meter is None else meter.mark(stream)
            with ranged("offload: copy to host", "copy", nbytes, stream):
                if gaps is None:
                    self.backend.copy_async(block.array[:nbytes], flat, stream)
                else:
                    send(self.backend, flat, block, gaps, stream)
            left = stream.record_event() if meter is None else meter.mark(stream)
        except BaseException:
            stream.synchronize()  # a copy that has begun must end before its memory is freed
            self.slab.give_back(block, None)
            raise
        options.counts.stats.moved_to_host_bytes += nbytes
        if meter is not None:
            meter.out.append((began, left, nbytes))
        self._hold(span, flat, OnHost(block, flat.nbytes, left), left)
        if gaps is not None and inner:
            absorb(span, inner, gaps)
        if staged:
            self.staging.send(span)

    def _block(
        self, span: Span, flat: Any, options: OffloadOptions
    ) -> tuple[SlabBlock | None, bool]:
        """A block of page-locked memory to copy to, or None if there is none. The second value says
        whether the block is on the way to a file; a part of the allowed memory is set aside for
        those.
        """
        if not self._stages(options, flat):
            block = self.slab.taken(flat.nbytes, options.host_limit) if options.pinned else None
            return block, False
        limit = bytes_under_way(options.backlog, max(flat.nbytes, span.session.largest_moved))
        within = options.host_limit
        if options.pinned:
            lasting = None if within is None else within - min(2 * limit, within // 2)
            block = self.slab.taken(flat.nbytes, lasting)
            if block is not None:
                return block, False
        return self.staging.block(flat.nbytes, limit, within), True

    def _stages(self, options: OffloadOptions, flat: Any) -> bool:
        """Whether bytes pass to the store of spilled bytes through page-locked memory."""
        if self.backend.device_type == "cpu" or not hasattr(options.spill, "takes"):
            return False
        return not options.spill.takes(flat)

    def _send_encoded(self, span: Span, source: Any, flat: Any, meter: Meter | None) -> None:
        """Starts the copy of the bytes that a codec makes of a span. The span's own bytes need not
        live on. The codec's error is measured on the first spans.
        """
        from ..codecs import error_terms  # a codec has been chosen: it is imported

        xp, codec, counts = self.backend.xp, span.options.codec, span.options.counts
        dense = in_memory_order(source) if span.nbytes == source.nbytes else None
        if dense is None:
            dense = flat.view(source.dtype)
        errors = None
        timed = lambda *a: nullcontext() if meter is None else meter.codes(span.stream, *a)
        with self.backend.quiet():
            with timed():
                payload = codec.encode(xp, dense)
            if len(counts.errors) < CHECKED and counts.sessions <= 1:  # later ones are timed
                with timed(True):
                    part = _sample(dense)
                    back = codec.decode(xp, codec.encode(xp, part), part.dtype, part.shape)
                    errors = error_terms(xp, part, back)
        span.encode(codec, source.dtype, dense.shape)
        self._copy(span, payload, meter)
        counts.stats.encoded_bytes += span.nbytes
        if errors is not None:
            counts.errors.append(errors)

    def _copy_unpinned(self, span: Span, flat: Any) -> None:
        """Copies to ordinary memory, or to a store; the host waits for the device. Bytes for which
        there is no room stay. Bytes of the host are held, not copied, until the store has them.
        """
        options, on_host = span.options, self.backend.device_type == "cpu"
        stats, spill = options.counts.stats, options.spill
        try:
            as_it_is = on_host or hasattr(spill, "takes") and spill.takes(flat)
            with ranged("offload: copy to host", "copy", flat.nbytes):
                host = flat if as_it_is else self.backend.to_host(flat)
                file = HostCopy(host) if spill is None else spill.write(host)
        except MemoryError:
            self._stay(span, flat, "host full")
            return
        if file.on_disk:
            stats.disk_bytes += flat.nbytes
        elif as_it_is and span.form is None:
            self._stay(span, flat, "disk full")
            return
        elif options.pinned or spill is not None:
            stats.pageable_bytes += flat.nbytes
        stats.moved_to_host_bytes += flat.nbytes
        to = (Pageable if spill is None else OnDisk)(file, flat.nbytes)
        if as_it_is and not file.query():
            self._hold(span, flat, to, file)
        else:
            span.leave(flat, to)
            self._has_left(span)

    def _hold(self, span: Span, flat: Any, to: OnHost | Pageable, left: Any) -> None:
        """Keeps bytes where they are until they have left."""
        span.leave(flat, to)
        self._leaving.append((left, span.ref, flat.nbytes, span.arena, flat))
        self.leaving_bytes += flat.nbytes
        self.watch()

    def _has_left(self, span: Span) -> None:
        """The device's memory is no longer held, unless the disk has no room."""
        place = span.arrive()
        if type(place) is OnDisk and span.refused is not None:
            self._staying.append(span.ref)

    def release_finished(self, backlog: int, meter: Meter | None = None) -> None:
        """Lets go of what has left. If more than `backlog` bytes are under way, a stream waits for
        the oldest: the stream that allocated the storage, because its memory goes back there; and
        those that use it still, since they will not be asked to wait before they write to that.
        What was sent and is not wanted any more may have been left to an ordinary tensor.
        """
        if self.staging.bytes:
            self.staging.advance()
        while self._leaving:
            event, ref, nbytes, compute, _ = self._leaving[0]
            if not event.query():
                if self.leaving_bytes <= backlog:
                    return
                if meter is None:
                    wait_for(compute, event)
                else:
                    meter.wait(compute, event, ("backlog", 0))
                for asker in self.askers:
                    if asker != compute:
                        wait_for(asker, event)
                self._users_wait(ref(), compute, event)
            self._leaving.popleft()
            self.leaving_bytes -= nbytes
            span = ref()
            if span is not None:
                self._has_left(span)

    def _users_wait(self, span: Span | None, arena: Any, left: Any) -> None:
        """Has streams that may write to memory of an arena's wait until a copy has left it."""
        if span is not None and not span.in_use:
            return
        now = self.backend.current_stream()
        users = [now] if span is None or span.stream == now else [now, span.stream]
        for user in users:
            if user != arena:
                wait_for(user, left)

    def forget(self, span: Span) -> Any:
        """Frees the memory that a span is leaving. Returns the event after which it has left."""
        for entry in self._leaving:
            if entry[1]() is span:
                self._leaving.remove(entry)
                self.leaving_bytes -= entry[2]
                self._has_left(span)
                return entry[0]
        return None

    def watch(self) -> None:
        """Asks to be shown tensors that are about to be written to, while some of them may be
        saved.
        """
        watch_writes(self._before_write, bool(self._leaving or self._staying))

    def _keep(self, span: Span, root: Any) -> None:
        """Makes a copy of bytes of a root that is about to be written to, where there is none."""
        if span.stays is not None and span.gathered is None:
            self.evict(span)
            if span.stays is not None:  # there was no room
                span.copy_on_device()
        refused = span.refused
        if refused is not None and root_of(refused) is root:
            span.copy.file.detach()

    def _before_write(self, tensor: Tensor) -> None:
        for array in map(plain, written_with(tensor)):
            if type(array) in self.backend.array_types:  # else it need not wait for the lock
                self._write_begins(root_of(array))

    def before_write(self, root: Any) -> None:
        """Memory is about to be changed in place. Saved bytes in it that are leaving leave first;
        saved bytes that stay are copied.
        """
        for span in self._storages.of(root):
            self._keep(span, root)
        self.wait_until_left(root, self.backend.current_stream())

    def wait_until_left(self, root: Any, stream: Any) -> None:
        """Has a stream, which is about to write to a root, wait for what is leaving from there."""
        for event, _, _, _, flat in self._leaving:
            if root_of(flat) is root:
                wait_for(stream, event)

    def mend(self, live: list[Span]) -> None:
        """Counts anew what is leaving. No stream copies meanwhile, but a store may write."""
        leaving = [(s, s.place.to.file, s.place.flat) for s in live if type(s.place) is Leaving]
        self._leaving = deque(
            [(file, s.ref, flat.nbytes, s.arena, flat) for s, file, flat in leaving]
        )
        self.leaving_bytes = sum([entry[2] for entry in self._leaving])
        self._staying = [s.ref for s in live if s.held is not None or s.refused is not None]
        self.watch()
        self.staging.mend(live)

    def abandon(self) -> None:
        """Gets back memory that is still leaving and no longer wanted. Compute waits for it."""
        entries = []
        for entry in self._leaving:
            event, ref, nbytes, compute, _ = entry
            if ref() is not None:  # asked once: another thread may drop it meanwhile
                entries.append(entry)
                continue
            wait_for(compute, event)
            self._users_wait(None, compute, event)
            self.leaving_bytes -= nbytes
        self._leaving = deque(entries)
        self._staying = [ref for ref in self._staying if ref() is not None]
        self.watch()
