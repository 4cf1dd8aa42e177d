"""Reads what a function of arrays does by NumPy's calls: their values, and where these are kept.

The function runs once on `TracedArray`s, which note each call. A value is of one element; those
between two calls of functions that loops have not, such as exp2, are one loop. A value that a later
one needs waits in an array that the function was given, as a result or as scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

__all__ = ["CallApart", "Loop", "NoChain", "pattern_of", "steps_of"]

APART = frozenset(["exp", "exp2", "tanh"])  # NumPy's are vectors, which others' bits are not
NEVER = 1 << 30
Pattern = tuple[bool, ...]  # by dim, whether there is more than one element


class NoChain(Exception):
    """Says what is no chain of calls of elements."""


class ChainValue:
    """One element: of an argument, a number, or what a call makes of others. `level` is how many
    calls apart come before it, `moment` when it is made, and `until` when it is last read: the loop
    of a level is at that level, calls apart of a level are before it.
    """

    __slots__ = ("function", "operands", "dims", "level", "moment", "until", "what")

    def __init__(
        self,
        function: str,
        operands: tuple[ChainValue, ...],
        dims: Pattern,
        level: int,
        what: Any = None,
    ) -> None:
        self.function, self.operands, self.dims, self.level = function, operands, dims, level
        self.what = what  # an argument's place, a constant's number, NumPy's function
        self.moment: float = level
        self.until: float = -1

    @property
    def is_apart(self) -> bool:
        return self.function in APART


class Loop(NamedTuple):
    """One pass over elements: what is computed, in order, and which arguments take which values.

    `reads` are what it finds in arguments, which hold other values than they were given.
    """

    reads: dict[ChainValue, int]
    values: list[ChainValue]
    writes: dict[int, ChainValue]


class CallApart(NamedTuple):
    """A call of NumPy's between loops, from one argument to another."""

    function: Any
    source: int
    target: int


