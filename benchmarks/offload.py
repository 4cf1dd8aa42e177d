"""Measures offload on a GPU beside PyTorch's save_on_cpu: ResNet-152 and stacks of GPT's blocks.

One command measures the link with page-locked copies, then trains each network with each placement
in a process of its own: step time, slowdown over the library's own plain step, peak memory, bytes
moved, and how far the step is from the least time that the link allows:

    python benchmarks/offload.py [--batch 256] [--only REGEX] [--budget SECONDS] [--json FILE]

Writes Markdown and JSON under benchmarks/results/. Needs an NVIDIA GPU and CuPy; PyTorch may be
missing. Without a GPU, `--device simulated` shows small networks in virtual time.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.common import ROOT, library, provenance
from benchmarks.offload_common import (
    PLACEMENTS,
    Saved,
    Task,
    lower_bound,
    markdown,
    placement,
    saved_bytes,
)

RESULTS = ROOT / "benchmarks" / "results"
SCALE = 1024.0  # of tiny networks: bytes for which one stands
# What is run of each network, the most telling first: a budget may end before the last.
RUNS = [("cugrad", "keep"), ("torch", "keep"), ("cugrad", "offload"), ("torch", "save_on_cpu"),
        ("cugrad", "save_on_cpu"), ("cugrad", "offload-bf16")]  # fmt: skip
ROUNDING = 1.4  # PyTorch rounds page-locked blocks up to powers of two


# One process: a network, a placement --------------------------------------------------------------


def resnet(lib: Any, models: Any, device: str, batch: int, tiny: bool) -> Task:
    """ResNet-152 on images of 224 x 224."""
    size, classes = (32, 10) if tiny else (224, 1000)
    with lib.device(device):  # which draws faster than the host
        net = models.resnet18(10, width=4) if tiny else models.resnet152()
    images = lib.randn(batch, 3, size, size, device=device)
    labels = lib.randint(0, classes, (batch,), device=device)
    loss = lib.nn.CrossEntropyLoss()
    return Task(net, lambda: loss(net(images), labels), [images, labels])


def blocks(lib: Any, models: Any, device: str, batch: int, tiny: bool) -> Task:
    """A stack of 12 of GPT's blocks, width 1024, 16 heads, on 1024 tokens a sequence."""
    count, width, heads, length = (2, 32, 4, 16) if tiny else (12, 1024, 16, 1024)
    with lib.device(device):
        net = lib.nn.Sequential(*[models.Block(width, heads) for _ in range(count)])
    x = lib.randn(batch, length, width, device=device)
    return Task(net, lambda: (net(x) ** 2).mean(), [x])


def wide_blocks(lib: Any, models: Any, device: str, batch: int, tiny: bool) -> Task:
    """Six blocks in bfloat16, width 4096, 32 heads, on 1024 tokens: what large models are made of.

    From this width on a GPU computes for as long as the link needs to copy what is saved.
    """
    count, width, heads, length = (2, 32, 4, 16) if tiny else (6, 4096, 32, 1024)
    with lib.device(device):
        stack = lib.nn.Sequential(*[models.Block(width, heads) for _ in range(count)])
    net = stack.to(lib.bfloat16)
    x = lib.randn(batch, length, width, device=device).to(lib.bfloat16)
    return Task(net, lambda: (net(x) ** 2).mean(), [x])


CASES: dict[str, tuple[Callable[..., Task], int]] = {  # and the batch of the full size
    "ResNet-152": (resnet, 256),
    "GPT blocks": (blocks, 8),
    "wide bf16": (wide_blocks, 8),
}


