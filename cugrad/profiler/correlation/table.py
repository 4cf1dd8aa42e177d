"""Writes what ops cost as the table "forward op | kernels | backward | kernels | copies"."""

from __future__ import annotations

from typing import Any

from ...memory.sizes import size
from ..events.table import time_text

__all__ = ["table_of"]


def table_of(rows: list[Any], row_limit: int, timed: str = "kernels") -> str:
    """Rows as text; columns of the double backward only where there is one."""
    double = any(row.double_nodes for row in rows[:row_limit])
    head = ["forward op", "calls", timed, "backward", timed]
    head += ["double backward", timed] * double + ["copies", "stalls"]
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


def _copies(cost: Any) -> str:
    if not cost.copies:
        return ""
    return f"{_times(cost.copies, cost.copy_us)} / {size(cost.copy_bytes)}"
