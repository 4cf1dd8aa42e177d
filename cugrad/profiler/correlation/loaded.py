"""Makes the events of a profile of the ranges that a trace holds."""

from __future__ import annotations

from collections.abc import Iterable

from ..events.event import FunctionEvent, RecordScope
from ..events.event_list import EventList
from .attribution import Activity, TraceRange
from .joining import OUTSIDE, waits

__all__ = ["events_of"]


def events_of(items: Iterable[TraceRange | Activity]) -> EventList:
    """The events of a trace, by time: ranges with their kernels, and what was launched in none.

    The latter are in one event, "(outside ranges)". `node_id` is the process, where the trace has
    several.
    """
    events: list[FunctionEvent] = []
    outside: FunctionEvent | None = None
    makers: dict[tuple[int, int], int] = {}  # the thread of the op that made a node
    processes: set[int] = set()
    for item in items:
        if isinstance(item, Activity):
            if outside is None:
                outside = FunctionEvent(
                    0, "(outside ranges)", -1, 0, 0, use_device="cuda",
                    scope=RecordScope.USER_SCOPE, activity_type=OUTSIDE,
                )  # fmt: skip
            _launched(outside, item)
            continue
        processes.add(item.process)
        event = _event(item)
        if item.said.seq is not None and item.said.node is None:
            makers[item.process, item.said.seq] = item.thread
        elif item.said.seq is not None:
            event.fwd_thread = makers.get((item.process, item.said.seq))
        events.append(event)
    begin = min((each.time_range.start for each in events), default=0)
    for event in events:
        time = event.time_range
        time.start, time.end = (time.start - begin) / 1e3, (time.end - begin) / 1e3
        if len(processes) <= 1:
            event.node_id = -1
    events.reverse()  # by their end: of two with the same times the outer one goes first
    events.sort(key=lambda each: (each.time_range.start, -each.time_range.end))
    for number, event in enumerate(events, 1):
        event.id = number
    if outside is not None:
        outside.id = len(events) + 1
        events.append(outside)
    return EventList(events, use_device="cuda").build_tree()


def _event(span: TraceRange) -> FunctionEvent:
    """A range as an event, for now in nanoseconds of the trace."""
    said = span.said
    scope = RecordScope.USER_SCOPE
    if said.node is not None:
        scope = RecordScope.BACKWARD_FUNCTION
    elif said.seq is not None:
        scope = RecordScope.FUNCTION
    elif waits(said.name):
        scope = RecordScope.STALL
    event = FunctionEvent(
        0, said.name, span.thread, span.start, span.end, scope=scope, use_device="cuda",
        sequence_nr=-1 if said.seq is None else said.seq, node_id=span.process,
        trace_name=said.name, input_shapes=said.sizes,
    )  # fmt: skip
    for each in span.activities:
        _launched(event, each)
    return event


def _launched(event: FunctionEvent, activity: Activity) -> None:
    """Adds what an event launched."""
    event.append_kernel(activity.name, activity.device, (activity.end - activity.start) / 1e3)
    if activity.kind == "copy":
        event.nbytes += activity.nbytes
