"""Joins forward ops, their backward and its backward by sequence number, with what each cost."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .attribution import Activity, Span

__all__ = ["Correlation", "Correlator", "OpRow"]

WAIT = re.compile(r"^(cuda|cu)\w*Synchronize\w*$|\bstall", re.IGNORECASE)
FORWARD, BACKWARD, DOUBLE = range(3)


@dataclass
class Cost:
    """What ops cost: kernels, copies and stalls, as counts, bytes and microseconds."""

    calls: int = 0
    kernels: int = 0
    kernel_us: float = 0.0
    copies: int = 0
    copy_bytes: int = 0
    copy_us: float = 0.0
    stalls: int = 0
    stall_us: float = 0.0

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
        else:
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
        found = Cost()
        for each in (self.forward, self.backward, self.double_backward):
            found.add(each)
        return found

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


@dataclass
class Pair:
    """One call of a forward op, and the nodes that came of it, as events of the profile."""

    forward: Any
    backward: list[Any] = field(default_factory=list)
    double_backward: list[Any] = field(default_factory=list)


class Correlation:
    """What each forward op, its backward and its double backward cost; `str()` is the table."""

    def __init__(self, rows: Iterable[OpRow], pairs: list[Pair]) -> None:
        self.rows = list(rows)
        self.pairs = pairs

    def row(self, name: str) -> OpRow:
        """The row of a forward op; KeyError where there is none."""
        for each in self.rows:
            if each.name == name:
                return each
        raise KeyError(f"no op {name!r} in the profile; there are {[r.name for r in self.rows]}")

    @property
    def total(self) -> Cost:
        """What all rows cost."""
        found = Cost()
        for each in self.rows:
            found.add(each.total)
        return found

    def sorted(self) -> list[OpRow]:
        """The rows, what kept the device busy longest first."""
        return sorted(self.rows, key=lambda row: (-_weight(row.total), row.name))

    def table(self, row_limit: int = 100) -> str:
        """The table "forward op | kernels | backward | kernels | copies | stalls", as text."""
        return table_of(self.sorted(), row_limit)

    def __str__(self) -> str:
        return self.table()


def _weight(cost: Cost) -> float:
    return cost.kernel_us + cost.copy_us + cost.stall_us


class Correlator:
    """Takes ranges as they end, and adds up; holds a line per op, and a number per forward call."""

    def __init__(self) -> None:
        self.rows: dict[str, OpRow] = {}
        self._makers: dict[tuple[int, int], list[Maker]] = {}

    def row(self, name: str, kind: str = "op") -> OpRow:
        """The row of this name, a new one if need be."""
        if name not in self.rows:
            self.rows[name] = OpRow(name, kind)
        return self.rows[name]

    def add(self, item: Span | Activity) -> tuple[OpRow, int] | None:
        """Adds a range, or an activity outside all ranges; answers where the range counts."""
        if isinstance(item, Activity):
            self.row("(outside ranges)", "outside").forward.charge(item)
            return None
        cost = Cost()
        for activity in item.activities:
            cost.charge(activity)
        if WAIT.search(item.said.name):
            cost.stalls, cost.stall_us = 1, (item.end - item.start) / 1e3
        node, op = _around(item)
        place: tuple[str, str, int]
        if node is not None:
            place = self._place_of(node)
        elif op is not None:
            place = op.said.name, "op", FORWARD
        else:
            place = item.said.name, "range", FORWARD
        row = None
        if node is item:
            if not _same_node(item.parent, item):
                cost.calls = 1
                names = self.row(*place[:2]).double_nodes if place[2] >= DOUBLE else None
                names = self.row(*place[:2]).nodes if names is None else names
                names[str(item.said.node)] = names.get(str(item.said.node), 0) + 1
        elif item.said.seq is not None:
            self._remember(item, item.said.seq, node)
            cost.calls = int(node is None)
        if cost != Cost() or node is item or op is item:
            row = self.row(*place[:2])
            (row.forward, row.backward, row.double_backward)[min(place[2], DOUBLE)].add(cost)
        return None if row is None else (row, place[2])

    def _remember(self, span: Span, seq: int, node: Span | None) -> None:
        """Notes that a forward op may have made the node of this number."""
        within = None if node is None else node.said.seq
        row, phase = span.said.name, BACKWARD
        if node is not None:
            row, _, phase = self._place_of(node)
            phase += 1
        maker = Maker(row, phase, span.said.name, span.start, within)
        self._makers.setdefault((span.process, seq), []).append(maker)

    def _place_of(self, node: Span) -> tuple[str, str, int]:
        """The row, its kind and the phase where a node counts."""
        said = node.said
        assert said.node is not None
        makers = [] if said.seq is None else self._makers.get((node.process, said.seq), [])
        makers = [each for each in makers if each.start < node.start]
        if not makers:
            return said.node, "node", BACKWARD
        stem = _stem(said.node)
        maker = max(makers, key=lambda each: (_stem(each.name) == stem, each.start))
        around = node.parent
        while around is not None and maker.within is not None:
            if around.said.node is not None and around.said.seq == maker.within:
                return f"{maker.name} (recomputed)", "op", BACKWARD
            around = around.parent
        return maker.row, "op", maker.phase


def _around(span: Span) -> tuple[Span | None, Span | None]:
    """The innermost node and the innermost op that a range is in, or is."""
    at: Span | None = span
    op = None
    while at is not None:
        if at.said.node is not None:
            return at, op
        if op is None and at.said.seq is not None:
            op = at
        at = at.parent
    return None, op


def _same_node(around: Span | None, span: Span) -> bool:
    """Whether a range is within another one of the same node, as PyTorch's are."""
    while around is not None:
        if around.said.node is not None:
            return (around.said.node, around.said.seq) == (span.said.node, span.said.seq)
        around = around.parent
    return False


