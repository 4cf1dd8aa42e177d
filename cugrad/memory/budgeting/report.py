"""What a budget's plan does, for people: where values wait, what it costs, memory over time."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from ..sizes import size
from .model_states.choosing import KINDS
from .planning import DISK, KEEP, OFFLOAD, Forecaster, Step

if TYPE_CHECKING:
    from .context import budget
    from .model_states.states import StatesOfBudget

__all__ = ["BudgetReport", "report_of"]


class BudgetReport(dict[str, Any]):
    """A report as a dict; it prints as a page, and `plot` draws it.

    `peak` is what was taken within it, also by several passes and between them; with a model, by
    the last step. All else is of the last pass; `predicted_peak` and `memory` are forecasts.
    """

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    __repr__ = __str__  # at a prompt, and in a notebook, it is the page

    def plot(self, path: str | None = None) -> Any:
        """Draws memory over the step, planned and with all saved tensors kept, and below it, with a
        model, the timeline of its last step; the figure.

        ImportError where matplotlib is not installed.
        """
        try:
            from matplotlib import figure
        except ImportError as error:
            raise ImportError(
                "plan.report().plot() draws with matplotlib, which is not installed; install it "
                "with: pip install matplotlib"
            ) from error
        moved: Any = (self["states"] or {}).get("moved")
        has_timeline = bool(moved) and moved.step is not None
        drawn = figure.Figure(figsize=(9, 4 + 3 * has_timeline), layout="constrained")
        ax, *below = drawn.subplots(1 + has_timeline, squeeze=False)[:, 0]
        for each in below:
            moved.draw(each)
        most = max(self["memory_without"], default=1)
        unit, divisor = next(
            (unit, n) for unit, n in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
            if most >= n or n == 1 << 10
        )  # fmt: skip
        for name, label in (("memory_without", "all kept"), ("memory", "planned")):
            ax.step(range(len(self[name])), [b / divisor for b in self[name]], label=label,
                    where="mid")  # fmt: skip
        if self["limit"] < 2 * most:  # else the lines would lie at the bottom
            ax.axhline(self["limit"] / divisor, color="grey", linestyle="--", label="limit")
        ax.axvline(self["forward_ops"] - 0.5, color="grey", linewidth=0.5)
        ax.set_xlabel("ops of forward, nodes of backward")
        ax.set_ylabel(f"{unit} in use")
        ax.set_ylim(bottom=0)
        ax.legend()
        if path is not None:
            drawn.savefig(path, dpi=100)
        return drawn


def report_of(owner: budget, tokens: int | None) -> BudgetReport:
    """The report of what the last step followed, or taught, of this budget or of others with its
    arguments; RuntimeError before there was one. The `tokens` are those of a step.
    """
    seen_step = owner.last or owner._lessons.book.last
    if seen_step is None:
        raise RuntimeError(
            "budget: there is nothing to report: no forward and backward ran within it, or one "
            "with the same arguments, to their end"
        )
    step, plan, beyond = seen_step.now.step, seen_step.plan, seen_step.beyond
    forecaster = Forecaster(step)
    keep = [KEEP if v.uses else p for v, p in zip(step.values, plan.placements)]
    without = forecaster(keep)
    placed: dict[str, dict[str, int]] = {}
    for value, place in zip(step.values, plan.placements):
        if value.uses:
            line = placed.setdefault(place, {"tensors": 0, "bytes": 0})
            line["tensors"] += 1
            line["bytes"] += value.nbytes
    forecast = plan.forecast
    tried = [t for t in seen_step.tried if t.plan is plan]
    seconds, fits = sum([e.seconds for e in step.events]), plan.needs <= owner.limit
    moved = forecast.out_bytes
    return BudgetReport(
        limit=owner.limit, placements=placed, forward_ops=step.forward,
        peak=owner.peak() or seen_step.peak, predicted_peak=forecast.peak + beyond,
        peak_without=without.peak + beyond, seconds=tried[-1].milliseconds / 1e3 if tried else None,
        predicted_seconds=forecast.seconds, seconds_without=seconds,
        bound=max(seconds, moved / step.out_rate + moved / step.in_rate) if moved else seconds,
        recompute_seconds=forecast.recompute_seconds, stall_seconds=float(sum(forecast.stalls)),
        out_bytes=moved, back_bytes=forecast.in_bytes, **_rates(owner, step),
        memory=(forecast.memory + beyond).tolist(),
        memory_without=(without.memory + beyond).tolist(),
        holders=plan.holders(beyond),
        needs=None if fits and plan.keeps_all else plan.needs + beyond,
        plans_tried=len(seen_step.tried), steps_followed=seen_step.steps,
        is_of_earlier_step=owner.last is None,
        states=None if owner._states is None else _states_of(owner._states, tokens),
    )  # fmt: skip


def _states_of(states: StatesOfBudget, tokens: int | None) -> dict[str, Any]:
    """The places that were chosen, and bytes by kind and place."""
    assert states.chosen is not None
    context = states.context or states.ended
    report = {} if context is None or states.chosen.is_on_device else context.report(tokens)
    layout, chosen = states.inventory.layout, states.chosen
    return {
        "places": dict(chosen.places), "step": chosen.step,
        "bytes": {kind: layout.bytes_of(kind) for kind in KINDS},
        "elsewhere": {kind: chosen.elsewhere(kind) for kind in KINDS},
        "window": chosen.window, "moved": report,
        "candidates": [(str(c), c.seconds, c.peak) for c in states.tried],
        "measured": {str(states.tried[k]): seconds for k, seconds in states.measured.items()},
    }  # fmt: skip


def _rates(owner: budget, step: Step) -> dict[str, float]:
    """Bytes per second of the links that plans may use."""
    rates: dict[str, float] = {}
    if OFFLOAD in owner.placements:
        rates |= {"out_rate": step.out_rate, "in_rate": step.in_rate}
    if DISK in owner.placements:
        rates |= {"disk_out_rate": step.disk_out_rate, "disk_in_rate": step.disk_in_rate}
    return rates


def _lines(report: BudgetReport) -> list[str]:
    def ms(seconds: float | None) -> str:
        return "" if seconds is None else f"{seconds * 1e3:.3f} ms"

    tried = report["seconds"] is not None
    followed = "in the last step" if report["steps_followed"] else "in the step that was measured"
    lines = []
    if report["is_of_earlier_step"]:
        followed = "in this step"
        lines.append(
            "plan of              an earlier step with these arguments; this one has none yet"
        )
    lines += [
        f"limit                {size(report['limit'])}",
        f"peak                 {size(report['peak'])} {followed}; forecast "
        f"{size(report['predicted_peak'])}, with all kept {size(report['peak_without'])}",
        f"step                 {ms(report['seconds']) + ', ' if tried else ''}forecast "
        f"{ms(report['predicted_seconds'])}; its ops alone {ms(report['seconds_without'])}",
    ]
    if report["recompute_seconds"]:
        lines.append(f"made again           {ms(report['recompute_seconds'])}")
    if report["out_bytes"]:
        links = [
            f"{where} at {report[link + 'out_rate'] / 1e9:.3g} GB/s, back at "
            f"{report[link + 'in_rate'] / 1e9:.3g}"
            for place, where, link in (
                (OFFLOAD, "to the host", ""), (DISK, "to the disk", "disk_"),
            )
            if place in report["placements"]
        ]  # fmt: skip
        lines.append(
            f"waits for copies     {ms(report['stall_seconds'])}; {size(report['out_bytes'])} go "
            f"{'; '.join(links)}"
        )
    least = "held by" if report["needs"] is None else "least"
    needs = "" if report["needs"] is None else f"{size(report['needs'])}. "
    lines += [f"{least:<20} {needs}{report['holders']}", "", "placement      tensors  bytes"]
    for place, line in sorted(report["placements"].items()):
        lines.append(f"{place:<14} {line['tensors']:>7}  {size(line['bytes'])}")
    return lines + _lines_of_states(report["states"])


def _lines_of_states(states: dict[str, Any] | None) -> list[str]:
    """Where weights, gradients and states are, and what else was considered."""
    if states is None:
        return []
    lines = ["", "training state  place    bytes        elsewhere"]
    for kind, place in states["places"].items():
        nbytes, elsewhere = size(states["bytes"][kind]), size(states["elsewhere"][kind])
        lines.append(f"{kind:<15} {place:<8} {nbytes:<12} {elsewhere}")
    where = "on the host, whose rounding it has" if states["places"]["states"] == "host" else (
        "on the device"
    )  # fmt: skip
    lines.append(f"the step        {states['step']}, {where}")
    for name, seconds, peak in states["candidates"]:
        took = states["measured"].get(name)
        said = "" if took is None else f"; it took {took * 1e3:.3f} ms"
        lines.append(f"forecast        {seconds * 1e3:.3f} ms, peak {size(peak)}{said}: {name}")
    return lines + (["", *str(states["moved"]).splitlines()] if states["moved"] else [])
