"""Moves saved storages between a device and host memory, ahead of need and never twice."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from contextlib import nullcontext
from typing import Any

from ...autograd.engine.backward_pass import task
from ...autograd.mode import state
from ...autograd.ranges import ranged
from ...backends import Backend, backend_of
from ...backends.batched.arrays import hidden, plain
from ...kept import Guarded, whole
from ...tensor import Tensor
from ..geometry import array_at, is_alone, memory_of, root_of, span_of
from .families import Part
from .learning import Sessions
from .mending import mend
from .outbound import Outbound
from .owner import Owner
from .pieces import bring
from .session import Session, Stored, View, bytes_under_way, nothing
from .stats import Meter, wait_for
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


class _Here(threading.local):
    session: Session | None = None


class CopyEngine(Guarded):
    """The copies of one device, both ways."""

    def __init__(self, backend: Backend, index: int | None = None) -> None:
        self.backend, self.index = backend, index
        self._lock = threading.RLock()
        self.storages = Storages()
        self.out = Outbound(backend, self.storages, self._write_begins)
        self.inward = backend.stream()
        for stream, name in ((self.out.stream, "to host"), (self.inward, "to device")):
            if hasattr(stream, "name"):  # the simulated device's errors and drawings say it
                stream.name = name
        self.ahead = 0  # bytes brought back and not yet asked for
        self.gone: deque[tuple[int, int, Any, Any]] = deque()  # of storages that were dropped
        # bytes that come back, by the event of their arrival, until who reads them waits for that:
        # not held by the graph alone, of which the garbage collector may finalize any part first
        self.coming: dict[Any, Any] = {}
        self._plans = Sessions()
        self._here = _Here()

    # ------------------------------------------------------------------ sessions

    def _session(self, owner: Owner) -> Session:
        """The session of this thread: a new one where the last one is over.

        What is still leaving and no longer wanted was not waited for in backward, which is the
        faster for it; here that memory comes back.
        """
        before = self._here.session
        if before is not None and not before.is_over():
            return before
        self.out.abandon()
        if before is not None:
            self._plans.remember(before, ("all", before.key, before.signature))
        session = self._here.session = Session(self, owner.key, before)
        owner.sessions += 1
        if owner.timed and (owner.sessions <= METERED or owner.sessions % 16 == 0):
            session.meter = Meter(self.backend, self.backend.current_stream())
            owner.meters.append(session.meter)
        return session

    # ------------------------------------------------------------------ out

    @whole
    def pack(self, tensor: Tensor, owner: Owner) -> View | None:
        """Sends the tensor's storage out, unless that has been done; None for one too small."""
        array, counter = plain(tensor._array), tensor.counter
        stats = owner.stats
        root, size, first, low, high = span_of(array, root_of(array))
        if size < owner.min_bytes or high == low:
            stats.keep("small", array.nbytes)
            return None
        session = self._session(owner)
        self._settle(owner, session)
        geometry = None
        if GATHER * array.nbytes <= high - low:
            geometry = (low, high, first, array.dtype, array.shape, array.strides)
        stored = self.storages.known(root, counter, low, high, geometry, array.dtype)
        if stored is None:
            stored = self._store(session, owner, array, counter, root, size, low, high,
                                 geometry)  # fmt: skip
            self._settle(owner, session)
        elif stored.family is not None and stored.session is session:
            stored.family.see(low, high, geometry, array.nbytes, stored.index)
        meter, saving = session.meter, state.saving
        label = None if meter is None or saving is None else (saving.name(), saving.seq)
        if meter is not None:
            meter.look(self.out.away - self.ahead)
        return View(stored, first, array, backend_of(tensor._array), label)

    def _store(
        self, session: Session, owner: Owner, array: Any, counter: list[int], root: Any, size: int,
        low: int, high: int, geometry: Any,
    ) -> Stored:  # fmt: skip
        """A new span, on its way out."""
        stats, asked = owner.stats, array.nbytes
        if geometry is None:
            if 2 * (high - low) >= size:
                low, high = 0, size
            asked = high - low
        others = self.storages.others(root, counter, low, high)
        # what can fail comes first: nothing is noted of what was not sent
        stays, hull = session.expects(asked, low, high, size)
        stays, hull = (None, None) if owner.exact else (stays, hull)  # a plan has decided already
        alone = Part(low, high, geometry, asked, len(session.sizes)) if others or hull else None
        if hull is not None and owner.codec is None:
            low, high, geometry = hull.low, hull.high, None
        if geometry is not None:
            source = root_of(array.copy(order="C"))
            stored = Stored(session, owner, counter, root, 0, source.nbytes, geometry)
            fresh = source.nbytes
        else:
            source = root
            stored = Stored(session, owner, counter, root, low, high - low, None)
            fresh = fresh_bytes(low, high, others) if others else high - low
        if stays == "last" and owner.codec is not None and owner.keep_last is None:
            stays = None  # which of two values is read must not depend on time
        encode = owner.codec is not None and array.dtype == root.dtype
        if others and geometry is None:
            self.out.send(stored, source, stays, encode, session.meter, others)
        else:
            self.out.send(stored, source, stays, encode, session.meter)
        if alone is not None and owner.codec is None:
            relate(session, stored, others, alone, size)
        self.storages.add(root, stored)
        stats.unique_bytes += fresh
        if session.meter is not None:
            session.meter.unique_bytes += fresh
            session.meter.kept_bytes += 0 if stays is None else stored.nbytes
        session.add(stored, asked)
        return stored

    def _send_away(self, stored: Stored) -> None:
        """Drops what was brought back, or was held to be used from where it is."""
        self.ahead -= stored.ahead
        self.coming.pop(stored.arrived, None)
        stored.ahead, stored.fresh = 0, False
        stored.restored = stored.arrived = None
        if stored.device is None and not stored.away:  # on the host alone
            stored.away = stored.nbytes
            self.out.away += stored.away

    def _settle(self, owner: Owner, session: Session) -> None:
        """Lets go of what has left, and of what nobody wants; bounds what is on its way."""
        if self.gone:
            self._bury()
        if not self.out.leaving_bytes and not self.out.staging.bytes:
            return
        backlog = bytes_under_way(owner.backlog, session.largest_moved) + session.may_use(False)
        self.out.settle(backlog, session.meter)

    def _bury(self) -> None:
        """Lets go of what came back for storages that were dropped."""
        while self.gone:
            ahead, away, arrived, stream = self.gone.popleft()
            self.ahead -= ahead
            self.out.away -= away
            if arrived is not None:
                stream.wait_event(arrived)
                self.coming.pop(arrived, None)

    @whole
    def settle(self, backlog: int = 1 << 62) -> None:
        """Lets go of what has left by now, and has compute wait until no more is leaving."""
        self._bury()
        self.out.settle(backlog)

    @whole
    def _backward_has_ended(self) -> None:
        """Gets back what nobody wants any more: perhaps there is no next step to do it."""
        self.out.abandon()
        self.settle()

    @whole
    def drain(self) -> None:
        """Waits for all copies, and lets go of all that they held."""
        self.out.stream.synchronize()
        self.inward.synchronize()
        self._bury()
        self.out.settle(0)
        self.out.staging.settle(0)
        self.out.staging.has_come()

    def reclaim(self) -> bool:
        """Makes room on a device that is full; whether there was something to give up."""
        if self._lock.acquire(timeout=1):
            try:
                return self._reclaimed()
            finally:
                self._lock.release()
        return False

    @whole
    def _reclaimed(self) -> bool:
        held = self.out.leaving_bytes + self.ahead + len(self.gone)
        self.inward.synchronize()
        for stored in self.storages.all():
            stored.session.tight = True
            if stored.restored is not None:  # on the host, too
                held += 1
                self._send_away(stored)
            elif stored.stays == "last" and stored.device is not None:
                held += 1
                self.out.evict(stored)
        self.drain()
        return held > 0

    @whole
    def _write_begins(self, root: Any) -> None:
        self.out.before_write(root)

    def _mend(self) -> None:
        mend(self)

    # ------------------------------------------------------------------ back

    @whole
    def unpack(self, view: View) -> tuple[Any, list[int] | None]:
        """The array, in a storage that its aliases share, and the version counter of that."""
        stored, compute = view.stored, self.backend.current_stream()
        session, owner = stored.session, stored.owner
        meter = session.meter
        if stored.home is not None:
            stored = view.moved()
        offset, strides = view.offset, view.strides
        if meter is not None:
            meter.turn(compute)
        if task.running and session.run() is not task.running[-1]:
            session.run = weakref.ref(task.running[-1])
            task.running[-1].callbacks.append(self._backward_has_ended)
        self._settle(owner, session)
        self.ahead -= stored.ahead
        stored.ahead = 0
        before = view.round, stored.round, stored.waiting
        same = stored.counter[0] == stored.version
        try:
            first_time = self._turn(stored, view)
            if not same and not stored.fresh:
                stored.restored = None  # who has it may have written to it
            flat, at_home = self._present(stored, first_time)
            if flat is None:
                flat = self._bytes(stored, compute, view.label)
            if stored.waiting <= 0 and not stored.fresh:
                stored.restored = None  # every alias has it, and holds it while it is needed
            if not same:
                self._send_away(stored)  # nobody would notice a change of what has no counter
            self._bring(session, stored.index, compute, owner)
        except BaseException:  # it was not given to anybody, and may be asked for again
            view.round, stored.round, stored.waiting = before
            raise
        if view.gathered and not at_home:
            offset, strides = 0, None
        if meter is not None:
            meter.look(self.out.away - self.ahead)
            meter.end(compute)
        array = array_at(self.backend.xp, flat, offset, view.dtype, view.shape, strides)
        return hidden(array, view.backend), stored.counter if same else None

    def _turn(self, stored: Stored, view: View) -> bool:
        """Counts the view as unpacked; whether it is the storage's first in this round. A view that
        comes for a second time begins another round.
        """
        session = stored.session
        if view.round == session.round:
            session.round += 1
            session.cursor = 0
        if stored.round != session.round:
            stored.round, stored.waiting = session.round, stored.views
        first = stored.waiting == stored.views
        view.round = session.round
        stored.waiting -= 1
        session.asked.setdefault(stored.index)
        return first

    def _present(self, stored: Stored, first_time: bool) -> tuple[Any, bool]:
        """The bytes where they were, if they are still there and are what was saved; and whether
        those are all of the root, of which a part was gathered.
        """
        held = stored.device if stored.form is None else None
        left = stored.block is not None or stored.host is not None
        if stored.counter[0] != stored.version:
            return (None if left else held), False
        leaving = held is not None and left
        if leaving and first_time:
            stored.owner.stats.forwarded += stored.nbytes
        root = stored.root()
        if root is None:
            return held, False
        ours = is_alone(root, self.storages.held(id(root)))  # whole, or in parts
        if held is not None and not left and stored.stays != "last" and ours:
            stored.session.lapsed.add(stored.index)
        if (stored.restored is None or stored.fresh) and (leaving or held is None):
            if leaving and stored.gathered is None:
                stored.session.stayed.setdefault(stored.index, "last")
            elif not ours:
                stored.session.stayed.setdefault(stored.index, "alive")
        if held is not None and stored.gathered is None:
            return held, False
        flat = memory_of(self.backend.xp, root)
        if stored.gathered is not None:
            return flat, True
        whole = stored.nbytes == flat.nbytes
        return flat if whole else flat[stored.low : stored.low + stored.nbytes], False

    def _bytes(self, stored: Stored, compute: Any, label: Any) -> Any:
        """The bytes of a storage that has left: brought back already, or now."""
        if stored.stream != compute:  # of the arena of another stream
            flat, arrived = self._fetch(stored, compute)
            self._await(stored, compute, arrived, label)
            return self._decoded(stored, flat)
        if stored.restored is None:
            flat, arrived = None, None
            if stored.form is not None:  # encoded, and perhaps not yet gone
                flat = stored.device
            if flat is None:
                flat, arrived = self._fetch(stored, compute)
                if not stored.fresh:
                    stored.owner.stats.on_demand += stored.nbytes
                    stored.session.cursor = 0
            stored.restored, stored.arrived, stored.fresh = flat, arrived, True
        if stored.fresh:
            self._await(stored, compute, stored.arrived, label)
            self._is_back(stored)
        return stored.restored

    def _is_back(self, stored: Stored) -> None:
        """What was fetched is the storage, from now on: of what is saved again, too."""
        flat = self._decoded(stored, stored.restored)
        root, _, _, low, _ = span_of(flat, root_of(flat))
        self.out.away -= stored.away
        self.storages.add(root, stored)
        stored.root = nothing  # until all that is said of it is true
        stored.away, stored.fresh, stored.restored, stored.arrived = 0, False, flat, None
        stored.low, stored.gathered, stored.family = low, None, None
        stored.root = weakref.ref(root)

    def _decoded(self, stored: Stored, flat: Any) -> Any:
        if stored.form is None:
            return flat
        codec, dtype, shape = stored.form
        meter = stored.session.meter
        timed = nullcontext() if meter is None else meter.codes(self.backend.current_stream())
        with timed, self.backend.quiet():
            return memory_of(self.backend.xp, codec.decode(self.backend.xp, flat, dtype, shape))

    def _await(self, stored: Stored, compute: Any, arrived: Any, label: Any) -> None:
        """Makes compute wait for what comes back."""
        meter = stored.session.meter
        if arrived is None:
            return
        if meter is None:
            wait_for(compute, arrived)
        else:
            meter.wait(compute, arrived, label or ("unpack", 0))
        self.coming.pop(arrived, None)

    def _bring(self, session: Session, index: int, compute: Any, owner: Owner) -> None:
        """Starts the copies back of what will be asked for next, as far as the look-ahead goes.

        Only for the stream that will read it: the block goes back to the arena of that one.
        """
        chain = session.chain()
        if index not in chain.place:
            return
        if self.out.staging.reading:
            for come in self.out.staging.has_come():
                if come.fresh and come.restored is None and come.stream == compute:
                    come.restored, come.arrived = self._fetch(come, compute)
        limit = bytes_under_way(owner.lookahead, session.largest_moved) + session.may_use(True)
        k = max(session.cursor, chain.place[index] + 1)
        while self.ahead < limit and k < len(chain.order):
            stored = session.stored[chain.order[k]]()
            k += 1
            if stored is None or stored.stream != compute or stored.ahead:
                continue
            if stored.restored is not None:
                continue
            if stored.round != session.round:
                stored.round, stored.waiting = session.round, stored.views
            if stored.waiting <= 0:
                continue
            if stored.counter[0] != stored.version and stored.form is None:
                continue  # changed, legally
            if stored.device is not None:  # on its way out, and wanted: it is held, not fetched
                stored.restored, stored.fresh = stored.device, stored.form is not None
                if stored.form is None and (stored.block is not None or stored.host is not None):
                    session.stayed.setdefault(stored.index, "last")
                if owner.exact:
                    stored.ahead = stored.nbytes
                    self.ahead += stored.ahead
                continue
            if stored.root() is not None:
                continue
            if owner.room is not None and owner.room() < stored.nbytes:
                k -= 1
                break
            try:
                if stored.block is not None:
                    stored.restored, stored.arrived = self._fetch(stored, compute, "prefetch")
                elif not self.out.staging.serves(stored.host):
                    stored.host.prefetch()
                elif not self.out.staging.fetch(stored, owner.host_limit):
                    k -= 1
                    break
            except MemoryError:
                k -= 1
                break
            stored.fresh, stored.ahead = True, stored.nbytes
            self.ahead += stored.ahead
        session.cursor = k

    def _fetch(self, stored: Stored, compute: Any, how: str = "copy") -> tuple[Any, Any]:
        """Starts the copy back of a storage: where to, and the event of its end. A "prefetch" is
        one ahead of need.
        """
        meter, stats, owner = stored.session.meter, stored.owner.stats, stored.owner
        block = stored.block
        read = None  # a block for the time of the copy
        if block is None:
            if self.out.staging.serves(stored.host):
                block = read = self.out.staging.read(stored, owner.host_limit)
            if block is None:
                with ranged("offload: copy to device", "copy", stored.sent):
                    flat = self.backend.asarray(stored.host.read())
                stats.moved_back_bytes += flat.nbytes
                return flat, None
        nbytes = stored.sent
        try:
            flat = self.backend.xp.empty(nbytes, "uint8")  # its block may be in use there
            self.inward.wait_event(compute.record_event())
            if read is None:
                self.inward.wait_event(stored.copied)
            began = None if meter is None else meter.mark(self.inward)
            name = "offload: copy to device" if how == "copy" else "offload: prefetch"
            with ranged(name, how, nbytes, self.inward):
                if stored.pieces is None:
                    self.backend.copy_async(flat, block.array[:nbytes], self.inward)
                else:
                    bring(self.backend, flat, stored.pieces, self.inward)
            arrived = self.inward.record_event() if meter is None else meter.mark(self.inward)
        except BaseException:
            self.inward.synchronize()  # what has begun must not outlive its memory
            if read is not None:
                self.out.slab.give_back(read, None)
            raise
        if meter is not None:
            meter.back.append((began, arrived, nbytes))
            meter.raw_bytes += nbytes if stored.form is None else stored.nbytes
        stored.last_use = arrived
        if read is not None:
            self.out.slab.give_back(read, arrived)
        stats.moved_back_bytes += nbytes
        self.coming[arrived] = flat
        return flat, arrived


_engines: dict[tuple[str, int | None], CopyEngine] = {}
_engines_lock = threading.Lock()


def engine_of(backend: Backend, index: int | None) -> CopyEngine:
    """The one copy engine of a device."""
    key = backend.device_type, index
    found = _engines.get(key)
    if found is None:
        with _engines_lock, backend.use_device(index):
            found = _engines.get(key)
            if found is None:
                found = CopyEngine(backend, index)
                backend.on_out_of_memory(found.reclaim)
                _engines[key] = found
    return found
