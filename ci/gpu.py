"""Runs the suite on CUDA one process per shard, then the benchmarks, and writes what it saw.

Needs a GPU, CuPy, NumPy and pytest; PyTorch, nvtx, ml_dtypes and hypothesis may be missing. A shard
is a process, so that an illegal memory access spoils its own shard only. Exit status: 0 when all
passed, 1 when something failed or did not run, 2 when there is no GPU to run on.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

# Files with thousands of tests run as this many shards.
SPLIT = {"ops/test_rows_raw": 4, "ops/test_rows_recorded": 8}
# CuPy compiles a kernel (0.2 to 1 s of one core) for each function, set of dtypes and number of
# dims that a test is the first to use; that, not the GPU, is what a shard waits for. Each process
# takes half a GiB of GPU memory for its context, and a core and a half.
JOBS = max(2, min(8, (os.cpu_count() or 1) // 2))


# What is run after the suite: (title, command line).
BENCHMARKS = [
    (
        "overhead on cuda",
        ["benchmarks/overhead.py", "--device", "cuda", "--rounds", "3", "--only", "^(op|chain)"],
    ),
    (
        "overhead on cpu",
        ["benchmarks/overhead.py", "--rounds", "3", "--only", "^(op|chain|import)"],
    ),
    (  # what this time allows; without --budget it measures everything
        "offload beside torch",
        ["benchmarks/offload.py", "--device", "cuda", "--steps", "3", "--budget", "90"],
    ),
    (
        "budgets beside torch",
        ["benchmarks/budget.py", "--device", "cuda", "--steps", "3", "--budget", "90"],
    ),
    ("disk beside torch", ["benchmarks/disk.py", "--quick"]),
]

PROBE = """
import cupy
n = cupy.cuda.runtime.getDeviceCount()
assert n, "the driver reports no device"
assert int((cupy.arange(4) + 1).sum()) == 10  # compiles a kernel and runs it
p = cupy.cuda.runtime.getDeviceProperties(0)
r = cupy.cuda.runtime
print(p["name"].decode(), r.driverGetVersion(), r.runtimeGetVersion(),
      p["major"] * 10 + p["minor"], p["totalGlobalMem"], n, sep="|")
"""


@dataclass
class Shard:
    """One process: what it runs, and what came of it."""

    title: str
    command: list[str]
    limit: float = 300.0
    outcome: str = "not run"  # passed, failed, crashed, timed out, not run
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)  # failures and skips, a line each
    tail: str = ""


def test_files() -> list[str]:
    """Files of tests that a GPU has a say in: paths below tests/, without suffix."""
    files = (ROOT / "tests").rglob("test_*.py")
    return [
        file.relative_to(ROOT / "tests").with_suffix("").as_posix()
        for file in files
        if "pytestmark = pytest.mark.host_only" not in file.read_text()
    ]


def shards(names: list[str], extra: list[str]) -> list[Shard]:
    """The test processes, those of split files first since they take longest."""
    shards = []
    for name in sorted(names, key=lambda name: (name not in SPLIT, name)):
        n = SPLIT.get(name, 1)
        for i in range(1, n + 1):
            options = ["-v", "-rsfE", "--tb=short", "-p", "no:cacheprovider", "-W", "default"]
            title = name + (f" {i}/{n}" if n > 1 else "")
            part = [f"--shard={i}/{n}"] if n > 1 else []
            command = [sys.executable, "-m", "pytest", *options, *part, *extra]
            shards.append(Shard(title, [*command, f"tests/{name}.py"]))
    return shards


def run(shard: Shard, deadline: float, environment: dict[str, str], log: Path) -> Shard:
    """Runs a shard until it ends or its time is up; its whole process group ends with it."""
    limit = min(shard.limit, deadline - time.monotonic())
    if limit < 5:
        return shard
    start = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(
            shard.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
    shard.seconds = round(time.monotonic() - start, 1)
    text = log.read_text(errors="replace")
    for word in re.findall(r"^\S+::.* (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", text, re.M):
        shard.counts[word.lower()] = shard.counts.get(word.lower(), 0) + 1
    shard.reasons = re.findall(r"^((?:FAILED|ERROR|SKIPPED) .*)$", text, re.M)
    if code is None:
        shard.outcome = "timed out"
    elif code < 0 or code > 5:
        shard.outcome = f"crashed (exit {code})"
    else:
        shard.outcome = "failed" if code not in (0, 5) else "passed"  # 5: no test in the shard
    if shard.outcome != "passed":
        shard.tail = text[-6000:]
    return shard


def probe() -> tuple[dict[str, Any], str]:
    """The GPU's facts and, when it cannot be used, the reason why."""
    if importlib.util.find_spec("cupy") is None:
        return {}, "CuPy is not installed"
    try:
        seen = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return {}, "CuPy gave no answer within two minutes"
    if seen.returncode:
        return {}, (seen.stderr.strip().splitlines() or ["CuPy failed"])[-1]
    keys = ("name", "driver", "runtime", "capability", "memory", "count")
    return dict(zip(keys, seen.stdout.strip().splitlines()[-1].split("|"))), ""


