"""What a step with states elsewhere takes, what it takes at least, and what would help."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from ....errors import OutOfMemoryError
from ...offloading.stats import Meter
from ...sizes import size
from .bound import least_seconds
from .timeline import Busy, StepEnd, drawn, lines_of, timeline_of

__all__ = ["StatesReport", "StepClock", "report_of"]

KINDS = ("weights", "gradients", "states")
COPIED = 1 << 24  # bytes by which rates are measured
SIDE = 1024  # of the matrices whose product is timed
LATE = 1.1  # of the bound: a step that takes more is told what would help


class StepClock:
    """Takes the times of steps by events; the last two ends of steps are remembered."""

    def __init__(self, backend: Any, windows: list[Any], steps: Any) -> None:
        self.backend, self.windows, self.steps = backend, windows, steps
        self.marks: deque[StepEnd] = deque(maxlen=2)
        self.began: Any = None
        self._new_meter()

    def _new_meter(self) -> None:
        """The copies of a step are timed by a meter of its own."""
        self.meter = Meter(self.backend, self.backend.current_stream())
        for window in self.windows:
            window.options.counts.meters.append(self.meter)

    def begin_step(self) -> None:
        """An optimizer's step begins."""
        self.began = self._mark()

    def end_step(self) -> None:
        """It has ended."""
        stats = [window.options.counts.stats for window in self.windows]
        moved = {"out": sum([s.moved_to_host_bytes for s in stats]),
                 "in": sum([s.moved_back_bytes for s in stats])}  # fmt: skip
        computed, self.steps.computed = self.steps.computed, []
        self.marks.append(
            StepEnd(self.began, self._mark(), moved, self.steps.host_bytes, self.meter, computed)
        )
        self._new_meter()

    def _mark(self) -> Any:
        event = self.backend.event(timing=True)
        self.backend.current_stream().record_event(event)
        return event

    def last(self) -> dict[str, float] | None:
        """Seconds and bytes of the last step, from the end of the one before; None before two."""
        if len(self.marks) < 2:
            return None
        before, now = self.marks
        now.ended.synchronize()
        return {
            "passes": before.ended.elapsed_time(now.began) / 1e3,
            "optimizer": now.began.elapsed_time(now.ended) / 1e3,
            "out": now.moved["out"] - before.moved["out"],
            "in": now.moved["in"] - before.moved["in"],
            "host": now.host_bytes - before.host_bytes,
        }

    def timeline(self) -> dict[str, list[Busy]]:
        """What was done when in the last step."""
        return timeline_of(self.backend, *self.marks)


_rates: dict[Any, dict[str, float]] = {}


def rates_of(backend: Any) -> dict[str, float]:
    """Bytes per second out, in and of the host's memory, and flop/s in float32; measured once."""
    model = backend.model
    key = backend.device_type, repr(model)
    if key not in _rates:
        from ...budgeting.rates import link, timed

        xp = backend.xp
        with backend.quiet():
            host = model.host / model.scale if model is not None else _host_rate()
            out = back = host
            if backend.device_type != "cpu":
                out, back = link(backend, COPIED)
            a = xp.ones((SIDE, SIDE), "float32")
            for _ in range(2):
                seconds = timed(backend, backend.current_stream(), lambda: xp.matmul(a, a))
        _rates[key] = {"out": out, "in": back, "host": host, "flops": 2 * SIDE**3 / seconds}
    return _rates[key]


def _host_rate() -> float:
    a = np.ones(COPIED, np.uint8)
    b = a.copy()
    began = perf_counter()
    np.copyto(b, a)
    return 2 * COPIED / max(perf_counter() - began, 1e-9)


class StatesReport(dict[str, Any]):
    """For weights, gradients and states what moved, as dicts; it prints as a page.

    `parameters` counts elements. `step` has the last step's seconds and bytes, rates, and the
    bound: None before the second step. `helps` says what would make it faster, `arithmetic` what is
    computed otherwise than with all on the device. `timeline` has, for
    "device", "link, in", "link, out" and "host", what was done in the last step: tuples of seconds
    from its begin on, until when, and what.
    """

    parameters = 0
    step: dict[str, Any] | None = None
    timeline: dict[str, list[Busy]] = {}
    helps: tuple[str, ...] = ()
    arithmetic: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def plot(self, path: str | None = None) -> Any:
        """Draws the timeline of the last step: what the device, each direction of the link and the
        host's optimizer did when, with the bound beside it; the figure. RuntimeError before the
        second step, ImportError where matplotlib is not installed.
        """
        if self.step is None:
            raise RuntimeError("report: two steps are needed before one can be drawn")
        try:
            from matplotlib import figure
        except ImportError as error:
            raise ImportError(
                "report.plot() draws with matplotlib, which is not installed; install it with: "
                "pip install matplotlib"
            ) from error
        picture = figure.Figure(figsize=(9, 3), layout="constrained")
        ax = picture.subplots()
        self.draw(ax)
        if path is not None:
            picture.savefig(path, dpi=100)
        return picture

    def draw(self, ax: Any) -> None:
        """The same, into matplotlib's axes."""
        assert self.step is not None
        drawn(ax, self.timeline)
        ax.axvline(self.step["bound"] * 1e3, color="tab:red", linestyle="--", label="bound")
        ax.set_xlabel("ms from the end of the step before")
        ax.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)


