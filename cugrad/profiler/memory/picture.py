"""Draws a memory timeline with matplotlib."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

__all__ = ["draw"]

HERE = {
    "before": ("in use on entry", "#9aa5b8"),
    "parameters": ("parameters", "#7c6fd0"),
    "inputs": ("inputs", "#4c9fd6"),
    "gradients": ("gradients", "#e0a030"),
    "activations": ("activations", "#59b37c"),
    "saved": ("saved for backward", "#2f6fde"),
    "other": ("other", "#d66a5b"),
}
ELSEWHERE = {
    "offloaded": ("offloaded", "#2f6fde"),
    "in_flight": ("in flight", "#e0a030"),
    "pinned": ("pinned", "#7c6fd0"),
    "disk": ("on disk", "#59b37c"),
}
MIB = 2**20


def draw(timeline: dict[str, Any], path: str | Path) -> None:
    """Writes a PNG: memory by category over ops, and what is elsewhere, if anything is.

    `timeline` is `MemoryTimeline.as_dict()`. ImportError when matplotlib is missing.
    """
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise ImportError(
            "MemoryTimeline.to_png draws with matplotlib, which is not installed; "
            "install it with: pip install matplotlib (to_html needs nothing)"
        ) from error
    samples = timeline["samples"]
    away = [key for key in ELSEWHERE if any(each[key] for each in samples)]
    rows = 2 if away else 1
    figure = figures.Figure(figsize=(10, 3.2 + 2 * rows), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    x = range(1, len(samples) + 1)
    colors = [color for _, color in HERE.values()]
    labels = [label for label, _ in HERE.values()]
    if samples:
        heights = [[each[key] / MIB for each in samples] for key in HERE]
        axes[0].stackplot(x, *heights, labels=labels, colors=colors, step="post", alpha=0.85)
        mark_peak(axes[0], timeline)
    axes[0].set_ylabel(f"MiB on {timeline['device']}")
    axes[0].set_ylim(bottom=0)
    axes[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True, frameon=False)
    for axis in axes[1:]:
        for key in away:
            label, color = ELSEWHERE[key]
            values = [each[key] / MIB for each in samples]
            axis.plot(x, values, label=label, color=color, drawstyle="steps-post")
        axis.set_ylabel("MiB elsewhere")
        axis.set_ylim(bottom=0)
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    turn = next((i for i, each in zip(x, samples) if each["phase"] == "backward"), None)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
        if turn is not None:
            axis.axvline(turn, color="#667085", linewidth=0.8, linestyle=":")
    if turn is not None:
        axes[0].annotate(
            "backward", (turn, axes[0].get_ylim()[1]), xytext=(4, 2), textcoords="offset points",
            color="#667085", annotation_clip=False,
        )  # fmt: skip
    axes[-1].set_xlabel("ops and backward nodes run")
    figure.savefig(path, dpi=130, format="png")


def mark_peak(axis: Any, timeline: dict[str, Any]) -> None:
    """Marks the peak with a ring and the name of what ended there."""
    index = timeline["peak_sample"]
    top = timeline["samples"][index]
    height = top["bytes"] / MIB
    axis.plot([index + 1], [height], "o", markersize=8, fillstyle="none", color="black")
    right = index > len(timeline["samples"]) * 0.6
    axis.annotate(
        f"peak {height:.2f} MiB: {top['name']}", (index + 1, height),
        xytext=(-10 if right else 10, 8), textcoords="offset points",
        ha="right" if right else "left", annotation_clip=False,
    )  # fmt: skip
    axis.margins(y=0.12)