class Clock:
    """Times and memory of a library on a device, in seconds and bytes."""

    def __init__(self, name: str, lib: Any, device: str) -> None:
        self._cuda = lib.cuda if name == "torch" and device == "cuda" else None
        self._host = name == "torch" and device != "cuda"
        if name == "cugrad":
            self.backend = lib.backends.get(device)

    def mark(self) -> Any:
        """This point of the current stream, with its time."""
        if self._host:
            return time.perf_counter()
        if self._cuda is not None:
            event = self._cuda.Event(enable_timing=True)
            event.record()
            return event
        return self.backend.current_stream().record_event(self.backend.event(timing=True))

    def seconds(self, start: Any, end: Any) -> float:
        """Between two marks that have been reached."""
        return end - start if self._host else start.elapsed_time(end) / 1e3

    def synchronize(self) -> None:
        """Waits for the device."""
        if not self._host:
            (self._cuda or self.backend).synchronize()

    def reset_peak(self) -> None:
        if not self._host:
            (self._cuda or self.backend).reset_peak_memory_stats()

    def peak(self) -> int:
        """The most bytes allocated since `reset_peak`; 0 where they are not counted."""
        return 0 if self._host else int((self._cuda or self.backend).max_memory_allocated())


def child(options: argparse.Namespace) -> dict[str, Any]:
    """What one placement of one network needs, measured in this process."""
    name, case, place = options.child
    lib = library(name)
    assert lib is not None
    if name == "torch":
        from benchmarks.twins import models_on

        models = models_on(lib)
        if options.device == "cuda":
            lib.backends.cudnn.benchmark = True
            lib.backends.cudnn.allow_tf32 = options.tf32  # which is its own choice, if not asked
            lib.backends.cuda.matmul.allow_tf32 = options.tf32
    else:
        models = lib.models
    lib.manual_seed(0)
    with modelled(options.device, SCALE):
        clock = Clock(name, lib, options.device)
        try:
            task = CASES[case][0](lib, models, options.device, options.batch, options.tiny)
            saved = saved_bytes(lib, task)
            return measured(lib, clock, task, saved, context_of(lib, name, place, options), options)
        except Exception as error:  # MemoryError, and PyTorch's RuntimeError
            if "out of memory" not in str(error).lower() and not isinstance(error, MemoryError):
                raise
            return {"out_of_memory": str(error).splitlines()[0]}


@contextlib.contextmanager
def modelled(device: str, scale: float) -> Any:
    """On the simulated device an H200, in which small networks stand for large ones."""
    if device != "simulated":
        yield
        return
    from cugrad.backends import simulated
    from cugrad.memory.offloading import session

    least, session.LEAST = session.LEAST, int(session.LEAST / scale)
    with simulated.configured("H200", policy="timed", scale=scale):
        yield
    session.LEAST = least


def context_of(lib: Any, name: str, place: str, options: argparse.Namespace) -> Any:
    if name == "torch" and place == "save_on_cpu":
        return lib.autograd.graph.save_on_cpu(pin_memory=options.device == "cuda")
    return placement(lib, place, SCALE if options.tiny else 1.0)


def measured(
    lib: Any, clock: Clock, task: Task, saved: Saved, context: Any, options: argparse.Namespace
) -> dict[str, Any]:
    """Times of forward and backward, peak memory and bytes of a step once it is warm."""
    forwards, backwards = [], []
    stats = getattr(context, "stats", None)
    before: dict[str, Any] = {}
    for number in range(options.warm_up + options.steps):
        task.net.zero_grad()
        clock.synchronize()
        if number == options.warm_up:
            clock.reset_peak()
            before = stats.as_dict() if stats is not None else {}
        began = clock.mark()
        with context:
            loss = task.forward()
        turned = clock.mark()
        loss.backward()
        ended = clock.mark()
        clock.synchronize()
        value = float(loss.detach().item())
        del loss
        if number >= options.warm_up:
            forwards.append(clock.seconds(began, turned))
            backwards.append(clock.seconds(turned, ended))
    found = {
        "forward": statistics.median(forwards), "backward": statistics.median(backwards),
        "step": statistics.median(map(sum, zip(forwards, backwards))), "loss": value,
        "peak": clock.peak(), "saved": saved.unique, "copies": saved.everything,
        "parameters": sum(p.numel() * p.element_size() for p in task.net.parameters()),
    }  # fmt: skip
    if stats is not None:
        after = stats.as_dict()

        def per_step(key: str) -> float:
            return (after[key] - before[key]) / options.steps

        kept = sum(after["kept"].get(why, 0) - before["kept"].get(why, 0)
                   for why in ("small", "last", "host full")) / options.steps  # fmt: skip
        found |= {"to_host": per_step("moved_to_host_bytes"), "kept": kept,
                  "to_device": per_step("moved_back_bytes")}  # fmt: skip
    for key in found.keys() & {"peak", "saved", "copies", "to_host", "to_device", "kept"}:
        found[key] *= stands_for(options.device)
    return found


