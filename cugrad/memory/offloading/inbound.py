"""The way back: bytes of storages on a side stream, ahead of need or when they are asked for."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ...autograd.ranges import ranged
from ...backends import Backend
from ..geometry import BYTE, memory_of, root_of, span_of
from .ledger import Ledger
from .nested_spans import bring
from .options import OffloadOptions
from .outbound import Outbound
from .places import OnHost, Restored, Returning
from .session import Session, bytes_under_way
from .span import Span
from .storages import Storages

__all__ = ["Inbound"]

ALIGNED = 16  # elements begin at multiples of their size, of which this is the largest


class Inbound:
    """Copies from host memory, and from files, to a device. Calls are made under the engine's lock.

    What comes back is allocated on the compute stream that will read it, or in a `lane`: a stream
    that copies, with memory of its own.
    """

    def __init__(self, backend: Backend, storages: Storages, ledger: Ledger, out: Outbound) -> None:
        self.backend, self._storages, self._ledger = backend, storages, ledger
        self.stream = backend.stream()
        self._slab, self._staging = out.slab, out.staging

    def bytes_of(
        self, span: Span, compute: Any, label: Any, lane: Any = None, is_its: bool | None = None
    ) -> Any:
        """The bytes of a span that has left: brought back already, or now. Compute's are those of
        its stream, unless it `is_its`.
        """
        if not (
            span.stream == compute if is_its is None else is_its
        ):  # of the arena of another stream
            if span.copy is None:  # encoded, and nowhere else had room for it
                flat = self._decoded(span, span.held)
                span.stream.wait_event(compute.record_event())
                return flat
            flat, arrived = self._fetch(span, compute)
            if arrived is not None:
                self._await(span, compute, arrived, label)
            return self._decoded(span, flat)
        place = span.place
        if type(place) is Restored:
            return place.flat
        if type(place) is Returning and place.flat is not None:
            flat, arrived = place.flat, place.arrived
        else:
            # encoded, and perhaps not yet gone; else what is held may have been changed in place
            flat, arrived = None if span.form is None else span.held, None
            if flat is None:
                flat, arrived = self._fetch(span, compute, lane=lane)
                if type(place) is not Returning:
                    span.options.counts.stats.on_demand += span.nbytes
                    span.session.cursor = 0
        if arrived is not None:
            self._await(span, compute, arrived, label)
        if span.form is not None:
            flat = self._decoded(span, flat)
        root = root_of(flat)  # from now on this is the storage, also for what is saved again
        self._storages.add(root, span)
        span.restore(flat, root, 0 if root is flat else span_of(flat, root)[3])
        return flat

    def _decoded(self, span: Span, flat: Any) -> Any:
        if span.form is None:
            return flat
        codec, dtype, shape = span.form
        meter = span.session.meter
        timed = nullcontext() if meter is None else meter.codes(self.backend.current_stream())
        with timed, self.backend.quiet():
            return memory_of(self.backend.xp, codec.decode(self.backend.xp, flat, dtype, shape))

    def _await(self, span: Span, compute: Any, arrived: Any, label: Any) -> None:
        """Makes compute wait for what comes back."""
        meter = span.session.meter
        if meter is None:
            with ranged("offload: stall", "stall", stream=compute):
                compute.wait_event(arrived)
        else:
            meter.wait(compute, arrived, label or ("unpack", 0))
        self._ledger.coming.pop(arrived, None)

    def prefetch(self, session: Session, index: int, compute: Any, options: OffloadOptions) -> None:
        """Starts the copies back of what will be asked for next, as far as the look-ahead goes.

        Only for the stream that will read it: the block goes back to the arena of that one.
        """
        chain, ledger = session.chain(), self._ledger
        if index not in chain.place:
            return
        if self._staging.reading:
            for span in self._staging.has_come():
                if span.is_being_read and span.stream == compute:
                    span.fetch(*self._fetch(span, compute))
        limit = bytes_under_way(options.lookahead, session.largest_moved) + session.may_use(True)
        k = max(session.cursor, chain.place[index] + 1)
        order = chain.order
        while ledger.ahead < limit and k < len(order):
            next_one = session.spans[order[k]]()
            if next_one is not None and next_one.stream == compute and next_one.is_wanted():
                if not self.come(next_one, compute, options):
                    break
            k += 1
        session.cursor = k

    def come(self, span: Span, compute: Any, options: OffloadOptions, lane: Any = None) -> bool:
        """Brings a span back, or holds it where it is. Returns whether there was room for that."""
        if span.counter[0] != span.version and span.form is None:
            return True  # changed, legally
        copy = span.place
        if type(copy) is not OnHost and span.held is not None:  # it is held, and not fetched
            if span.form is None and span.stays is None:  # it is on its way out
                span.session.stayed.setdefault(span.index, "last")
            span.hold(options.exact)
            return True
        if span.root() is not None:
            return True
        if options.room is not None and options.room() < span.nbytes:
            return False
        try:
            if type(copy) is OnHost:
                span.fetch(*self._fetch(span, compute, "prefetch", lane))
                return True
            file, staging = span.copy.file, self._staging
            if not staging.serves(file):
                file.prefetch()
            elif not staging.fetch(span, options.host_limit):
                return False
        except MemoryError:
            return False
        span.read_ahead()
        return True

    def _fetch(
        self, span: Span, compute: Any, how: str = "copy", lane: Any = None
    ) -> tuple[Any, Any]:
        """Starts the copy back of a span: where to, and the event of its end. A "prefetch" is one
        ahead of need.
        """
        meter, stats, copy = span.session.meter, span.options.counts.stats, span.copy
        skew = span.low % ALIGNED if span.form is None and span.gathered is None else 0
        read = None  # a block for the time of the copy
        if type(copy) is not OnHost:
            if self._staging.serves(copy.file):
                read = self._staging.read(span, span.options.host_limit)
            if read is None:
                with ranged("offload: copy to device", "copy", copy.nbytes):
                    flat = self.backend.asarray(copy.file.read())
                    if skew:
                        flat, unaligned = self._room_for(copy.nbytes, skew), flat
                        flat[...] = unaligned
                stats.moved_back_bytes += flat.nbytes
                span.lies_in(None)
                return flat, None
        nbytes, stream = copy.nbytes, self.stream if lane is None else lane.stream
        try:
            if lane is None:
                flat = self._room_for(nbytes, skew)  # the block may be in use there
                stream.wait_event(compute.record_event())
            else:
                with lane.allocates(compute):
                    flat = self._room_for(nbytes, skew)
            if read is None:  # what another stream reads before, the block is free behind this one
                stream.wait_event(copy.last_use)
            began = None if meter is None else meter.mark(stream)
            name = "offload: copy to device" if how == "copy" else "offload: prefetch"
            with ranged(name, how, nbytes, stream):
                if read is not None or copy.pieces is None:
                    block = copy.block if read is None else read
                    self.backend.copy_async(flat, block.array[:nbytes], stream)
                else:
                    bring(self.backend, flat, copy.pieces, stream)
            arrived = stream.record_event() if meter is None else meter.mark(stream)
        except BaseException:
            stream.synchronize()  # a copy that has begun must end before its memory is freed
            if read is not None:
                self._slab.give_back(read, None)
            raise
        if meter is not None:
            meter.back.append((began, arrived, nbytes))
            meter.raw_bytes += nbytes if span.form is None else span.nbytes
        if read is None:
            copy.use(arrived)
        else:
            self._slab.give_back(read, arrived)
        stats.moved_back_bytes += nbytes
        span.lies_in(lane)
        self._ledger.coming[arrived] = flat
        return flat, arrived

    def _room_for(self, nbytes: int, skew: int) -> Any:
        """Memory on the device, from `skew` bytes after where the widest elements may begin."""
        if not skew:
            return self.backend.xp.empty(nbytes, BYTE)
        whole = -(-(nbytes + skew) // ALIGNED) * ALIGNED  # room for elements of every size
        return self.backend.xp.empty(whole, BYTE)[skew : skew + nbytes]
