"""What an optimizer's step takes on the host, beside reading and writing its bytes once.

    python benchmarks/host_step.py [--elements 8388608] [--threads 1] [--json FILE]

The bytes of a step are those of parameter, gradient and states; all but the gradient are written,
too. Beside it the same bytes pass through NumPy once, by blocks, in as many threads: `multiply` in
place of what is written, `sum` of what is read. "thread" has the time of the processor in this
thread, where there is one thread, "process" that of all threads, "wall" the time that passes; each
the least of several. Both forms of a step take turns in one run: calls of NumPy, and, where Numba
is installed, the compiled "loop". "passes" counts the calls of NumPy in which the rule goes through
a block, and "in cache" is what these take, of what is in the cache already: one addition for each.
No step by calls of NumPy takes less than that and the bytes together.

How arrays lie to one another counts, too: a processor may take half as long again for a loop over
arrays that are 32 MiB and a page apart, as are those of 2**23 numbers that NumPy makes one after
the other. So the arrays of a step are made several times; "worst" is the ratio at the worst place.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
from benchmarks.common import provenance
from benchmarks.offload_common import markdown
from cugrad.optim.rules import steps
from cugrad.optim.rules.blocks import BLOCK

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("Adam", {"amsgrad": True}),
    ("AdamW", {}), ("NAdam", {}), ("RAdam", {}), ("Adamax", {}), ("Adagrad", {}), ("Adadelta", {}),
    ("RMSprop", {}), ("Rprop", {}), ("ASGD", {}),
]  # fmt: skip
GOAL = 1.3  # of the bytes once


CLOCKS = {"thread": time.thread_time, "process": time.process_time, "wall": time.perf_counter}


def timed(times: int, **runs: Callable[[], Any]) -> dict[str, dict[str, float]]:
    """The least seconds of runs that take turns: of this thread, the process, and all that pass."""
    least = {run: dict.fromkeys(CLOCKS, float("inf")) for run in runs}
    for _ in range(times):
        for name, run in runs.items():
            began = {clock: now() for clock, now in CLOCKS.items()}
            run()
            least[name] = {c: min(least[name][c], now() - began[c]) for c, now in CLOCKS.items()}
    return least


def bytes_once(count: int, written: int, threads: int) -> Callable[[], Any]:
    """Reads an array, and reads and writes others, by the blocks of a step."""
    arrays = [np.ones(count, np.float32) for _ in range(written + 1)]
    length, one = BLOCK // 4, np.float32(1.0000001)

    def part(first: int) -> None:
        for start in range(first * length, count, threads * length):
            arrays[0][start : start + length].sum()
            for array in arrays[1:]:
                block = array[start : start + length]
                np.multiply(block, one, block)

    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(part, range(threads))) if threads > 1 else part(0)


def in_cache(count: int) -> Callable[[], Any]:
    """One pass over blocks that are in the cache."""
    length = BLOCK // 4
    a, b, c = [np.ones(length, np.float32) for _ in range(3)]

    def run() -> None:
        for _ in range(0, count, length):
            np.add(a, b, c)

    return run


def by_numpy(step: Callable[[], Any]) -> None:
    """A step without compiled loops."""
    with patch.object(steps, "loop_of", lambda *_: None):
        step()


def measured(name: str, settings: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """The step of one optimizer, in the ways that are timed."""
    which = "thread" if asked.threads == 1 else "process"
    places, kept = [], list[Any]()
    for place in range(asked.places):
        kept.append(np.ones(place << 16, np.float32))  # what follows lies elsewhere
        param = torch.rand(asked.elements).requires_grad_()
        param.grad = 0.1 * torch.rand(asked.elements)
        optimizer = getattr(torch.optim, name)([param], lr=1e-3, **settings)
        optimizer.step()
        optimizer.step()  # forms of a second step
        state = optimizer.state.get(param) or {}
        written = 1 + len([each for each in state.values() if getattr(each, "ndim", 0)])
        form = list(optimizer._rule._forms.values())[-1]
        runs = {"loop": optimizer.step} if any(form.loops.values()) else {}
        places.append(timed(
            asked.times, numpy=partial(by_numpy, optimizer.step), **runs,
            once=bytes_once(asked.elements, written, asked.threads),
            cached=in_cache(asked.elements),
        ))  # fmt: skip
    passes = len(form.program.calls)
    best = {run: {clock: min(place[run][clock] for place in places) for clock in CLOCKS}
            for run in places[0]}  # fmt: skip
    once, cached = best["once"], best["cached"]["thread"] * passes
    return {
        "optimizer": name, "settings": settings, "bytes": 4 * asked.elements * (1 + 2 * written),
        **best, "passes": passes, "in_cache": cached,
        "ratios": {run: best[run][which] / once[which] for run in ("numpy", *runs)},
        "worst": {run: max(place[run][which] for place in places) / once[which]
                  for run in ("numpy", *runs)},
        "floor": (once[which] + cached) / once[which],
    }  # fmt: skip


HEAD = ["optimizer", "bytes an element", "once ms", "NumPy ms", "loop ms", "NumPy ratio",
        "loop ratio", "NumPy worst", "loop worst", "passes", "in cache ms",
        "once and passes"]  # fmt: skip


def row_of(r: dict[str, Any], asked: argparse.Namespace) -> list[str]:
    said = ", ".join([f"{name}={value}" for name, value in r["settings"].items()])
    which = "thread" if asked.threads == 1 else "process"
    times = [f"{r[run][which] * 1e3:.1f}" if run in r else "" for run in ("once", "numpy", "loop")]
    ratios = [f"{r[kind][run]:.2f}" if run in r[kind] else "" for kind in ("ratios", "worst")
              for run in ("numpy", "loop")]  # fmt: skip
    return [f"{r['optimizer']} {said}".strip(), f"{r['bytes'] // asked.elements}", *times, *ratios,
            str(r["passes"]), f"{r['in_cache'] * 1e3:.1f}", f"{r['floor']:.2f}"]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 23)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--times", type=int, default=12, help="the least of so many")
    parser.add_argument("--places", type=int, default=4, help="how often arrays are made")
    parser.add_argument("--only", nargs="+", default=[name for name, _ in WAYS])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    torch.set_num_threads(asked.threads)
    results = [measured(name, way, asked) for name, way in WAYS if name in asked.only]
    print(f"Steps of {asked.elements:,} float32 on the host, {asked.threads} threads; the goal is "
          f"{GOAL} of the bytes once\n")  # fmt: skip
    print(markdown(HEAD, [row_of(r, asked) for r in results]))
    if asked.json:
        asked.json.write_text(json.dumps({**provenance(), "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
