"""Decides which parts of one storage are sent together in later steps, once all are known."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple

__all__ = ["Family", "Hull", "Part", "together"]


class Part(NamedTuple):
    """Bytes of a storage that were saved, and the number of the span that sends them.

    Of a part with a `geometry` only some bytes are gathered and sent, `nbytes` of them.
    """

    low: int
    high: int
    geometry: Any
    nbytes: int
    number: int


class Hull(NamedTuple):
    """The bytes to send in the place of the first of several parts, in a storage of this size."""

    low: int
    high: int
    size: int


class Family:
    """The parts of one storage, at one version, in the order in which they were saved.

    A part counts if it would have to leave when each is sent alone. A larger span may have sent it.

    >>> family = Family(100)
    >>> family.add(Part(0, 20, None, 20, number=0))
    >>> family.add(Part(10, 40, None, 30, number=1))
    >>> family.see(12, 30, None, 18, number=1)  # the one before has it
    >>> family.see(60, 70, None, 10, number=1)
    >>> [[(part.low, part.high) for part in group] for group in family.groups()]
    [[(0, 20), (10, 40)], [(60, 70)]]
    """

    __slots__ = ("size", "parts", "_lows", "_highs", "_geometries")

    def __init__(self, size: int) -> None:
        self.size, self.parts = size, list[Part]()
        self._lows: list[int] = []  # of what the dense parts cover, in order
        self._highs: list[int] = []
        self._geometries: set[Any] = set()

    def _at(self, low: int, high: int) -> int | None:
        """The number of the stretch that has these bytes."""
        k = bisect_right(self._lows, low) - 1
        return k if k >= 0 and high <= self._highs[k] else None

    def add(self, part: Part) -> None:
        """Notes a part that was sent alone."""
        self.parts.append(part)
        if part.geometry is not None:
            self._geometries.add(part.geometry)
            return
        low, high = part.low, part.high
        first, end = bisect_right(self._highs, low), bisect_left(self._lows, high)
        if first < end:
            low, high = min(low, self._lows[first]), max(high, self._highs[end - 1])
        self._lows[first:end], self._highs[first:end] = [low], [high]

    def see(self, low: int, high: int, geometry: Any, nbytes: int, number: int) -> None:
        """Notes a saved part that a larger span has sent already. It counts as a part of its own
        unless earlier parts cover it.
        """
        if self._at(low, high) is not None or geometry in self._geometries:
            return
        if geometry is None:
            if 2 * (high - low) >= self.size:  # as the engine does
                low, high = 0, self.size
            nbytes = high - low
        self.add(Part(low, high, geometry, nbytes, number))

    def groups(self) -> list[list[Part]]:
        """The parts to send together, in the order in which they were saved. A group has the parts
        that overlap, and gathered parts that lie within them; it has all parts where that sends
        less.
        """
        groups: dict[Any, list[Part]] = {}
        sent = sum(self._highs) - sum(self._lows)
        for part in self.parts:
            k: Any = self._at(part.low, part.high)
            if k is None:  # gathered, and not within a stretch
                k = part.geometry
                sent += part.nbytes
            groups.setdefault(k, []).append(part)
        if sent > max(p.high for p in self.parts) - min(p.low for p in self.parts):
            return [self.parts]
        return list(groups.values())


def together(
    families: list[Family], sizes: list[int], order: list[int], kept: dict[int, str]
) -> tuple[list[int], list[int], dict[int, str], dict[int, Hull]]:
    """The plan of a step that sends each group of families as one, when its first part comes:
    sizes, order and what stays, without the parts that need not be sent, and the hulls by index.
    """
    home: dict[int, int] = {}
    hulls: dict[int, Hull] = {}
    for family in families:
        first: dict[int, Part] = {}
        for part in family.parts:
            first.setdefault(part.number, part)
        for group in family.groups():
            leader = group[0].number
            if len(group) == 1 or first[leader] is not group[0]:
                continue
            low, high = min(p.low for p in group), max(p.high for p in group)
            hulls[leader] = Hull(low, high, family.size)
            home.update({p.number: leader for p in group if first[p.number] is p})
    members: dict[int, list[int]] = {}
    for index in range(len(sizes)):
        members.setdefault(home.get(index, index), []).append(index)
    number = {index: k for k, leader in enumerate(members) for index in members[leader]}
    reasons = {number[i]: {kept.get(j) for j in members[i]} for i in members}
    return (
        [sizes[leader] for leader in members],
        list(dict.fromkeys([number[index] for index in order])),
        {k: why for k, (why, *others) in reasons.items() if why is not None and not others},
        {number[leader]: hull for leader, hull in hulls.items()},
    )
