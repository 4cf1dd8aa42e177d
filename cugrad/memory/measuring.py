"""What one step does to memory: its ops, what each takes, and the values that it saves."""

from __future__ import annotations

import tracemalloc
import weakref
from typing import Any

import numpy as np

from ..backends import Backend, backend_of
from .planning import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Event, Step
from .planning import Value as Planned
from .rates import Rates
from .recipes import Recipe, Value

__all__ = ["Measurement"]



class _Seen:
    """What was seen of one value."""

    __slots__ = ("nbytes", "born", "dies", "gone", "uses", "inputs", "can_be_made", "ref", "alive")

    def __init__(self, value: Value, born: int) -> None:
        self.nbytes, self.born, self.dies = value.nbytes, born, born
        self.gone: int | None = None  # the event in which its memory was let go of
        self.uses: list[int] = []
        recipe = value.recipe
        self.inputs = [] if recipe is None else [v.number for v in recipe.values()]
        self.can_be_made, self.ref = recipe is not None, weakref.ref(value)
        self.alive = False  # somebody but us holds it when backward begins


class _Span:
    """What was seen of one op or node."""

    __slots__ = ("name", "end", "left_out", "peak", "back")

    def __init__(self, name: str) -> None:
        self.name = name
        self.end: Any = None  # the time of its end, as an event of the device
        self.left_out: list[tuple[Any, Any]] = []  # copies and recomputations within it
        self.peak = self.back = 0  # bytes in use at most; of them, what is here again


