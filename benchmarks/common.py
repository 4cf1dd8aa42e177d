"""What every benchmark needs: paired timing, fresh processes, tables and provenance.

A machine is never quiet, so a ratio is what counts: in each round both libraries run the same code
one right after the other, taking turns to be first, each as the best of a few repetitions. The
reported ratio is the median of the rounds' ratios, with the least and the greatest beside it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass
class Line:
    """One measurement: its value in each round, for cugrad (`ours`) and its peer (`theirs`)."""

    name: str
    unit: str  # "us/op", "ms", "B/node"
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    goal: float | None = None  # the greatest ratio that is good enough
    limit: float | None = None  # the greatest value of ours that is good enough
    peer: str = "torch"
    note: str = ""  # why there is no number

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.theirs)]

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def verdict(self) -> str:
        """Whether the goal is held: ok, MISSED, or empty without a goal or a peer."""
        held = []
        if self.goal is not None and self.ratio is not None:
            held.append(self.ratio <= self.goal)
        if self.limit is not None and self.ours:
            held.append(statistics.median(self.ours) <= self.limit)
        return "" if not held else "ok" if all(held) else "MISSED"

    def as_json(self) -> dict[str, Any]:
        keys = ("name", "unit", "ours", "theirs", "peer", "goal", "limit", "note")
        return {key: getattr(self, key) for key in keys} | {
            "ratio": self.ratio, "verdict": self.verdict
        }  # fmt: skip


def best_of(repeat: int, run: Callable[[], float]) -> float:
    """The least of a few timings: the one that was disturbed least."""
    return min(run() for _ in range(repeat))


def paired(
    line: Line, ours: Callable[[], float], theirs: Callable[[], float] | None, rounds: int
) -> Line:
    """Fills a line by alternating the two, swapping who goes first; `theirs` None means n/a."""
    for number in range(rounds):
        sides = [(line.ours, ours)] + ([(line.theirs, theirs)] if theirs else [])
        for values, run in sides if number % 2 else sides[::-1]:
            values.append(run())
    return line


def library(name: str) -> Any | None:
    """The library to measure, ready to run on one thread; None when it is not installed."""
    try:
        lib = importlib.import_module(name)
    except ImportError:
        return None
    if name == "torch":
        lib.set_num_threads(1)
    return lib


def fresh_process(*arguments: str, timeout: float = 600) -> Any:
    """The JSON that a new interpreter prints last; RuntimeError with its stderr if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict.fromkeys(ONE_THREAD, "1")}
    # an installed package has its bytecode beside it, as NumPy has
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    run = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if run.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit {run.returncode}\n{run.stderr.strip()}")
    return json.loads(run.stdout.splitlines()[-1])


def memory_now() -> int:
    """Resident bytes of this process (Linux)."""
    return _status("VmRSS")


def reset_peak_memory() -> None:
    """Makes `peak_memory` start again from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """The most bytes resident since `reset_peak_memory`; ru_maxrss would inherit its parent's."""
    return _status("VmHWM")


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}: this needs Linux")


def provenance() -> dict[str, Any]:
    """What a number depends on: machine, versions, commit, time."""
    import numpy

    try:
        model = next(
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        model = platform.machine()
    versions = {"python": platform.python_version(), "numpy": numpy.__version__}
    for name in ("cugrad", "torch", "cupy", "nvtx"):
        module = sys.modules.get(name)
        if module is not None:
            versions[name] = str(getattr(module, "__version__", "?"))
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
        "cpu": model,
        "cores": os.cpu_count(),
        "versions": versions,
    }


def commit() -> str:
    """The commit of the checkout, with "+" when files differ from it; "unknown" outside of git."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain", "-uno") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("CUGRAD_COMMIT", "unknown")


def table(lines: Iterable[Line]) -> str:
    """The lines as a Markdown table: medians of the times; ratios as median [min-max]."""
    rows = [["workload", "unit", "cugrad", "peer", "ratio [min-max]", "goal", ""]]
    for line in lines:
        ratio = "n/a"
        if line.ratio is not None:
            ratio = f"{line.ratio:.2f} [{min(line.ratios):.2f}-{max(line.ratios):.2f}]"
        goal = [f"{line.goal:g}x"] if line.goal is not None else []
        goal += [f"{line.limit:g} {line.unit}"] if line.limit is not None else []
        rows.append(
            [line.name, line.unit, _number(line.ours), f"{_number(line.theirs)} ({line.peer})",
             ratio, " and ".join(goal), " ".join(filter(None, [line.verdict, line.note]))]
        )  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows)]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
        for row in rows
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def _number(values: list[float]) -> str:
    return f"{statistics.median(values):.4g}" if values else "n/a"


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, few rounds: a smoke test"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every round's numbers here"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", metavar="REGEX", default="", help="the workloads it matches")
    parser.add_argument("--rounds", type=int, help="rounds instead of the default")
    return parser


def report(lines: list[Line], options: argparse.Namespace) -> int:
    """Prints the table, writes the JSON, and returns the exit status."""
    about = provenance() | {"device": options.device, "quick": options.quick}
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    print(
        f"{about['date']}  commit {about['commit']}  "
        f"{about['cpu']}, {about['cores']} cores; {versions}"
    )
    print(table(lines))
    if options.json:
        text = json.dumps(about | {"lines": [line.as_json() for line in lines]}, indent=1)
        options.json.write_text(text + "\n")
    missed = [line.name for line in lines if line.verdict == "MISSED"]
    if missed:
        print(f"goals missed: {', '.join(missed)}")
    return 1 if options.check and missed else 0