def stands_for(device: str) -> float:
    """For how many bytes one stands: more than one in virtual time only."""
    return SCALE if device == "simulated" else 1.0


def link(device: str, nbytes: int) -> dict[str, Any]:
    """Bytes per second of page-locked copies each way, and of both at once; the best of five."""
    from cugrad import backends

    backend = backends.get(device)
    host = [backend.empty_pinned((nbytes,), np.dtype("uint8")) for _ in range(2)]
    there = [backend.xp.zeros(nbytes, "uint8") for _ in range(2)]
    streams = [backend.stream() for _ in range(2)]
    for array in host:
        array[...] = 0  # its pages are there
    backend.synchronize()

    def run(*ways: int) -> float:
        marks = []
        for way in ways:
            start = streams[way].record_event(backend.event(timing=True))
            pair = (host[0], there[0]) if way == 0 else (there[1], host[1])
            backend.copy_async(*pair, streams[way])
            marks.append((start, streams[way].record_event(backend.event(timing=True))))
        backend.synchronize()
        return max(a.elapsed_time(b) / 1e3 for a, b in marks)

    seconds = [min(run(*ways) for _ in range(5)) for ways in ((0,), (1,), (0, 1))]
    names = ("to_host", "to_device", "both")
    nbytes = int(nbytes * stands_for(device))
    rates = {n: nbytes * (1 + (n == "both")) / s for n, s in zip(names, seconds)}
    return rates | {"device": _name_of(device)}


def _name_of(device: str) -> str:
    if device == "cpu":
        return "CPU"
    from cugrad import backends

    name = backends.get(device).device_properties(0)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


# All of them --------------------------------------------------------------------------------------


class Runner:
    """Starts the processes, within the time that there is."""

    def __init__(
        self, options: argparse.Namespace, program: str = __file__,
        main: Callable[[list[str]], int] | None = None,
    ) -> None:  # fmt: skip
        self.options, self.program, self.main = options, Path(program).resolve(), main
        self.ends = time.monotonic() + options.budget

    def start(self, words: list[str]) -> dict[str, Any]:
        """The JSON that a process prints last, or {"failed": why}."""
        left = self.ends - time.monotonic()
        if left < 1:
            return {"skipped": f"not run: the {self.options.budget:g} s were over"}
        options = self.options
        settings = ["--device", options.device, "--steps", str(options.steps)]
        settings += ["--warm-up", str(options.warm_up)]
        settings += ["--tiny"] * options.tiny + ["--tf32"] * options.tf32
        if self.main is not None and options.device != "cuda" and hasattr(os, "fork"):
            return self.forked([*settings, *words], left)
        command = [sys.executable, str(self.program), *settings]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if options.tf32:
            environment["CUPY_TF32"] = "1"
        try:
            run = subprocess.run([*command, *words], env=environment, capture_output=True,
                                 text=True, timeout=left)  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"skipped": f"not finished within {options.budget:g} s"}
        if run.returncode:
            killed = " (killed: out of host memory?)" if run.returncode == -9 else ""
            last = (run.stderr.strip().splitlines() or [""])[-1]
            return {"failed": f"exit {run.returncode}{killed} {last}".strip()}
        found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return found

    def forked(self, words: list[str], left: float) -> dict[str, Any]:
        """As `start`, by a fork of this process: its imports take longer than small networks."""
        fork = multiprocessing.get_context("fork")
        here, there = fork.Pipe(duplex=False)

        def work() -> None:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                assert self.main is not None
                code = self.main(words)
            there.send(said.getvalue().splitlines()[-1])
            sys.exit(code)

        process = fork.Process(target=work)
        process.start()
        there.close()
        try:
            if not here.poll(left):
                process.kill()
                return {"skipped": f"not finished within {self.options.budget:g} s"}
            found: dict[str, Any] = json.loads(here.recv())
            return found
        except EOFError:  # its traceback stands on stderr
            process.join()
            return {"failed": f"exit {process.exitcode}"}
        finally:
            process.join()

    def measure(self, case: str, lib: str, place: str, batch: int) -> dict[str, Any]:
        found = self.start(["--child", lib, case, place, "--batch", str(batch)])
        result = {"case": case, "library": lib, "placement": place, "batch": batch} | found
        said = why_not(found) or f"{found['step'] * 1e3:.1f} ms, peak {found['peak'] / 1e9:.2f} GB"
        print(f"{case}, batch {batch}, {lib} {place}: {said}", file=sys.stderr, flush=True)
        return result

    def case(self, case: str, libraries: list[str]) -> list[dict[str, Any]]:
        """Every run of a network, at the largest batch for which plain steps and host memory do."""
        batch = self.options.batch or (4 if self.options.tiny else CASES[case][1])
        plain: list[dict[str, Any]] = []
        while True:
            plain = [self.measure(case, lib, "keep", batch) for lib in libraries]
            short = next((r["out_of_memory"] for r in plain if "out_of_memory" in r), None)
            if short is None:
                copies = max([r.get("copies", 0) for r in plain]) * ROUNDING
                if self.options.device == "cuda" and copies > 0.8 * host_memory():
                    short = f"{copies / 1e9:.0f} GB of host memory are needed"
            if short is None or batch == 1:
                break
            print(f"{case}: batch {batch} is too large, now half of it: {short}", file=sys.stderr)
            batch //= 2
        wanted = self.options.placements.split(",")
        rest = [self.measure(case, lib, place, batch) for lib, place in RUNS
                if place != "keep" and place in wanted and lib in libraries]  # fmt: skip
        return plain + rest