class Measurement:
    """Watches one forward and its backward while a policy that needs little memory runs."""

    def __init__(self, backend: Backend, before: int) -> None:
        self.backend = backend
        self.values: list[_Seen] = []
        self.spans: list[_Span] = []
        self._left_out: list[tuple[Any, Any]] = []  # since the last span's end
        self._of_root: dict[int, _Seen] = {}  # by its id, the value that a storage holds now
        self.elsewhere: Any = None  # another device, on which values were made
        self.forward: int | None = None  # the number of ops before backward
        self.tracing = backend.device_type == "cpu" and not tracemalloc.is_tracing()
        if self.tracing:
            tracemalloc.start()
        self.begin, self.before = self.mark(), before
        self._most = backend.max_memory_allocated()  # before, which is told again in the end
        backend.reset_peak_memory_stats()

    def close(self) -> None:
        """What comes after the last node counts as that one's, too; the times are all taken."""
        self._gap()
        self.backend.raise_peak_memory_stats(max(self._most, self.peak))
        if self.tracing:
            tracemalloc.stop()
            self.tracing = False

    @property
    def is_whole(self) -> bool:
        """Whether forward and backward were seen, and every op and node came to its end."""
        return self.forward is not None and all(span.end is not None for span in self.spans)

    @property
    def peak(self) -> int:
        """The most bytes that were in use."""
        return max([span.peak for span in self.spans], default=0)

    def _gap(self) -> None:
        """What happens between ops counts as the one before."""
        if self.spans:
            span = self.spans[-1]
            span.peak = max(span.peak, self.backend.max_memory_allocated())

    def mark(self) -> Any:
        """This point of the current stream."""
        event = self.backend.event(timing=True)
        self.backend.current_stream().record_event(event)
        return event

    def enter(self, name: str) -> None:
        """An op, or a node, begins."""
        self._gap()
        self.backend.reset_peak_memory_stats()
        self.spans.append(_Span(name))

    def leave(self, back: int) -> None:
        """It has ended; `back` bytes were here for it that had been away."""
        span = self.spans[-1]
        span.end, span.back = self.mark(), back
        span.left_out, self._left_out = self._left_out, []
        span.peak = max(span.peak, self.backend.max_memory_allocated())
        self.backend.reset_peak_memory_stats()

    def turn(self, leaving: set[int]) -> None:
        """Backward begins; `leaving` are the ids of roots that are there only to be copied."""
        if self.forward is not None:
            return
        self.forward = len(self.spans)
        for seen in self.values:
            value = seen.ref()
            root = None if value is None else value.root()
            kept = value is not None and hasattr(value.held, "dtype")
            seen.alive = root is not None and not kept and id(root) not in leaving

    def pause(self) -> Any:
        """What follows belongs to no op: neither its time nor the memory that it takes; a mark."""
        self._gap()
        return self.mark()

    def resume(self, before: Any) -> None:
        """That was all, since the mark."""
        self._left_out.append((before, self.mark()))
        self.backend.reset_peak_memory_stats()

    def made(self, value: Value, recipe: Recipe, is_ours: bool) -> None:
        """A value has got its number; it takes no room if it is on another device."""
        seen = _Seen(value, len(self.spans) - 1)
        self.values.append(seen)
        root = value.root()
        if not is_ours:
            self.elsewhere = backend_of(root).device_type
            seen.nbytes, seen.can_be_made = 0, False
            return
        before, self._of_root[id(root)] = self._of_root.get(id(root)), seen
        if before is not None and before.gone is None:  # changed in place: the memory is this one's
            before.gone = max(before.born, seen.born - 1)
            before.dies = min(before.dies, before.gone)

        def gone(key: int) -> None:
            last = self._of_root.pop(key)
            if last.gone is None:
                last.gone = len(self.spans) - 1

        if before is None:
            weakref.finalize(root, gone, id(root))

    def reads(self, number: int) -> None:
        """An op of forward reads a value."""
        self.values[number].dies = max(0, len(self.spans))

    def uses(self, value: Value) -> None:
        """A node reads a value that was saved, in this step or in one before."""
        if value.number >= len(self.values) or self.values[value.number].ref() is not value:
            return
        uses, at = self.values[value.number].uses, len(self.spans) - 1
        if self.forward is not None and (not uses or uses[-1] != at):
            uses.append(at)

    # ------------------------------------------------------------------ what was learned

    def step(
        self, rates: Rates, placements: frozenset[str], small: int, backlog: int
    ) -> Step:
        """The step, for a planner; waits for the device."""
        spans, n = self.spans, len(self.spans)
        assert self.forward is not None
        here = np.zeros(n + 1, np.int64)
        for seen in self.values:
            gone = n - 1 if seen.gone is None else min(seen.gone, n - 1)
            if not seen.alive:
                here[seen.born] += seen.nbytes
                here[gone + 1] -= seen.nbytes
        here = np.cumsum(here[:-1])
        events, before = [], self.begin
        for k, span in enumerate(spans):
            span.end.synchronize()
            seconds = before.elapsed_time(span.end) - sum(
                [a.elapsed_time(b) for a, b in span.left_out]
            )
            base = max(0, span.peak - int(here[k]) - span.back)
            events.append(Event(max(seconds, 0.0) / 1e3, base, span.name))
            before = span.end
        values = tuple([self._planned(seen, placements, small, rates) for seen in self.values])
        return Step(
            events=tuple(events), forward=self.forward, values=values,
            out_rate=rates.out, in_rate=rates.back, disk_out_rate=rates.disk_out,
            disk_in_rate=rates.disk_back, lookahead=backlog, backlog=backlog,
        )

    def _planned(
        self, seen: _Seen, placements: frozenset[str], small: int, rates: Rates
    ) -> Planned:
        """One value, as the planner sees it."""
        allowed = set(placements)
        if not seen.can_be_made:
            allowed.discard(RECOMPUTE)
        if seen.nbytes < small:
            allowed -= {OFFLOAD, DISK, COMPRESS}
        if seen.alive:
            allowed = {KEEP}
        if not seen.uses:
            allowed &= {KEEP, RECOMPUTE, OFFLOAD}
            allowed.add(RECOMPUTE)
        allowed.add(KEEP)
        assert self.forward is not None
        return Planned(
            nbytes=0 if seen.alive else seen.nbytes, born=seen.born,
            dies=max(seen.born, min(seen.dies, self.forward - 1)),
            uses=tuple(seen.uses), inputs=tuple(dict.fromkeys(seen.inputs)),
            placements=frozenset(allowed), stored={COMPRESS: seen.nbytes // 2},
            codec_seconds=seen.nbytes / rates.codec,
        )  # fmt: skip
