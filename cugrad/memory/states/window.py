"""Which placed tensors are on the device: at most so many bytes of them, those used next."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...runtime.kept import if_free
from ..offloading.options import OffloadOptions
from .home import Home
from .lane import lane_of

__all__ = ["Window"]

# An order is begun anew when it is so many times as long as there are tensors: the first one soon,
# since there may be no step that ends it; a step may use each many times, in many micro-batches.
FIRST, LONGEST = 8, 256


class Window:
    """The placed tensors of one kind. At most `limit` bytes of them are on the device at a time,
    those on their way in or out counted; None: all may be.

    More are there only while others have them: an op that runs, a view, a graph. The order in which
    they are used is that of the step before, and from it follows which come ahead of need, and
    which have to leave: those that are needed last.

    Homes hold their window, and when the last of their tensors is gone it goes with all that was
    sent. What a window notes of a home may last longer than its tensor: that is then `nowhere`.
    """

    nowhere: Window  # that of homes whose tensors are gone

    def __init__(self, name: str, limit: int | None, options: OffloadOptions) -> None:
        self.name, self.limit, self.options = name, limit, options
        self.comes_again = name != "gradients"  # in each step; those are made anew
        self.lock = threading.RLock()
        self.here: dict[Home, int] = {}  # bytes: on the device, or on their way in
        self.leaving: dict[Home, int] = {}  # bytes: on their way out, no longer used
        self.lost: deque[Home] = deque()
        self.members: dict[Home, None] = {}
        self.bytes = self.peak = 0
        self.now = 0
        self.latest: Home | None = None
        self.order: list[Home] = []
        self._next: list[Home] = []  # the order of the step before
        self._places: dict[Home, list[int]] = {}
        self._cursor = 0
        self._all_here = False
        self.is_stepping = False  # whether an optimizer's step runs
        self.is_in_bucket = False  # whether that of a bucket does, which writes when all is there
        self.host_computes = False  # whether it does so on tensors of this kind
        self.announced: list[Home] = []  # those that it writes to
        self.awaited: list[Home] = []  # what is to come as soon as there is room
        self.beside: Window | None = None  # which is filled while tensors of this one are used
        self.tells: dict[Any, Any] = {}  # what is computed of a gradient before it leaves, by name
        self._asked = limit
        self._was_placed = 0  # bytes, until all was brought back
        self.brought = 0  # bytes that were asked for before they had come
        self.watcher: Any = None  # of a budget, which makes room for what comes

    # ------------------------------------------------------------------ counting

    def has_come(self, home: Home) -> None:
        """Counts a home as one that is on the device."""
        with self.lock:
            if home not in self.here:
                self.bytes += home.nbytes - self.leaving.pop(home, 0)
                self.here[home] = home.nbytes
                self.peak = max(self.peak, self.bytes)

    def has_gone(self, home: Home) -> None:
        """Counts a home as one that is not on the device."""
        with self.lock:
            self.bytes -= self.here.pop(home, 0) + self.leaving.pop(home, 0)
            if self.latest is home:
                self.latest = None

    def takes_over(self, home: Home, is_here: bool) -> None:
        """A home of another window's is this one's, which counts its copies from now on."""
        self.members[home] = None
        if home.span is not None and home.span.options.spill is self.options.spill:
            home.span.options = self.options
        if is_here:
            self.has_come(home)

    def _sweep(self) -> None:
        """Takes what has left, or is lost, off the count."""
        while self.lost:
            home = self.lost.popleft()
            self.has_gone(home)
            self.members.pop(home, None)
        if not self.leaving:
            return
        for engine in {home.engine for home in self.leaving}:
            engine.release_finished()
        for home in [home for home in self.leaving if not home.is_leaving]:
            self.bytes -= self.leaving.pop(home)

    # ------------------------------------------------------------------ use

    def bring(self, home: Home) -> Any:
        """The array of a home that is away."""
        with self.lock:
            if home not in self.here:
                self.brought += home.nbytes
                self._make_room(home.nbytes - self.leaving.get(home, 0))
            if self.watcher is not None and not home.is_coming:
                self.watcher.comes(home.nbytes)
            array = home.come()
            self.has_come(home)
            if self.watcher is not None:
                self.watcher.has_come()
            self._note(home)
            return array

    def use(self, home: Home, array: Any) -> Any:
        """The array of a home that is here."""
        if self.latest is not home:
            with self.lock:
                self._note(home)
        return array

    def _note(self, home: Home) -> None:
        """A home is used: those that will be next come ahead of need."""
        self.now += 1
        home.used, self.latest = self.now, home
        self.order.append(home)
        if len(self.order) > (LONGEST if self._next else FIRST) * max(len(self.members), 64):
            self.turn()
        if self.limit is not None and self.bytes > self.limit:
            self._make_room(0)
        if self.beside is not None and self.beside.awaited:
            self.beside.fill()
        places = self._places.get(home)
        if places is not None:
            k = bisect_left(places, self._cursor)
            self._cursor = (places[k] if k < len(places) else places[0]) + 1
        self._bring_ahead()

    def turn(self) -> None:
        """A step has ended: the next one is expected to use tensors in the order of this one."""
        with self.lock:
            self._sweep()
            self._next, self.order = self.order, []
            self._places = {}
            for k, home in enumerate(self._next):
                self._places.setdefault(home, []).append(k)
            self._cursor = 0
            self.latest, self._all_here = None, False
            if self.comes_again:  # gradients are dropped before they are used, but for some loops
                self._bring_ahead()

    def begin_step(self, is_bucket: bool = False) -> None:
        """A step of an optimizer begins, or that of a bucket."""
        self.is_stepping, self.host_computes, self.is_in_bucket = True, False, is_bucket

    def end_step(self) -> None:
        """A step of an optimizer, or a part of it, has ended: it writes to nothing any more."""
        self.is_stepping = self.is_in_bucket = False
        while self.announced:
            self.announced.pop().is_announced = False

    def _until(self, home: Home) -> tuple[int, int]:
        """How far away the next use of a home is; of those of which that is not known, the least
        recently used one is the farthest.
        """
        places = self._places.get(home)
        if places is None:
            return len(self._next) + 1, -home.used
        k = bisect_left(places, self._cursor)
        if k < len(places):
            return places[k] - self._cursor, 0
        return places[0] + len(self._next) - self._cursor, 0

    # ------------------------------------------------------------------ room

    def _farthest(self, beyond: int = -1) -> Home | None:
        """Of those that may leave, the one that is needed last, and after `beyond` more uses."""
        homes = sorted([(self._until(h), k, h) for k, h in enumerate(self.here)], reverse=True)
        for (distance, _), _, home in homes:
            if distance <= beyond:
                return None
            if home is self.latest or home.is_announced and self.is_in_bucket:
                continue
            if (
                home.is_free or home.is_coming and beyond < 0
            ):  # else for who may not be needed sooner
                return home
        return None

    def _make_room(self, nbytes: int) -> None:
        """Has others leave until so many more bytes fit, as far as they can."""
        if self.limit is None:
            return
        self._sweep()
        while (need := self.bytes + nbytes - self.limit) > 0:
            if sum(self.leaving.values()) < need:
                home = self._farthest()
                if home is not None and self._leave(home):
                    continue
                if not self.leaving:
                    if not self._await_files():
                        return
                    continue
            self._wait(need)

    def _await_files(self) -> bool:
        """Waits until what files are made of has been written; whether there was any. Of the host's
        own memory a write holds what it reads.
        """
        engines = {home.engine for home in self.here if home.is_leaving}
        for engine in engines:
            engine.release_finished(0)
        return bool(engines)

    def _wait(self, need: int) -> None:
        """Makes compute, or lanes, wait until so many of the bytes that are leaving have left."""
        before = self.bytes
        self._let_go(need)
        need -= before - self.bytes
        if need <= 0:
            return
        for engine in {home.engine for home in self.leaving}:
            engine.release_finished(max(0, engine.out.leaving_bytes - need))
        self._sweep()

    def _leave(self, home: Home) -> bool:
        """Has a home leave; whether it does. What a bucket's step will write to stays: it has been
        said already, and the copy would be of what is there now.
        """
        if home.is_announced and self.is_in_bucket:
            return False
        is_read = home.is_up_to_date
        if home.is_coming:
            home.engine.drop_state(home.span)
        elif not home.send() or not home.vacate(is_read):
            return False
        self._all_here = False
        nbytes = self.here.pop(home)
        if home.is_leaving:
            self.leaving[home] = nbytes
        else:
            self.bytes -= nbytes
        return True

    def leave(self, home: Home) -> bool:
        """Has a home leave if no one else has its array; whether it does. Else its bytes are sent,
        and it goes when others need the room.
        """
        with self.lock:
            self._sweep()
            return home in self.here and self._leave(home)

    def make_room(self, nbytes: int) -> None:
        """Has others leave until so many more bytes fit, as far as they can."""
        with self.lock:
            self._make_room(nbytes)

    def unload(self, nbytes: int) -> None:
        """Has so many bytes leave, of what is needed last, as far as they can."""
        if self.limit is not None:
            if_free(self.lock, 1, lambda: self._unload(nbytes))

    def _unload(self, nbytes: int) -> bool:
        assert self.limit is not None
        self._sweep()
        most = self.bytes - nbytes
        for _ in range(2):
            self._make_room(self.limit - most)
            if self.bytes <= most:
                break
            self.latest = None  # no one reads it now, or it is not free
        return True

    @contextmanager
    def reserved(self, nbytes: int) -> Iterator[None]:
        """Within it so many bytes are for what is no home's."""
        with self.lock:
            self._make_room(nbytes)
            self.bytes += nbytes
            self.peak = max(self.peak, self.bytes)
        try:
            yield
        finally:
            with self.lock:
                self.bytes -= nbytes

    def begin(self) -> None:
        """All that is to leave is on its way: compute waits for as much as does not fit."""
        with self.lock:
            self._make_room(0)
            self.peak = self.bytes

    def swept(self, block: int = 1) -> int:
        """Bytes that are on the device, but for what has left by now, and what a file is still read
        for, in blocks of so many.
        """
        with self.lock:
            self._sweep()
            nbytes = self.bytes
            for home, its in (*self.here.items(), *self.leaving.items()):
                is_read = home.is_coming and home.span.place.flat is None
                nbytes += -its if is_read else -its % block
            return nbytes

    def count(self) -> int:
        """How many tensors there are of this kind."""
        with self.lock:
            self._sweep()
            return len(self.members)

    def close(self) -> None:
        """Brings all in, and makes them ordinary tensors again."""
        with self.lock:
            self.limit, self._was_placed, peak = None, self._placed(), self.peak
            for home in list(self.members):
                home.release()
            self.peak = peak  # of training
            self._next, self._places, self.order = [], {}, []

    def _placed(self) -> int:
        return sum([home.nbytes for home in list(self.members)])

    def report(self, place: str) -> dict[str, Any]:
        """What went through, in bytes."""
        stats = self.options.counts.stats
        return {
            "place": place, "limit": self._asked, "most_on_device": self.peak,
            "bytes": self._placed() or self._was_placed,
            "moved_out": stats.moved_to_host_bytes, "moved_back": stats.moved_back_bytes,
            "on_demand": self.brought, "disk": stats.disk_bytes,
        }  # fmt: skip

    def expect(self, homes: list[Home]) -> bool:
        """Brings homes in ahead of need, in this order, as far as there is room; whether all."""
        with self.lock:
            self._sweep()
            for home in homes:
                if home in self.here or not home.is_away:
                    continue
                if not self._comes(home):
                    return False
            return True

    def _comes(self, home: Home) -> bool:
        """Brings a home in ahead of need, if there is room, or there will be when others have left,
        for which its lane waits; whether it comes.
        """
        more = home.nbytes - self.leaving.get(home, 0)
        if self.limit is not None and self.bytes + more > self.limit:
            self._let_go(self.bytes + more - self.limit, home)
        if not self._has_room(home) or not home.is_coming and not self._may_come(more):
            return False
        if not home.expect():
            return False
        self.has_come(home)
        if self.watcher is not None:
            self.watcher.has_come()
        return True

    def _may_come(self, nbytes: int) -> bool:
        return self.watcher is None or self.watcher.has_room(nbytes)

    def _let_go(self, need: int, but: Home | None = None) -> None:
        """Has lanes wait until so many bytes have left, as far as they lie there."""
        there = [h for h in self.leaving if h is not but and h.is_leaving_lane]
        if sum([self.leaving[home] for home in there]) < need and but is not None:
            return
        for home in there:
            if need <= 0:
                return
            home.engine.let_state_go(home.span)
            nbytes = self.leaving.pop(home)
            self.bytes -= nbytes
            need -= nbytes

    def used_first(self, homes: list[Home]) -> list[Home]:
        """Of some homes those that a step has used first, as many as there is room for."""
        if self.limit is None:
            return homes
        first: dict[Home, None] = {}
        room = self.limit
        for home in self.order:
            if home not in first:
                room -= home.nbytes
                if room < 0:
                    break
                first[home] = None
        return [home for home in homes if home in first]

    def first(self, homes: list[Home]) -> list[Home]:
        """The first of some homes, of as many bytes as may be here."""
        room = self.limit
        if room is None:
            return []
        for k, home in enumerate(homes):
            room -= home.nbytes
            if room < 0:
                return homes[:k]
        return homes

    def await_room(self, homes: list[Home]) -> None:
        """Brings homes in as soon as there is room, of which `fill` takes care."""
        self.awaited = homes
        self.fill()

    def fill(self) -> None:
        """Brings in what waits for room."""
        with self.lock:
            if self.expect(self.awaited):
                self.awaited = []

    def lane_of(self, engine: Any) -> Any:
        """The lane in whose memory lies what comes; None: in that of the compute stream."""
        return None if self.limit is None else lane_of(engine, self.name)

    def _has_room(self, home: Home) -> bool:
        more = home.nbytes - self.leaving.get(home, 0)
        return self.limit is None or self.bytes + more <= self.limit

    def _bring_ahead(self) -> None:
        """Brings in what will be used next, for which there is room, or others that are needed
        later may leave.
        """
        order, count = self._next, len(self._next)
        if not count or self._all_here:
            return
        if self.leaving or self.lost:
            self._sweep()
        steps = 0
        while steps < count:
            home = order[(self._cursor + steps) % count]
            if home not in self.here and home.is_away:
                while not self._comes(home):
                    victim = None if self._has_room(home) else self._farthest(steps)
                    if victim is None or not self._leave(victim):
                        return
            steps += 1
        self._all_here = True

    def reclaim(self) -> bool:
        """Has all leave that can: the device is full. Whether there was any."""
        return self.limit is not None and if_free(self.lock, 1, self._reclaim)

    def _reclaim(self) -> bool:
        self._sweep()
        count = len([home for home in list(self.here) if self._leave(home)])
        if self.leaving:
            count += 1
            self._wait(1 << 62)
        return count > 0


Window.nowhere = Window("nowhere", None, OffloadOptions())
