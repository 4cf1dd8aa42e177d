"""A span of saved memory, the place where its bytes are, and how it goes from one to the next."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...backends.lending.slab import SlabBlock
from ...backends.several import copy_of
from .ledger import Ledger
from .places import (
    Absorbed,
    Leaving,
    OnDevice,
    OnHost,
    Pageable,
    Piece,
    Restored,
    Returning,
)

if TYPE_CHECKING:
    from .coalescing import Family
    from .engine import CopyEngine
    from .options import OffloadOptions
    from .session import Session

__all__ = ["SavedView", "Span", "nothing"]

#        stay              leave                         leave
#   new ------> OnDevice ---------> Leaving <------------------------ new
#                                      |
#                                      | arrive
#                 +--------------------+--------------------+
#                 v                    v       written      v
#              Pageable             OnHost ------------> OnDisk
#                 ^                    ^                    ^
#                 +--------------------+--------------------+
#                                      |  ^
#                 fetch, read_ahead    |  |  drop
#                                      v  |
#                                  Returning
#                                      |
#                                      | restore         hand_out, drop
#                                      v
#                                  Restored ---------> the place that it came from
#
# Returning and Restored have an `origin`: the place that the bytes came from, and where they still
# are. That is OnDevice or Leaving where they are wanted back before they have left: they are held
# (`hold`), and not copied. A smaller span within a larger one becomes a part of it: Absorbed.
#
# A place is replaced by one assignment, so that an interrupt finds the span in the one or in the
# other. Only the methods below assign to a span or to its place; calls are made under the engine's
# lock.


def nothing() -> None:
    """A reference to nothing."""


class Span:
    """Bytes of a storage as they were at one version; every saved view of them shares this.

    `stream` is the compute stream whose memory they are in. Of a view that needs little of what it
    spans the elements alone are sent: `gathered` is then its geometry. `form` says how the bytes
    are encoded: codec, dtype, shape. `family` has the parts of the storage that were saved one by
    one, where there are several. Memory may be a `lane`'s, in place of the compute stream's.
    While it is `in_use`, compute may write to it, although it is sent.
    `ahead` and `away` are its shares in the sums of the ledger.
    """

    __slots__ = (
        "session", "options", "ledger", "index", "counter", "version", "root", "low", "nbytes",
        "gathered", "stream", "form", "place", "waiting", "views", "round", "ahead", "away",
        "family", "entered", "ref", "lane", "in_use", "__weakref__",
    )  # fmt: skip

    def __init__(
        self, session: Session, options: OffloadOptions, ledger: Ledger, stream: Any,
        counter: list[int], root: Any, low: int, nbytes: int, gathered: Any,
    ) -> None:  # fmt: skip
        self.session, self.options, self.ledger, self.stream = session, options, ledger, stream
        self.index, self.round = len(session.sizes), session.round
        self.counter, self.version = counter, counter[0]
        self.root: Callable[[], Any] = weakref.ref(root)
        self.low, self.nbytes, self.gathered = low, nbytes, gathered
        self.waiting = self.views = 0  # views not unpacked in this round; all views
        self.ahead = self.away = 0
        self.form = self.family = None
        self.lane, self.in_use = None, True
        self.entered = False  # whether session and ledger count it
        self.place: Any = None  # until it is sent
        self.ref = weakref.ref(self)

    form: tuple[Any, Any, Any] | None
    lane: Any
    family: Family | None

    # ------------------------------------------------------------------ where it is

    @property
    def arena(self) -> Any:
        """The stream whose memory the bytes are in, or come to."""
        return self.stream if self.lane is None else self.lane.stream

    def lies_in(self, lane: Any) -> None:
        """The memory that it is in, or comes to, is a lane's; None: the compute stream's."""
        self.lane = lane

    def use(self, in_use: bool) -> None:
        """Says whether compute may write to its memory from here on."""
        self.in_use = in_use

    @property
    def origin(self) -> Any:
        """Its place, or the one from which it came back."""
        place = self.place
        return place.origin if place.is_back else place

    @property
    def held(self) -> Any:
        """The bytes where they were, if something must hold them there; else None."""
        place = self.place
        if place.is_back:
            place = place.origin
        return place.flat if type(place) is OnDevice or type(place) is Leaving else None

    @property
    def copy(self) -> Any:
        """Where the bytes are beside the device, or will be: OnHost, Pageable, OnDisk or None."""
        place = self.place
        if place.is_back:
            place = place.origin
        if type(place) is Leaving:
            return place.to
        return None if type(place) is OnDevice or type(place) is Absorbed else place

    @property
    def stays(self) -> str | None:
        """Why the bytes are only where they were; None if they are elsewhere too."""
        place = self.place
        if place.is_back:
            place = place.origin
        return place.why if type(place) is OnDevice else None

    @property
    def is_on_device(self) -> bool:
        """Whether the device has the bytes, or they are on their way back to it."""
        return self.is_back or self.held is not None

    @property
    def is_back(self) -> bool:
        """Whether the bytes have come back, or will come without another copy."""
        place = self.place
        return place.is_back and place.flat is not None

    @property
    def arrived(self) -> Any:
        """The event of the end of the copy back, while its reader has yet to wait for that."""
        place = self.place
        return place.arrived if type(place) is Returning else None

    @property
    def is_being_read(self) -> bool:
        """Whether threads are reading the bytes, or have read them."""
        place = self.place
        return type(place) is Returning and place.flat is None

    @property
    def refused(self) -> Any:
        """The bytes for which a store had no room. They lie where they were."""
        return getattr(getattr(self.copy, "file", None), "resident", None)

    # ------------------------------------------------------------------ out

    def encode(self, codec: Any, dtype: Any, shape: Any) -> None:
        """From here on the encoded bytes are sent in place of the bytes themselves."""
        self.form = codec, dtype, shape

    def _put(self, origin: Any) -> None:
        """Changes where the bytes are, and keeps what has come back of them."""
        place = self.place
        if place is not None and place.is_back:
            place.origin = origin
        else:
            self.place = origin

    def stay(self, flat: Any, why: str) -> None:
        """Leaves the bytes where they are."""
        self._put(OnDevice(flat, why))

    def leave(self, flat: Any, to: OnHost | Pageable) -> None:
        """A copy of the bytes has begun."""
        if self.place is None:
            self.place = Leaving(flat, to)
        else:
            self._put(Leaving(flat, to))

    def arrive(self) -> Any:
        """The copy out has ended, and the device's memory is no longer held. Returns where the
        bytes are now; None if no copy was under way.
        """
        place = self.place
        if type(place) is Leaving:
            self.place = to = place.to
            self.away = nbytes = self.nbytes
            self.ledger.away += nbytes
            return to
        if place.is_back and type(place.origin) is Leaving:  # held to be used, or decoded already
            place.origin = place.origin.to
            return place.origin
        return None

    def write(self, file: Any) -> None:
        """Threads write the block to a file."""
        self.copy.file = file

    def written(self, place: Pageable) -> SlabBlock:
        """The file, or ordinary memory, has the bytes of the block. The block is free."""
        host, origin = self.copy, self.origin
        if type(origin) is Leaving:
            origin.to = place
        else:
            self._put(place)
        return host.block

    def absorb(self, inner: Sequence[Span], pieces: list[Piece]) -> None:
        """Makes spans that lie within this one parts of it, with all that they hold."""
        before = [(s, s.place, s.views, s.waiting, s.root, s.away) for s in inner]
        views, waiting, home = self.views, self.waiting, self.copy
        try:
            home.pieces = pieces
            for s in inner:
                self.views += s.views
                self.waiting += s.waiting
                s.views = s.waiting = 0
                s.place, s.root = Absorbed(self, s.low - self.low), nothing
                self.ledger.away -= s.away
                s.away = 0
        except BaseException:  # all of them, or none
            home.pieces, self.views, self.waiting = None, views, waiting
            for s, *values in before:
                s.place, s.views, s.waiting, s.root, s.away = values
            raise

    # ------------------------------------------------------------------ back

    def ask(self, view: SavedView) -> bool:
        """Counts a view as unpacked. Returns whether it is the first of this round. A view that
        comes for the second time begins another round.
        """
        session = self.session
        if view.round == session.round:
            session.round += 1
            session.cursor = 0
        if self.round != session.round:
            self.round, self.waiting = session.round, self.views
        first = self.waiting == self.views
        view.round = session.round
        self.waiting -= 1
        if self.index not in session.asked:
            session.asked[self.index] = None
        return first

    def ask_again(self, view: SavedView, before: tuple[int, int, int]) -> None:
        """Takes back that a view was unpacked."""
        view.round, self.round, self.waiting = before

    def is_wanted(self) -> bool:
        """Whether views of this round wait for it, and it is not on its way back."""
        place = self.place
        if self.ahead or place.is_back and place.flat is not None:
            return False
        if self.round != self.session.round:
            self.round, self.waiting = self.session.round, self.views
        return self.waiting > 0

    def _count_ahead(self) -> None:
        self.ahead = self.nbytes
        self.ledger.ahead += self.nbytes

    def asked_for(self) -> None:
        """What was brought back ahead of need is needed now."""
        if self.ahead:
            self.ledger.ahead -= self.ahead
            self.ahead = 0

    def hold(self, ahead: bool) -> None:
        """Views will use the bytes where they are. They may count as bytes that are back ahead of
        need.
        """
        origin = self.place
        self.in_use = True  # if the copy out is waited for, then by who will write to it, too
        if self.form is None:
            self.place = Restored(origin, origin.flat)
        else:
            self.place = Returning(origin, origin.flat, None)
        if ahead:
            self._count_ahead()

    def read_ahead(self) -> None:
        """Threads read the bytes, ahead of need."""
        self.place = Returning(self.origin, None, None)
        self._count_ahead()

    def fetch(self, flat: Any, arrived: Any) -> None:
        """A copy back has begun, ahead of need."""
        place = self.place
        self.place = Returning(place.origin if place.is_back else place, flat, arrived)
        if not self.ahead:
            self.ahead = nbytes = self.nbytes
            self.ledger.ahead += nbytes

    def restore(self, flat: Any, root: Any, low: int) -> None:
        """The bytes that came back are the storage from now on: `flat`, at `low` in the memory of
        `root`. If no other view waits for them, the views that have them hold them.
        """
        self.ledger.away -= self.away
        self.root = nothing  # until every field below is set
        self.away, self.low, self.gathered, self.family = 0, low, None, None
        place = self.place
        origin = place.origin if place.is_back else place
        self.place = Restored(origin, flat) if self.waiting > 0 else origin
        self.root = weakref.ref(root)

    def hand_out(self) -> None:
        """Stops holding what was restored: every view has it, or it has been written to since."""
        place = self.place
        if type(place) is Restored:
            self.place = place.origin

    def settle(self, to: OnHost | Pageable) -> None:
        """The bytes begin in host memory, and the device has never had them."""
        self.place, self.root = to, nothing

    def renew(self, counter: list[int] | None = None) -> None:
        """The host has changed the bytes where they are: that is their version from now on, as this
        counter counts them.
        """
        if counter is not None:
            self.counter = counter
        self.version = self.counter[0]

    def stand(self) -> None:
        """The bytes keep their version, whatever becomes of the tensor."""
        self.counter = [self.version]

    def drop(self) -> None:
        """Lets go of bytes that were brought back, or held. They are where they came from."""
        place, ledger = self.place, self.ledger
        self.asked_for()
        if place.is_back:
            if type(place) is Returning:
                ledger.coming.pop(place.arrived, None)
            self.place = place = place.origin
        if not self.away and type(place) is not OnDevice and type(place) is not Leaving:
            self.away = self.nbytes
            ledger.away += self.nbytes

    # ------------------------------------------------------------------ other changes

    def copy_on_device(self) -> None:
        """Takes a copy of bytes that stay, before they are written to."""
        origin = self.origin
        self._put(OnDevice(copy_of(origin.flat), origin.why))

    def join(self, family: Family) -> None:
        """Makes the span one of several parts of a storage."""
        self.family = family

    def enter(self) -> None:
        """Notes that the session counts the span."""
        self.entered = True

    def mend(self) -> None:
        """Puts the span in order behind an interrupt. No stream copies, so nothing is under way.
        Bytes that came back are on the host too: they come back once more.
        """
        place = self.place
        if place is not None and place.is_back:
            place = place.origin
        if type(place) is Leaving and (type(place.to) is OnHost or place.to.file.query()):
            place = place.to
        self.place = place
        self.ahead = 0
        self.away = 0 if type(place) in (OnDevice, Leaving, Absorbed) else self.nbytes
        self.entered = self.index < len(self.session.spans)

    def __del__(self) -> None:
        try:
            place, ledger, arrived = self.place, self.ledger, None
            if place.is_back:
                if type(place) is Returning:
                    arrived = place.arrived
                place = place.origin
            if self.entered:
                self.session.alive -= 1
                if type(place) is OnDevice and place.why == "last":
                    self.session.room += self.nbytes
                if self.ahead or self.away or arrived is not None:
                    ledger.dropped.append((self.ahead, self.away, arrived, self.stream))
            if type(place) is Leaving:
                place, ledger.orphans = place.to, True
            if type(place) is OnHost:
                if place.pieces is None:
                    ledger.slab.give_back(place.block, place.last_use)
                else:
                    for block in place.blocks():
                        ledger.slab.give_back(block, place.last_use)
        except (AttributeError, TypeError):
            pass  # half made, or the interpreter is shutting down


class SavedView:
    """What a node keeps: a span, and the geometry of the saved tensor in it.

    `backend` is the saved tensor's; that of a vmap hides the first dims of what is restored.
    `engine` unpacks it.
    """

    __slots__ = (
        "engine", "span", "offset", "dtype", "shape", "strides", "backend", "gathered", "label",
        "round",
    )  # fmt: skip

    def __init__(
        self, engine: CopyEngine, span: Span, first: int, array: Any, backend: Any, label: Any
    ) -> None:
        self.engine, self.span, self.offset, self.backend = engine, span, first - span.low, backend
        self.dtype, self.shape = array.dtype, array.shape
        plain = array.flags.c_contiguous and 1 not in self.shape  # a dim of 1 has any stride
        self.strides = None if plain else array.strides
        self.gathered = span.gathered is not None
        self.label = label  # the node's name and sequence number, where times are taken
        self.round = -1  # the one in which it was unpacked last
        span.views += 1
        span.waiting += 1

    def moved(self) -> Span:
        """The larger span that has absorbed this view's span."""
        span = self.span
        while type(span.place) is Absorbed:
            self.offset += span.place.offset
            self.span = span = span.place.span
        return span

    def __del__(self) -> None:
        try:
            span = self.span
            if type(span.place) is Absorbed:
                span = self.moved()
            span.views -= 1
            if self.round != span.round:
                span.waiting -= 1
        except AttributeError:
            pass
