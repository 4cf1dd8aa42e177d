"""Moves saved storages between a device and host memory, ahead of need and never twice."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from ...autograd.engine.backward_pass import task
from ...autograd.mode import state
from ...backends import Backend, backend_of
from ...backends.batched.arrays import BatchedArray, hidden, plain
from ...backends.several import OfDevice
from ...runtime.kept import if_free, whole
from ...tensor import Tensor
from ..geometry import array_at, is_alone, memory_of, root_of, span_of
from .coalescing import Part
from .inbound import Inbound
from .ledger import Ledger, mend
from .options import OffloadOptions
from .outbound import Outbound
from .places import Absorbed, OnHost, Restored
from .session import PlanBook, Session, bytes_under_way
from .span import SavedView, Span
from .state_spans import StateSpans
from .stats import Meter
from .storages import Storages, fresh_bytes, relate

__all__ = ["CopyEngine", "engine_of"]

# Three streams take part: the compute stream that made the storage and will use it, and two
# non-blocking side streams, one each way. A device block that a copy still touches is referenced
# until its compute stream has waited for the copy: CuPy hands a dropped block to the next
# allocation of that stream at once. What comes back is allocated on the compute stream.
#
#   pack     the bytes of a storage start to leave; the engine holds them until they have left
#   backlog  copies on their way; more bytes than that make the compute stream wait for the oldest
#   unpack   from where it was, if that is still there; else from what came back ahead; else now
#   ahead    what will be unpacked next is brought back, up to `lookahead` bytes

GATHER = 8  # a view of which this part, or less, is needed is gathered before it is moved
METERED = 4  # sessions whose times are taken, and then one in 16


class _Thread(threading.local):
    current: Session | None = None  # the session


class CopyEngine(StateSpans):
    """The copies of one device, both ways."""

    def __init__(self, backend: Backend, index: int | None = None) -> None:
        self.backend, self.index = backend, index
        self._lock = threading.RLock()
        self.storages = Storages()
        self.out = Outbound(backend, self.storages, self._write_begins)
        self.ledger = Ledger(self.out.slab)
        self.states = Ledger(self.out.slab)  # of what `send_state` sends
        self.states.coming = self.ledger.coming  # held until who reads waits, whatever it is
        self.back = Inbound(backend, self.storages, self.ledger, self.out)
        for stream, name in ((self.out.stream, "to host"), (self.back.stream, "to device")):
            if hasattr(stream, "name"):  # the simulated device's errors and drawings say it
                stream.name = name
        self.lanes: dict[str, Any] = {}  # of training states, by kind
        self.of_steps: Any = None  # a stream, of an optimizer's
        self.asked_last = None
        self._plans = PlanBook()
        self._thread = _Thread()

    # ------------------------------------------------------------------ sessions

    def _new_session(self, options: OffloadOptions) -> Session:
        """A new session of this thread: the last one is over.

        What is still leaving and no longer wanted was not waited for in backward, which is the
        faster for it; here that memory comes back.
        """
        before = self._thread.current
        self._abandon()
        if before is not None:
            self._plans.remember(before, ("all", before.key, before.signature))
        session = self._thread.current = Session(options.key, before)
        counts = options.counts
        counts.sessions += 1
        if options.timed and (counts.sessions <= METERED or counts.sessions % 16 == 0):
            of_device: Any = OfDevice(self.backend, self.index)
            session.meter = Meter(of_device, self.backend.current_stream())
            counts.meters.append(session.meter)
        return session

    # ------------------------------------------------------------------ out

    def _refuse_capture(self) -> Any:
        """The current stream; RuntimeError if a CUDA graph is being captured from it. Work begins
        with this: to mend it would be to wait for the device, which the capture does not outlive.
        """
        stream = self.backend.current_stream()
        if stream.is_capturing():
            self._unchanged()
            raise RuntimeError(
                "offload: a CUDA graph is being captured, and copies to the host and back are made "
                "anew in each step, which a graph that is replayed cannot do; capture without "
                "offload, save_on_cpu and save_on_disk, or run the step without a graph"
            )
        return stream

    @whole
    def pack(self, tensor: Tensor, options: OffloadOptions) -> SavedView | None:
        """Sends the tensor's storage out, unless that has been done; None for one too small."""
        array, counter = tensor._array, tensor.counter
        backend = self.backend
        stream = self._refuse_capture()
        if type(array) is BatchedArray:
            array, backend = plain(array), backend_of(array)
        root, size, first, low, high = span_of(array, root_of(array))
        if size < options.min_bytes or high == low:
            options.counts.stats.keep("small", array.nbytes)
            return None
        session = self._thread.current
        if session is None or session.is_over():
            session = self._new_session(options)
        self._release(options, session)
        geometry = None
        if GATHER * array.nbytes <= high - low:
            geometry = (low, high, first, array.dtype, array.shape, array.strides)
        span = self.storages.known(root, counter, low, high, geometry, array.dtype)
        if span is None:
            span = self._store(
                session, options, array, counter, stream, root, size, low, high, geometry
            )
            self._release(options, session)
        elif span.family is not None and span.session is session:
            span.family.see(low, high, geometry, array.nbytes, span.index)
        meter, label = session.meter, None
        if meter is not None:
            saving = state.saving
            label = None if saving is None else (saving.name(), saving.seq)
            meter.look(self.ledger.away - self.ledger.ahead)
        return SavedView(self, span, first, array, backend, label)

    def _store(
        self, session: Session, options: OffloadOptions, array: Any, counter: list[int],
        stream: Any, root: Any, size: int, low: int, high: int, geometry: Any,
    ) -> Span:  # fmt: skip
        """A new span, on its way out."""
        asked, codec, meter = array.nbytes, options.codec, session.meter
        if geometry is None:
            if 2 * (high - low) >= size:
                low, high = 0, size
            asked = high - low
        others = self.storages.others(root, counter, low, high)
        # what can fail comes first, so that only spans that were sent are noted
        stays, hull = session.expects(asked, low, high, size, self._plans)
        stays, hull = (None, None) if options.exact else (stays, hull)  # a plan has decided already
        alone = Part(low, high, geometry, asked, len(session.sizes)) if others or hull else None
        if hull is not None and codec is None:
            low, high, geometry = hull.low, hull.high, None
        source = root
        if geometry is not None:
            source = root_of(array.copy(order="C"))
            low, high = 0, source.nbytes
        fresh = fresh_bytes(low, high, others) if others and geometry is None else high - low
        span = Span(session, options, self.ledger, stream, counter, root, low, high - low, geometry)
        if stays == "last" and codec is not None and options.keep_last is None:
            stays = None  # else timing would decide which of two values is read
        encode = codec is not None and array.dtype == root.dtype
        self.out.send(span, source, stays, encode, meter, others if geometry is None else ())
        if alone is not None and codec is None:
            relate(session, span, others, alone, size)
        self.storages.add(root, span)
        options.counts.stats.unique_bytes += fresh
        if meter is not None:
            meter.unique_bytes += fresh
            meter.kept_bytes += 0 if stays is None else span.nbytes
        session.add(span, asked)
        return span

    def _release(self, options: OffloadOptions, session: Session) -> None:
        """Frees what has left and what is no longer wanted; bounds the bytes on their way."""
        if self.ledger.dropped:
            self.ledger.bury()
        out = self.out
        if out.leaving_bytes or out.staging.bytes:
            backlog = bytes_under_way(options.backlog, session.largest_moved)
            out.release_finished(backlog + session.may_use(False), session.meter)

    @whole
    def release_finished(self, backlog: int = 1 << 62) -> None:
        """Lets go of what has left by now, and has compute wait until no more is leaving."""
        self.ledger.bury()
        self.states.bury()
        self.out.release_finished(backlog)
        self.out.watch()

    @whole
    def _backward_has_ended(self) -> None:
        """Frees what is no longer wanted, since there may be no next step that would."""
        self._abandon()
        self.release_finished()

    def _abandon(self) -> None:
        self.ledger.orphans = self.states.orphans = False
        self.out.abandon()

    def settle(self) -> bool:
        """Frees what graphs and models have let go of that are gone: destructors, which may run
        anywhere, only note it. Whether there was something; not while an engine is at work.

        In backward what is leaving is not waited for: the end of that does so.
        """
        late = self.ledger, self.states
        orphans = not task.running and any(each.orphans for each in late)
        if not (orphans or any(each.dropped for each in late) or self.out.staging.reading):
            return False
        return if_free(self._lock, 0, lambda: self._has_settled(orphans))

    def _has_settled(self, orphans: bool) -> bool:
        if self._busy or self.backend.current_stream().is_capturing():
            return False
        self._settled(orphans)
        return True

    @whole
    def _settled(self, orphans: bool) -> None:
        if orphans:
            self._abandon()
        self.ledger.bury()
        self.states.bury()
        self.out.staging.has_come()

    @whole
    def drain(self) -> None:
        """Waits for all copies, and frees all that they held."""
        for stream in self.streams():
            stream.synchronize()
        self.release_finished(0)
        self.out.staging.advance(0)
        self.out.staging.has_come()

    def streams(self) -> list[Any]:
        """The streams that copy."""
        lanes = [lane.stream for lane in self.lanes.values()]
        return [self.out.stream, self.back.stream, *lanes]

    def reclaim(self) -> bool:
        """Makes room on a full device. Returns whether there was something to give up."""
        return if_free(self._lock, 1, self._reclaimed)

    @whole
    def _reclaimed(self) -> bool:
        held = self.out.leaving_bytes + self.ledger.ahead + len(self.ledger.dropped)
        for stream in self.streams():
            stream.synchronize()
        for span in self.storages.all():
            span.session.tight = True
            if span.is_back:  # and can come back once more
                held += 1
                span.drop()
            elif span.stays == "last":
                held += 1
                self.out.evict(span)
        self.drain()
        return held > 0

    @whole
    def _write_begins(self, root: Any) -> None:
        self.out.before_write(root)

    def _mend(self) -> None:
        mend(self)

    # ------------------------------------------------------------------ back

    @whole
    def unpack(self, view: SavedView) -> tuple[Any, list[int] | None]:
        """The array, in a storage that its aliases share, and the storage's version counter."""
        span, compute = view.span, self._refuse_capture()
        if type(span.place) is Absorbed:
            span = view.moved()
        session, options = span.session, span.options
        meter = session.meter
        offset, strides = view.offset, view.strides
        if meter is not None:
            meter.begin_backward(compute)
        running = task.running
        if running and session.run() is not running[-1]:
            session.run = weakref.ref(running[-1])
            running[-1].callbacks.append(self._backward_has_ended)
        self._release(options, session)
        if span.ahead:
            span.asked_for()
        before = view.round, span.round, span.waiting
        same = span.counter[0] == span.version
        try:
            first_time = span.ask(view)
            if not same:
                span.hand_out()  # who has it may have written to it
            flat, at_home = self._present(span, first_time, same)
            if flat is None:
                flat = self.back.bytes_of(span, compute, view.label)
            if span.waiting <= 0 and type(span.place) is Restored:
                span.hand_out()  # every alias has it, and holds it while it is needed
            if not same:
                span.drop()  # without a counter, a later change would not be seen
            self.back.prefetch(session, span.index, compute, options)
        except BaseException:  # the caller did not get it, and may ask again
            span.ask_again(view, before)
            raise
        if view.gathered and not at_home:
            offset, strides = 0, None
        if meter is not None:
            meter.look(self.ledger.away - self.ledger.ahead)
            meter.end(compute)
        array = array_at(self.backend.xp, flat, offset, view.dtype, view.shape, strides)
        if view.backend is not self.backend:
            array = hidden(array, view.backend)
        return array, span.counter if same else None

    def _present(self, span: Span, first_time: bool, same: bool) -> tuple[Any, bool]:
        """The bytes where they were, if they are still there and unchanged. The second value is
        True where they are the whole root of a span of which a part was gathered.
        """
        place, root = span.place, span.root()
        if same and root is None and type(place.origin if place.is_back else place) is OnHost:
            return None, False
        held = span.held if span.form is None else None
        if not same:
            return (None if span.stays is None else held), False
        leaving = held is not None and span.stays is None
        if leaving and first_time:
            span.options.counts.stats.forwarded += span.nbytes
        if root is None:
            return held, False
        session = span.session
        ours = is_alone(root, self.storages.held(id(root)))  # whole, or in parts
        if held is not None and span.stays not in (None, "last") and ours:
            session.lapsed.add(span.index)
        if type(span.place) is not Restored and (leaving or held is None):
            if leaving and span.gathered is None:
                session.stayed.setdefault(span.index, "last")
            elif not ours:
                session.stayed.setdefault(span.index, "alive")
        if held is not None and span.gathered is None:
            return held, False
        flat = memory_of(self.backend.xp, root)
        if span.gathered is not None:
            return flat, True
        whole = span.nbytes == flat.nbytes
        return flat if whole else flat[span.low : span.low + span.nbytes], False


_engines: dict[tuple[str, int | None], CopyEngine] = {}
_engines_lock = threading.Lock()


def engine_of(backend: Backend, index: int | None) -> CopyEngine:
    """The one copy engine of a device."""
    key = backend.device_type, index
    engine = _engines.get(key)
    if engine is None:
        with _engines_lock, backend.use_device(index):
            engine = _engines.get(key)
            if engine is None:
                engine = CopyEngine(backend, index)
                backend.on_out_of_memory(engine.reclaim)
                backend.on_count(engine.settle)
                _engines[key] = engine
    return engine
