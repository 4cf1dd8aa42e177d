"""Records kernels, copies and memsets by CUPTI, each with the op or node that launched it."""

from __future__ import annotations

import functools
import importlib
import os
import threading
from itertools import count
from typing import Any, NamedTuple

from ... import backends
from ...autograd import mode
from ...autograd.recording.node import SEQ_LIMIT
from ...runtime.contexts import described
from ...runtime.kept import Switch
from ..correlation.attribution import Activity, Said, TraceRange
from ..correlation.joining import Correlation, Correlator
from ..correlation.loaded import events_of
from ..events.event_list import EventList
from ..traces.database import copy_name
from .nvtx import range_text

BUFFER = 1 << 20  # bytes of records, some 7,000, that stop the program for as long as they are read


class _Record(NamedTuple):
    """What is kept of a record. The record itself is in CUPTI's memory, which is reused."""

    correlation: int
    activity: Activity


class _CuptiThread(threading.local):
    """The ops and nodes that run in a thread."""

    def __init__(self) -> None:
        self.open: list[TraceRange] = []


class trace_kernels(Switch):
    """Context manager that records what the GPU does, by op and by backward node.

    Each op and each node of this thread pushes a number, with which CUPTI marks what is launched
    until it is popped: so a kernel finds its op whatever else runs at the same time, and copies on
    side streams find the op that asked for them. On leaving it waits for the device.

    `spans` are the ops and nodes with their activities, in the order in which they ended; `outside`
    is what was launched by none of them. `correlate()` is the table of all, `events` the list of
    events that a profile has.

    It goes through the package cupti-python (extras cupti12, cupti13), and needs a GPU; one tool at
    a time can use CUPTI, so not under nsys. ImportError where the package is missing, RuntimeError
    where CUPTI cannot be used, or when entered while active.
    """

    _active: trace_kernels | None = None

    def __init__(self) -> None:
        self.spans: list[TraceRange] = []
        self.outside: list[Activity] = []
        self._cupti: Any = None
        self._here = _CuptiThread()
        self._numbered: dict[int, TraceRange] = {}
        self._next = count(1).__next__
        self._records: list[_Record] = []
        self._owners: dict[int, int] = {}  # external numbers by correlation number
        self._observer: _Observer | None = None

    def as_is(self) -> None:
        if trace_kernels._active is not None:
            raise RuntimeError("trace_kernels is not reentrant: CUPTI has one client at a time")

    def change(self, before: None) -> trace_kernels:
        self.__init__()  # type: ignore[misc]
        self._cupti = _library()
        trace_kernels._active = self
        try:
            self._watch(True)
        except RuntimeError:  # there is nothing to put back
            trace_kernels._active = None
            raise
        self._observer = _Observer(self)
        mode.push_observer(self._observer)
        return self

    __repr__ = described

    def put_back(self, before: None) -> None:
        if trace_kernels._active is not self:
            return
        if self._observer is not None:
            mode.pop_observer(self._observer)
            while self._here.open:  # left in the middle of an op
                self.end()
            if backends.is_usable("cuda"):
                backends.get("cuda").synchronize()
            self._cupti.activity_flush_all(1)
        self._watch(False)
        trace_kernels._active = None

    def __exit__(self, *exc: object) -> None:
        Switch.__exit__(self, *exc)  # `super()` is a call, at which a signal may come
        for correlation, activity in self._records:
            span = self._numbered.get(self._owners.get(correlation, -1))
            (self.outside if span is None else span.activities).append(activity)
        self._records.clear()

    def spans_begun(self) -> list[TraceRange]:
        """The ops and nodes in the order in which they began."""
        return list(self._numbered.values())

    @property
    def events(self) -> EventList:
        """The ops and nodes as events of a profile, with what each launched."""
        return events_of((*self.spans, *self.outside))

    def correlate(self) -> Correlation:
        """What each forward op, its backward and its double backward cost."""
        adding = Correlator()
        for span in self.spans:
            adding.add(span)
        for activity in self.outside:
            adding.add(activity)
        return Correlation(adding.rows.values(), [])

    # ------------------------------------------------------------------ ops

    def begin(self, said: Said) -> None:
        """An op or a node begins."""
        open_here = self._here.open
        parent = open_here[-1] if open_here else None
        now = self._cupti.get_timestamp()
        span = TraceRange(said, os.getpid(), threading.get_ident(), now, now, parent)
        open_here.append(span)
        number = self._next()
        self._numbered[number] = span
        kind = self._cupti.ExternalCorrelationKind.CUSTOM0
        self._cupti.activity_push_external_correlation_id(kind, number)

    def end(self) -> None:
        """It ends."""
        if self._here.open:  # else entered in the middle of it
            span = self._here.open.pop()
            span.end = self._cupti.get_timestamp()
            self.spans.append(span)
            kind = self._cupti.ExternalCorrelationKind.CUSTOM0
            self._cupti.activity_pop_external_correlation_id(kind)

    # ------------------------------------------------------------------ CUPTI

    def _watch(self, on: bool) -> None:
        cupti = self._cupti
        kinds = cupti.ActivityKind  # the API's records carry the external numbers
        watched = [kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET, kinds.DRIVER, kinds.RUNTIME,
                   kinds.EXTERNAL_CORRELATION]  # fmt: skip
        try:
            if on:
                cupti.activity_register_callbacks(lambda: (BUFFER, 0), self._completed)
            for kind in watched:
                (cupti.activity_enable if on else cupti.activity_disable)(kind)
        except Exception as error:  # of CUPTI's own classes
            raise RuntimeError(f"trace_kernels: CUPTI cannot be used: {error}") from error

    def _completed(self, activities: list[Any]) -> None:
        """Copies what is wanted of a buffer of records; in a thread of CUPTI's."""
        kinds = self._cupti.ActivityKind
        for each in activities:
            if each.kind == kinds.EXTERNAL_CORRELATION:
                self._owners[each.correlation_id] = each.external_id
                continue
            if each.kind == kinds.CONCURRENT_KERNEL:
                kind, name, nbytes = "kernel", str(each.name), 0
            elif each.kind == kinds.MEMCPY:
                name = copy_name(each.copy_kind, each.src_kind, each.dst_kind)
                kind, nbytes = "copy", each.bytes
            elif each.kind == kinds.MEMSET:
                kind, name, nbytes = "memset", "Memset (Device)", each.bytes
            else:
                continue
            where = each.device_id, each.stream_id, nbytes
            activity = Activity(kind, name, each.start, each.end, *where)
            self._records.append(_Record(each.correlation_id, activity))


class _Observer:
    """An observer that tells a trace about ops and nodes."""

    def __init__(self, trace: trace_kernels) -> None:
        self._trace = trace

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        self._trace.begin(Said(name, seq, None, None))

    def op_end(self, name: str, seq: int, result: Any) -> None:
        self._trace.end()

    def node_begin(self, node: Any) -> None:
        seq = node.seq if node.seq < SEQ_LIMIT else None
        self._trace.begin(Said(node.name(), seq, node.name(), None))

    def node_end(self, node: Any) -> None:
        self._trace.end()

    def range_begin(self, name: str, scope: str, nbytes: int, stream: Any, owner: Any) -> None:
        self._trace.begin(Said(range_text(name, scope), None, None, None))

    def range_end(self, name: str) -> None:
        self._trace.end()


@functools.cache
def _library() -> Any:
    try:
        return importlib.import_module("cupti.cupti")
    except ImportError as error:
        raise ImportError(
            f"trace_kernels: {error}; CUPTI is reached through the package cupti-python: "
            "pip install cupti-python (12.8 for CUDA 12, 13.0.1 or later for CUDA 13)"
        ) from error
