"""Spans of weights, gradients and optimizer states, which an engine sends and brings as asked."""

from __future__ import annotations

from typing import Any

from ...backends.lending.queues import MOST_STREAMS
from ...runtime.kept import Guarded, whole
from ..geometry import BYTE, root_of, span_of
from .ledger import Ledger
from .options import OffloadOptions
from .places import OnDisk, OnHost, Pageable
from .session import Session, bytes_under_way
from .span import Span
from .staging import HostCopy, for_threads

__all__ = ["StateSpans"]

# A training state is a span as what is saved for backward is, one for each version that is sent. No
# views wait for it, and no session learns when it is asked for: who holds the span knows that.


class StateSpans(Guarded):
    """The part of a copy engine that moves what is not saved for backward."""

    backend: Any
    out: Any
    back: Any
    storages: Any
    states: Ledger
    lanes: dict[str, Any]
    of_steps: Any
    asked_last: Any  # the stream that has, of several; None: the default one
    index: int | None

    def _refuse_capture(self) -> Any:
        raise NotImplementedError

    def release_finished(self, backlog: int = 1 << 62) -> None:
        """See the engine's."""
        raise NotImplementedError

    def stream_of_steps(self) -> Any:
        """The stream of an optimizer's steps beside backward, for which compute waits behind them:
        so what it was given is as good as compute's.
        """
        if self.of_steps is None:
            with self.backend.use_device(self.index):
                self.of_steps = self.backend.stream(
                    -1
                )  # it has little to do, for which others wait
            if hasattr(self.of_steps, "name"):
                self.of_steps.name = "steps"
        return self.of_steps

    def _is_of(self, span: Span, compute: Any) -> bool:
        """Whether a span is compute's to bring."""
        if span.stream == compute or span.stream in self.out.askers:
            return True
        return self.of_steps is not None and self.of_steps in (span.stream, compute)

    def in_order(self) -> None:
        """Has the current stream, which asks for states, wait for the one that has asked before it:
        those that use states take turns, and count as one.
        """
        if self.backend.device_type == "cpu":
            return
        with self.backend.use_device(self.index):
            stream, default = self.backend.current_stream(), self.backend.default_stream()
        if stream == self.of_steps or stream.is_capturing():
            return
        before = self.asked_last or default
        if stream != before:
            askers = self.out.askers
            askers.update({before: None, stream: None})
            if len(askers) > MOST_STREAMS:
                del askers[next(iter(askers))]
            stream.wait_event(before.record_event())
        self.asked_last = stream

    def _askers_wait(self) -> None:
        """Has those that ask for states wait for the current one, which lets go of memory that may
        serve any of them next.
        """
        if self.out.askers:
            now = self.backend.current_stream()
            for stream in self.out.askers:
                if stream != now:
                    stream.wait_event(now.record_event())

    @whole
    def send_state(
        self, tensor: Any, options: OffloadOptions, lane: Any = None, before: Span | None = None
    ) -> Span:
        """Starts the copy of a tensor's bytes, without gaps, to the host or to a store. They are in
        memory of a lane, or of the current stream, as those of the version `before`.
        """
        array = tensor._array
        self._refuse_capture()
        root, _, _, low, high = span_of(array, root_of(array))
        session, stream = Session(options.key, None), self.backend.current_stream()
        session.largest_moved, session.meter = high - low, options.counts.meter
        self.release_finished(bytes_under_way(options.backlog, high - low))
        if before is not None and before.held is not None and root_of(before.held) is root:
            # who has written to it since has waited for that copy
            self.let_state_go(before)
        span = Span(
            session, options, self.states, stream, tensor.counter, root, low, high - low, None
        )  # fmt: skip
        span.lies_in(lane)
        self.out.send(span, root, None, False, session.meter)
        self.storages.add(root, span)
        session.add(span, span.nbytes)
        return span

    @whole
    def host_state(
        self, counter: list[int], nbytes: int, options: OffloadOptions, writer: Any = None
    ) -> Span | None:
        """A span of page-locked memory whose bytes a stream will write, or, None, the host; None if
        there is none, or a file is their place.
        """
        block = None
        if options.spill is None:
            block = self.out.slab.taken(nbytes, options.host_limit)
        if block is None:
            return None
        for event in block.events:  # a copy of the last tenant's
            event.synchronize() if writer is None else writer.wait_event(event)
        session, stream = Session(options.key, None), self.backend.current_stream()
        span = Span(session, options, self.states, stream, counter, self, 0, nbytes, None)
        span.settle(OnHost(block, nbytes, self.backend.event()))
        self.storages.add(block, span)
        session.add(span, nbytes)
        return span

    @whole
    def kept_state(self, counter: list[int], host: Any, options: OffloadOptions) -> Span:
        """A span of bytes that ordinary memory of the host has, or that go from there to a file."""
        spill, stats = options.spill, options.counts.stats
        file = HostCopy(host) if spill is None else spill.write(host)
        if file.on_disk:
            stats.disk_bytes += host.nbytes
        else:
            stats.pageable_bytes += host.nbytes
        session, stream = Session(options.key, None), self.backend.current_stream()
        span = Span(session, options, self.states, stream, counter, self, 0, host.nbytes, None)
        span.settle((Pageable if spill is None else OnDisk)(file, host.nbytes))
        self.storages.add(host, span)
        session.add(span, host.nbytes)
        return span

    @whole
    def bring_state(self, span: Span, lane: Any = None) -> Any:
        """The bytes on the device, which compute has, or will have, when it comes to them: in
        memory of a lane, or of the current stream.
        """
        compute = self._refuse_capture()
        span.session.meter = span.options.counts.meter
        span.asked_for()
        flat = span.held if self._is_of(span, compute) else None
        if flat is None:
            self.release_finished()
            flat = self.back.bytes_of(span, compute, None, lane, self._is_of(span, compute))
        span.hand_out()
        span.use(True)
        return flat

    @whole
    def expect_state(self, span: Span, lane: Any = None) -> bool:
        """Starts to bring bytes back ahead of need; False where there is no room to read a file.

        What is on its way stays so: who asked for it may have been interrupted before noting that.
        """
        if span.place.is_back:
            return True
        compute = self._refuse_capture()
        span.session.meter = span.options.counts.meter
        return self.back.come(
            span, compute, span.options, lane if self._is_of(span, compute) else None
        )

    @whole
    def drop_state(self, span: Span, is_read: bool = True) -> None:
        """Lets go of what was brought back: the host, or a file, has the same bytes. It may have
        been read since it was sent.
        """
        span.use(False)
        self._askers_wait()
        if span.arrived is not None:
            span.arena.wait_event(span.arrived)
        elif span.lane is not None and is_read:
            span.lane.frees(self.backend.current_stream())
        span.drop()

    @whole
    def let_state_go(self, span: Span) -> None:
        """Lets go of a lane's memory that is being left; the lane waits until it has been."""
        left = self.out.forget(span)
        if left is not None:
            span.arena.wait_event(left)

    @whole
    def read_state(self, span: Span) -> Any:
        """The bytes in ordinary memory of the host; None if page-locked memory has them for good,
        and not on their way to a file.
        """
        place = span.copy
        if type(place) is not OnHost:
            return place.file.read()
        if span.options.spill is None:
            return None
        place.copied.synchronize()
        return for_threads(place.block.array[: place.nbytes], False).copy()

    @whole
    def bring_part(self, span: Span, low: int, high: int, lane: Any) -> tuple[Any, Any]:
        """Starts to bring some of a span's bytes from page-locked memory to that of a lane: where
        to, and the event of their arrival. The span stays where it is.
        """
        compute, place, meter = self._refuse_capture(), span.copy, span.options.counts.meter
        with lane.allocates(compute):
            flat = self.backend.xp.empty(high - low, BYTE)
        lane.stream.wait_event(place.last_use)
        began = None if meter is None else meter.mark(lane.stream)
        arrived = self._copied(flat, place.block.array[low:high], lane.stream, meter, place.use)
        if meter is not None:
            meter.back.append((began, arrived, high - low))
        span.options.counts.stats.moved_back_bytes += high - low
        return flat, arrived

    @whole
    def send_part(self, span: Span, low: int, flat: Any) -> Any:
        """Starts to send what compute has made of some bytes to where a span has them in
        page-locked memory; the event of the end of that, until which `flat` must be held.
        """
        place, meter, stream = span.copy, span.options.counts.meter, self.out.stream
        stream.wait_event(self._refuse_capture().record_event())
        began = None if meter is None else meter.mark(stream)
        there = place.block.array[low : low + flat.nbytes]
        left = self._copied(there, flat, stream, meter, place.fill)
        if meter is not None:
            meter.out.append((began, left, flat.nbytes))
        span.options.counts.stats.moved_to_host_bytes += flat.nbytes
        return left

    def _copied(self, to: Any, source: Any, stream: Any, meter: Any, note: Any) -> Any:
        """Starts a copy; the event of its end, which is noted."""
        try:
            self.backend.copy_async(to, source, stream)
        finally:  # of a copy that has begun, too
            ended = stream.record_event() if meter is None else meter.mark(stream)
            note(ended)
        return ended

    def is_on_host(self, span: Span) -> bool:
        """Whether `state_on_host` has the bytes: what is on its way to a file may leave there."""
        return span.options.spill is None and type(span.copy) in (OnHost, Pageable)

    @whole
    def state_on_host(self, span: Span, writes: bool) -> Any:
        """The bytes in host memory, for the host itself to read or to change; None if they are in a
        file. Waits for the copies that use them.
        """
        place = span.copy
        if type(place) is OnHost:
            (place.last_use if writes else place.copied).synchronize()
            self.release_finished()
            return for_threads(place.block.array[: place.nbytes], writes)
        return place.file.read() if type(place) is Pageable else None

    @whole
    def refresh_state(self, span: Span, flat: Any, after: Any = None) -> None:
        """Copies bytes that the host has changed to where the device has them; compute waits. It
        does not use them behind the event `after`, or, None, until now.
        """
        compute, stream, place = self._refuse_capture(), self.back.stream, span.copy
        writer = stream if type(place) is OnHost else compute
        self.out.wait_until_left(root_of(flat), writer)  # another version, which was taken back
        if type(place) is not OnHost:
            flat[...] = self.backend.asarray(place.file.read())
            return
        stream.wait_event(compute.record_event() if after is None else after)
        stream.wait_event(place.last_use)
        meter = span.options.counts.meter
        began = None if meter is None else meter.mark(stream)
        try:
            self.backend.copy_async(flat, place.block.array[: place.nbytes], stream)
        finally:
            arrived = stream.record_event() if meter is None else meter.mark(stream)
            place.use(arrived)
            compute.wait_event(arrived)
        if meter is not None:
            meter.back.append((began, arrived, place.nbytes))
        span.options.counts.stats.moved_back_bytes += place.nbytes