def report_of(
    kinds: dict[str, Any], parameters: int, clock: StepClock | None, tokens: int | None
) -> StatesReport:
    """The report of a context; `tokens` are those of one step."""
    report = StatesReport(kinds)
    report.parameters = parameters
    report.arithmetic = tuple(_differences(report))
    last = None if clock is None else clock.last()
    if last is None or clock is None:
        return report
    try:
        rates = rates_of(clock.backend)
    except (MemoryError, OutOfMemoryError):  # the device has no room to measure them
        return report
    computing = None if tokens is None else 6 * parameters * tokens / rates["flops"]
    link = last["in"] / rates["in"], last["out"] / rates["out"]
    host = last["host"] / rates["host"]
    took = last["passes"] + last["optimizer"]
    # no gradient is whole before forward has ended, which is a third of computing
    bound = least_seconds(computing or 0.0, *link, [((computing or 0.0) / 3, host)])
    report.step = {
        **last, "seconds": took, "tokens_per_second": tokens / took if tokens and took else None,
        "computing": computing, "link_in": link[0], "link_out": link[1], "host_busy": host,
        "ahead": clock.steps.ahead is not None, "rates": dict(rates),
        "bound": bound, "over_bound": took / bound if bound else None,
    }  # fmt: skip
    report.timeline = clock.timeline()
    report.helps = tuple(_helps(report, tokens))
    return report


def _differences(report: StatesReport) -> Iterator[str]:
    """Where arithmetic is not that of the device, or in another order."""
    if report["states"]["place"] == "host":
        yield "steps are the host's, with its rounding; states=\"stream\" has the device's"
    if report["gradients"]["place"] != "device" or report["states"]["place"] == "host":
        yield "a norm of gradients, as for clipping, is summed one by one, not in one launch"


def _helps(report: StatesReport, tokens: int | None) -> list[str]:
    """What would make a step faster, the most first."""
    step = report.step
    assert step is not None
    rates, words = step["rates"], []
    copies = max(step["link_in"], step["link_out"])
    if step["computing"] is not None and copies > step["computing"] and tokens:
        free = tokens * copies / step["computing"]
        words.append(
            f"more tokens a step: the link takes {_ms(copies)}, computing "
            f"{_ms(step['computing'])}; from about {free:,.0f} on copies are free"
        )
    if step["optimizer"] > 0.1 * step["seconds"]:
        words.append(
            "more micro-batches for each step of the optimizer, which takes "
            f"{step['optimizer'] / step['seconds']:.0%} of it"
        )
        if report["states"]["place"] in ("stream", "disk"):
            words.append('step="during backward", which hides that behind backward')
        if report["states"]["place"] == "host" and step["host_busy"] > (
            16 * report.parameters / min(rates["in"], rates["out"])
        ):
            words.append('states="stream": the link is faster than the host\'s memory')
    elif step["ahead"] and copies > (step["computing"] or 0.0):
        words.append('step="during backward": gradients need not leave then')
    if copies and copies >= step["bound"]:
        words.append(
            "a second link: two devices, each with half of the parameters, copy for "
            f"{_ms(copies / 2)}"
        )
    if words and report["states"]["place"] in ("stream", "disk") and _is_faster_on_host(report):
        words.append('states="host": the host\'s memory is faster than the link')
    weights = report["weights"]
    if weights["place"] != "device" and weights["bytes"] <= (weights["limit"] or 0) * 2:
        words.append("a larger window: half of the weights fit it already")
    if step["over_bound"] is not None and step["over_bound"] < LATE and not words:
        words.append("nothing here: the step takes what it takes at least")
    return words


def _is_faster_on_host(report: StatesReport) -> bool:
    """Whether the host would step sooner than states come to the device and leave again, with
    gradients in and weights out where those are elsewhere.
    """
    assert report.step is not None
    kept, each, rates = report["states"]["bytes"], 4 * report.parameters, report.step["rates"]
    back, out = [
        kept + each * (report[kind]["place"] != "device") for kind in ("gradients", "weights")
    ]
    return max(back / rates["in"], out / rates["out"]) > (2 * kept + 3 * each) / rates["host"]


def _lines(report: StatesReport) -> list[str]:
    lines = ["kind       place    bytes        a parameter  on device   out        back"]
    for kind in KINDS:
        told = report[kind]
        each = told["bytes"] / max(report.parameters, 1)
        lines.append(
            f"{kind:<10} {told['place']:<8} {size(told['bytes']):<12} {each:<12.2f} "
            f"{size(told['most_on_device']):<11} {size(told['moved_out']):<10} "
            f"{size(told['moved_back'])}"
        )
    lines += [f"arithmetic {words}" for words in report.arithmetic]
    step = report.step
    if step is None:
        return lines
    speed = step["tokens_per_second"]
    said = "" if speed is None else f"; {speed:,.0f} tokens a second"
    rates = step["rates"]
    lines += [
        f"step       {_ms(step['seconds'])}: {_ms(step['passes'])} forward and backward, "
        f"{_ms(step['optimizer'])} the optimizer{said}",
        f"link       {size(step['in'])} in, {size(step['out'])} out: at least "
        f"{_ms(max(step['link_in'], step['link_out']))} at {rates['in'] / 1e9:.3g} and "
        f"{rates['out'] / 1e9:.3g} GB/s",
    ]
    if step["host"]:
        lines.append(f"host       {size(step['host'])} read and written in steps: at least "
                     f"{_ms(step['host_busy'])}")  # fmt: skip
    if step["computing"] is not None:
        lines.append(f"computing  at least {_ms(step['computing'])}: 6 flops a parameter and token "
                     f"at {rates['flops'] / 1e12:.3g} TFLOP/s")  # fmt: skip
    if step["over_bound"] is not None:
        lines.append(
            f"bound      {_ms(step['bound'])}; the step took {step['over_bound']:.2f} of it"
        )
    lines += [f"helps      {words}" for words in report.helps]
    return lines + lines_of(report.timeline)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"