def why_not(result: dict[str, Any]) -> str:
    """Why a run has no numbers; empty if it has."""
    return next((result[k] for k in ("failed", "skipped", "out_of_memory") if k in result), "")


def host_memory() -> int:
    """Bytes of host memory that can be had."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return 1 << 62
    return int(re.search(r"MemAvailable:\s+(\d+)", text)[1]) * 1024  # type: ignore[index]


def add_bounds(results: list[dict[str, Any]], rates: dict[str, float]) -> None:
    """Slowdown and distance to the bound, beside each library's own plain step."""
    plain = {(r["case"], r["library"]): r for r in results if r["placement"] == "keep"}
    for r in results:
        own = plain.get((r["case"], r["library"]), {})
        if "step" not in r or "step" not in own:
            continue
        r["slowdown"] = r["step"] / own["step"]
        if r["placement"] == "keep":
            continue
        if "to_host" not in r:  # PyTorch copies every saved tensor both ways, parameters too
            r["to_host"] = r["to_device"] = r["copies"]
        leaves = min(r["saved"] - r.get("kept", 0), r["to_device"])
        r["bound"] = lower_bound(
            own["forward"], own["backward"], leaves, rates["to_host"], rates["to_device"]
        )
        r["distance"] = r["step"] / r["bound"]


HEAD = ["network", "batch", "library", "placement", "step ms", "slowdown", "peak GB", "saved GB",
        "out GB", "back GB", "bound ms", "step/bound"]  # fmt: skip


