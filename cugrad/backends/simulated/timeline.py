"""What happened on the simulated device, in virtual time: records, sums, a text and a drawing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Record", "Timeline"]

LETTERS = {"kernel": "#", "d2h": "<", "h2d": ">", "d2d": "=", "wait": ".", "host": "h",
           "link": "+", "computed": "@"}  # fmt: skip
COLOURS = {"kernel": "tab:blue", "d2h": "tab:orange", "h2d": "tab:green", "d2d": "tab:purple",
           "wait": "lightgrey", "host": "tab:red", "link": "tab:olive",
           "computed": "tab:brown"}  # fmt: skip


class Record(NamedTuple):
    """One operation: kind is kernel, d2h, h2d, d2d, link (to other ranks), wait (a stream idle
    behind an event), host, computed (by the host itself).

    `queued`, `start` and `end` are seconds of virtual time; a host record is a time in which the
    host waited.
    """

    name: str
    stream: str
    kind: str
    queued: float
    start: float
    end: float
    nbytes: int
    flops: float


class Timeline:
    """The records of a stretch of virtual time.

    >>> from cugrad.backends import simulated
    >>> simulated.timeline().step_time >= 0
    True
    """

    def __init__(self, records: Iterable[Record], began: float, ended: float) -> None:
        self.records = list(records)
        self.began, self.ended = began, ended

    @property
    def step_time(self) -> float:
        """Seconds from the beginning until the device and the host had finished."""
        return max([self.ended, *[r.end for r in self.records]], default=0.0) - self.began

    def spans(self, *kinds: str) -> list[tuple[float, float]]:
        """When anything of these kinds ran, as disjoint intervals."""
        spans: list[tuple[float, float]] = []
        for start, end in sorted((r.start, r.end) for r in self.records if r.kind in kinds):
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        return spans

    def busy(self, *kinds: str) -> float:
        """Seconds in which anything of these kinds ran."""
        return sum(end - start for start, end in self.spans(*kinds))

    def moved(self, kind: str) -> int:
        """Bytes of all copies of a kind."""
        return sum(r.nbytes for r in self.records if r.kind == kind)

    @property
    def overlap(self) -> float:
        """The part of the copies' time over the link in which kernels ran too; 1.0 if no copies."""
        copies, kernels = self.spans("d2h", "h2d"), self.spans("kernel", "d2d")
        total = sum(end - start for start, end in copies)
        shared, j = 0.0, 0
        for start, end in copies:
            while j and (j >= len(kernels) or kernels[j][0] > start):
                j -= 1
            while j < len(kernels) and kernels[j][0] < end:
                shared += max(0.0, min(end, kernels[j][1]) - max(start, kernels[j][0]))
                j += 1
        return shared / total if total else 1.0

    @property
    def stalls(self) -> list[Record]:
        """When a stream stood still behind an event, or the host waited, longest first."""
        stalls = [r for r in self.records if r.kind in ("wait", "host")]
        return sorted(stalls, key=lambda r: r.start - r.end)

    def summary(self) -> dict[str, float]:
        """The figures of text(), by name."""
        return {
            "step_time": self.step_time,
            "compute": self.busy("kernel", "d2d"),
            "to_host": self.busy("d2h"),
            "to_device": self.busy("h2d"),
            "overlap": self.overlap,
            "stalled": sum(r.end - r.start for r in self.records if r.kind == "wait"),
            "host_waited": sum(r.end - r.start for r in self.records if r.kind == "host"),
            "to_host_bytes": self.moved("d2h"),
            "to_device_bytes": self.moved("h2d"),
        }

    def text(self, width: int = 72) -> str:
        """The timeline drawn in letters, one line a stream, with the sums below."""
        span = self.step_time or 1.0
        streams = list(dict.fromkeys(r.stream for r in self.records))
        lines = []
        for stream in streams:
            row = [" "] * width
            for r in sorted((r for r in self.records if r.stream == stream),
                            key=lambda r: r.kind != "wait"):  # fmt: skip
                low = int((r.start - self.began) / span * width)
                high = max(low + 1, round((r.end - self.began) / span * width))
                for i in range(max(0, low), min(width, high)):
                    row[i] = LETTERS[r.kind]
            lines.append(f"{stream[:14]:>14} |{''.join(row)}|")
        s = self.summary()
        lines.append(
            f"{'':>14}  step {s['step_time'] * 1e3:.3f} ms, compute {s['compute'] * 1e3:.3f}, "
            f"to host {s['to_host'] * 1e3:.3f}, to device {s['to_device'] * 1e3:.3f}, "
            f"overlap {s['overlap']:.0%}, stalled {s['stalled'] * 1e3:.3f} ms"
        )
        lines.append(
            f"{'':>14}  # kernel  < to host  > to device  = on device  . wait  h host waits  "
            "@ host computes"
        )
        return "\n".join(lines)

    __str__ = text

    def draw(self, path: str | None = None, axes: Any = None) -> Any:
        """A matplotlib figure, saved to `path` if given; drawn into `axes` if those are given.

        ImportError without matplotlib.
        """
        streams = list(dict.fromkeys(r.stream for r in self.records))
        own = axes is None
        if own:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(12, 1.3 + 0.5 * len(streams)), layout="constrained")
            axes = figure.add_subplot()
        for kind, colour in COLOURS.items():
            for y, stream in enumerate(streams):
                bars = [((r.start - self.began) * 1e3, (r.end - r.start) * 1e3)
                        for r in self.records if r.stream == stream and r.kind == kind]  # fmt: skip
                if bars:
                    label = None if kind in axes.get_legend_handles_labels()[1] else kind
                    axes.broken_barh(bars, (y - 0.4, 0.8), color=colour, label=label)
        if own:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=6, frameon=False)
        axes.set_yticks(range(len(streams)), streams)
        axes.set_xlabel("virtual time in ms")
        axes.invert_yaxis()
        if path is not None:
            axes.figure.savefig(path)
        return axes.figure
