"""Knows which spans of which storages have been sent, at which version; finds them again."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from .coalescing import Family, Part
from .session import Session
from .span import Span

__all__ = ["Storages", "fresh_bytes", "relate"]

FEW = 12  # spans of one storage that are looked through one by one
MANY = 16  # among which those that are gone are looked for


class Spans:
    """Many spans of one storage, by the place where they begin."""

    __slots__ = ("lows", "dense", "longest", "rest")

    def __init__(self, refs: list[weakref.ref[Span]]) -> None:
        self.lows, self.dense = list[int](), list[weakref.ref[Span]]()
        self.longest = 0  # bytes of a span
        self.rest: list[weakref.ref[Span]] = []  # what was gathered, or encoded
        for ref in refs:
            self.add(ref)

    def add(self, ref: weakref.ref[Span]) -> None:
        s = ref()
        if s is None or s.root() is None or s.version != s.counter[0]:
            return
        if s.gathered is not None or s.form is not None:
            self.rest.append(ref)
            return
        place = bisect_right(self.lows, s.low)
        self.lows.insert(place, s.low)
        self.dense.insert(place, ref)
        self.longest = max(self.longest, s.nbytes)

    def near(self, low: int, high: int) -> list[weakref.ref[Span]]:
        """Those spans that may have some of these bytes."""
        first = bisect_right(self.lows, low - self.longest)
        return self.dense[first : bisect_left(self.lows, high)] + self.rest


class Storages:
    """The spans that are still wanted, by the id of the root in whose memory they were."""

    def __init__(self) -> None:
        self._live: dict[int, list[weakref.ref[Span]]] = {}
        self._many: dict[int, Spans] = {}
        self._sweep = 64

    def add(self, root: Any, span: Span) -> None:
        """Enters a span of a root's memory."""
        key = id(root)  # which one that is gone may have had
        refs = self._live.setdefault(key, [])
        refs.append(span.ref)
        if len(refs) > FEW:
            self._add_to_many(key, refs)
        if len(self._live) > self._sweep:
            self._forget_gone()

    def _add_to_many(self, key: int, refs: list[weakref.ref[Span]]) -> None:
        if len(refs) >= MANY and len(refs).bit_count() == 1:  # not each time: most may be alive
            self._forget_dead(key, refs)
        elif key in self._many:
            self._many[key].add(refs[-1])
        else:
            self._many[key] = Spans(refs)

    def _forget_gone(self) -> None:
        """Roots of which no span is left make room."""
        self._live = {
            key: refs for key, refs in self._live.items()
            if refs and (refs[-1]() is not None or any(r() is not None for r in refs))
        }  # fmt: skip
        self._many = {key: spans for key, spans in self._many.items() if key in self._live}
        self._sweep = max(64, 2 * len(self._live))

    def _forget_dead(self, key: int, refs: list[weakref.ref[Span]]) -> None:
        """Spans of storages that are gone, whose id others have had since, make room."""
        refs[:] = [ref for ref in refs if ref() is not None]
        if self._many.pop(key, None) is not None and len(refs) > FEW:
            self._many[key] = Spans(refs)

    def mend(self) -> None:
        """Restores the order that an exception in `add` or `others` has left unfinished."""
        self._many = {key: Spans(refs) for key, refs in self._live.items() if len(refs) > FEW}

    def all(self) -> list[Span]:
        """All spans, each once, although a span that is back is listed under both of its roots."""
        spans = dict.fromkeys([ref() for refs in list(self._live.values()) for ref in refs])
        return [span for span in spans if span is not None]

    def of(self, root: Any) -> list[Span]:
        """The spans of a root's memory as it is now."""
        spans = [ref() for ref in self._live.get(id(root), ())]
        return [
            s for s in spans
            if s is not None and s.root() is root and s.version == s.counter[0]
        ]  # fmt: skip

    def held(self, key: int) -> int:
        """How many spans hold memory of the root of this id where it was."""
        count = 0
        for ref in self._live.get(key, ()):
            s = ref()
            if s is not None and s.form is None and s.gathered is None and s.held is not None:
                count += 1
        return count

    def known(
        self, root: Any, counter: list[int], low: int, high: int, geometry: Any, dtype: Any
    ) -> Span | None:
        """A span of this storage, at this version, that covers the bytes from low to high. Encoded
        bytes serve only views of the dtype that they were encoded as.
        """
        refs = self._live.get(id(root))
        if not refs:
            return None
        if len(refs) > FEW:
            refs = self._many[id(root)].near(low, high)
        for ref in refs:
            s = ref()
            if s is None or s.counter is not counter or s.version != counter[0]:
                continue
            if s.root() is not root or s.form is not None and s.form[1] != dtype:
                continue
            if s.gathered is not None:
                if s.gathered == geometry:
                    return s
            elif s.low <= low and high <= s.low + s.nbytes:
                return s
        return None

    def others(self, root: Any, counter: list[int], low: int, high: int) -> Sequence[Span]:
        """The spans of a storage, at this version, that share at least one byte with these."""
        refs = self._live.get(id(root))
        if not refs:
            return ()
        some = refs
        if len(refs) > FEW:
            some = self._many[id(root)].near(low, high)
            if not some:
                some = refs[-1:]
        now, spans, gone = counter[0], [], False
        for ref in some:
            s = ref()
            if s is None:
                gone = True
            elif s.counter is counter and s.version == now and s.root() is root:
                spans.append(s)
        if gone:
            self._forget_dead(id(root), refs)
        return spans


def fresh_bytes(low: int, high: int, others: Sequence[Span]) -> int:
    """The number of bytes of a span that no other span has."""
    dense = sorted((s.low, s.low + s.nbytes) for s in others if s.gathered is None)
    nbytes, at = high - low, low
    for below, above in dense:
        nbytes -= max(0, min(above, high) - max(below, at))
        at = max(at, above)
    for s in others:
        if s.gathered is not None:
            first, last = s.gathered[:2]
            within = low <= first and last <= high
            if within and not any(below <= first and last <= above for below, above in dense):
                nbytes -= s.nbytes
    return max(nbytes, 0)


def relate(session: Session, span: Span, others: Sequence[Span], part: Part, size: int) -> None:
    """Notes that a session saves a storage of this size in parts, and that one of them is new."""
    family = None
    for other in others:
        if other.session is session and other.form is None:
            family = other.family
            if family is None:
                family = Family(size)
                other.join(family)
                session.families.append(family)
                low, high = other.low, other.low + other.nbytes
                if other.gathered is not None:
                    low, high = other.gathered[:2]
                family.add(Part(low, high, other.gathered, other.nbytes, other.index))
            break
    if family is None:
        family = Family(size)
        session.families.append(family)
    span.join(family)
    family.add(part)
