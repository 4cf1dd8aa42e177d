"""Finds for each kernel of a trace the innermost range that was open where it was launched."""

from __future__ import annotations

import heapq
import re
import sys
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from ...autograd.recording.node import SEQ_LIMIT

__all__ = [
    "FOREVER", "Activity", "Said", "TraceError", "TraceRange", "activity_of", "attributed",
    "said_by", "whole",
]  # fmt: skip

FOREVER = 2**63 - 1
DEEPEST = 10_000  # ranges in one another
LONGEST = 10_000  # characters of a text: one text in a file may name many ranges


class TraceError(ValueError):
    """A file is not a trace, or is broken. The text says what it is and what is accepted."""


class Activity(NamedTuple):
    """One activity of a device: a kernel, a copy, a memset, or the wait of a stream.

    Times are in nanoseconds.
    """

    kind: str  # "kernel", "copy", "memset" or "stall"
    name: str
    start: int
    end: int
    device: int
    stream: int
    nbytes: int


class Said(NamedTuple):
    """What the text of a range says; `node` is the name of the node that runs in it, if any."""

    name: str
    seq: int | None
    node: str | None
    sizes: list[list[int]] | None


class TraceRange:
    """A range of one thread, from `start` to `end` in nanoseconds, and what was launched in it.
    `node` is the range itself if it is a node, else the innermost node around it; `op` is the
    innermost op within that node.
    """

    __slots__ = (
        "said", "process", "thread", "start", "end", "parent", "activities", "inside", "node", "op",
    )  # fmt: skip

    def __init__(
        self, said: Said, process: int, thread: int, start: int, end: int, parent: TraceRange | None
    ) -> None:
        self.said, self.process, self.thread = said, process, thread
        self.start, self.end, self.parent = start, end, parent
        self.activities: list[Activity] = []
        self.inside = 0  # nanoseconds of the ranges directly in it that have ended
        self.node: TraceRange | None = None if parent is None else parent.node
        self.op: TraceRange | None = None if parent is None else parent.op
        if said.node is not None:
            self.node, self.op = self, None
        elif said.seq is not None:
            self.op = self


# What cugrad and PyTorch write: `mul, seq=3`, `MulBackward0, stashed seq=3, sizes=[[2], []]`,
# `aten::mul, seq = 3, op_id = 7, sizes = [[2], []], input_op_ids = [(6, 0)]`, and, where the number
# is the range's payload, `mul, seq`.
_SEQ = re.compile(r", (stashed )?seq(?:\s*=\s*(-?\d{1,20}))?(?=,|$)")
_REST = re.compile(r", (?:op_id|sizes|input_op_ids|id)\s*=")
_SIZES = re.compile(r", sizes\s*=\s*(\[[\[\]\d, ]*\])")
_NODE = re.compile(
    r"(?:autograd::engine::evaluate_function: )?"
    r"(?:torch::autograd::(\w+)|(\w*Backward\d*|AccumulateGrad|GraphRoot))$"
)


def said_by(text: str, payload: int | None = None) -> Said:
    """The name, sequence number, direction and sizes that the text of a range carries.

    >>> said_by("mul, seq=3, sizes=[[2, 3], []]")
    Said(name='mul', seq=3, node=None, sizes=[[2, 3], []])
    >>> said_by("autograd::engine::evaluate_function: MulBackward0, seq = 3, op_id = 8")[1:]
    (3, 'MulBackward0', None)
    >>> said_by("MulBackward0, stashed seq", 3)
    Said(name='MulBackward0', seq=3, node='MulBackward0', sizes=None)
    """
    seq_match, rest = _SEQ.search(text), _REST.search(text)
    ends = [each.start() for each in (seq_match, rest) if each is not None]
    name = sys.intern(text[: min(ends)] if ends else text)
    seq, stashed = None, False
    if seq_match is not None:
        number = payload if seq_match[2] is None else int(seq_match[2])
        seq = number if number is not None and 0 <= number < SEQ_LIMIT else None
        stashed = seq_match[1] is not None
    sizes = _SIZES.search(text) if rest else None
    node = _NODE.match(name)
    inner = sys.intern(node[1] or node[2]) if node else name if stashed else None
    return Said(name, seq, inner, sizes and _sizes(sizes[1]))


