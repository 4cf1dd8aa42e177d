"""Lists of events: what ran in what, sums by key, tables and files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import table as tables
from .event import DeviceType, Event, FunctionEvent, FunctionEventAvg, RecordScope

__all__ = ["EventList"]


class EventList(list[Any]):
    """Events, or averages of them, with ways to sum them up and to write them down.

    `use_device` is the kind of device whose times they hold, or None.

    >>> from cugrad.profiler.events.event import FunctionEvent
    >>> calls = [FunctionEvent(i, "mul", 1, 10 * i, 10 * i + 4) for i in range(3)]
    >>> events = EventList(calls).build_tree()
    >>> [(each.key, each.count, each.cpu_time) for each in events.key_averages()]
    [('mul', 3, 4.0)]
    """

    def __init__(
        self,
        events: Iterable[Event] = (),
        *,
        use_device: str | None = None,
        profile_memory: bool = False,
        with_flops: bool = False,
    ) -> None:
        super().__init__(events)
        self._use_device = use_device
        self._profile_memory = profile_memory
        self._with_flops = with_flops
        self._tree_built = False

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of the host in all events: the self times, added up."""
        return sum(event.self_cpu_time_total for event in self)

    # ------------------------------------------------------------------ the tree

    def build_tree(self) -> EventList:
        """Finds parents and children by time and thread, and stacks of nodes; returns itself."""
        self._populate_cpu_children()
        self._merge_alone()
        self._set_backward_stacktraces()
        self._tree_built = True
        return self

    def _populate_cpu_children(self) -> None:
        """Makes each event a child of the innermost event of its thread that spans it."""
        here = [e for e in self if not e.is_async and e.device_type == DeviceType.CPU]
        place: Callable[[Any], Any] = lambda e: (e.node_id, e.thread)
        for _, group in itertools.groupby(sorted(here, key=place), key=place):
            around: list[FunctionEvent] = []
            for event in sorted(group, key=lambda e: (e.time_range.start, -e.time_range.end)):
                start, end = event.time_range.start, event.time_range.end
                while around:
                    parent = around[-1]
                    if start < parent.time_range.end and end <= parent.time_range.end:
                        parent.append_cpu_child(event)
                        event.set_cpu_parent(parent)
                        break
                    around.pop()
                around.append(event)

    def _merge_alone(self) -> None:
        """Merges an only child that has the name of its parent into the parent, as PyTorch does."""
        gone: set[int] = set()
        for event in sorted(self, key=lambda e: e.time_range.start, reverse=True):  # inner first
            parent = event.cpu_parent
            if parent is None or parent.name != event.name or len(parent.cpu_children) > 1:
                continue
            parent.cpu_children = event.cpu_children
            parent.kernels += event.kernels
            for child in event.cpu_children:
                child.cpu_parent = parent
            gone.add(id(event))
        if gone:
            self[:] = [event for event in self if id(event) not in gone]

    def _set_backward_stacktraces(self) -> None:
        """Gives events in a node the stack of the op that made the node."""
        nodes: dict[int, FunctionEvent | None] = {}
        for event in sorted(self, key=lambda e: e.time_range.start):  # parents come first
            above = None if event.cpu_parent is None else nodes.get(id(event.cpu_parent))
            is_node = event.scope == RecordScope.BACKWARD_FUNCTION
            nodes[id(event)] = event if is_node else above
        stacks: dict[tuple[int, int | None], list[str]] = {}
        for event in self:
            if nodes[id(event)] is None and event.stack is not None:
                stacks.setdefault((event.sequence_nr, event.thread), event.stack)
        for event in self:
            node = nodes[id(event)]
            if node is not None and event.stack is not None:
                event.stack = stacks.get((node.sequence_nr, node.fwd_thread), [])

    # ------------------------------------------------------------------ sums

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """One FunctionEventAvg for each key.

        The key is the name; with the options also the sizes of the arguments, that many lines of
        the stack, or the overload's name.
        """
        if not self._tree_built:
            raise AssertionError("key_averages: the tree is not built; call build_tree() first")
        by_key: dict[tuple[str, ...], FunctionEventAvg] = {}
        for event in self:
            key = [str(event.key), str(event.node_id), str(int(event.device_type)),
                   str(event.is_legacy), str(event.is_user_annotation)]  # fmt: skip
            if group_by_overload_name:
                key.append(str(event.overload_name))
            if group_by_input_shapes:
                key.append(str(event.input_shapes))
            if group_by_stack_n > 0:
                key += (event.stack or [])[:group_by_stack_n]
            by_key.setdefault(tuple(key), FunctionEventAvg()).add(event)
        averages = self._like(by_key.values())
        for each in averages:
            each.stack = (each.stack or [])[:group_by_stack_n]
            if not group_by_input_shapes:
                each.input_shapes = ""
            if not group_by_overload_name:
                each.overload_name = ""
        return averages

    def total_average(self) -> FunctionEventAvg:
        """All events added up, as one FunctionEventAvg with the key "Total"."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
            total.key = None
        total.key = "Total"
        return total

    def _like(self, events: Iterable[Event]) -> EventList:
        return EventList(
            events, use_device=self._use_device, profile_memory=self._profile_memory,
            with_flops=self._with_flops,
        )  # fmt: skip

    # ------------------------------------------------------------------ text and files

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as a table, PyTorch's columns.

        `sort_by` is the name of an attribute ("self_cpu_time_total", "cuda_time_total", "count"),
        the largest first; the order of the list where None. At most `row_limit` rows, all of them
        if -1. Columns are no wider than said, None for any width. `header` is a line above it.
        `top_level_events_only` leaves out what ran inside of another event. `time_unit` is "s",
        "ms" or "us" for all times; each gets its own where None.
        """
        return tables.table_of(
            self, sort_by, row_limit, max_src_column_width, max_name_column_width,
            max_shapes_column_width, header, self._profile_memory, self._with_flops,
            top_level_events_only, time_unit,
        )  # fmt: skip

    def export_chrome_trace(self, path: str | Path) -> None:
        """Writes a file for chrome://tracing, Perfetto and TensorBoard; gzip where it ends in .gz.

        There is a lane for each thread and for each device; arrows lead from each op to its node in
        backward.
        """
        from .chrome import write_trace

        write_trace(self, path)

    def supported_export_stacks_metrics(self) -> list[str]:
        """What `export_stacks` can weigh stacks by."""
        return [
            "self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total",
            "self_privateuse1_time_total",
        ]  # fmt: skip

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> None:
        """Writes a line per stack, outermost first, with its microseconds: for flame graphs.

        Recorded with `with_stack`. ValueError for a metric that is none.
        """
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(
                f"metric should be one of: {self.supported_export_stacks_metrics()}, got {metric!r}"
            )
        table = str.maketrans(" ;\t\n", "____")
        with Path(path).open("w", encoding="utf-8") as file:
            for event in self:
                weight = int(getattr(event, tables.attribute(metric)))
                if event.stack and weight > 0:
                    lines = ";".join(entry.translate(table) for entry in reversed(event.stack))
                    file.write(f"{lines} {weight}\n")
