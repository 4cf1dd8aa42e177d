"""What one forward pass saved of a device's memory, and what the next one learns of it."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .coalescing import Family, Hull, together
from .places import Leaving, OnDevice, OnHost
from .span import Span, nothing
from .stats import Meter

__all__ = ["PlanBook", "Session", "TransferPlan", "bytes_under_way"]

LEAST = 1 << 26  # bytes under way at least, where the user names no number
REMEMBERED = 64  # keys of sessions from which plans are made


def bytes_under_way(backlog: int | None, largest: int) -> int:
    """How many bytes may be on their way: as many as the user says, or two of the largest storages.

    One is copied while the next is made, or used.
    """
    return max(LEAST, 2 * largest) if backlog is None else backlog


class TransferPlan:
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


class Session:
    """The storages that were saved between one backward pass and the next, in that order.

    `key` says what a plan depends on beside the storages; `before` is the session that came first.
    """

    def __init__(self, key: Any, before: Session | None) -> None:
        self.key = key
        self.follows: int = 0 if before is None else before.signature
        self.signature: int = 0  # of the sizes, in order
        self.largest = self.largest_moved = 0  # bytes of a storage
        self.alive = 0  # storages that are still wanted
        self.room = 0  # bytes of the last storages, not yet there or gone again; see may_use
        self.sizes: list[int] = []  # of what was asked for
        self.grown: dict[int, int] = {}  # and of what was sent, where that is more
        self.families: list[Family] = []
        self.spans: list[weakref.ref[Span]] = []
        self.asked: dict[int, None] = {}  # indices in the order of their first unpack
        self.stayed: dict[int, str] = {}  # asked for while still on the device, and why it was
        self.lapsed: set[int] = set()  # kept as held anyway, but only the session held them
        self.plan: TransferPlan | None = None
        self.run: Callable[[], Any] = nothing  # the backward pass that asked last, weakly
        self.meter: Meter | None = None  # where times are taken
        self.tight = False  # an allocation has failed while this was saved
        self.round = 0  # how often everything was unpacked before
        self.cursor = 0  # how far, in the expected order, storages were brought back
        self._chain: TransferPlan | None = None

    def expects(
        self, nbytes: int, low: int, high: int, size: int, book: PlanBook
    ) -> tuple[str | None, Hull | None]:
        """Whether the next storage should stay, and which bytes to send if not.

        The first value is the reason why it is not worth moving, or None. The second is the hull to
        send in place of the bytes from `low` to `high`, or None; a hull also covers parts that will
        be saved later. Both come from the plan of an earlier session that began like this one,
        preferably after the same predecessor. Where a size differs, the plan of another session is
        followed, or none.
        """
        index = len(self.sizes)
        plan = self.plan
        if index == 0:
            self._follow(book.learned(self, nbytes))
        elif plan is not None and (index >= len(plan.sizes) or plan.sizes[index] != nbytes):
            self._follow(book.learned_of_another(self, nbytes))
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

    def _follow(self, plan: TransferPlan | None) -> None:
        """Follows a plan from here on."""
        self.plan, self.room = plan, 0
        if plan is not None:
            here = len(self.sizes)
            ours = [i for i, why in plan.kept.items() if why == "last" and i >= here]
            self.room = sum([plan.bytes_of(i) for i in ours])

    def add(self, span: Span, asked: int) -> None:
        """Enters a span whose copy has begun, and the number of bytes that were asked for."""
        nbytes, place = span.nbytes, span.place
        self.alive += 1
        span.enter()
        if nbytes != asked:
            self.grown[len(self.sizes)] = nbytes
        self.sizes.append(asked)
        self.spans.append(span.ref)
        self.signature = hash((self.signature, nbytes))
        if nbytes > self.largest:
            self.largest = nbytes
        if type(place) is OnDevice:
            if place.why == "last":
                self.room -= nbytes
        elif nbytes > self.largest_moved and (
            type(place) is not Leaving or type(place.to) is OnHost
        ):  # what a store takes as it is was not moved
            self.largest_moved = nbytes

    def mend(self, alive: int) -> None:
        """Forgets a storage that was not wholly entered. `alive` of the others are still wanted."""
        self.alive = alive
        del self.sizes[len(self.spans) :]
        self._chain, self.cursor = None, 0

    def learned(self) -> TransferPlan | None:
        """The plan for a next step like this one; None before backward has asked for anything.

        Three kinds of storages stay: those that were on the device anyway; of the last ones, those
        that had not left when backward began, in this step or in an earlier one; and those that had
        left only because forward was made to wait. The number of the last ones is bounded, by
        `keep_last` or by the bytes that may be under way. Without a bound, a step in which nothing
        leaves in time would teach the next one to keep everything.
        """
        previous = self.plan if self.plan is not None and self.is_whole() else None
        if not self.asked:  # a step that ended before backward, by an error perhaps
            return self.plan
        seen = {**self.stayed, **({} if previous is None else previous.kept)}
        kept = {i: why for i, why in seen.items() if why == "alive" and i not in self.lapsed}
        keep_last, backlog, _ = self.key
        tight = self.tight or previous is not None and previous.tight
        if tight and keep_last is None:
            keep_last = 0
        left = keep_last if keep_last is not None else bytes_under_way(backlog, self.largest)
        sent = self.sizes
        if self.grown:
            sent = [self.grown.get(i, n) for i, n in enumerate(sent)]
        late = None if self.meter is None else self.meter.late()
        if late is not None:  # and if all of it had moved
            plan = {} if previous is None else previous.kept
            stayed = sum([sent[i] for i, why in plan.items() if why == "last"])
            late = late[0] + stayed, late[1] + stayed
            bound = late[0] > 0, late[1] > 0
        else:
            bound = (False, False) if previous is None else previous.link_bound
        excess = 0 if late is None else late[0]  # bytes at the end for which the link had no time
        for index in range(len(sent) - 1, -1, -1):
            left -= sent[index]
            if left < 0:
                break
            if keep_last is not None or excess > 0 or seen.get(index) == "last":
                kept.setdefault(index, "last")
            excess -= sent[index]
        if not self.families:
            return TransferPlan(self.sizes, list(self.asked), kept, bound, tight)
        sizes, order, kept, hulls = together(self.families, self.sizes, list(self.asked), kept)
        return TransferPlan(sizes, order, kept, bound, tight, hulls)

    def may_use(self, backward: bool) -> int:
        """The room of the last storages, which stay, while they are not on the device. If a step
        waits for the link, this many more bytes may be under way.
        """
        if self.plan is None or self.key[2] is not None:  # of what is encoded nothing stays
            return 0
        return self.room if self.plan.link_bound[backward] else 0

    def is_over(self) -> bool:
        """Whether backward has begun to read what was saved, or nothing of it is wanted."""
        return bool(self.asked) or self.alive <= 0 < len(self.sizes)

    def is_whole(self) -> bool:
        """Whether this session saved what its plan says, neither less nor more."""
        return self.plan is not None and len(self.plan.sizes) == len(self.sizes)

    def chain(self) -> TransferPlan:
        """The order in which storages are expected to be asked for: as learned, or backwards."""
        chain, n = self._chain, len(self.sizes)
        if chain is None or len(chain.sizes) != n:
            chain = self.plan if self.is_whole() else None
            if chain is None:
                chain = TransferPlan(list(self.sizes), list(range(n - 1, -1, -1)), {})
            self._chain = chain
            self.cursor = 0
        return chain


class PlanBook(OrderedDict[Any, Session]):
    """The last sessions of a device, by how they began and by what they were."""

    def learned(self, session: Session, nbytes: int) -> TransferPlan | None:
        """The plan of the last session that began like this one, and which is now forgotten."""
        exact, loose = (session.key, nbytes, session.follows), (session.key, nbytes)
        previous = self.get(exact) or self.get(loose)
        if previous is session:  # whose first storage could not be sent
            return session.plan
        self.remember(session, exact, loose)
        return None if previous is None else previous.learned()

    def remember(self, session: Session, *keys: Any) -> None:
        """Enters a session, and forgets those that were entered first."""
        for key in keys:
            self[key] = session
            self.move_to_end(key)
        while len(self) > REMEMBERED:
            self.popitem(last=False)

    def learned_of_another(self, session: Session, nbytes: int) -> TransferPlan | None:
        """The plan of the last session that was the same up to here, if the followed plan is not.
        This happens where contexts of several networks take turns.
        """
        index = len(session.sizes)
        for other in reversed(self.values()):
            sizes = other.sizes
            if other is session or len(sizes) <= index or other.key != session.key:
                continue
            if sizes[index] != nbytes and not other.families:
                continue
            plan = other.learned() if other.families else None
            if plan is not None:  # of fewer storages than were sent in parts
                sizes = plan.sizes
            if sizes[index : index + 1] == [nbytes] and sizes[:index] == session.sizes:
                return plan or other.learned()
        return None