def _sizes(text: str) -> list[list[int]]:
    """The lists of numbers in a text; lists of lists of tensors are one entry for each tensor."""
    return [
        [int(number[:20]) for number in each.split(",") if number.strip()]
        for each in re.findall(r"\[([\d, ]*)\]", text[1:-1])
    ]


def attributed(
    ranges: Iterable[tuple[int, int, int, int, str, int | None]],
    launches: Iterable[tuple[int | None, int | None, int | None, Activity]],
) -> Iterator[TraceRange | Activity]:
    """Yields ranges as they end, with what was launched in each, and activities outside of all.

    `ranges` are (start, end, process, thread, text, payload) by ascending start, the outer one
    first; `launches` are (time of the call, process, thread, activity) by ascending time, None
    where the call is not known. Only the ranges that are open are held, so a trace of any length
    passes through in little memory. An activity belongs to the innermost open range of the thread
    that launched it, whenever it ran.
    """
    open_in: dict[Any, list[TraceRange]] = {}
    ends: list[tuple[int, int, list[TraceRange]]] = []  # of open ranges, the next one first
    merged: Iterable[Any] = heapq.merge(
        ((0, *ranged(*row)) for row in ranges),
        ((1, *launched(*row)) for row in launches),
        key=itemgetter(1, 0),
    )
    for number, (what, time, *row) in enumerate(merged):
        while ends and ends[0][0] < time:  # of all threads: backward runs where forward did not
            yield from _closed(heapq.heappop(ends)[2], time)
        if what == 0:
            end, process, thread, text, payload = row
            stack = open_in.setdefault((process, thread), [])
            if len(stack) == DEEPEST:
                raise TraceError(f"a broken trace: {DEEPEST} ranges are open in one thread")
            parent = next((each for each in reversed(stack) if each.end >= end), None)
            stack.append(TraceRange(said_by(text, payload), process, thread, time, end, parent))
            heapq.heappush(ends, (end, number, stack))
            continue
        process, thread, activity = row
        inside = next((each for each in reversed(open_in.get((process, thread), ()))
                       if each.end > time), None)  # fmt: skip
        if inside is None:
            yield activity
        else:
            inside.activities.append(activity)
    for stack in open_in.values():
        yield from _closed(stack, FOREVER + 1)


def _closed(stack: list[TraceRange], time: int) -> Iterator[TraceRange]:
    """Removes ranges that have ended before `time`, innermost first."""
    while stack and stack[-1].end < time:
        yield stack.pop()


# ---------------------------------------------------------------------- what a file may say


def whole(value: Any, otherwise: int | None = None) -> int:
    """A number of 64 bits; `otherwise`, or TraceError without one, for anything else."""
    if isinstance(value, int) and abs(value) <= FOREVER:
        return value
    if otherwise is None:
        raise TraceError(f"a broken trace: got {repr(value)[:80]}, want a whole number of 64 bits")
    return otherwise


def ranged(
    start: Any, end: Any, process: Any, thread: Any, text: Any, payload: Any
) -> tuple[int, int, int, int, str, int | None]:
    """The fields of a range as a file gives them, each checked for its type."""
    begin = whole(start)
    payload = payload if isinstance(payload, int) else None
    text = str(text)[:LONGEST]
    return begin, max(begin, whole(end)), whole(process), whole(thread), text, payload


def launched(
    time: Any, process: Any, thread: Any, activity: Activity
) -> tuple[int, int | None, int | None, Activity]:
    """What a file says of a call that launched something; before all others if it is not known."""
    if time is None or process is None or thread is None:
        return -1, None, None, activity
    return whole(time), whole(process), whole(thread), activity


def activity_of(
    kind: str, name: Any, start: Any, end: Any, device: Any, stream: Any, nbytes: Any
) -> Activity:
    """What a file says that a device did."""
    begin = whole(start)
    where = whole(device, 0), whole(stream, 0), max(whole(nbytes, 0), 0)
    return Activity(kind, sys.intern(str(name)[:LONGEST]), begin, max(begin, whole(end)), *where)
