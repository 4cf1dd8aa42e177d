"""Formats events as the table that PyTorch's profiler prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["attribute", "memory_text", "table_of", "time_text"]

WIDTH = 12  # of a column of numbers
UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}
FLOPS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")


def time_text(us: float, unit: str | None = None) -> str:
    """Microseconds with a unit that suits them, or with the one wanted.

    >>> time_text(2.5), time_text(12345.6), time_text(2e6), time_text(12345.6, "s")
    ('2.500us', '12.346ms', '2.000s', '0.012s')
    """
    if unit not in UNITS:
        unit = "s" if us >= 1e6 else "ms" if us >= 1e3 else "us"
    return f"{us / UNITS[unit]:.3f}{unit}"


def share_text(us: float, total: float) -> str:
    """A part of the total in percent; NaN of nothing."""
    return f"{us * 100.0 / total:.2f}%" if total else "NaN"


def memory_text(nbytes: int) -> str:
    """Bytes with a unit that suits them.

    >>> memory_text(512), memory_text(-2048), memory_text(3 << 20)
    ('512 B', '-2.00 KB', '3.00 MB')
    """
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def attribute(key: str) -> str:
    """The attribute that a sort key or a metric means: times of any device are `device_time`."""
    for device in ("cuda", "xpu", "privateuse1"):
        key = key.replace(device, "device")
    return key


def table_of(
    events: Sequence[Any],
    sort_by: str | None = None,
    row_limit: int = 100,
    max_src_column_width: int | None = 75,
    max_name_column_width: int | None = 55,
    max_shapes_column_width: int | None = 80,
    header: str | None = None,
    profile_memory: bool = False,
    with_flops: bool = False,
    top_level_events_only: bool = False,
    time_unit: str | None = None,
) -> str:
    """The events, or averages of them, as text; the arguments are those of `EventList.table`."""
    if not events:
        return ""
    on_device = any(event.self_device_time_total > 0 for event in events)
    if on_device and not events[0].use_device:
        raise RuntimeError("use_device is None, but there is device performance data.")
    if sort_by is not None:
        field = attribute(sort_by)
        if not hasattr(events[0], field):
            raise AttributeError(
                f"table: got sort_by={sort_by!r}, want an attribute of the events, such as "
                "'self_cpu_time_total', 'cpu_time_total', 'cuda_time_total' or 'count'"
            )
        events = sorted(events, key=lambda event: getattr(event, field) or 0, reverse=True)

    columns = [
        *_names(events, max_name_column_width),
        *_times(events, on_device, time_unit),
        *(_memory(events) if profile_memory else ()),
        Column("# of Calls", WIDTH, lambda event: event.count),
        *_rest(events, max_shapes_column_width),
    ]
    stacks = [event.stack for event in events if event.stack]
    source = None
    if stacks:
        source = min(max(len(line) for stack in stacks for line in stack) + 4,
                     max_src_column_width or 1 << 30)  # fmt: skip
        first = lambda event: _end_of(event.stack[0], source) if event.stack else ""
        columns.append(Column("Source Location", source, first, "<"))
    if with_flops:
        columns += _flops(events)

    row = "  ".join(f"{{: {each.side}{each.width}}}" for each in columns) + "  "
    rule = "  ".join("-" * each.width for each in columns) + "  "
    width = len(rule) - 2
    lines = []
    if header is not None:
        lines += ["=" * width, header]
    if top_level_events_only:
        lines += ["=" * width, "This report only display top-level ops statistics"]
    lines += [rule, row.format(*[each.title for each in columns]), rule]
    shown = [event for event in events
             if not (top_level_events_only and event.cpu_parent is not None)]  # fmt: skip
    for event in shown[: row_limit if row_limit >= 0 else None]:
        lines.append(row.format(*[each.value(event) for each in columns]))
        if source is not None:
            at = next(i for i, each in enumerate(columns) if each.title == "Source Location")
            for line in [*(event.stack or ())[1:], ""]:
                cells = [""] * len(columns)
                cells[at] = _end_of(line, source)
                lines.append(row.format(*cells))
    total, device_total = totals(events)
    lines += [rule, f"Self CPU time total: {time_text(total, time_unit)}"]
    if on_device:
        name = str(events[0].use_device).upper()
        lines.append(f"Self {name} time total: {time_text(device_total, time_unit)}")
    return "\n".join(lines) + "\n"


def totals(events: Sequence[Any]) -> tuple[float, float]:
    """Microseconds of the host and of the device.

    If kernels are events of their own, these count, and not the kernels of ops.
    """
    kernels = [e for e in events if e.device_type != 0 and not e.is_user_annotation]
    counted = kernels or [event for event in events if event.device_type == 0]
    return (
        sum(event.self_cpu_time_total for event in events),
        sum(event.self_device_time_total for event in counted),
    )


class Column:
    """A column: its title, its width, and what it shows of an event."""

    __slots__ = ("title", "width", "value", "side")

    def __init__(self, title: str, width: int, value: Any, side: str = ">") -> None:
        self.title, self.value, self.side = title, value, side
        self.width = width if len(title) <= WIDTH + 1 else max(width, len(title))  # as of CUDA


def _names(events: Sequence[Any], limit: int | None) -> list[Column]:
    width = min(max(len(event.key) for event in events) + 4, limit or 1 << 30)

    def cut(name: str) -> str:
        if limit is not None and len(name) >= limit - 3:
            return name[: limit - 3] + "..."
        return name

    columns = [Column("Name", width, lambda event: cut(event.key))]
    if any(event.overload_name for event in events):
        columns.append(Column("Overload Name", width, lambda e: cut(e.overload_name or "")))
    return columns


def _times(events: Sequence[Any], on_device: bool, unit: str | None) -> list[Column]:
    total, device_total = totals(events)

    def share(name: str, of: float) -> Any:
        return lambda event: share_text(getattr(event, name), of)

    def time(name: str) -> Any:
        return lambda event: time_text(getattr(event, name), unit)

    def all_of_it(event: Any) -> str:
        return "0" if event.is_async else share_text(event.cpu_time_total, total)

    columns = [
        Column("Self CPU %", WIDTH, share("self_cpu_time_total", total)),
        Column("Self CPU", WIDTH, time("self_cpu_time_total")),
        Column("CPU total %", WIDTH, all_of_it),
        Column("CPU total", WIDTH, time("cpu_time_total")),
        Column("CPU time avg", WIDTH, time("cpu_time")),
    ]
    if on_device:
        device = str(events[0].use_device).upper()
        columns += [
            Column(f"Self {device}", WIDTH, time("self_device_time_total")),
            Column(f"Self {device} %", WIDTH, share("self_device_time_total", device_total)),
            Column(f"{device} total", WIDTH, time("device_time_total")),
            Column(f"{device} time avg", WIDTH, time("device_time")),
        ]
    return columns


def _memory(events: Sequence[Any]) -> list[Column]:
    def bytes_of(name: str) -> Any:
        return lambda event: memory_text(getattr(event, name))

    columns = [
        Column("CPU Mem", WIDTH, bytes_of("cpu_memory_usage")),
        Column("Self CPU Mem", WIDTH, bytes_of("self_cpu_memory_usage")),
    ]
    device = events[0].use_device
    if device and any(event.self_device_memory_usage > 0 for event in events):
        columns += [
            Column(f"{device.upper()} Mem", WIDTH, bytes_of("device_memory_usage")),
            Column(f"Self {device.upper()} Mem", WIDTH, bytes_of("self_device_memory_usage")),
        ]
    return columns


def _rest(events: Sequence[Any], limit: int | None) -> list[Column]:
    columns = []
    if any(event.node_id != -1 for event in events):
        columns.append(Column("Node ID", WIDTH, lambda event: event.node_id))
    if any(event.input_shapes for event in events):
        width = min(max(len(str(e.input_shapes)) for e in events) + 4, limit or 1 << 30)
        columns.append(Column("Input Shapes", width, lambda e: str(e.input_shapes)[:width]))
    return columns


def _flops(events: Sequence[Any]) -> list[Column]:
    """The column of operations, in the unit of the smallest number; none if no event has any."""
    counts = [event.flops for event in events if event.flops]
    if not counts:
        return []
    power = int(max(0, min(math.log10(min(counts)) / 3, len(FLOPS) - 1)))

    def number(event: Any) -> str:
        return f"{event.flops / 10 ** (3 * power):8.3f}" if event.flops else "--"

    return [Column(f"Total {FLOPS[power]}", WIDTH, number)]


def _end_of(path: str, width: int) -> str:
    """The end of a long line, which tells more than its beginning."""
    if len(path) <= width:
        return path
    path = path[len(path) - width :]
    return "..." + path[3:] if len(path) > 3 else path