def _stem(name: str) -> str:
    """What the names of an op and of its node have in common.

    >>> _stem("aten::native_layer_norm") == _stem("NativeLayerNormBackward0")
    True
    """
    return re.sub(r"^.*::|Backward\d*$|_", "", name).lower()


# ---------------------------------------------------------------------- text


def table_of(rows: list[OpRow], row_limit: int) -> str:
    """Rows as text; columns of the double backward only where there is one."""
    double = any(row.double_nodes for row in rows)
    head = ["forward op", "calls", "kernels", "backward", "kernels"]
    head += ["double backward", "kernels"] * double + ["copies", "stalls"]
    lines = [head]
    for row in rows[:row_limit]:
        total = row.total
        cells = ["" if row.kind == "node" else row.name, str(row.forward.calls or "")]
        cells += [_times(row.forward.kernels, row.forward.kernel_us), _names(row.nodes)]
        cells += [_times(row.backward.kernels, row.backward.kernel_us)]
        if double:
            second = row.double_backward
            cells += [_names(row.double_nodes), _times(second.kernels, second.kernel_us)]
        cells += [_copies(total), _times(total.stalls, total.stall_us)]
        lines.append(cells)
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths)) for line in lines]
    text.insert(1, "-+-".join("-" * width for width in widths))
    if len(rows) > row_limit:
        text.append(f"... and {len(rows) - row_limit} more")
    return "\n".join(each.rstrip() for each in text)


def _names(nodes: dict[str, int]) -> str:
    return ", ".join(f"{name} x{n}" if n > 1 else name for name, n in nodes.items())


def _times(count: int, us: float) -> str:
    return f"{count} / {time_text(us)}" if count else ""


def _copies(cost: Cost) -> str:
    if not cost.copies:
        return ""
    return f"{_times(cost.copies, cost.copy_us)} / {bytes_text(cost.copy_bytes)}"


def time_text(us: float) -> str:
    """Microseconds with a unit that suits them.

    >>> time_text(12.34), time_text(1234.5), time_text(3e6)
    ('12.3us', '1.234ms', '3.000s')
    """
    if us < 1e3:
        return f"{us:.1f}us"
    return f"{us / 1e3:.3f}ms" if us < 1e6 else f"{us / 1e6:.3f}s"


def bytes_text(nbytes: float) -> str:
    """Bytes with a unit that suits them.

    >>> bytes_text(512), bytes_text(3 << 20)
    ('512 B', '3.00 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024 or unit == "GiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.2f} {unit}"