class TracedArray(NDArrayOperatorsMixin):
    """An argument, which holds one value after another."""

    def __init__(self, tracing: Tracing, value: ChainValue, at: int | None = None) -> None:
        self.tracing, self.value, self.at = tracing, value, at

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("__") else NoChain(f"it reads .{name}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **how: Any) -> Any:
        out = how.pop("out", (None,))[0]
        if method != "__call__" or how:
            raise NoChain(f"it calls {ufunc.__name__}.{method} with {sorted(how)}")
        return self.tracing.call(ufunc, inputs, out)

    def __array_function__(self, function: Any, types: Any, args: Any, how: Any) -> Any:
        if function is not np.clip or len(args) not in (3, 4) or {*how} - {"out"}:
            raise NoChain(f"it calls {function.__name__}")
        x, low, high, out = (*args, how.get("out"))[:4]
        return np.minimum(np.maximum(x, low), high, out=out)


class Tracing:
    """The calls of a function, as they are noted."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self.values: list[ChainValue] = []

    def call(self, ufunc: Any, inputs: Sequence[Any], out: Any) -> TracedArray:
        operands = tuple([self.operand(x) for x in inputs])
        level = max(x.level for x in operands)
        patterns = [(False,) * (self.dims - len(x.dims)) + x.dims for x in operands]
        dims = tuple(map(any, zip(*patterns)))
        value = ChainValue(ufunc.__name__, operands, dims, level, ufunc)
        if value.is_apart:
            value.level += 1
        self.values.append(value)
        if out is None:
            return TracedArray(self, value)
        if type(out) is not TracedArray or out.at is None or not all(dims):
            raise NoChain("it writes to a part")
        out.value = value
        return out

    def operand(self, x: Any) -> ChainValue:
        if type(x) is TracedArray:
            return x.value
        if type(x) not in (int, float) and not (isinstance(x, np.ndarray) and not x.ndim):
            raise NoChain(f"it computes with a {type(x).__name__}")
        return ChainValue("constant", (), (), 0, float(x))


def pattern_of(shape: tuple[int, ...], whole: tuple[int, ...]) -> Pattern:
    """By dim whether an array of a shape has elements of its own for all of the whole's."""
    behind = whole[len(whole) - len(shape) :]
    return tuple([n != 1 or m == 1 for n, m in zip(shape, behind)])


def steps_of(
    function: Callable[..., Any], patterns: Sequence[Pattern | None], samples: Sequence[Any],
    rooms: int,
) -> list[Loop | CallApart]:  # fmt: skip
    """What a function of arrays does. `patterns` are those of its arguments, or None for what is
    none, a number or None itself, which is in `samples`. The last `rooms` arguments are scratch.
    """
    tracing = Tracing(max(len(p) for p in patterns if p is not None))
    arguments: list[Any] = []
    firsts: dict[int, ChainValue] = {}
    for at, pattern in enumerate(patterns):
        if pattern is None and samples[at] is None:
            arguments.append(None)
            continue
        firsts[at] = ChainValue("argument", (), pattern or (), 0, at)
        whole = pattern is not None and len(pattern) == tracing.dims and all(pattern)
        arguments.append(TracedArray(tracing, firsts[at], at if whole else None))
    function(*arguments)
    places = [x.at for x in arguments if x is not None and x.at is not None]
    scratch = [at for at in places if at >= len(patterns) - rooms]
    finals = {at: arguments[at].value for at in places
              if at not in scratch and arguments[at].value is not firsts[at]}  # fmt: skip
    return _Arguments(tracing.values, firsts, finals, scratch).steps


class _Arguments:
    """Puts values that wait into arguments, level by level."""

    def __init__(
        self, values: list[ChainValue], firsts: dict[int, ChainValue],
        finals: dict[int, ChainValue], scratch: list[int],
    ) -> None:  # fmt: skip
        self.finals = finals
        needed = _needed(values, finals.values())
        calls = [x for x in needed if x.is_apart]
        for count, value in enumerate(calls, 1):
            value.moment = value.level - 1 + count / (len(calls) + 1)
        for value in needed:
            for x in value.operands:
                x.until = max(x.until, value.moment)
        for value in finals.values():
            value.until = NEVER
        self.holds = {at: firsts[at] for at in firsts}
        self.free = [*scratch, *finals]  # which may be written to
        self.steps: list[Loop | CallApart] = []
        for level in range(max(x.level for x in needed) + 1):
            self._calls([x for x in calls if x.level == level])
            self._loop(level, [x for x in needed if not x.is_apart and x.level == level])
        if any(self.holds[at] is not value for at, value in finals.items()):
            raise NoChain("a result waits for a place")

    def _calls(self, calls: list[ChainValue]) -> None:
        for value in calls:
            (operand,) = value.operands
            source = self._place_of(operand)
            target = self._room_for(value, source)
            self.holds[target] = value
            self.steps.append(CallApart(value.what, source, target))

    def _loop(self, level: int, values: list[ChainValue]) -> None:
        waiting = [x for x in values if x.until > level]
        if not waiting:
            return
        reads = {}
        for value in values:
            for x in value.operands:
                if x.function != "constant" and (x.level < level or x not in values):
                    reads[x] = self._place_of(x)
        writes = {}
        # results first, whose place is no other
        for value in sorted(waiting, key=lambda x: x.until, reverse=True):
            at = self._room_for(value)
            self.holds[at] = writes[at] = value
        self.steps.append(Loop(reads, values, writes))

    def _place_of(self, value: ChainValue) -> int:
        for at, held in self.holds.items():
            if held is value:
                return at
        raise NoChain("a value was lost")

    def _room_for(self, value: ChainValue, first: int | None = None) -> int:
        """An argument whose value is read by nothing that comes later; one is asked first."""
        now = value.moment
        if not all(value.dims):
            raise NoChain("a part waits")
        for at, final in self.finals.items():
            if final is value:
                if self.holds[at].until > now:
                    raise NoChain("a result waits for a place")
                return at
        for at in (first, *self.free) if first in self.free else self.free:
            if self.holds[at].until <= now:
                return at
        raise NoChain("it has too little scratch")


def _needed(values: list[ChainValue], results: Any) -> list[ChainValue]:
    """The values that results are made of, in the order in which they were."""
    reached = {*results}
    for value in reversed(values):
        if value in reached:
            reached.update(value.operands)
    return [x for x in values if x in reached]
