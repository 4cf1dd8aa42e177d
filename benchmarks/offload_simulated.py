"""Measures offload on the simulated device: step time, overlap and stalls against the least time.

Small networks stand for large ones: `scale` says for how many bytes one byte stands, and channels
that are `narrow` times fewer make each flop stand for that many times more. Each placement trains
until its steps take equally long; the last one's virtual time counts, forward and backward:

    python benchmarks/offload_simulated.py [--check] [--preset H200] [--only REGEX] [--draw FOLDER]

The bound is that of `lower_bound`: no schedule that moves these bytes over this link is faster.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
from benchmarks.common import provenance
from benchmarks.offload_common import (
    PLACEMENTS,
    Saved,
    Task,
    lower_bound,
    markdown,
    placement,
    saved_bytes,
)
from cugrad import backends, models
from cugrad.backends import simulated
from cugrad.memory.offloading import engine, session

# Of the bound; `save_on_cpu` sends even what will be used before it has left.
GOALS = {"offload": 1.05, "save_on_cpu": 1.1}
WORKSPACE = 256 << 20  # what a convolution borrows on CuPy
MOST_STEPS = 16  # in which a placement learns


@dataclass(frozen=True)
class Case:
    """A network in small, and what it stands for."""

    name: str
    stands_for: str
    scale: float  # bytes for which a byte stands
    narrow: float  # times fewer channels: a flop stands for scale * narrow
    build: Callable[[], Task]


def resnet() -> Task:
    net = models.resnet152(63, in_channels=1, width=4).to("simulated")
    return classifying(net, (8, 1, 112, 112), (8,), 63)


def unet() -> Task:
    net = models.UNet(1, 2, width=4).to("simulated")
    return classifying(net, (4, 1, 128, 128), (4, 128, 128), 2)


def classifying(net: Any, shape: tuple[int, ...], labels: tuple[int, ...], classes: int) -> Task:
    images = torch.randn(*shape, device="simulated")
    wanted = torch.randint(0, classes, labels, device="simulated")
    loss = torch.nn.CrossEntropyLoss()
    return Task(net, lambda: loss(net(images), wanted), [images, wanted])


def gpt(layers: int = 12) -> Task:
    net = models.GPT(6282, 128, width=96, heads=12, layers=layers).to("simulated")
    tokens = torch.randint(0, 6282, (2, 4, 128), device="simulated")
    loss = torch.nn.CrossEntropyLoss()
    return Task(net, lambda: loss(net(tokens[0]).flatten(0, 1), tokens[1].flatten()), [tokens])


# A GPT whose lengths are all divided by 8 (width, context, vocabulary) keeps every ratio of bytes,
# and of a fourth of the batch the activations alone. So do activations and flops of a convolutional
# network; its parameters then weigh more than they should, by two per cent of all bytes.
CASES = [
    Case("ResNet-152", "batch 256, 224 x 224", 32 * 2**2 * 16, 16, resnet),
    Case("GPT-2", "batch 16, 1024 tokens", 4 * 8**2, 8, gpt),
    Case("U-Net", "batch 16, 512 x 512", 4 * 4**2 * 16, 16, unet),
]


@dataclass
class Result:
    """One placement of one case, in seconds and bytes of what it stands for."""

    case: str
    speed: float  # kernels are so many times faster than cugrad's own
    placement: str
    forward: float  # of the step without offload
    backward: float
    step: float
    bound: float
    unique: float  # bytes of saved storages
    kept: float  # of these, bytes that stay
    to_host: float
    to_device: float
    overlap: float
    stalled: float
    host_waited: float
    peak: float  # bytes beyond what is there before the step
    real_seconds: float  # of all its steps, on this computer
    stalls: list[str] = field(default_factory=list)

    @property
    def slowdown(self) -> float:
        return self.step / (self.forward + self.backward)

    @property
    def distance(self) -> float:
        return self.step / self.bound


@dataclass
class Step:
    """One step: its timeline, when the device was through with forward, seconds of kernels in both
    phases, and bytes at most beyond those before.
    """

    timeline: Any
    turned: float
    kernels: tuple[float, float]
    peak: int


@contextmanager
def modelled(case: Case, preset: str, speed: float) -> Iterator[None]:
    """The preset with kernels `speed` times faster, and the engine's absolute sizes in scale.

    What was learned of another device is forgotten.
    """
    for copies in engine._engines.values():
        copies._plans.clear()
    model = simulated.preset(preset)
    flops = {kind: rate * speed / case.narrow for kind, rate in model.flops.items()}
    least, session.LEAST = session.LEAST, int(session.LEAST / case.scale)
    xp = backends.get("simulated").xp
    xp.workspace_bytes = int(WORKSPACE / case.scale)
    try:
        with simulated.configured(
            model, policy="timed", scale=case.scale, flops=flops, memory=model.memory * speed
        ):
            yield
    finally:
        session.LEAST = least
        del xp.workspace_bytes


def one_step(task: Task, context: Any) -> Step:
    """Forward and backward; the machine is idle before and after."""
    machine = simulated.MACHINE
    task.net.zero_grad()
    machine.pool.collect()
    before = machine.pool.peak = machine.pool.used
    with simulated.record() as timeline:
        with context:
            loss = task.forward()
        turned = machine.default.time
        loss.backward()
    forward = sum(r.end - r.start for r in timeline.records
                  if r.kind in ("kernel", "d2d") and r.start < turned)  # fmt: skip
    kernels = forward, timeline.busy("kernel", "d2d") - forward
    return Step(timeline, turned, kernels, machine.pool.peak - before)


def measure(
    case: Case, preset: str, speed: float, names: list[str]
) -> Iterator[tuple[Result, Any]]:
    """Every placement of a case with its timeline, the plain step first."""
    torch.manual_seed(0)
    with modelled(case, preset, speed):
        task = case.build()
        saved = saved_bytes(torch, task)
        plain: Step | None = None
        for name in ["keep", *[n for n in names if n != "keep"]]:
            context, began = placement(torch, name, case.scale), perf_counter()
            step, kept = settled(task, context)
            plain = plain or step
            kept = saved.unique if name == "keep" else kept
            yield result_of(case, speed, name, step, plain, saved, kept, began), step.timeline
        simulated.reset()


def settled(task: Task, context: Any) -> tuple[Step, int]:
    """The first step that takes as long as the one before, and the bytes that it let stay.

    Where nothing is moved nothing is learned, and in virtual time all steps are the first one.
    """
    if isinstance(context, nullcontext):
        return one_step(task, context), 0
    last = 0.0
    for _ in range(MOST_STEPS):
        before = kept_by(context)
        step = one_step(task, context)
        if abs(step.timeline.step_time - last) < 1e-3 * last:
            break
        last = step.timeline.step_time
    return step, kept_by(context) - before


def kept_by(context: Any) -> int:
    """Bytes that a placement has let stay so far of storages that are kept for it alone."""
    kept = context.stats.kept if hasattr(context, "stats") else {}
    return sum(kept.get(why, 0) for why in ("small", "last", "host full"))


def result_of(
    case: Case, speed: float, name: str, step: Step, plain: Step, saved: Saved, kept: int,
    began: float,
) -> Result:  # fmt: skip
    model, timeline, scale = simulated.MACHINE.model, step.timeline, case.scale
    sums, back = timeline.summary(), timeline.moved("h2d")
    forward, backward = plain.turned, plain.timeline.step_time - plain.turned
    # What was used before it had left counts as kept: the bound is the lower for it.
    coding = (0.0, 0.0)
    if name.startswith("offload-"):
        coding = tuple(max(0.0, a - b) for a, b in zip(step.kernels, plain.kernels))
    bound = lower_bound(
        forward, backward, min(saved.unique - kept, back) * scale, model.to_host, model.to_device,
        coding,
    )  # fmt: skip
    return Result(
        case.name, speed, name, forward, backward, timeline.step_time, bound,
        saved.unique * scale, kept * scale, timeline.moved("d2h") * scale, back * scale,
        timeline.overlap, sums["stalled"], sums["host_waited"], step.peak * scale,
        perf_counter() - began,
        [f"{(r.end - r.start) * 1e3:.1f} ms {r.name}" for r in timeline.stalls[:5]],
    )  # fmt: skip


def row_of(result: Result) -> list[str]:
    """A line of the table."""
    r, plain = result, result.forward + result.backward
    return [
        r.case, f"{r.speed:g}", r.placement, f"{plain * 1e3:.0f}", f"{r.step * 1e3:.0f}",
        f"{r.slowdown:.2f}", f"{r.unique / 1e9:.1f}", f"{r.kept / 1e9:.1f}",
        f"{r.to_host / 1e9:.1f}", f"{r.to_device / 1e9:.1f}", f"{r.overlap:.0%}",
        f"{r.stalled * 1e3:.0f}", f"{r.host_waited * 1e3:.0f}", f"{r.peak / 1e9:.1f}",
        f"{r.bound * 1e3:.0f}", f"{r.distance:.3f}",
    ]  # fmt: skip


HEAD = ["model", "speed", "placement", "plain ms", "step ms", "slowdown", "saved GB", "kept GB",
        "out GB", "back GB", "overlap", "stalled ms", "host ms", "peak GB", "bound ms",
        "step/bound"]  # fmt: skip


def draw(timeline: Any, folder: Path, result: Result) -> None:
    """Draws what happened in a step, on each stream."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{result.case}-x{result.speed:g}-{result.placement}".lower()
    timeline.draw(str(folder / f"{name}.png"))


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="H200", help="the GPU: A100, H100, H200, GH200")
    parser.add_argument("--only", default="", metavar="REGEX", help="the models it matches")
    parser.add_argument("--placements", default="save_on_cpu,offload,offload-bf16",
                        help=f"comma-separated, of {', '.join(PLACEMENTS)}")  # fmt: skip
    parser.add_argument("--speed", default="1,2", help="kernels as many times faster than "
                        "cugrad's own launches make them: 2 is about PyTorch's")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="draw each timeline here")
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the longest stalls")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    about = provenance() | {"preset": options.preset}
    print(f"{about['date']}  commit {about['commit']}  preset {options.preset}, virtual time")
    found: list[Result] = []
    for case in CASES:
        if not re.search(options.only, case.name):
            continue
        print(f"{case.name} stands for {case.stands_for}", file=sys.stderr)
        for speed in map(float, options.speed.split(",")):
            names = options.placements.split(",")
            for result, timeline in measure(case, options.preset, speed, names):
                found.append(result)
                if options.draw:
                    draw(timeline, options.draw, result)
                if options.verbose:
                    print(f"{result.placement}: {'; '.join(result.stalls)}", file=sys.stderr)
    print(markdown(HEAD, map(row_of, found)))
    if options.json:
        lines = [asdict(r) | {"slowdown": r.slowdown, "distance": r.distance} for r in found]
        options.json.write_text(json.dumps(about | {"results": lines}, indent=1) + "\n")
    missed = [f"{r.case} x{r.speed:g} {r.placement} {r.distance:.3f}" for r in found
              if r.distance > GOALS.get(r.placement, r.distance)]  # fmt: skip
    if missed:
        print(f"too far from the bound: {', '.join(missed)}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
