"""Joins forward ops, their backward and its backward by sequence number, with what each cost."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..events.event import DeviceType, FunctionEvent, RecordScope
from .attribution import Activity, Said, TraceRange, said_by
from .table import table_of

__all__ = ["Call", "Correlation", "Correlator", "Cost", "OpRow", "correlate"]

STALL = re.compile(r"\bstall", re.IGNORECASE)
FORWARD, BACKWARD, DOUBLE = range(3)
EVALUATE = "autograd::engine::evaluate_function: "  # the event that PyTorch puts around a node
OUTSIDE = "outside of all ranges"  # activity_type of the event for launches in no range


@dataclass
class Cost:
    """What ops cost: kernels, copies and stalls, as counts, bytes and microseconds.

    `host_us` is the time of the host in ranges of ops and nodes themselves, `ranges` their number.
    """

    calls: int = 0
    kernels: int = 0
    kernel_us: float = 0.0
    copies: int = 0
    copy_bytes: int = 0
    copy_us: float = 0.0
    stalls: int = 0
    stall_us: float = 0.0
    ranges: int = 0
    host_us: float = 0.0

    def add(self, other: Cost) -> None:
        """Adds what others cost."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def charge(self, activity: Activity) -> None:
        """Adds what a device did."""
        us = (activity.end - activity.start) / 1e3
        if activity.kind == "copy":
            self.copies += 1
            self.copy_bytes += activity.nbytes
            self.copy_us += us
        elif activity.kind != "stall":  # which is the range's
            self.kernels += 1
            self.kernel_us += us


@dataclass
class OpRow:
    """All calls of one forward op: what they cost, and what their backward costs.

    `kind` is "op"; "range" for what was launched in a range that is no op; "node" for nodes that no
    op of the trace has made; "outside" for what was launched in no range.
    """

    name: str
    kind: str = "op"
    forward: Cost = field(default_factory=Cost)
    backward: Cost = field(default_factory=Cost)
    double_backward: Cost = field(default_factory=Cost)
    nodes: dict[str, int] = field(default_factory=dict)  # calls of the nodes that the op makes
    double_nodes: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> Cost:
        """All of it."""
        cost = Cost()
        for each in (self.forward, self.backward, self.double_backward):
            cost.add(each)
        return cost

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        costs = {each: vars(getattr(self, each)) for each in ("forward", "backward")}
        return {
            "name": self.name, "kind": self.kind, **costs,
            "double_backward": vars(self.double_backward), "total": vars(self.total),
            "nodes": self.nodes, "double_nodes": self.double_nodes,
        }  # fmt: skip


class Maker(NamedTuple):
    """A forward op that may have made a node: where it counts, and the node that it ran in."""

    row: str
    phase: int  # of the node that it makes
    name: str
    start: int
    within: int | None
    span: TraceRange | None


class Attributed(NamedTuple):
    """Where a node counts."""

    row: str
    kind: str
    phase: int
    maker: Maker | None = None


@dataclass
class Call:
    """One call of a forward op, and the nodes that came of it, as events of the profile."""

    forward: Any
    backward: list[Any] = field(default_factory=list)
    double_backward: list[Any] = field(default_factory=list)


