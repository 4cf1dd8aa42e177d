"""What an optimizer's step takes on the host, beside reading and writing its bytes once.

    python benchmarks/host_step.py [--elements 8388608] [--threads 1] [--json FILE]

The bytes of a step are those of parameter, gradient and states; all but the gradient are written,
too. Beside it the same bytes pass through NumPy once, by blocks, in as many threads: `multiply` in
place of what is written, `sum` of what is read. "thread" has the time of the processor in this
thread, where there is one thread, "process" that of all threads, "wall" the time that passes; each
the least of several. "passes" counts the calls of NumPy in which the rule goes through a block, and
"in cache" is what these take, of what is in the cache already: one addition for each. No step by
calls of NumPy takes less than that and the bytes together.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
from benchmarks.common import provenance
from benchmarks.offload_common import markdown
from cugrad.optim.rules.blocks import BLOCK

WAYS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("Adam", {"amsgrad": True}),
    ("AdamW", {}), ("NAdam", {}), ("RAdam", {}), ("Adamax", {}), ("Adagrad", {}), ("Adadelta", {}),
    ("RMSprop", {}), ("Rprop", {}), ("ASGD", {}),
]  # fmt: skip
GOAL = 1.3  # of the bytes once


def timed(run: Callable[[], Any], times: int) -> dict[str, float]:
    """The least seconds of a run: of this thread, of the process, and of all that passes."""
    clocks = {"thread": time.thread_time, "process": time.process_time, "wall": time.perf_counter}
    least = dict.fromkeys(clocks, float("inf"))
    for _ in range(times):
        began = {name: clock() for name, clock in clocks.items()}
        run()
        least = {name: min(least[name], clock() - began[name]) for name, clock in clocks.items()}
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


def measured(name: str, settings: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """The step of one optimizer, in the ways that are timed."""
    param = torch.rand(asked.elements).requires_grad_()
    param.grad = 0.1 * torch.rand(asked.elements)
    optimizer = getattr(torch.optim, name)([param], lr=1e-3, **settings)
    optimizer.step()
    state = optimizer.state.get(param) or {}
    written = 1 + len([each for each in state.values() if getattr(each, "ndim", 0)])
    step = timed(optimizer.step, asked.times)
    once = timed(bytes_once(asked.elements, written, asked.threads), asked.times)
    cached = timed(in_cache(asked.elements), asked.times)
    forms = list(optimizer._rule._forms.values())
    passes = forms[-1].program.text.count("\n") - 1
    which = "thread" if asked.threads == 1 else "process"
    return {
        "optimizer": name, "settings": settings, "bytes": 4 * asked.elements * (1 + 2 * written),
        "step": step, "once": once, "passes": passes, "in_cache": cached["thread"] * passes,
        "ratio": step[which] / once[which], "ratio_of_wall": step["wall"] / once["wall"],
        "floor": (once[which] + cached["thread"] * passes) / once[which],
    }  # fmt: skip


HEAD = ["optimizer", "bytes an element", "thread ms", "process ms", "wall ms", "once ms", "ratio",
        "wall ratio", "passes", "in cache ms", "once and passes"]  # fmt: skip


def row_of(r: dict[str, Any], elements: int) -> list[str]:
    said = ", ".join([f"{name}={value}" for name, value in r["settings"].items()])
    times = [f"{r['step'][name] * 1e3:.1f}" for name in ("thread", "process", "wall")]
    return [f"{r['optimizer']} {said}".strip(), f"{r['bytes'] // elements}", *times,
            f"{r['once']['process'] * 1e3:.1f}", f"{r['ratio']:.2f}", f"{r['ratio_of_wall']:.2f}",
            str(r["passes"]), f"{r['in_cache'] * 1e3:.1f}", f"{r['floor']:.2f}"]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 23)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--times", type=int, default=12, help="the least of so many")
    parser.add_argument("--only", nargs="+", default=[name for name, _ in WAYS])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    torch.set_num_threads(asked.threads)
    results = [measured(name, way, asked) for name, way in WAYS if name in asked.only]
    print(f"Steps of {asked.elements:,} float32 on the host, {asked.threads} threads; the goal is "
          f"{GOAL} of the bytes once\n")  # fmt: skip
    print(markdown(HEAD, [row_of(r, asked.elements) for r in results]))
    if asked.json:
        asked.json.write_text(json.dumps({**provenance(), "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
