"""What one step does to memory: its ops, what each takes, and the values that it saves."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends import Backend, backend_of
from ..constants import Constant
from ..geometry import is_alone
from ..recomputing.recipes import Recipe
from ..recomputing.values import Value
from .planning import COMPRESS, DISK, KEEP, OFFLOAD, RECOMPUTE, Step, StepEvent, StepValue
from .rates import Rates

__all__ = ["BLOCK", "Measurement", "mark"]

HELD = 4  # times as much as a value that is made again is more than what is held for that
BLOCK = 512  # bytes: devices hand out multiples of it


def mark(backend: Backend) -> Any:
    """This point of the current stream, with its time."""
    event = backend.event(timing=True)
    backend.current_stream().record_event(event)
    return event


class _MeasuredValue:
    """What was seen of one value."""

    __slots__ = ("nbytes", "born", "dies", "gone", "uses", "inputs", "can_be_made",
                 "ref", "root", "alive", "is_back", "held", "reads")  # fmt: skip

    def __init__(self, value: Value, born: int, block: int) -> None:
        self.nbytes, self.born, self.dies = -(-value.nbytes // block) * block, born, born
        self.gone: int | None = None  # the event in which its memory was let go of
        self.uses: list[int] = []
        recipe = value.recipe
        self.inputs = [] if recipe is None else [v.number for v in recipe.values()]
        self.can_be_made, self.ref = recipe is not None, weakref.ref(value)
        inputs = [] if recipe is None else recipe.inputs
        roots = [each.root for each in inputs if type(each) is Constant]
        # what no op that can run again has made of what it reads: roots, by their id, and bytes
        self.reads = {id(ref): (ref, root.nbytes) for ref in roots if (root := ref()) is not None}
        self.root = weakref.ref(value.root())
        self.alive = False  # the program holds it, too, when backward begins
        self.is_back = False  # it has come back, and counts as long as that lives
        self.held = -1  # the last event for which a node holds it, read or not


class _MeasuredEvent:
    """What was seen of one op or node."""

    __slots__ = ("name", "end", "left_out", "peak", "base", "own", "beside", "there")

    def __init__(self, name: str) -> None:
        self.name = name
        self.end: Any = None  # the time of its end, as an event of the device
        self.left_out: list[tuple[Any, Any]] = []  # copies and recomputations within it
        self.peak = 0  # bytes in use at most
        self.base = 0  # of them, those that were not away before
        self.own = 0  # bytes at most beyond those in use as it began, or as what it reads was here
        self.beside = 0  # of `base`, those at most beside what is placed
        self.there: tuple[int, ...] = ()  # bytes that were placed then, by their kind

    @property
    def training(self) -> tuple[int, ...]:
        """Bytes that are placed of those in use at most: what has come since then are weights."""
        if not self.there:
            return ()
        return self.base - self.beside - sum(self.there[1:]), *self.there[1:]


class Measurement:
    """Watches one forward and its backward while a policy that needs little memory runs."""

    def __init__(
        self, backend: Backend, before: int, training: Callable[[], tuple[int, ...]] | None = None
    ) -> None:
        self.backend = backend
        self.training = training  # bytes that have come from elsewhere
        self.values: list[_MeasuredValue] = []
        self.spans: list[_MeasuredEvent] = []
        self._left_out: list[tuple[Any, Any]] = []  # since the last span's end
        self._waits: Any = None  # where a wait for a training state has begun
        self._here: tuple[int, ...] = ()  # bytes that are placed, by their kind
        self._is_paused = False
        self._of_root: dict[int, _MeasuredValue] = {}  # by id of a storage: the value it holds now
        self.of_pass = 0  # the most bytes in use until the last node had ended, once it is closed
        self.elsewhere: Any = None  # another device, on which values were made
        self.forward: int | None = None  # the number of ops before backward
        self.tracing = backend.device_type == "cpu" and not tracemalloc.is_tracing()
        if self.tracing:
            tracemalloc.start()
        self._block = 1 if backend.device_type == "cpu" else BLOCK
        self.begin = self.mark()
        self.before = before - sum(self._training())  # bytes in use beside what is placed
        self._most = backend.watched_peak()  # before, which is told again in the end
        backend.watch_peak()
        self._start = self._left = (
            before  # bytes in use as what is watched now began; as an op left
        )
        self._placed = 0  # of those, bytes that are placed
        self._freed = 0  # bytes of values that were let go of since then
        self._was_back = 0  # of them, those that had been away
        self._back = 0  # and those that are here now
        self._kept: list[_MeasuredValue] = []  # that the budget keeps, and the program too
        self._packed: set[weakref.ref[Any]] = set()  # what nodes hold in the place of tensors
        self._returned: dict[int, weakref.ref[Any]] = {}  # by the id of what came back

    def close(self) -> None:
        """Ends the measurement. Time and memory after the last node count as that node's, but for
        what is made there to stay, as an optimizer's states: the next step begins with it.
        """
        if self.spans:
            span, stays = self.spans[-1], self.backend.memory_allocated() - self._left
            own, base, beside = span.own, span.base, (span.beside, span.there)
            self.of_pass = self.peak
            self._look()
            if self.training is None:
                span.own = max(own, span.own - max(0, stays))
                span.base = max(base, span.base - max(0, stays))
            else:  # what a step takes with the places of its states is another's to tell
                span.own, span.base = own, base
                span.beside, span.there = beside
        for seen in self.values:
            seen.is_back = False
        self.backend.raise_watched_peak(max(self._most, self.peak))
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

    def _training(self) -> tuple[int, ...]:
        return () if self.training is None else self.training()

    def _look(self) -> None:
        """Counts the peak since the last look as that of the last span, and begins a new one."""
        most = self.backend.watched_peak()
        if self.spans:
            span = self.spans[-1]
            span.peak = max(span.peak, most)
            base = most - self._was_back
            span.base = max(span.base, base)
            there = tuple(map(min, self._here, self._training()))  # it may have been the least
            if not span.there or base - sum(there) > span.beside:
                span.beside, span.there = base - sum(there), there
            # what comes behind an op, once its inputs are gone, comes beside those that are kept
            now = self.backend.memory_allocated() + self._freed
            more = max(most, now) - self._start - (sum(there) - self._placed)
            span.own = max(span.own, more)
        self._watch()

    def moves(self, has_come: bool = False) -> None:
        """Of what is placed something is about to come, or has, since it was: it counts as such
        from there on.
        """
        if self.spans and not self._is_paused:
            before = self._start, self._freed, self._placed
            if has_come:
                self._here = self._training()
            self._look()
            self._start, self._freed, self._placed = before

    def _watch(self) -> None:
        """Begins to watch memory from here on."""
        self.backend.watch_peak()
        self._start, self._was_back = self.backend.memory_allocated(), self._back
        self._here = self._training()
        self._freed, self._placed = 0, sum(self._here)

    def mark(self) -> Any:
        """This point of the current stream."""
        return mark(self.backend)

    def enter(self, name: str) -> None:
        """An op, or a node, begins."""
        self._look()
        if self._kept and self.forward is None:
            self._kept = [seen for seen in self._kept if self._is_held_elsewhere(seen)]
        self.spans.append(_MeasuredEvent(name))

    def keeps(self, value: Value) -> None:
        """Notes that the budget keeps a value. The program's own release of it is then not seen."""
        if value.number < len(self.values) and self.values[value.number].ref() is value:
            self._kept.append(self.values[value.number])

    def _is_held_elsewhere(self, seen: _MeasuredValue) -> bool:
        """Whether the program still holds a value that the budget keeps. Its end is noted when it
        does not.
        """
        root = seen.root()
        if root is not None and not is_alone(root, 1):
            return True
        seen.dies = max(seen.dies, len(self.spans) - 1)
        return False

    def leave(self) -> None:
        """An op, or a node, has ended. Time and memory before the next one count as its own."""
        span = self.spans[-1]
        span.end = self.mark()
        span.left_out, self._left_out = self._left_out, []
        before = self._start, self._freed, self._placed
        self._look()
        self._left = self._start
        self._start, self._freed, self._placed = before

    def turn(self) -> None:
        """Backward has begun, with the last node that was entered."""
        self.forward = len(self.spans) - 1
        for seen in self.values:
            value = seen.ref()  # None if nothing was saved of it: what holds its root is not ours
            kept = value is not None and value.kept is not None
            kept = kept and not any(seen is each for each in self._kept)
            seen.alive = seen.root() is not None and seen.gone is None and not kept
            # what only a recipe would hold
            seen.reads = {key: read for key, read in seen.reads.items() if read[0]() is None}

    def pause(self) -> Any:
        """What follows belongs to no op: neither its time nor its memory counts. Returns a mark."""
        risen = self.backend.memory_allocated() + self._freed - self._start
        placed = self._placed
        self._look()
        risen -= self._placed - placed  # what has come is another's
        self._is_paused = True
        return self.mark(), risen

    def wait_begins(self) -> None:
        """Compute waits for weights, or for room: that is no time of an op's."""
        self._waits = None if self._is_paused else self.mark()

    def wait_ends(self) -> None:
        """It has what it has waited for."""
        before, self._waits = self._waits, None
        if before is not None:
            self._left_out.append((before, self.mark()))

    def resume(self, before: Any) -> None:
        """Ends a pause, which began with this mark."""
        began, risen = before
        self._is_paused = False
        self._left_out.append((began, self.mark()))
        self._watch()
        self._start -= risen  # what the op or node had taken before

    def made(self, value: Value, recipe: Recipe, is_ours: bool) -> None:
        """A value has got its number; it takes no room if it is on another device."""
        seen = _MeasuredValue(value, len(self.spans) - 1, self._block)
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

        mine = weakref.ref(
            self
        )  # what a root's end calls lives as long as the root: a model's, too

        def gone(key: int) -> None:
            measuring = mine()
            last = None if measuring is None else measuring._of_root.pop(key)
            if measuring is not None and last is not None and last.gone is None:
                last.gone = len(measuring.spans) - 1
                measuring._freed += last.nbytes

        if before is None:
            weakref.finalize(root, gone, id(root))

    def reads(self, number: int) -> None:
        """An op of forward reads a value."""
        self.values[number].dies = len(self.spans) - 1

    def uses(self, value: Value) -> None:
        """A node reads a value that was saved, in this step or in one before."""
        if value.number < len(self.values) and self.values[value.number].ref() is value:
            self._wants(self.values[value.number])

    def _wants(self, seen: _MeasuredValue) -> None:
        at = len(self.spans) - 1
        if self.forward is not None and (not seen.uses or seen.uses[-1] < at):
            seen.uses.append(at)

    def saves(self, value: Value, packed: Any) -> None:
        """A node holds a value for as long as the holder lives."""
        if value.number < len(self.values) and self.values[value.number].ref() is value:
            seen = self.values[value.number]

            def gone(ref: Any) -> None:
                seen.held = max(seen.held, len(self.spans) - 1)
                self._packed.discard(ref)

            self._packed.add(weakref.ref(packed, gone))

    def returns(self, value: Value, root: Any) -> None:
        """A value is back in another place than before. It is wanted for as long as that place
        lives.
        """
        key, nbytes = id(root), -(-root.nbytes // self._block) * self._block
        if root is value.root() or key in self._returned:
            return
        is_measured = value.number < len(self.values) and self.values[value.number].ref() is value
        seen = self.values[value.number] if is_measured else None

        def gone(ref: Any) -> None:
            self._back -= nbytes
            del self._returned[key]
            if seen is not None and seen.uses and seen.is_back:
                self._wants(seen)

        self._returned[key] = weakref.ref(root, gone)
        self._back += nbytes
        if seen is not None:
            seen.is_back = True

    # ------------------------------------------------------------------ what was learned

    def step(self, rates: Rates, placements: frozenset[str], small: int, backlog: int) -> Step:
        """The step, for a planner; waits for the device."""
        spans, n = self.spans, len(self.spans)
        assert self.forward is not None
        here, born = np.zeros(n + 1, np.int64), [0] * n
        for seen in self.values:
            gone = n - 1 if seen.gone is None else min(seen.gone, n - 1)
            if not seen.alive:
                born[seen.born] += seen.nbytes
                here[seen.born] += seen.nbytes
                here[gone + 1] -= seen.nbytes
        here = np.cumsum(here[:-1])
        events, before = [], self.begin
        for k, span in enumerate(spans):
            span.end.synchronize()
            seconds = before.elapsed_time(span.end) - sum(
                [a.elapsed_time(b) for a, b in span.left_out]
            )
            base = max(0, span.base - int(here[k]))
            room = max(0, span.own - born[k])
            comes = max([0, *span.training[:1]])
            events.append(
                StepEvent(max(seconds, 0.0) / 1e3, base, span.name, span.own, room, comes)
            )
            before = span.end
        for seen in self.values:  # which is not made again, to hold what takes as much room
            for other in [self.values[k] for k in seen.inputs if k >= 0]:
                seen.reads |= {} if other.uses else other.reads
            held = sum([nbytes for _, nbytes in seen.reads.values()])
            seen.can_be_made = seen.can_be_made and HELD * held < max(seen.nbytes, 1)
        values = tuple([self._planned(seen, placements, small, rates) for seen in self.values])
        return Step(
            events=tuple(events),
            forward=self.forward,
            values=values,
            out_rate=rates.out,
            in_rate=rates.back,
            disk_out_rate=rates.disk_out,
            disk_in_rate=rates.disk_back,
            lookahead=backlog,
            backlog=backlog,
        )

    def _planned(
        self, seen: _MeasuredValue, placements: frozenset[str], small: int, rates: Rates
    ) -> StepValue:
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
        # what a variable of the program holds is there until that lets go of it, read or not
        gone = -1 if seen.gone is None or seen.gone >= self.forward else seen.gone
        return StepValue(
            nbytes=0 if seen.alive else seen.nbytes, born=seen.born,
            dies=max(seen.born, min(max(seen.dies, gone), self.forward - 1)),
            uses=tuple(seen.uses), inputs=tuple(dict.fromkeys(seen.inputs)),
            placements=frozenset(allowed), stored={COMPRESS: seen.nbytes // 2},
            codec_seconds=seen.nbytes / rates.codec, held=seen.held,
        )  # fmt: skip
