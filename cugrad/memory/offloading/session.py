"""What one forward pass saved of a device's memory, and what the next one learns of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .families import Family, Hull, together
from .owner import Owner
from .stats import Meter

if TYPE_CHECKING:
    from .engine import CopyEngine

__all__ = ["Plan", "Session", "Stored", "View", "bytes_under_way", "nothing"]

LEAST = 1 << 26  # bytes under way at least, where the user names no number


class Stored:
    """One span of a storage, as it was at one version; every saved view of it shares this.

    A view that needs little of what it spans is gathered first: `gathered` is then its geometry.
    `family` has the parts of the storage that were saved one by one, where there are several.
    """

    __slots__ = (
        "session", "owner", "index", "counter", "version", "root", "low", "nbytes", "gathered",
        "stream", "device", "block", "host", "form", "sent", "copied", "last_use", "restored",
        "arrived", "fresh", "waiting", "views", "round", "ahead", "away", "stays", "family",
        "pieces", "home", "entered", "__weakref__",
    )  # fmt: skip

    def __init__(
        self, session: Session, owner: Owner, counter: list[int], root: Any, low: int, nbytes: int,
        gathered: Any,
    ) -> None:  # fmt: skip
        self.session, self.owner, self.index = session, owner, len(session.sizes)
        self.counter, self.version = counter, counter[0]
        self.root: Callable[[], Any] = weakref.ref(root)
        self.low, self.nbytes = low, nbytes
        self.gathered = gathered
        self.stream: Any = None  # the compute stream whose memory it is
        self.device: Any = None  # the bytes where they were, while something must hold them
        self.block: Any = None  # page-locked; or `host`, which has read(): memory or a file
        self.host: Any = None
        self.form: Any = None  # (codec, dtype, shape) of what is stored, if it is encoded
        self.copied: Any = None  # the event of the end of the copy out
        self.last_use: Any = None
        self.restored: Any = None  # the bytes brought back, until every view has had them
        self.arrived: Any = None  # the event for which their reader has to wait
        self.waiting = self.views = 0  # views not unpacked in this round; all views
        self.round = session.round
        self.ahead = 0  # its share of the bytes that the engine has brought back ahead of need
        self.away = 0  # and of those that are not on the device
        self.sent = nbytes  # as stored on the host
        self.stays: str | None = None  # why it has not left: "alive", "last", "host full", ...
        self.fresh = False  # `restored` is as it came back: to be waited for, and decoded
        self.family: Family | None = None
        self.pieces: list[Any] | None = None  # where its bytes are, if not all in its block
        self.home: Any = None  # (span, offset): the larger one that has become its place
        self.entered = False  # whether session and engine count it

    @property
    def is_only_here(self) -> bool:
        """Whether its bytes are where they were, and nowhere else."""
        return self.device is not None and self.block is None and self.host is None

    def _taken_over(self) -> list[Any]:
        """The blocks of pieces but its own."""
        blocks = {id(piece.block): piece.block for piece in self.pieces or ()}.values()
        return [block for block in blocks if block is not self.block]

    def __del__(self) -> None:
        try:
            session = self.session
            engine = session.engine
            if self.entered:
                session.alive -= 1
                if self.stays == "last":
                    session.room += self.nbytes
            if self.entered and (self.ahead or self.away or self.arrived is not None):
                engine.gone.append((self.ahead, self.away, self.arrived, self.stream))
            if self.block is not None:
                engine.out.slab.give_back(self.block, self.last_use)
                if self.pieces is not None:
                    for block in self._taken_over():
                        engine.out.slab.give_back(block, self.last_use)
        except (AttributeError, TypeError):
            pass  # half made, or the interpreter is shutting down


class View:
    """What a node keeps: a span, and the geometry of the saved tensor in it.

    `backend` is the saved tensor's; that of a vmap hides the first dims of what is restored.
    """

    __slots__ = (
        "stored", "offset", "dtype", "shape", "strides", "backend", "gathered", "label", "round",
    )  # fmt: skip

    def __init__(self, stored: Stored, first: int, array: Any, backend: Any, label: Any) -> None:
        self.stored, self.offset, self.backend = stored, first - stored.low, backend
        self.dtype, self.shape = array.dtype, array.shape
        plain = array.flags.c_contiguous and 1 not in array.shape  # a dim of 1 has any stride
        self.strides = None if plain else array.strides
        self.gathered = stored.gathered is not None
        self.label = label  # the node's name and sequence number, where times are taken
        self.round = -1  # the one in which it was unpacked last
        stored.views += 1
        stored.waiting += 1

    def moved(self) -> Stored:
        """The span that has taken the place of the one that this was a view of."""
        while self.stored.home is not None:
            self.stored, shift = self.stored.home
            self.offset += shift
        return self.stored

    def __del__(self) -> None:
        try:
            stored = self.stored
            if stored.home is not None:
                stored = self.moved()
            stored.views -= 1
            if self.round != stored.round:
                stored.waiting -= 1
        except AttributeError:
            pass


def bytes_under_way(wanted: int | None, largest: int) -> int:
    """How many bytes may be on their way: as many as the user says, or two of the largest storages.

    One is copied while the next is made, or used.
    """
    return max(LEAST, 2 * largest) if wanted is None else wanted


class Plan:
    """What was learned of a step: its storages, the order in which they are asked for, what stays.

    `kept` maps the index of a storage that is not worth moving to the reason; `link_bound` says
    of forward and of backward whether the copies take longer than the ops. Where memory is `tight`
    nothing stays only because that is faster. A storage with a hull sends that, and not only the
    part of it that is saved first, whose size is in `sizes`.
    """

    __slots__ = ("sizes", "order", "place", "kept", "link_bound", "tight", "hulls")

    def __init__(
        self, sizes: list[int], order: list[int], kept: dict[int, str],
        link_bound: tuple[bool, bool] = (False, False), tight: bool = False,
        hulls: dict[int, Hull] | None = None,
    ) -> None:  # fmt: skip
        self.sizes, self.order, self.kept = sizes, order, kept
        self.link_bound, self.tight, self.hulls = link_bound, tight, hulls
        self.place = {index: k for k, index in enumerate(order)}

    def bytes_of(self, index: int) -> int:
        """The bytes that a storage sends."""
        hull = self.hulls.get(index) if self.hulls else None
        return self.sizes[index] if hull is None else hull.high - hull.low


def nothing() -> None:
    """A reference to nothing."""


class Session:
    """The storages that were saved between one backward pass and the next, in that order.

    `key` says what a plan depends on beside the storages; `before` is the session that came first.
    """

    def __init__(self, engine: CopyEngine, key: Any, before: Session | None) -> None:
        self.engine, self.key = engine, key
        self.follows: int = 0 if before is None else before.signature
        self.signature: int = 0  # of the sizes, in order
        self.largest = self.largest_moved = 0  # bytes of a storage
        self.alive = 0  # storages that somebody still wants
        self.room = 0  # bytes of the last storages, not yet there or gone again; see may_use
        self.sizes: list[int] = []  # of what was asked for
        self.grown: dict[int, int] = {}  # and of what was sent, where that is more
        self.families: list[Family] = []
        self.stored: list[weakref.ref[Stored]] = []
        self.asked: dict[int, None] = {}  # indices in the order of their first unpack
        self.stayed: dict[int, str] = {}  # asked for while still on the device, and why it was
        self.lapsed: set[int] = set()  # kept for being there anyway, and nobody else had it
        self.plan: Plan | None = None
        self.run: Callable[[], Any] = nothing  # the backward pass that asked last, weakly
        self.meter: Meter | None = None  # where times are taken
        self.tight = False  # an allocation has failed while this was saved
        self.round = 0  # how often everything was unpacked before
        self.cursor = 0  # how far, in the expected order, storages were brought back
        self._chain: Plan | None = None

    def expects(
        self, nbytes: int, low: int, high: int, size: int
    ) -> tuple[str | None, Hull | None]:
        """Why the next storage is not worth moving, None if it is, or nobody knows; and what to
        send of it in the place of the bytes from `low` to `high`, where others will follow.

        An earlier session that began like this one, best after the same predecessor, has taught
        us. Where a size differs it is another one that we follow, or none.
        """
        index = len(self.sizes)
        plan = self.plan
        if index == 0:
            self._follow(self.engine._plans.learned(self, nbytes))
        elif plan is not None and (index >= len(plan.sizes) or plan.sizes[index] != nbytes):
            self._follow(self.engine._plans.learned_of_another(self, nbytes))
        plan = self.plan
        if plan is None:
            return None, None
        why, hull = plan.kept.get(index), None
        if plan.hulls:
            hull = plan.hulls.get(index)
            if hull is not None:
                if hull.size != size or low < hull.low or hull.high < high:
                    hull = None
                else:
                    nbytes = hull.high - hull.low
        return why, hull

    def _follow(self, plan: Plan | None) -> None:
        """What is expected from here on."""
        self.plan, self.room = plan, 0
        if plan is not None:
            here = len(self.sizes)
            ours = [i for i, why in plan.kept.items() if why == "last" and i >= here]
            self.room = sum([plan.bytes_of(i) for i in ours])

    def add(self, stored: Stored, asked: int) -> None:
        """Enters a storage whose copy has begun, and of which so many bytes were asked for."""
        nbytes = stored.nbytes
        self.alive += 1
        stored.entered = True
        if stored.stays == "last":
            self.room -= nbytes
        if nbytes != asked:
            self.grown[len(self.sizes)] = nbytes
        self.sizes.append(asked)
        self.stored.append(weakref.ref(stored))
        self.signature = hash((self.signature, nbytes))
        if nbytes > self.largest:
            self.largest = nbytes
        if nbytes > self.largest_moved and (stored.device is None or stored.block is not None):
            self.largest_moved = nbytes

    def mend(self, alive: int) -> None:
        """Forgets a storage that was not wholly entered; so many are."""
        self.alive = alive
        del self.sizes[len(self.stored) :]
        self._chain, self.cursor = None, 0

    def learned(self) -> Plan | None:
        """The plan for a next step like this one; None before backward has asked for anything.

        What was on the device anyway stays, and of the last bytes that were saved those that had
        not left when backward began, in this step or in one before, or would not have if nothing
        had made forward wait. Their number is bounded, by `keep_last` or else by what may be on its
        way: a step in which nothing leaves in time must not teach us to keep everything.
        """
        known = self.plan if self.plan is not None and self.is_whole() else None
        if not self.asked:  # a step that ended before backward, by an error perhaps
            return self.plan
        seen = {**self.stayed, **({} if known is None else known.kept)}
        kept = {i: why for i, why in seen.items() if why == "alive" and i not in self.lapsed}
        keep_last, backlog, _ = self.key
        tight = self.tight or known is not None and known.tight
        if tight and keep_last is None:
            keep_last = 0
        left = keep_last if keep_last is not None else bytes_under_way(backlog, self.largest)
        sent = self.sizes
        if self.grown:
            sent = [self.grown.get(i, n) for i, n in enumerate(sent)]
        late = None if self.meter is None else self.meter.late()
        if late is not None:  # and if all of it had moved
            plan = {} if known is None else known.kept
            stayed = sum([sent[i] for i, why in plan.items() if why == "last"])
            late = late[0] + stayed, late[1] + stayed
            bound = late[0] > 0, late[1] > 0
        else:
            bound = (False, False) if known is None else known.link_bound
        excess = 0 if late is None else late[0]  # bytes at the end for which the link had no time
        for index in range(len(sent) - 1, -1, -1):
            left -= sent[index]
            if left < 0:
                break
            if keep_last is not None or excess > 0 or seen.get(index) == "last":
                kept.setdefault(index, "last")
            excess -= sent[index]
        if not self.families:
            return Plan(self.sizes, list(self.asked), kept, bound, tight)
        sizes, order, kept, hulls = together(self.families, self.sizes, list(self.asked), kept)
        return Plan(sizes, order, kept, bound, tight, hulls)

    def may_use(self, backward: bool) -> int:
        """The room of the last storages, which stay, while they are not on the device.

        So much more may be under way where the link is what a step waits for.
        """
        if self.plan is None or self.key[2] is not None:  # of what is encoded nothing stays
            return 0
        return self.room if self.plan.link_bound[backward] else 0

    def is_over(self) -> bool:
        """Whether backward has begun to read what was saved, or nobody wants it any more."""
        return bool(self.asked) or self.alive <= 0 < len(self.sizes)

    def is_whole(self) -> bool:
        """Whether this session saved what its plan says, neither less nor more."""
        return self.plan is not None and len(self.plan.sizes) == len(self.sizes)

    def chain(self) -> Plan:
        """The order in which storages are expected to be asked for: as learned, or backwards."""
        chain, n = self._chain, len(self.sizes)
        if chain is None or len(chain.sizes) != n:
            chain = self.plan if self.is_whole() else None
            if chain is None:
                chain = Plan(list(self.sizes), list(range(n - 1, -1, -1)), {})
            self._chain = chain
            self.cursor = 0
        return chain
