"""Trains under a budget for all of a model's memory, beside the best places that one names by hand.

On the simulated device, with the networks of benchmarks/states.py; virtual time:

    python benchmarks/states_budget.py [--preset H200] [--networks GPT U-Net LSTM]
        [--shares 0.25 0.5 0.75 0.9] [--layers 8] [--tokens 2048] [--check]

A limit is a share of what plain training takes at most. By hand are all of `offload_states`' places
that keep to it, with windows of a sixteenth of the limit, as a budget has them, and with the
library's own. `--check` wants a step of the budget to take at most 1.10 of the best of them, and no
step that follows its choice to take more than the limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
from benchmarks.common import provenance
from benchmarks.states import NARROW, PLACES, batch, mark, network, scores, windows_of
from cugrad import backends, memory
from cugrad.backends import simulated

BY_HAND = ("states host", "states stream", "gradients, states host", "all host", "all stream")
STEPS = 20  # of a budget: it is settled in the last ones
GOAL = 1.10  # of the best by hand


@dataclass
class Row:
    """One limit, in seconds and bytes of what the small network stands for."""

    network: str
    share: float
    limit: float
    plain: float
    step: float
    peak: float
    chosen: str
    by_hand: str
    hand_step: float

    @property
    def missed(self) -> str:
        """What is not as it should be."""
        if self.peak > self.limit:
            return f"its peak is {self.peak / self.limit:.3f} of the limit"
        if self.step > GOAL * self.hand_step:
            return f"{self.by_hand} takes {self.hand_step / self.step:.3f} of its time"
        return ""


def trained(kind: str, tokens: int, layers: int, steps: int, enter: Any) -> Any:
    """Seconds and the peak of the last of some steps, and what was chosen, if that is a budget."""
    backend = backends.get("simulated")
    gc.collect()
    simulated.reset()
    net = network(kind, layers)
    optimizer = torch.optim.Adam(net.parameters())
    inputs, labels = batch(kind, tokens)
    loss_of = torch.nn.CrossEntropyLoss()
    marks = []
    with enter(net, optimizer) as context:
        for step in range(steps):
            if step >= steps - 2:
                gc.collect()
                backend.reset_peak_memory_stats()
            marks.append(mark(backend))
            optimizer.zero_grad()
            loss_of(scores(kind, net, inputs), labels).backward()
            optimizer.step()
        peak = backend.max_memory_allocated()
        backend.synchronize()
    chosen = str(context._states.chosen) if isinstance(context, memory.budget) else ""
    return marks[-2].elapsed_time(marks[-1]) / 1e3, peak, chosen  # nothing that holds a network


def rows(kind: str, setting: Any, shares: list[float]) -> list[Row]:
    """The limits of one network."""
    base, scale = simulated.preset(setting.preset), float(NARROW**2)
    rates = {dtype: rate / NARROW for dtype, rate in base.flops.items()}
    sizes = kind, setting.tokens, setting.layers
    result = []
    with (
        simulated.configured(base, base.capacity, scale=scale, flops=rates, policy="timed"),
        windows_of(scale),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        plain, most, _ = trained(*sizes, 4, lambda net, optimizer: torch.enable_grad())
        for share in shares:
            limit = int(share * most)
            hands = {}
            for name in BY_HAND:
                for window in (limit // 16, None):
                    seconds, peak, _ = trained(*sizes, 6, lambda net, optimizer, w=window, n=name: (
                        memory.offload_states(net, optimizer, window=w, min_bytes=1024, **PLACES[n])
                    ))  # fmt: skip
                    if peak <= limit:
                        hands[name] = min(seconds, hands.get(name, seconds))
            best = min(hands, key=lambda name: hands[name], default="")
            try:
                seconds, peak, chosen = trained(*sizes, STEPS, lambda net, optimizer, limit=limit: (
                    memory.budget(limit, model=net, optimizer=optimizer)
                ))  # fmt: skip
            except memory.BudgetError as error:
                if hands:
                    raise
                seconds, peak, chosen = float("nan"), 0, f"none: {str(error).split(',')[0]}"
            result.append(
                Row(
                    kind,
                    share,
                    limit * scale,
                    plain,
                    seconds,
                    peak * scale,
                    chosen,
                    best,
                    hands.get(best, float("inf")),
                )  # fmt: skip
            )
    return result


def table(results: list[Row]) -> str:
    lines = [
        "| network | limit | limit GB | peak GB | step/plain | by hand/plain | by hand | chosen |",
        "|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for r in results:
        lines.append(
            f"| {r.network} | {r.share:.0%} | {r.limit / 1e9:.1f} | {r.peak / 1e9:.1f} "
            f"| {r.step / r.plain:.2f} | {r.hand_step / r.plain:.2f} | {r.by_hand} | {r.chosen} |"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="H200")
    parser.add_argument("--networks", nargs="+", default=["GPT", "U-Net", "LSTM"])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25, 0.5, 0.75, 0.9])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    results = [row for kind in asked.networks for row in rows(kind, asked, asked.shares)]
    print(table(results))
    if asked.json:
        found = [asdict(row) for row in results]
        asked.json.write_text(json.dumps({**provenance(), "results": found}, indent=1))
    missed = [f"{r.network} at {r.share:.0%}: {r.missed}" for r in results if r.missed]
    if missed and asked.check:
        print("missed:", *missed, sep="\n  ")
    return bool(asked.check and missed)


if __name__ == "__main__":
    raise SystemExit(main())