def versions() -> dict[str, str]:
    names = (
        "numpy",
        "cupy-cuda12x",
        "cupy-cuda13x",
        "torch",
        "nvtx",
        "ml_dtypes",
        "hypothesis",
        "pytest",
    )
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def summary(about: dict[str, Any], suite: list[Shard], benches: list[Shard]) -> str:
    """The report for people: where it ran, a line per shard, every reason, then the benchmarks."""
    lines = [f"cugrad {about['commit']} on {about['device']['name']}, {about['date']}"]
    lines += [
        f"  {key}: {value}" for key, value in {**about["device"], **about["versions"]}.items()
    ]
    lines.append(f"\n{'shard':<34}{'outcome':<20}{'seconds':>8}  counts")
    total: Counter[str] = Counter()
    for shard in suite + benches:
        total.update(shard.counts)
        counts = ", ".join(f"{n} {what}" for what, n in shard.counts.items())
        lines.append(f"{shard.title:<34}{shard.outcome:<20}{shard.seconds:>8}  {counts}")
    lines.append(
        "total: " + (", ".join(f"{n} {w}" for w, n in total.items()) or "no test ran") + "\n"
    )
    reasons = sorted({reason for shard in suite for reason in shard.reasons})
    lines += reasons[:200] + [f"... and {len(reasons) - 200} more"] * (len(reasons) > 200)
    for shard in suite:
        if shard.outcome.startswith(("crashed", "timed out")):
            lines.append(f"\nthe end of {shard.title} ({shard.outcome}):\n{shard.tail}")
    lines += [f"\n{bench.title}\n{bench.tail}" for bench in benches]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--dry-run", action="store_true", help="list the processes and run none")
    add("--budget", type=float, default=570, metavar="S", help="seconds for it all (570)")
    add("--jobs", type=int, default=JOBS, metavar="N", help=f"shards at a time ({JOBS} here)")
    add("--out", type=Path, default=RESULTS, metavar="DIR", help="where the results go")
    add("--rehearse", action="store_true", help="run it all on the CPU, to try this script")
    add("-k", metavar="EXPR", help="only the tests that match, as in pytest")
    return parser.parse_args()


def environment(device: str, commit: str) -> dict[str, str]:
    return {
        **os.environ,
        "CUGRAD_COMMIT": commit,
        "CUGRAD_DEVICE": device,
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }


def run_all(
    suite: list[Shard], options: argparse.Namespace, commit: str, logs: Path
) -> tuple[list[Shard], dict[str, Any]]:
    """Runs the suite in three quarters of the time, then the benchmarks, which it returns."""
    deadline = time.monotonic() + options.budget
    variables = environment("cpu" if options.rehearse else "cuda", commit)

    def finish(shard: Shard, ends: float) -> Shard:
        name = re.sub(r"\W+", "-", shard.title)
        run(shard, ends, variables, logs / f"{name}.log")
        print(f"{shard.title}: {shard.outcome}, {shard.seconds} s, {shard.counts}", flush=True)
        return shard

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda shard: finish(shard, deadline - options.budget / 4), suite))
    benches, numbers = [], {}
    for title, words in BENCHMARKS:
        if options.rehearse:
            words = [*(word.replace("cuda", "cpu") for word in words), "--quick"]
            words += ["--rehearse"] * ("benchmarks/budget.py" in words)
        target = logs / (title.replace(" ", "-") + ".json")
        command = [sys.executable, *words, "--json", str(target)]
        benches.append(finish(Shard(title, command, limit=options.budget), deadline))
        if target.exists():
            numbers[title] = json.loads(target.read_text())
            benches[-1].tail = (logs / (title.replace(" ", "-") + ".log")).read_text()
    return benches, numbers


def main() -> int:
    options = arguments()
    extra = ["-k", options.k] if options.k else []
    suite = shards(test_files(), extra)
    if options.dry_run:
        print("\n".join([shard.title for shard in suite] + [title for title, _ in BENCHMARKS]))
        return 0
    started = time.monotonic()
    device, reason = ({"name": "rehearsal"}, "") if options.rehearse else probe()
    if reason:
        print(f"ci/gpu.sh: no GPU to run on: {reason}", file=sys.stderr)
        return 2
    options.budget -= time.monotonic() - started
    sys.path.insert(0, str(ROOT))
    commit = importlib.import_module("benchmarks.common").commit()
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    about = {"date": date, "commit": commit, "device": device, "versions": versions()}
    print(json.dumps(about, indent=1), flush=True)
    if importlib.util.find_spec("pytest") is None:
        print("pytest is not installed: the suite is not run", flush=True)
        suite = []
    gpu = re.sub(r"[^a-z0-9]+", "-", device["name"].lower().replace("nvidia", "")).strip("-")
    stem = options.out / f"{date[:10]}-{gpu}-{commit.replace('+', '-changed')}"
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        benches, numbers = run_all(suite, options, commit, Path(folder))
        logs = [f"=== {log.name}\n{log.read_text()}" for log in sorted(Path(folder).glob("*.log"))]
    text = summary(about, suite, benches)
    seconds = round(time.monotonic() - started)
    record = about | {
        "seconds": seconds,
        "shards": [asdict(s) for s in suite],
        "benchmarks": numbers,
    }
    Path(f"{stem}.txt").write_text(text + "\n")
    Path(f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
    Path(f"{stem}.log").write_text("\n".join(logs))
    print(f"\n{text}\n\n{seconds} s; written: {stem}.txt, .json and .log")
    return 0 if suite and all(s.outcome == "passed" for s in suite + benches) else 1


if __name__ == "__main__":
    sys.exit(main())
