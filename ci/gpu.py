"""Runs on CUDA what tells the most first: some of everything, the suite, then the benchmarks.

Needs a GPU, CuPy, NumPy and pytest; PyTorch, nvtx, ml_dtypes and hypothesis may be missing. A shard
is a process that runs some files of tests. Where it ends early, as after an illegal memory access,
which no process recovers from, another one goes on with the next file. The report is written anew
after every shard. Exit status: 0 when all passed, 1 when something failed or did not run, 2 when
there is no GPU to run on.
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
import threading
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
# What only a GPU can show comes first, in this order: files, or folders of them.
FIRST = [
    "memory/offload/test_cuda", "memory/offload/test_conformance", "backends/test_kept_complex",
    "backends/test_captured_rows", "backends/test_tables", "backends/test_lent_memory",
    "ops/test_rows_recorded", "backends",
    "profiler/test_device", "memory/offload", "nn/test_amp", "ops/test_rows_raw", "profiler",
    "memory", "optim",
]  # fmt: skip
# Tests of kernels that run elsewhere on the CPU: the file, and in how many shards.
KERNELS = {
    "backends/test_written_rows": 4, "backends/test_fused_rows": 2, "optim/test_together": 2,
    "functions/test_together": 1, "backends/test_written_sampling": 1,
    "backends/test_written_attention": 1, "backends/test_halves": 1,
    "autograd/test_known_forms": 1, "backends/test_kept_launches": 1,
    "backends/test_written_puts": 1, "backends/test_written_cells": 1,
    "backends/test_written_alignments": 1, "backends/test_fused_layouts": 1,
    "backends/test_fused_complex": 1, "backends/test_memory_order": 1, "func/test_fuse": 1,
    "functions/test_last_values": 1,
}  # fmt: skip
# what only the stand-in tells: sources, launches and waits
STAND_INS = (
    "not written_down and not launch_and and not launches_a and not waits_for and not folded"
)
FILES = 4  # that a shard has: each process imports for seconds, and compiles what others have not
# CuPy compiles a kernel (0.2 to 1 s of one core) for each function, set of dtypes and number of
# dims that a test is the first to use; that, not the GPU, is what a shard waits for. Each process
# takes half a GiB of GPU memory for its context.
JOBS = max(2, min(32, os.cpu_count() or 1))
LOST = 70  # the exit status of tests that have lost their CUDA context, see tests/conftest.py

# Before all else, two minutes: some of everything that the library does on a GPU. (title, words of
# a command line)
SMOKE = [
    ("smoke: devices", ["-m", "pytest", "-v", "-rsfE", "tests/backends/test_device_face.py",
                        "tests/backends/test_pinned.py", "tests/memory/offload/test_cuda.py"]),
    ("smoke: libraries", ["-m", "pytest", "-v", "-rsfE", "tests/backends/test_cuda_libraries.py"]),
    ("smoke: graphs", ["-m", "pytest", "-v", "-rsfE", "tests/backends/test_cuda_graphs.py"]),
    ("smoke: numbers", ["-m", "pytest", "-v", "-rsfE", "tests/backends/test_cuda_numbers.py"]),
    *[(f"smoke: every row {part}", ["-m", "pytest", "-v", "-rsfE", f"--shard={part}",
                                    "tests/ops/test_rows_raw.py::test_value"])
      for part in (f"{i}/8" for i in range(1, 9))],
    ("smoke: profiles", ["-m", "pytest", "-v", "-rsfE", "tests/profiler/test_device.py"]),
    ("smoke: example", ["examples/offload_gpt.py", "--device", "cuda", "--steps", "50"]),
    ("smoke: demo", ["examples/train_digits.py", "--device", "cuda", "--epochs", "1"]),
]  # fmt: skip
SMOKE += [
    (f"{name} kernels {i}/{n}", ["-m", "pytest", "-v", "-rsfE", "--tb=short",
     "-p", "tests.support.on_gpu", "-k", STAND_INS, f"--shard={i}/{n}", f"tests/{name}.py"])
    for name, n in KERNELS.items() for i in range(1, n + 1)
]  # fmt: skip
NEEDS = {"smoke: demo": ("sklearn", "matplotlib", "tqdm")}  # it is left out where one is missing
SMOKE_LIMIT = 170.0


# What is run after the suite: (title, command line), the most telling first. The time may be over
# before the last; with a --budget of its own a program measures what that allows.
CUDA = ["--device", "cuda"]
TWO = ["--placements", "offload,save_on_cpu"]
OFFLOAD = ["benchmarks/offload.py", *CUDA, "--steps", "3"]
BENCHMARKS = [
    ("training steps beside torch",
     ["benchmarks/steps.py", *CUDA, "--only", "gpt|mlp|fused|cudnn", "--kernels", "12"]),
    ("offload of wide blocks beside torch", [*OFFLOAD, "--budget", "50", "--only", "wide", *TWO]),
    ("states elsewhere beside torch", ["benchmarks/states_gpu.py", "--budget", "70"]),
    ("ops of the device beside torch", ["benchmarks/device_ops.py", *CUDA, "--rounds", "2"]),
    ("offload of ResNet beside torch",
     [*OFFLOAD, "--budget", "60", "--only", "ResNet", "--batch", "64", *TWO]),
    ("budgets beside torch",
     ["benchmarks/budget.py", *CUDA, "--steps", "3", "--budget", "90", "--only", "wide|GPT"]),
    ("overhead on cuda",
     ["benchmarks/overhead.py", *CUDA, "--rounds", "3", "--only", "^(op|chain)"]),
    ("offload of GPT beside torch", [*OFFLOAD, "--budget", "60", "--only", "GPT"]),
    ("disk beside torch", ["benchmarks/disk.py", "--quick"]),
    ("launches beside CuPy's", ["benchmarks/launches.py", *CUDA]),
    ("overhead on cpu",
     ["benchmarks/overhead.py", "--rounds", "3", "--only", "^(op|chain|import)"]),
]  # fmt: skip
REHEARSED = ("benchmarks/budget.py", "benchmarks/states_gpu.py")  # that play a device without one

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
    command: list[str]  # without the files
    limit: float = 300.0
    files: list[str] = field(default_factory=list)  # of tests, in their order
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


def rank(name: str) -> tuple[int, bool, str]:
    """Where a file comes: what only a GPU can show, then what is split since it takes longest."""
    places = [i for i, place in enumerate(FIRST) if name == place or name.startswith(f"{place}/")]
    return min(places, default=len(FIRST)), name not in SPLIT, name


def shards(names: list[str], extra: list[str]) -> list[Shard]:
    """The test processes, in the order in which they begin: files of one rank go together."""
    options = ["-v", "-rsfE", "--tb=short", "-p", "no:cacheprovider"]
    # CuPy warns of what it compiles, once in each process
    options += ["-W", "default", "-W", "ignore::cupy._util.PerformanceWarning"]
    command = [sys.executable, "-m", "pytest", *options, *extra]
    shards: list[Shard] = []
    for name in sorted(names, key=rank):
        path, last = f"tests/{name}.py", shards[-1] if shards else None
        for i in range(1, SPLIT.get(name, 0) + 1):
            part = f"{i}/{SPLIT[name]}"
            shards.append(Shard(f"{name} {part}", [*command, f"--shard={part}"], files=[path]))
        if name in SPLIT:
            continue
        full = last is None or len(last.files) == FILES or last.command is not command
        if last is None or full or rank(last.title)[0] != rank(name)[0]:
            shards.append(Shard(name, command, files=[path]))
        else:
            last.files.append(path)
    for shard in shards:
        if len(shard.files) > 1:
            shard.title += f" and {len(shard.files) - 1} more"
    return shards


def run(shard: Shard, deadline: float, environment: dict[str, str], log: Path) -> Shard:
    """Runs a shard until it ends or its time is up; after a file that has ended it, the next."""
    start, files = time.monotonic(), shard.files
    limit = min(shard.limit, deadline - start)
    if limit < 5:
        return shard
    ends = start + limit
    log.write_text("")
    outcomes: list[int | None] = []
    while not outcomes or ends - time.monotonic() >= 5:
        began = log.stat().st_size
        code = run_process([*shard.command, *files], ends, environment, log)
        outcomes.append(code)
        seen = re.findall(r"^(tests/\S+?\.py)::", log.read_text(errors="replace")[began:], re.M)
        if code is None or 0 <= code <= 5 or not seen:
            break
        files = files[files.index(seen[-1]) + 1 :] if seen[-1] in files else []
        if not files:
            break
    judge(shard, outcomes, log.read_text(errors="replace"))
    shard.seconds = round(time.monotonic() - start, 1)
    return shard


def run_process(
    command: list[str], ends: float, environment: dict[str, str], log: Path
) -> int | None:
    """The exit status of a command; None if its time was up, when its whole group ends with it."""
    with log.open("a") as out:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(max(1.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def judge(shard: Shard, outcomes: list[int | None], text: str) -> None:
    """Notes what came of a shard, of the exit statuses of its processes and what they printed."""
    for word in re.findall(r"^\S+::.* (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", text, re.M):
        shard.counts[word.lower()] = shard.counts.get(word.lower(), 0) + 1
    shard.reasons = re.findall(r"^((?:FAILED|ERROR|SKIPPED) .*)$", text, re.M)
    early = [code for code in outcomes if code is not None and not 0 <= code <= 5]
    if early:
        why = "context lost" if early[0] == LOST else f"exit {early[0]}"
        shard.outcome = f"crashed ({why})"
    elif None in outcomes:
        shard.outcome = "timed out"
    else:
        failed = any(code not in (0, 5) for code in outcomes)  # 5: no test in the shard
        shard.outcome = "failed" if failed else "passed"
    if shard.outcome != "passed":
        shard.tail = text[-6000:]


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
        "nvidia-cudnn-frontend",
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
    add("--no-tests", action="store_true", help="only the benchmarks")
    add("--benchmarks", default="", metavar="REGEX", help="those whose titles match; '^$' for none")
    return parser.parse_args()


def environment(device: str, commit: str) -> dict[str, str]:
    return {
        **os.environ,
        "CUGRAD_COMMIT": commit,
        "CUGRAD_DEVICE": device,
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
        "CUPY_CACHE_DIR": str(kernel_cache()),
    }


def kernel_cache() -> Path:
    """A folder for compiled kernels that all processes share, and the next run where it can last.

    Where CuPy finds none to write to, it compiles every kernel in every process.
    """
    asked = os.environ.get("CUPY_CACHE_DIR")
    for folder in ([Path(asked)] if asked else []) + [Path.home() / ".cupy" / "kernel_cache"]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            pass
    return Path(tempfile.gettempdir()) / "cupy_kernel_cache"


class Report:
    """What has been seen so far, in the files that are to be kept: written after every shard."""

    def __init__(self, about: dict[str, Any], stem: Path, suite: list[Shard]) -> None:
        self.about, self.stem, self.suite = about, stem, suite
        self.benches: list[Shard] = []
        self.numbers: dict[str, Any] = {}
        self._started, self._lock = time.monotonic(), threading.Lock()
        stem.parent.mkdir(parents=True, exist_ok=True)
        self._file(".log").write_text("")

    def _file(self, suffix: str) -> Path:
        return self.stem.with_name(self.stem.name + suffix)

    def add(self, shard: Shard, log: Path) -> None:
        """A shard has ended."""
        print(f"{shard.title}: {shard.outcome}, {shard.seconds} s, {shard.counts}", flush=True)
        with self._lock:
            if log.exists():
                with self._file(".log").open("a") as whole:
                    whole.write(f"=== {shard.title}\n{log.read_text(errors='replace')}\n")
            self.write()

    def write(self) -> str:
        """Writes all that is known; the text for people."""
        text = summary(self.about, self.suite, self.benches)
        record = self.about | {
            "seconds": round(time.monotonic() - self._started),
            "shards": [asdict(s) for s in self.suite],
            "benchmarks": self.numbers,
        }
        for suffix, content in ((".txt", text), (".json", json.dumps(record, indent=1))):
            part = self._file(suffix + ".part")
            part.write_text(content + "\n")
            part.replace(self._file(suffix))
        return text


def run_all(report: Report, options: argparse.Namespace, logs: Path) -> None:
    """Some of everything, the suite in three quarters of the time, and the benchmarks, alone."""
    deadline = time.monotonic() + options.budget
    variables = environment("cpu" if options.rehearse else "cuda", report.about["commit"])

    def finish(shard: Shard, ends: float) -> Shard:
        log = logs / (re.sub(r"\W+", "-", shard.title) + ".log")
        run(shard, ends, variables, log)
        report.add(shard, log)
        return shard

    smoke = [shard for shard in report.suite if not shard.files]
    rest = [shard for shard in report.suite if shard not in smoke]
    ends = deadline - options.budget / 4 * (options.benchmarks != "^$")
    with ThreadPoolExecutor(options.jobs) as pool:  # no core waits for the last of the smoke
        list(pool.map(finish, smoke + rest, [deadline] * len(smoke) + [ends] * len(rest)))
    for title, words in BENCHMARKS:
        if not re.search(options.benchmarks, title):
            continue
        if options.rehearse:
            words = [*(word.replace("cuda", "cpu") for word in words), "--quick"]
            words += ["--rehearse"] * (words[0] in REHEARSED)
        target = logs / (title.replace(" ", "-") + ".json")
        command = [sys.executable, *words, "--json", str(target)]
        bench = Shard(title, command, limit=options.budget)
        report.benches.append(bench)
        finish(bench, deadline)
        if target.exists():
            report.numbers[title] = json.loads(target.read_text())
            bench.tail = (logs / (re.sub(r"\W+", "-", title) + ".log")).read_text()
            report.write()


def smoke_shards(options: argparse.Namespace) -> list[Shard]:
    """The first two minutes; a rehearsal, and a run of some tests only, go without."""
    if options.k or options.rehearse or options.no_tests:
        return []
    return [
        Shard(title, [sys.executable, *words], SMOKE_LIMIT)
        for title, words in SMOKE
        if all(importlib.util.find_spec(name) is not None for name in NEEDS.get(title, ()))
    ]


def main() -> int:
    options = arguments()
    names = [] if options.no_tests else test_files()
    suite = [*smoke_shards(options), *shards(names, ["-k", options.k] if options.k else [])]
    if options.dry_run:
        for shard in suite:
            print(*[file.removeprefix("tests/").removesuffix(".py") for file in shard.files]
                  or [shard.title], sep="\n")  # fmt: skip
        print(*[title for title, _ in BENCHMARKS], sep="\n")
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
    report = Report(about, stem, suite)
    with tempfile.TemporaryDirectory() as folder:
        run_all(report, options, Path(folder))
    text = report.write()
    print(f"\n{text}\n\n{round(time.monotonic() - started)} s; written: {stem}.txt, .json and .log")
    everything = suite + report.benches
    return 0 if everything and all(s.outcome == "passed" for s in everything) else 1


if __name__ == "__main__":
    sys.exit(main())
