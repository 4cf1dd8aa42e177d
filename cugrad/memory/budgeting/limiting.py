"""Keeps a step within its limit while it runs, whenever its copies end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...backends import Backend
from ...tensor import make
from ..offloading.engine import CopyEngine
from ..offloading.options import OffloadOptions
from ..offloading.span import SavedView
from ..offloading.stats import wait_for
from ..recomputing.values import Value, returned
from .measuring import BLOCK

__all__ = ["Away", "Limiter", "sent"]

# Before an op, a node, a copy back or an op that runs again takes memory, it says how much. What
# does not fit then is made to fit, by the cheapest means that does it:
#
#   wait     the compute stream waits for copies out, whose memory then comes back
#   unfetch  what came back ahead of need is dropped; it comes again when it is wanted
#   collect  what the program has left in cycles goes
#   unload   of weights, gradients and states that are elsewhere what came ahead of need leaves
#   evict    what the plan keeps leaves, what is wanted last first: only while a plan is tried
#
# So the times of copies, which no plan knows, cost time and no memory.


class Away:
    """A value in host memory or on disk, which the copy engine brings back."""

    __slots__ = ("engine", "view", "limiter")
    stays = True

    def __init__(self, engine: CopyEngine, view: SavedView, limiter: Limiter) -> None:
        self.engine, self.view, self.limiter = engine, view, limiter

    def array(self) -> Any:
        with self.engine.backend.use_device(self.engine.index):
            span = self.view.moved()
            if not span.is_on_device:
                self.limiter.make_room(span.nbytes)
            return self.engine.unpack(self.view)[0]


def sent(
    value: Value, root: Any, engine: CopyEngine, options: OffloadOptions, limiter: Limiter
) -> Away | None:
    """A value on its way out; None if there is no room for it elsewhere."""
    tensor = make(root)
    tensor._counter = value.counter
    with engine.backend.use_device(engine.index):
        view = engine.pack(tensor, options)
    return None if view is None else Away(engine, view, limiter)


class Limiter:
    """Makes room on one device for what a step is about to take."""

    def __init__(self, backend: Backend, engine: CopyEngine | None, limit: int) -> None:
        self.backend, self.engine, self.limit = backend, engine, limit
        self.unload: Callable[[int], None] | None = None  # has so many bytes of a model's leave
        self._counts = backend.device_type != "cpu"  # at any time, and exactly
        self.begin([], None)

    def begin(self, owns: Sequence[int], options: OffloadOptions | None) -> None:
        """A step begins, whose events take so many bytes each. With options, values that are kept
        may leave.
        """
        self.owns, self._options = owns, None if options is None else weakref.ref(options)
        self._most = max(owns, default=0)
        self.own = 0  # what the op or node that runs is yet to take
        self.kept: list[weakref.ref[Value]] = []  # in the order in which they were made
        self._collected = False  # in this step
        self.evicted = 0  # bytes, in this step

    @property
    def evicts(self) -> bool:
        """Whether what is kept may have to leave in this step."""
        return self._options is not None

    def event(self, number: int) -> None:
        """An op or a node begins. One that is not in the plan counts as the largest."""
        self.own = self.owns[number] if 0 <= number < len(self.owns) else self._most
        engine = self.engine
        if engine is not None and (
            engine.ledger.ahead or engine.out.leaving_bytes or self._options or self.unload
        ):
            self.make_room(0)

    def keeps(self, value: Value) -> None:
        """Notes a value that stays, but may be evicted."""
        if self._options is not None:
            self.kept.append(weakref.ref(value))

    @contextmanager
    def remaking(self, event: int) -> Iterator[None]:
        """An op of forward runs again, within a node."""
        own = self.own  # which comes later
        self.own = max(own, self.owns[event] if 0 <= event < len(self.owns) else self._most)
        try:
            self.make_room(0)
            yield
        finally:
            self.own = own

    def tighten(self) -> None:
        """Makes the compute stream wait for all copies out, and lets go of what they held."""
        if self.engine is not None:
            self.engine.release_finished(0)

    def room(self) -> int:
        """Bytes that may be allocated now, beside those that the running op or node needs."""
        return self.limit - self.backend.memory_allocated() - self.own

    def make_room(self, nbytes: int) -> None:
        """Makes room for bytes to be taken beside those of the running op or node."""
        if self.engine is None or not self._counts:
            return
        nbytes = -(-nbytes // BLOCK) * BLOCK
        over = nbytes - self.room()
        if over <= 0:
            return
        with self.engine._lock:
            for leaving in (max(0, self.engine.out.leaving_bytes - over), 0):
                self.engine.release_finished(leaving)
                over = nbytes - self.room()
                if over <= 0:
                    return
            for way in (self._unfetch, self._collect, self._unload, self._evict, self._forget):
                over = way(nbytes)
                if over <= 0:
                    return

    def _unfetch(self, nbytes: int) -> int:
        """Drops values that came back ahead of need, the one needed last first. Returns the bytes
        that are still missing.
        """
        engine = self.engine
        assert engine is not None
        mine: Any = engine.ledger  # of training states windows know what has come
        spans = [s for s in engine.storages.all() if s.ledger is mine and s.ahead]
        ahead = [s for s in spans if s.is_back and s.held is None]
        for span in sorted(ahead, key=lambda s: s.index):
            if span.arrived is not None:
                wait_for(span.stream, span.arrived)
            span.drop()
            span.session.cursor = 0
        return nbytes - self.room()

    def _collect(self, nbytes: int) -> int:
        """Runs the garbage collector. Returns the bytes that are still missing."""
        if not self._collected:
            self._collected = True
            gc.collect()
        return nbytes - self.room()

    def _unload(self, nbytes: int) -> int:
        """Has training states leave. Returns the bytes that are still missing."""
        if self.unload is not None:
            self.unload(nbytes - self.room())
        return nbytes - self.room()

    def _evict(self, nbytes: int) -> int:
        """Sends out values that the plan keeps, the one needed last first. Returns the bytes that
        are still missing.
        """
        engine, over = self.engine, nbytes - self.room()
        assert engine is not None
        options = None if self._options is None else self._options()
        while over > 0 and self.kept and options is not None:
            gone = 0
            while self.kept and gone < over:
                value = self.kept.pop(0)()
                root = None if value is None else value.resident()
                if value is None or root is None or root is not value.kept:
                    continue
                if value.views == 0 or value.waiting > 0:
                    away = sent(value, root, engine, options, self)
                    if away is not None:
                        value.leave(away)
                        gone += root.nbytes
                root = None
            self.evicted += gone
            self.tighten()
            over = nbytes - self.room()
        return over

    def _forget(self, nbytes: int) -> int:
        """Lets go of values that are here again and can come back once more. Returns the bytes that
        are still missing.
        """
        for value in returned():
            if value.is_held or value.recipe is not None:
                value.restored = None
        return nbytes - self.room()
