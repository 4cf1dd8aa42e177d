"""memory.budget on the simulated device: step time and peak over a sweep of budgets.

The networks of benchmarks/offload_simulated.py train under budgets from almost all that the plain
step takes to almost nothing. Each is a step under a limit; beside it stand what else fits: all
saved tensors kept, all offloaded, all recomputed, and a checkpoint around each block.

    python benchmarks/budget_simulated.py [--check] [--preset H200] [--only REGEX] [--budgets 10]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
from benchmarks.common import provenance
from benchmarks.offload_common import Task, markdown
from benchmarks.offload_simulated import CASES, Case, modelled
from cugrad.backends import simulated
from cugrad.memory import budget, budgeting, rates

PLACEMENTS = ("keep", "offload", "recompute")
STEPS = 10  # one is measured, six correct the plan


@dataclass
class Row:
    """One step under one limit, in seconds and bytes of what the small network stands for."""

    case: str
    share: float  # of the activations of the plain step, that may be there
    limit: float
    peak: float
    first_peak: float  # of the step that measures
    step: float
    plain: float
    planning: float  # real seconds of the first plan
    values: int
    error: str = ""

    @property
    def slowdown(self) -> float:
        return self.step / self.plain

    @property
    def used(self) -> float:
        return self.peak / self.limit


def one_step(task: Task, context: Any) -> tuple[float, int]:
    """Virtual seconds and the peak of a whole step within a context."""
    machine = simulated.MACHINE
    task.net.zero_grad()
    machine.pool.collect()
    machine.pool.peak = machine.pool.used
    peak = 0
    with simulated.record() as timeline:
        with context:
            loss = task.forward()
            loss.backward()
        peak = machine.pool.peak
    return timeline.step_time, peak


def sweep(case: Case, preset: str, count: int) -> Iterator[Row]:
    """Rows for `count` limits, from most to least."""
    torch.manual_seed(0)
    budgeting._learned.clear()
    rates._rates.clear()
    with modelled(case, preset, 1.0):
        task = case.build()
        for _ in range(2):
            plain, most = one_step(task, nullcontext())
        tight = budget(int(1.5 * most), device="simulated", placements=PLACEMENTS)
        one_step(task, tight)
        least = 1.03 * tight.last.first_peak  # of the step that measures
        for k in range(count):
            share = 1 - (k + 1) / (count + 1)
            yield under(case, task, int(least + share * (most - least)), share, plain)
        simulated.reset()


def under(case: Case, task: Task, limit: int, share: float, plain: float) -> Row:
    """A step that follows its settled plan."""
    error, plan = "", None
    seconds, peak, spent = 0.0, 0, 0.0
    try:
        for _ in range(STEPS):
            plan = budget(limit, device="simulated", placements=PLACEMENTS)
            began = perf_counter()
            seconds, peak = one_step(task, plan)
    except budgeting.BudgetError as e:
        error = str(e)
    known = plan.last
    count = first = 0
    if known is not None:
        began = perf_counter()
        budgeting.planning.plan(known.step, limit, placements=plan.placements)
        spent, count = perf_counter() - began, len(known.step.values)
        first = known.first_peak
    s = case.scale
    return Row(case.name, share, limit * s, peak * s, first * s, seconds, plain, spent, count,
               error)  # fmt: skip


HEAD = ["model", "share", "limit GB", "peak GB", "used", "first GB", "step ms", "slowdown",
        "plan s", "values"]  # fmt: skip


def cells(r: Row) -> list[str]:
    if r.error:
        return [r.case, f"{r.share:.2f}", f"{r.limit / 1e9:.1f}", r.error, "", "", "", "", "", ""]
    return [r.case, f"{r.share:.2f}", f"{r.limit / 1e9:.1f}", f"{r.peak / 1e9:.1f}",
            f"{r.used:.3f}", f"{r.first_peak / 1e9:.1f}", f"{r.step * 1e3:.0f}",
            f"{r.slowdown:.3f}", f"{r.planning:.2f}", str(r.values)]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="H200", help="the GPU: A100, H100, H200, GH200")
    parser.add_argument("--only", default="", metavar="REGEX", help="the models it matches")
    parser.add_argument("--budgets", type=int, default=10, help="limits to try for each model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
    options = parser.parse_args(argv)
    about = provenance() | {"preset": options.preset}
    print(f"{about['date']}  commit {about['commit']}  preset {options.preset}, virtual time")
    rows = []
    for case in CASES:
        if re.search(options.only, case.name):
            for row in sweep(case, options.preset, options.budgets):
                print(*cells(row), sep="  ", file=sys.stderr)
                rows.append(row)
    print(markdown(HEAD, map(cells, rows)))
    if options.json:
        options.json.write_text(json.dumps(about | {"rows": [asdict(r) for r in rows]}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
