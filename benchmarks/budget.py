"""Measures memory.budget on a GPU beside PyTorch's checkpoint and save_on_cpu.

One command trains ResNet-152 and a stack of GPT's blocks, each way in a process of its own: plain,
with a checkpoint around each block and with all saved tensors in host memory, in both libraries;
and in cugrad under budgets of several shares of the plain step's peak. For each: the step's time,
its peak, and both over those of the library's own plain step:

    python benchmarks/budget.py [--rehearse] [--batch 256] [--only REGEX] [--budget SECONDS]

Writes Markdown and JSON under benchmarks/results/. Needs an NVIDIA GPU and CuPy; PyTorch may be
missing. `--rehearse` runs tiny networks on the simulated device, and PyTorch on the CPU: it shows
that this program works, and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.common import library, provenance
from benchmarks.offload import (
    CASES,
    RESULTS,
    SCALE,
    Clock,
    Runner,
    finish,
    modelled,
    peer_is_usable,
    stands_for,
    why_not,
)
from benchmarks.offload_common import Task, checkpointed, markdown, placement

# What is run of each network, the most telling first: the time may be over before the last.
WAYS = [("cugrad", "keep"), ("torch", "keep"), ("cugrad", "budget"), ("torch", "checkpoint"),
        ("torch", "save_on_cpu"), ("cugrad", "checkpoint"), ("cugrad", "offload")]  # fmt: skip
SHARES = (0.8, 0.6, 0.4, 0.25, 0.15)  # of the plain step's peak
WARM_UP = 10  # steps in which a budget measures, plans and corrects


# One process: a network, a way --------------------------------------------------------------------


def child(options: argparse.Namespace) -> dict[str, Any]:
    """What one way to train one network needs, measured in this process."""
    name, case, way = options.child
    device = "cpu" if name == "torch" and options.device == "simulated" else options.device
    lib = library(name)
    assert lib is not None
    models = lib.models if name == "cugrad" else None
    if name == "torch":
        from benchmarks.twins import models_on

        models = models_on(lib)
        if device == "cuda":
            lib.backends.cudnn.benchmark = True
            lib.backends.cudnn.allow_tf32 = options.tf32  # which is its own choice, if not asked
            lib.backends.cuda.matmul.allow_tf32 = options.tf32
    lib.manual_seed(0)
    with modelled(device, SCALE):
        try:
            task = CASES[case][0](lib, models, device, options.batch, options.tiny)
            return measured(lib, Clock(name, lib, device), task, way, device, options)
        except Exception as error:  # MemoryError, BudgetError, and PyTorch's RuntimeError
            said = str(error)
            if type(error).__name__ == "BudgetError":
                return {"skipped": said.splitlines()[0]}
            if "out of memory" not in said.lower() and not isinstance(error, MemoryError):
                raise
            return {"out_of_memory": said.splitlines()[0]}


def measured(
    lib: Any, clock: Clock, task: Task, way: str, device: str, options: argparse.Namespace
) -> dict[str, Any]:
    """The time and the peak of a step, forward and backward, once it is warm."""
    saving: Any = contextlib.nullcontext()
    if way == "budget":
        saving = lib.memory.budget(options.limit, device=device)
    elif way == "save_on_cpu":
        saving = lib.autograd.graph.save_on_cpu(pin_memory=device == "cuda")
    elif way == "offload":
        saving = placement(lib, way, SCALE if options.tiny else 1.0)
    times, value = [], 0.0
    for number in range(options.warm_up + options.steps):
        task.net.zero_grad()
        clock.synchronize()
        if number >= options.warm_up and way != "budget" or number == options.warm_up:
            clock.reset_peak()
        began = clock.mark()
        with checkpointed(lib, task.net) if way == "checkpoint" else saving:
            loss = task.forward()
            loss.backward()
        ended = clock.mark()
        clock.synchronize()
        value = float(loss.detach().item())
        del loss
        if number >= options.warm_up:
            times.append(clock.seconds(began, ended))
    found = {"step": statistics.median(times), "peak": clock.peak() * stands_for(device),
             "loss": value}  # fmt: skip
    if way == "budget":
        report = saving.report()
        found |= {"predicted": report["predicted_seconds"], "placements": report["placements"],
                  "predicted_peak": report["predicted_peak"] * stands_for(device)}  # fmt: skip
    return found


# All of them --------------------------------------------------------------------------------------


def sweep(runner: Runner, case: str, libraries: list[str]) -> list[dict[str, Any]]:
    """Every way to train a network; budgets of shares of what the plain step takes."""
    options = runner.options
    batch = options.batch or (32 if options.tiny else CASES[case][1])
    plain: dict[str, dict[str, Any]] = {}
    results = []

    def measure(lib: str, way: str, limit: float = 0.0) -> dict[str, Any]:
        words = ["--child", lib, case, way, "--batch", str(batch)]
        if limit:
            words += ["--limit", str(int(limit / stands_for(options.device)))]
        found = runner.start(words)
        result = {"case": case, "batch": batch, "library": lib, "way": way} | found
        result |= {"limit": limit} if limit else {}
        own = plain.get(lib, result)
        if "step" in result and "step" in own:
            result["slowdown"] = result["step"] / own["step"]
            if own["peak"]:
                result["of_plain"] = result["peak"] / own["peak"]
        said = why_not(found) or f"{found['step'] * 1e3:.1f} ms, peak {found['peak'] / 1e9:.2f} GB"
        print(f"{case}, {lib} {way} {limit / 1e9:.2f}: {said}", file=sys.stderr, flush=True)
        results.append(result)
        return result

    for lib, way in WAYS:
        if lib not in libraries:
            continue
        if way == "keep":
            plain[lib] = measure(lib, way)
        elif way != "budget":
            measure(lib, way)
        elif "peak" in plain[lib]:
            for share in SHARES[:2] if options.tiny else SHARES:
                measure(lib, way, share * plain[lib]["peak"])
    return results


HEAD = ["network", "batch", "library", "way", "limit GB", "step ms", "slowdown", "peak GB",
        "of plain"]  # fmt: skip


def row_of(r: dict[str, Any]) -> list[str]:
    def number(key: str, unit: float, digits: int) -> str:
        return f"{r[key] / unit:.{digits}f}" if r.get(key) else ""

    said = number("step", 1e-3, 1) or why_not(r)[:60]
    return [r["case"], r["batch"], r["library"], r["way"], number("limit", 1e9, 2), said,
            number("slowdown", 1, 2), number("peak", 1e9, 2), number("of_plain", 1, 2)]  # fmt: skip


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--device", choices=["cuda", "simulated", "cpu"], default="cuda")
    add("--rehearse", action="store_true", help="tiny networks, simulated and on the CPU")
    add("--tiny", "--quick", action="store_true", help="small networks")
    add("--batch", type=int, help="instead of 256 images and 8 sequences")
    add("--only", default="", metavar="REGEX", help="the networks it matches")
    add("--steps", type=int, default=5, help="measured steps, of which the median counts")
    add("--warm-up", type=int, default=WARM_UP, help="steps before, in which plans are learned")
    add("--budget", type=float, default=1e6, metavar="SECONDS", help="start nothing after these")
    add("--out", type=Path, default=RESULTS, metavar="FOLDER", help="where the results go")
    add("--json", type=Path, metavar="FILE", help="write the JSON here, and nothing else")
    add("--child", nargs=3, help=argparse.SUPPRESS)
    add("--limit", type=int, help=argparse.SUPPRESS)
    add("--tf32", action="store_true", help="products may use TF32, in both libraries")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    if options.rehearse:
        options.device, options.tiny = "simulated", True
    if options.child:
        print(json.dumps(child(options)))
        return 0
    from cugrad import backends

    if options.device == "cuda" and not backends.is_usable("cuda"):
        print(
            "benchmarks/budget.py: no GPU to run on: this needs an NVIDIA GPU, its driver, and "
            "CuPy (pip install cugrad[cuda12-ctk], or cuda13-ctk); --rehearse shows that it runs, "
            "benchmarks/budget_simulated.py what a GPU would do",
            file=sys.stderr,
        )
        return 2
    runner = Runner(options, __file__, main)
    libraries = ["cugrad"]
    if peer_is_usable("cpu" if options.device == "simulated" else options.device):
        libraries.append("torch")
    results = [r for case in CASES if re.search(options.only, case)
               for r in sweep(runner, case, libraries)]  # fmt: skip
    about = provenance() | {"device": options.device, "tiny": options.tiny, "libraries": libraries}
    text = "\n".join([
        f"# Budgets on {options.device}, commit {about['commit']}, {about['date']}", "",
        f"{options.steps} steps each after {options.warm_up}; float32."
        + (" Tiny networks: the numbers mean nothing." if options.tiny else ""), "",
        markdown(HEAD, map(row_of, results)),
    ])  # fmt: skip
    return finish(options, f"budget-{options.device}", about, text, results)


if __name__ == "__main__":
    sys.exit(main())
