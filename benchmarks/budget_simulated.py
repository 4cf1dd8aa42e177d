"""memory.budget on the simulated device: step time and peak over a sweep of budgets.

The networks of benchmarks/offload_simulated.py train under limits from almost all that the plain
step takes to almost nothing. Beside each limit stands the fastest of what people choose by hand
and fits it: all saved tensors kept, all offloaded, all recomputed, and a checkpoint around each
block. Virtual time: the numbers are the same everywhere.

    python benchmarks/budget_simulated.py [--check] [--preset H200] [--only REGEX] [--budgets 10]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
from benchmarks.common import provenance
from benchmarks.offload_common import Task, checkpointed, markdown, placement
from benchmarks.offload_simulated import CASES, Case, gpt, modelled
from cugrad.backends import simulated
from cugrad.memory import budget, recompute
from cugrad.memory.budgeting import context as budgeting
from cugrad.memory.budgeting import rates

PLACEMENTS = ("keep", "offload", "recompute")
STEPS = 20  # at most: one is measured, six correct the plan, and three follow it as it is
SETTLED = 3
CHAINS = (4, 16, 64)  # ops that `recompute` runs again for one tensor, at most
LEAST_USED = 0.95  # of a limit, by the peak of a step that pays time to fit it
SAME = 1.01  # of the time that another way takes: as fast
TENTH_SHARE = -1.0  # the row of a tenth of what is saved, beside what cannot be placed
TENTH = 1.35  # of the plain step, with a tenth of what ResNet-152 saves


@dataclass
class Row:
    """One step under one limit, in seconds and bytes of what the small network stands for."""

    case: str
    share: float  # of what the plain step takes beyond the least limit
    limit: float
    peak: float = 0.0
    first_peak: float = 0.0  # of the step that measures
    step: float = 0.0
    plain: float = 0.0
    by_hand: str = ""  # the fastest that people choose by hand and that fits
    hand_step: float = 0.0
    values: int = 0
    over: int = 0  # steps that took more than the limit while the plan was corrected; all warned
    error: str = ""

    @property
    def slowdown(self) -> float:
        return self.step / self.plain

    @property
    def used(self) -> float:
        return self.peak / self.limit

    @property
    def missed(self) -> str:
        """What is not as it should be."""
        if self.error:
            return self.error
        if self.peak > self.limit:
            return f"its peak is {self.used:.3f} of the limit"
        if self.slowdown > 1.005 and self.used < LEAST_USED:
            return f"it pays {self.slowdown:.3f} and uses {self.used:.3f} of the limit"
        if self.hand_step and self.step > SAME * self.hand_step:
            return f"{self.by_hand} takes {self.hand_step / self.step:.3f} of its time"
        if self.share == TENTH_SHARE and self.slowdown > TENTH:
            return f"{self.slowdown:.3f} of the plain step"
        return ""


def one_step(task: Task, context: Any) -> tuple[float, int]:
    """Virtual seconds and the peak of a whole step within a context."""
    machine = simulated.MACHINE
    task.net.zero_grad()
    machine.pool.collect()
    machine.pool.peak = machine.pool.used
    with simulated.record() as timeline:
        with context:
            loss = task.forward()
            loss.backward()
        peak = machine.pool.peak
    return timeline.step_time, peak


@contextmanager
def both(outer: Any, inner: Any) -> Iterator[None]:
    """Within one context and the other."""
    with outer, inner:
        yield


def by_hand(case: Case, task: Task, hands: str = "") -> dict[str, tuple[float, int]]:
    """Seconds and peaks of what people choose without a planner, once it is warm: of the plain
    step, and of the ways that `hands` matches.
    """
    offload = placement(torch, "offload", case.scale)
    every = placement(torch, "save_on_cpu", case.scale)
    outer = placement(torch, "offload", case.scale)
    net = task.net
    ways: dict[str, Callable[[], Any]] = {
        "all kept": nullcontext,
        "offload": lambda: offload,
        "save_on_cpu": lambda: every,
        "blocks": lambda: checkpointed(torch, net),
        "blocks, offload": lambda: both(outer, checkpointed(torch, net)),
    }
    for chain in CHAINS:
        ways[f"recompute {chain}"] = partial(recompute, ops="all", chain=chain)
    found = {}
    for name, way in ways.items():
        if name != "all kept" and not re.fullmatch(hands or ".*", name):
            continue
        moves = name == "save_on_cpu" or "offload" in name
        for _ in range(3 if moves else 1):  # copies are planned by what the step before has shown
            found[name] = one_step(task, way())
    return found


def sweep(case: Case, preset: str, count: int, hands: str = "") -> Iterator[Row]:
    """Rows for `count` limits, from most to least, one for the least that is reached by hand, and
    one for a tenth of what ResNet saves.
    """
    torch.manual_seed(0)
    budgeting._learned.clear()
    rates._rates.clear()  # of the link of another model
    with modelled(case, preset, 1.0):
        task = case.build()
        ways = by_hand(case, task, hands)
        plain, most = ways["all kept"]
        roomy = budget(2 * most, device="simulated", placements=PLACEMENTS)
        one_step(task, roomy)
        assert roomy.last is not None
        step = roomy.last.step
        saved = sum([v.nbytes for v in step.values if v.uses])
        floor = max([event.base for event in step.events])
        tenth = floor + saved // 10
        tight = budget(int(1.01 * most), device="simulated", placements=PLACEMENTS)
        one_step(task, tight)
        assert tight.last is not None
        least = 1.03 * tight.last.first_peak  # the step that measures has to fit, too
        shares = [1 - k / max(1, count - 1) for k in range(count)]
        limits = [int(least + share * (most - least)) for share in shares]
        leanest = min([peak for _, peak in ways.values()])
        if leanest > least:  # else none by hand fits where it is most wanted
            shares.append((leanest - least) / (most - least))
            limits.append(leanest)
        for share, limit in zip(shares, limits, strict=True):
            yield compared(under(case, task, limit, share, plain), ways)
        if case.name == "ResNet-152" and count > 1:
            yield compared(under(case, task, tenth, TENTH_SHARE, plain), ways)
        simulated.reset()


def compared(row: Row, hands: dict[str, tuple[float, int]]) -> Row:
    """With the fastest by hand that fits."""
    scale = next(case.scale for case in CASES if case.name == row.case)
    fitting = [(t, name) for name, (t, peak) in hands.items() if peak * scale <= row.limit]
    if fitting:
        row.hand_step, row.by_hand = min(fitting)
    return row


def under(case: Case, task: Task, limit: int, share: float, plain: float) -> Row:
    """A step that follows its settled plan."""
    known, settled, s = None, 0, case.scale
    row = Row(case.name, share, limit * s, plain=plain)
    try:
        for _ in range(STEPS):
            plan = budget(limit, device="simulated", placements=PLACEMENTS)
            row.step, peak = one_step(task, plan)
            row.peak = peak * s
            row.over += peak > limit
            known = plan.last or known
            follows = plan.last is not None and plan.last.settled and peak <= limit
            settled = settled + 1 if follows else 0
            if settled == SETTLED:
                break
    except budgeting.BudgetError as error:
        row.error = str(error)
    if known is not None:
        row.values, row.first_peak = len(known.step.values), known.first_peak * s
    return row


HEAD = ["model", "share", "limit GB", "peak GB", "used", "first GB", "step ms", "slowdown",
        "by hand", "its ms", "values"]  # fmt: skip


def cells(r: Row) -> list[str]:
    share = "tenth" if r.share == TENTH_SHARE else f"{r.share:.2f}"
    begin = [r.case, share, f"{r.limit / 1e9:.2f}"]
    hand = [r.by_hand or "none", f"{r.hand_step * 1e3:.0f}" if r.by_hand else ""]
    if r.error:
        return [*begin, "none fits", "", "", "", "", *hand, ""]
    return [*begin, f"{r.peak / 1e9:.2f}", f"{r.used:.3f}", f"{r.first_peak / 1e9:.1f}",
            f"{r.step * 1e3:.0f}", f"{r.slowdown:.3f}", *hand, str(r.values)]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="H200", help="the GPU: A100, H100, H200, GH200")
    parser.add_argument("--only", default="", metavar="REGEX", help="the models it matches")
    parser.add_argument("--budgets", type=int, default=10, help="limits to try for each model")
    parser.add_argument("--hands", default="", metavar="REGEX", help="ways to choose by hand")
    parser.add_argument("--scores", action="store_true", help="attention has its scores in memory")
    parser.add_argument("--layers", type=int, default=12, help="of GPT-2")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", "budget: the step took")  # `over` counts these
    about = provenance() | {"preset": options.preset}
    print(f"{about['date']}  commit {about['commit']}  preset {options.preset}, virtual time")
    rows: list[Row] = []
    ways = torch.nn.attention
    with ways.sdpa_kernel(ways.SDPBackend.MATH) if options.scores else nullcontext():
        for case in CASES:
            if re.search(options.only, case.name):
                if case.name == "GPT-2":
                    case = replace(case, build=partial(gpt, options.layers))
                for row in sweep(case, options.preset, options.budgets, options.hands):
                    print(*cells(row), row.missed, sep="  ", file=sys.stderr)
                    rows.append(row)
    print(markdown(HEAD, map(cells, rows)))
    if options.json:
        lines = [asdict(r) | {"slowdown": r.slowdown, "used": r.used} for r in rows]
        options.json.write_text(json.dumps(about | {"rows": lines}, indent=1) + "\n")
    missed = [f"{r.case} at {r.limit / 1e9:.2f} GB: {r.missed}" for r in rows if r.missed]
    if missed:
        print("missed:", *missed, sep="\n  ")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
