"""What the device, the link and the host's optimizer were busy with in one step, and when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Busy", "StepEnd", "drawn", "lines_of", "timeline_of"]

WIDTH = 64  # letters of a line
ROWS = ("device", "link, in", "link, out", "host")
LETTERS = {"passes": "#", "optimizer": "o", "waits": ".", "weights and states": ">",
           "gradients and states": "<", "computes": "@"}  # fmt: skip
COLOURS = {"passes": "tab:blue", "optimizer": "tab:cyan", "waits": "lightgrey",
           "weights and states": "tab:green", "gradients and states": "tab:orange",
           "computes": "tab:brown"}  # fmt: skip


class Busy(NamedTuple):
    """Seconds from the begin of the step on, and what was done."""

    start: float
    end: float
    what: str


class StepEnd(NamedTuple):
    """The end of a step: events of when the optimizer began and ended, bytes so far, the times of
    copies, and when the host computed.
    """

    began: Any
    ended: Any
    moved: dict[str, int]  # "out" and "in"
    host_bytes: int
    meter: Any
    computed: list[tuple[float, float]]


def timeline_of(backend: Any, before: StepEnd, now: StepEnd) -> dict[str, list[Busy]]:
    """The rows of the last step, from the end of the one before. Waits for the device."""
    now.ended.synchronize()
    start = before.ended
    at = lambda event: start.elapsed_time(event) / 1e3
    turn, end = at(now.began), at(now.ended)
    meters = [before.meter, now.meter]
    for _, last, _ in [m for meter in meters for m in (*meter.out[-1:], *meter.back[-1:])]:
        last.synchronize()
    stalls = [(at(a), at(b)) for meter in meters for _, a, b, _ in meter.stalls]
    rows = {
        "device": [Busy(0.0, turn, "passes"), Busy(turn, end, "optimizer"),
                   *[Busy(a, b, "waits") for a, b in stalls]],
        "link, in": [Busy(at(a), at(b), "weights and states")
                     for meter in meters for a, b, _ in meter.back],
        "link, out": [Busy(at(a), at(b), "gradients and states")
                      for meter in meters for a, b, _ in meter.out],
        "host": [],
    }  # fmt: skip
    if now.computed:
        stream = backend.stream()  # an idle one: it is there when the host is
        event = stream.record_event(backend.event(timing=True))
        event.synchronize()
        ahead = backend.host_seconds() - at(event)
        rows["host"] = [Busy(a - ahead, b - ahead, "computes") for a, b in now.computed]
    return {name: _within(row, end) for name, row in rows.items()}


def _within(row: Iterable[Busy], end: float) -> list[Busy]:
    """The parts of intervals between 0 and `end`; of those that overlap and are of one kind, what
    they cover together: copies of several streams share a link.
    """
    parts: list[Busy] = []
    for low, high, what in sorted(row):
        start, stop = max(0.0, low), min(high, end)
        if stop <= start:
            continue
        if parts and parts[-1].what == what and start <= parts[-1].end:
            parts[-1] = parts[-1]._replace(end=max(parts[-1].end, stop))
        else:
            parts.append(Busy(start, stop, what))
    return parts


def lines_of(rows: dict[str, list[Busy]]) -> list[str]:
    """The timeline drawn in letters, a line for each row, and what the letters mean."""
    span = max([part.end for row in rows.values() for part in row], default=0.0)
    if not span:
        return []
    lines = []
    for name in ROWS:
        letters = [" "] * WIDTH
        for start, end, what in sorted(rows[name], key=lambda part: part.what == "waits"):
            low = min(int(start / span * WIDTH), WIDTH - 1)
            for k in range(low, max(low + 1, round(end / span * WIDTH))):
                letters[k] = LETTERS[what]
        lines.append(f"{name:<10} |{''.join(letters)}|")
    return [*lines, f"{'':<10} # forward and backward, o optimizer, . waits, @ host's optimizer"]


def drawn(ax: Any, rows: dict[str, list[Busy]]) -> None:
    """Draws the rows into matplotlib's axes, in milliseconds."""
    for what, colour in COLOURS.items():
        label: str | None = what
        for y, name in enumerate(ROWS):
            bars = [(a * 1e3, (b - a) * 1e3) for a, b, done in rows[name] if done == what]
            if bars:
                ax.broken_barh(bars, (y - 0.4, 0.8), color=colour, label=label)
                label = None
    ax.set_yticks(range(len(ROWS)), ["device", "link, in", "link, out", "host's optimizer"])
    ax.invert_yaxis()