class Correlation:
    """What each forward op, its backward and its double backward cost; `str()` is the table.

    `rows` has an OpRow for each op, `calls` a Call for each time that one ran: its event, and those
    of its nodes in backward and double backward. `total` is what all rows cost.
    """

    def __init__(self, rows: Iterable[OpRow], calls: Iterable[Call] = ()) -> None:
        self.rows = list(rows)
        self.calls = list(calls)
        self.timed = "kernels"  # whose times they are

    def row(self, name: str) -> OpRow:
        """The row of a forward op; KeyError where there is none."""
        for each in self.rows:
            if each.name == name:
                return each
        raise KeyError(f"no op {name!r} in the profile; there are {[r.name for r in self.rows]}")

    @property
    def total(self) -> Cost:
        """What all rows cost."""
        cost = Cost()
        for each in self.rows:
            cost.add(each.total)
        return cost

    def settled(self) -> Correlation:
        """Returns itself. If no kernel was measured, the time of the host counts instead."""
        if self.total.kernels:
            return self
        for row in self.rows:
            for cost in (row.forward, row.backward, row.double_backward):
                cost.kernels, cost.kernel_us = cost.ranges, cost.host_us
        self.timed = "on the host"
        return self

    def sorted(self) -> list[OpRow]:
        """The rows, sorted by the time of the device, longest first."""
        return sorted(self.rows, key=lambda row: (-_weight(row.total), row.name))

    def table(self, row_limit: int = 100) -> str:
        """The table "forward op | kernels | backward | kernels | copies | stalls", as text."""
        return table_of(self.sorted(), row_limit, self.timed)

    def __repr__(self) -> str:
        return self.table()


def _weight(cost: Cost) -> float:
    return cost.kernel_us + cost.copy_us + cost.stall_us


class Correlator:
    """Takes ranges as they end, and sums them up. It holds one row per op and one number per
    forward call. With `keep` it holds the ranges of forward calls, too.
    """

    def __init__(self, keep: bool = False) -> None:
        self.rows: dict[str, OpRow] = {}
        self._keep = keep
        self._makers: dict[tuple[int, int, str], list[Maker]] = {}  # by beginning

    def row(self, name: str, kind: str = "op") -> OpRow:
        """The row of this name, a new one if need be."""
        if name not in self.rows:
            self.rows[name] = OpRow(name, kind)
        return self.rows[name]

    def add(self, item: TraceRange | Activity, cost: Cost | None = None) -> None:
        """Adds a range, or an activity outside all ranges; `cost` is the range's own, if known."""
        if isinstance(item, Activity):
            self.row("(outside ranges)", "outside").forward.charge(item)
            return
        cost = _own_cost(item) if cost is None else cost
        if item.parent is not None:
            item.parent.inside += item.end - item.start
        node, op = item.node, item.op
        if node is not None:
            place = self.place_of(node)
        elif op is not None:
            place = Attributed(op.said.name, "op", FORWARD)
        else:
            place = Attributed(item.said.name, "range", FORWARD)
        if node is item:
            if not same_node(item.parent, item):
                cost.calls = 1
                row = self.row(place.row, place.kind)
                names = row.double_nodes if place.phase >= DOUBLE else row.nodes
                names[str(item.said.node)] = names.get(str(item.said.node), 0) + 1
        elif item.said.seq is not None:
            self._remember(item, item.said.seq, node)
            cost.calls = int(node is None)
        if op is not None or node is not None:
            first = not same_node(item.parent, item) if item is node else item is op
            cost.ranges = int(first)
            cost.host_us = (item.end - item.start - item.inside) / 1e3
        if cost != Cost():
            row = self.row(place.row, place.kind)
            (row.forward, row.backward, row.double_backward)[min(place.phase, DOUBLE)].add(cost)

    def _remember(self, span: TraceRange, seq: int, node: TraceRange | None) -> None:
        """Notes that a forward op may have made the node of this number."""
        within = None if node is None else node.said.seq
        row, phase = span.said.name, BACKWARD
        if node is not None:
            place = self.place_of(node)
            row, phase = place.row, place.phase + 1
        maker = Maker(row, phase, span.said.name, span.start, within, span if self._keep else None)
        for stem in ("", _stem(maker.name)):  # of any name, and of this one
            here = self._makers.setdefault((span.process, seq, stem), [])
            insort(here, maker, key=_start)

    def place_of(self, node: TraceRange) -> Attributed:
        """The row and the phase where a node counts."""
        said = node.said
        assert said.node is not None
        maker = None if said.seq is None else self._maker_of(node, said.seq, _stem(said.node))
        if maker is None:
            return Attributed(said.node, "node", BACKWARD)
        outer = node.parent
        while outer is not None and maker.within is not None:
            if outer.said.node is not None and outer.said.seq == maker.within:
                return Attributed(f"{maker.name} (recomputed)", "op", BACKWARD, maker)
            outer = outer.parent
        return Attributed(maker.row, "op", maker.phase, maker)

    def _maker_of(self, node: TraceRange, seq: int, stem: str) -> Maker | None:
        """Of the ops with the number of a node, the one that began last before it. Ops that the
        node is named after come first. Of two that began together it is the inner one, which ended
        first.
        """
        for name in (stem, ""):
            makers = self._makers.get((node.process, seq, name), [])
            if makers and makers[0].start < node.start:
                last = makers[bisect_left(makers, node.start, key=_start) - 1]
                return makers[bisect_left(makers, last.start, key=_start)]
        return None