def row_of(r: dict[str, Any]) -> list[str]:
    if "step" not in r:
        said = why_not(r)[:60]
        return [r["case"], r["batch"], r["library"], r["placement"], said, *[""] * 7]

    def number(key: str, unit: float, digits: int) -> str:
        return f"{r[key] / unit:.{digits}f}" if key in r else ""

    return [r["case"], r["batch"], r["library"], r["placement"], number("step", 1e-3, 1),
            number("slowdown", 1, 2), number("peak", 1e9, 2), number("saved", 1e9, 2),
            number("to_host", 1e9, 2), number("to_device", 1e9, 2), number("bound", 1e-3, 1),
            number("distance", 1, 3)]  # fmt: skip


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--device", choices=["cuda", "simulated", "cpu"], default="cuda")
    add("--tiny", "--quick", action="store_true", help="small networks: always so without a GPU")
    add("--batch", type=int, help="instead of 256 images and 8 sequences")
    add("--only", default="", metavar="REGEX", help="the networks it matches")
    add("--placements", default="offload,save_on_cpu,offload-bf16",
        help=f"comma-separated, of {', '.join(PLACEMENTS)}")  # fmt: skip
    add("--steps", type=int, default=5, help="measured steps, of which the median counts")
    add("--warm-up", type=int, default=4, help="steps before, in which plans are learned")
    add("--tf32", action="store_true", help="products of float32 may use TF32, in both libraries")
    add("--budget", type=float, default=1e6, metavar="SECONDS", help="start nothing after these")
    add("--out", type=Path, default=RESULTS, metavar="FOLDER", help="where the results go")
    add("--json", type=Path, metavar="FILE", help="write the JSON here, and nothing else")
    add("--child", nargs=3, help=argparse.SUPPRESS)
    add("--link", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    options.tiny = options.tiny or options.device != "cuda"
    if options.child:
        print(json.dumps(child(options)))
        return 0
    if options.link:
        with modelled(options.device, SCALE):
            print(json.dumps(link(options.device, 1 << (20 if options.tiny else 28))))
        return 0
    from cugrad import backends

    if options.device == "cuda" and not backends.is_usable("cuda"):
        print(
            "benchmarks/offload.py: no GPU to run on: this needs an NVIDIA GPU, its driver, and "
            "CuPy (pip install cugrad[cuda12-ctk], or cuda13-ctk); --device simulated shows small "
            "networks in virtual time instead",
            file=sys.stderr,
        )
        return 2
    runner = Runner(options, main=main)
    rates = runner.start(["--link"])
    if why_not(rates):
        print(f"benchmarks/offload.py: the link: {why_not(rates)}", file=sys.stderr)
        return 1
    libraries = ["cugrad"]
    if options.device != "simulated" and peer_is_usable(options.device):
        libraries.append("torch")
    results: list[dict[str, Any]] = []
    for case in CASES:
        if re.search(options.only, case):
            results += runner.case(case, libraries)
    add_bounds(results, rates)
    about = provenance() | {"device": options.device, "link": rates, "tiny": options.tiny,
                            "tf32": options.tf32, "libraries": libraries}  # fmt: skip
    text = "\n".join([
        f"# Offload on {rates['device']}, commit {about['commit']}, {about['date']}", "",
        f"Page-locked copies: {rates['to_host'] / 1e9:.1f} GB/s to the host, "
        f"{rates['to_device'] / 1e9:.1f} to the device, {rates['both'] / 1e9:.1f} both ways at "
        f"once. {options.steps} steps each after {options.warm_up}; "
        f"{'TF32' if options.tf32 else 'plain'} products of float32."
        + (" Tiny networks: the numbers mean nothing." if options.tiny else ""), "",
        markdown(HEAD, map(row_of, results)),
    ])  # fmt: skip
    gpu = re.sub(r"[^a-z0-9]+", "-", rates["device"].lower().replace("nvidia", "")).strip("-")
    return finish(options, f"offload-{gpu}", about, text, results)


def finish(
    options: argparse.Namespace, name: str, about: dict[str, Any], text: str,
    results: list[dict[str, Any]],
) -> int:  # fmt: skip
    """Prints what was measured, and writes it where it was asked for; 1 if a case has failed."""
    print(text)
    record = json.dumps(about | {"results": results}, indent=1) + "\n"
    if options.json:
        options.json.write_text(record)
    elif not options.tiny or options.out != RESULTS:
        options.out.mkdir(parents=True, exist_ok=True)
        commit = about["commit"].replace("+", "-changed")
        stem = options.out / f"{about['date'][:10]}-{name}-{commit}"
        Path(f"{stem}.md").write_text(text + "\n")
        Path(f"{stem}.json").write_text(record)
        print(f"written: {stem}.md and .json")
    return 1 if any("failed" in r or "out_of_memory" in r for r in results) else 0


def peer_is_usable(device: str) -> bool:
    """Whether PyTorch is installed, and can use the device: a GPU is asked in another process."""
    if device != "cuda":
        return library("torch") is not None  # imported before there are forks
    code = "import torch; assert torch.cuda.is_available()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