def _start(maker: Maker) -> int:
    return maker.start


def _own_cost(span: TraceRange) -> Cost:
    """What was launched in a range itself, and its time where it waits."""
    cost = Cost()
    for activity in span.activities:
        cost.charge(activity)
    if waits(span.said.name) and not _within_wait(span.parent):
        there = [each for each in span.activities if each.kind == "stall"]  # on the device
        waited = sum(each.end - each.start for each in there) or span.end - span.start
        cost.stalls, cost.stall_us = 1, waited / 1e3
    return cost


def _within_wait(span: TraceRange | None) -> bool:
    while span is not None and not waits(span.said.name):
        span = span.parent
    return span is not None


@functools.lru_cache(maxsize=4096)
def waits(name: str) -> bool:
    """Whether a range is one in which the host, or a stream, waits for the device.

    >>> waits("cudaStreamSynchronize_v3020"), waits("stall: reload"), waits("install")
    (True, True, False)
    """
    call = re.match(r"cu\w*$", name, re.IGNORECASE)
    return (call is not None and "synchronize" in name.lower()) or STALL.search(name) is not None


def same_node(outer: TraceRange | None, span: TraceRange) -> bool:
    """Whether a range is within another one of the same node, as PyTorch's are."""
    node = None if outer is None else outer.node
    return node is not None and (node.said.node, node.said.seq) == (span.said.node, span.said.seq)


@functools.lru_cache(maxsize=4096)
def _stem(name: str) -> str:
    """What the names of an op and of its node have in common.

    >>> _stem("aten::native_layer_norm") == _stem("NativeLayerNormBackward0")
    True
    """
    return re.sub(r"^.*::|Backward\d*$|_", "", name).lower()


# ---------------------------------------------------------------------- events


def correlate(events: Iterable[FunctionEvent]) -> Correlation:
    """Joins the events of a profile: forward ops, their nodes, and the nodes of these.

    `events` is what `load_nvprof`, `load_nsys` or a profile gives. A node belongs to the forward op
    with its sequence number; ops inside a node make the nodes of the double backward, unless these
    run inside that node again: they are recomputed. A launch counts for the innermost op around it.
    So each kernel counts once, and all rows add up to the whole profile. If no device was measured,
    the time of the host in an op itself counts as its kernel.

    >>> op = FunctionEvent(1, "mul", 1, start_us=10, end_us=20, sequence_nr=7)
    >>> node = FunctionEvent(2, "MulBackward0", 1, start_us=30, end_us=45, sequence_nr=7,
    ...                      scope=RecordScope.BACKWARD_FUNCTION)
    >>> row = correlate([op, node]).row("mul")
    >>> row.forward.kernel_us, row.nodes, row.backward.kernel_us
    (10.0, {'MulBackward0': 1}, 15.0)
    """
    if not isinstance(events, Iterable) or isinstance(events, (str, bytes)):
        raise TypeError(
            f"correlate: got {type(events).__name__}, want the events of a profile, prof.events(), "
            "or of a file, load_nsys(path)"
        )
    ordered = sorted(events, key=lambda each: (each.time_range.start, -each.time_range.end))
    spans: dict[int, TraceRange] = {}
    adding = Correlator(keep=True)
    for event in ordered:
        if event.device_type == DeviceType.CPU:
            spans[id(event)] = _span_of(event, spans)
        elif not event.linked_correlation_id:  # launched in no op
            kind, ns = event.activity_type or "kernel", round(event.time_range.elapsed_us() * 1e3)
            adding.add(Activity(kind, event.name, 0, ns, event.device_index, 0, event.nbytes))
    inner_first = [each for each in reversed(ordered) if id(each) in spans]
    calls: dict[int, Call] = {}  # of ops and of nodes, by the id of their range
    inner_first.sort(key=lambda each: each.time_range.end)
    for event in inner_first:
        if event.activity_type == OUTSIDE:
            adding.row(event.name, "outside").forward.add(_cost_of(event))
        else:
            adding.add(spans[id(event)], _cost_of(event))
    ranges = [(spans[id(each)], each) for each in ordered if id(each) in spans]
    events_of = {id(span): event for span, event in ranges}
    for span, event in ranges:
        _add_call(event, span, adding, calls, events_of)
    unique = {id(each): each for each in calls.values()}
    return Correlation(adding.rows.values(), unique.values()).settled()


def _span_of(event: FunctionEvent, spans: dict[int, TraceRange]) -> TraceRange:
    """An event as a range of the trace that it would be in."""
    node = None
    if event.scope == RecordScope.BACKWARD_FUNCTION or event.name.startswith(EVALUATE):
        node = said_by(event.name).node or event.name
    seq = event.sequence_nr if event.sequence_nr >= 0 else None
    if node is None and event.scope != RecordScope.FUNCTION:
        seq = None
    parent = None if event.cpu_parent is None else spans.get(id(event.cpu_parent))
    start, end = round(event.time_range.start * 1e3), round(event.time_range.end * 1e3)
    said = Said(event.name, seq, node, None)
    return TraceRange(said, event.node_id, event.thread, start, end, parent)


def _cost_of(event: FunctionEvent) -> Cost:
    """What an event cost itself."""
    cost = Cost()
    host, device = event.self_cpu_time_total, event.self_device_time_total
    if event.scope in (RecordScope.COPY, RecordScope.PREFETCH):
        cost.copies, cost.copy_bytes, cost.copy_us = 1, event.nbytes, device or host
    elif event.scope == RecordScope.STALL:
        above = event.cpu_parent
        while above is not None and above.scope != RecordScope.STALL:
            above = above.cpu_parent
        if above is None:  # not within another one
            cost.stalls, cost.stall_us = 1, device or event.cpu_time_total
    elif event.is_legacy and event.kernels:  # one that spans all of it, children and all
        cost.kernels, cost.kernel_us = 1, device
    else:
        for kernel in event.kernels:
            if kernel.name.startswith("Memcpy"):
                cost.copies += 1
                cost.copy_us += kernel.duration
            else:
                cost.kernels += 1
                cost.kernel_us += kernel.duration
        cost.copy_bytes = event.nbytes
    return cost


def _add_call(
    event: Any, span: TraceRange, adding: Correlator, calls: dict[int, Call],
    events_of: dict[int, Any],
) -> None:  # fmt: skip
    """Notes the call that an op begins, or that a node belongs to."""
    if span.said.seq is None:
        return
    node = span.node
    if node is None:
        calls[id(span)] = Call(event)
    elif node is not span:  # an op in a node, which may make a node of the double backward
        while node is not None and id(node) not in calls:
            node = node.parent
        if node is not None:
            calls[id(span)] = calls[id(node)]
    elif not same_node(span.parent, span):
        place = adding.place_of(span)
        if place.maker is None:
            return
        if place.row.endswith("(recomputed)"):
            calls[id(place.maker.span)] = Call(events_of[id(place.maker.span)])
        call = calls.get(id(place.maker.span))
        if call is not None:
            calls[id(span)] = call
            (call.double_backward if place.phase >= DOUBLE else call.backward).append(event)
