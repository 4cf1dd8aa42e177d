"""Trains with weights, gradients and optimizer states elsewhere, beside the least time for it.

On the simulated device a small network stands for a large one: it is `NARROW` times narrower and
has as many times fewer tokens, so that a byte stands for NARROW**2 bytes and a flop for NARROW**3:

    python benchmarks/states.py [--preset H200] [--network GPT] [--tokens 2048 8192] [--check]

The bound is the library's own, `least_seconds`, by the rates of the model: all goes on at once, and
the host takes the step of a parameter from when its gradient is whole in plain training. A step is
timed from its beginning to that of the next one, while copies are on their way, in a loop that
never waits for the device. "copied" is bytes of states and gradients that move in a step, over
those that there are, each way. All but plain training, which is what others are compared with, have
no more memory than the device has.

`--check` wants each step to be near its bound, no slower than either rival, within the limit of the
device's memory, and to copy nothing twice. "all stream" is known to be farther from its bound where
tokens or layers are few.

Beside it are two rivals' schedules, with the same rates and no latencies, as fast as they can be:
"ZeRO-Offload" sends gradients out beside backward, takes Adam's step on the host behind it, and
sends weights back meanwhile; "layer by layer" (MegaTrain's) streams weights in for forward and for
backward, makes activations again, sends gradients out, and steps on the host beside backward, once
they are whole.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
from benchmarks.common import provenance
from cugrad import backends, memory, models
from cugrad.backends import simulated
from cugrad.memory.states import context
from cugrad.memory.states.reporting.bound import least_seconds

NARROW = 32
WIDTH, CONTEXT, VOCABULARY = 4096, 1024, 8192  # of what is stood for
PLACES: dict[str, dict[str, str]] = {
    "plain": {},
    "states host": {"states": "host"},
    "states stream": {"states": "stream"},
    "gradients, states host": {"gradients": "host", "states": "host"},
    "all host": {"weights": "host", "gradients": "host", "states": "host"},
    "all stream": {"weights": "host", "gradients": "host", "states": "stream"},
    "states stream, during": {"states": "stream", "step": "during backward"},
    "all stream, during": {
        "weights": "host", "gradients": "host", "states": "stream", "step": "during backward",
    },
}  # fmt: skip
PLACES["states host, during"] = {"states": "host", "step": "during backward"}
PLACES["all host, during"] = {**PLACES["all host"], "step": "during backward"}
HIDDEN, GOAL = 1.05, 1.10  # of the bound, where all else fits into backward, and where not
KNOWN = ("all stream",)  # to be farther from it where tokens or layers are few
LEARNS, STEPS = 2, 4  # steps before those that count, and those


@dataclass
class Result:
    """One step of a placement, in seconds and bytes of what it stands for."""

    places: str
    tokens: int
    parameters: float
    step: float
    plain_pass: float  # forward and backward with all on the device
    plain_step: float  # the optimizer's step there
    bound: float
    others: float  # that of a step that computes nothing
    peak: float  # of the device's memory
    limit: float  # of that: what plain training has, less what is elsewhere, and windows
    weights_in: float
    gradients_out: float
    copied: float  # bytes that moved, of states and gradients, over those that there are
    rivals: dict[str, float] = field(default_factory=dict)  # seconds
    whole: list[tuple[float, float]] = field(default_factory=list)  # seconds, bytes: gradients

    @property
    def distance(self) -> float:
        return self.step / self.bound

    @property
    def goal(self) -> float:
        """The most that this may be."""
        computing = self.plain_pass + self.plain_step
        is_hidden = self.bound <= computing and self.others <= 2 / 3 * computing
        return HIDDEN if is_hidden else GOAL

    @property
    def missed(self) -> list[str]:
        """What is not as it should be."""
        missed = []
        if self.peak > self.limit:
            missed.append(f"its peak is {self.peak / 1e9:.2f} GB, want {self.limit / 1e9:.2f}")
        if self.copied > 1.005:
            missed.append(f"it copies {self.copied:.3f} of what there is")
        if self.distance > self.goal and self.places not in KNOWN:
            missed.append(f"{self.distance:.3f} of the bound, want {self.goal}")
        for name, seconds in self.rivals.items():
            if seconds < self.step:
                missed.append(f"{name} takes {seconds / self.step:.3f} of its time")
        return missed


class Tagger(torch.nn.Module):
    """LSTM layers between an embedding and a projection."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY // NARROW, width)
        self.lstm = torch.nn.LSTM(width, width, layers, batch_first=True)
        self.out = torch.nn.Linear(width, VOCABULARY // NARROW)

    def forward(self, words: Any) -> Any:
        return self.out(self.lstm(self.embedding(words))[0])


def network(name: str, layers: int) -> Any:
    torch.manual_seed(0)
    width, words = WIDTH // NARROW, VOCABULARY // NARROW
    if name == "GPT":
        net: Any = models.GPT(
            words, CONTEXT // NARROW, width=width, heads=width // 32, layers=layers
        )  # fmt: skip
    elif name == "ViT":
        net = models.VisionTransformer(
            16 * 4, 16, layers, width // 32, width, 4 * width, num_classes=words
        )  # fmt: skip
    elif name == "U-Net":
        net = models.UNet(3, 4, width=width // 4, depth=3)
    else:
        net = Tagger(2 * width, max(2, layers // 4))
    return net.to("simulated")


def batch(name: str, tokens: int) -> tuple[Any, Any]:
    """Inputs of so many tokens, patches or pixels, and what they should become."""
    count = max(1, tokens // NARROW)
    if name in ("GPT", "LSTM"):
        length = CONTEXT // NARROW
        words = torch.randint(0, VOCABULARY // NARROW, (max(1, count // length), length))
        return words.to("simulated"), words.flatten().to("simulated")
    if name == "ViT":  # of 16 patches
        images = torch.ones(max(1, count // 16), 3, 64, 64)
        return images.to("simulated"), torch.zeros(len(images), dtype=torch.int64).to("simulated")
    side = 16
    images = torch.ones(max(1, count // side**2), 3, side, side)
    labels = torch.zeros(images.shape[0] * side**2, dtype=torch.int64)
    return images.to("simulated"), labels.to("simulated")


def scores(name: str, net: Any, inputs: Any) -> Any:
    """Rows of scores."""
    result = net(inputs)
    if name == "U-Net":
        return result.permute(0, 2, 3, 1).flatten(0, 2)
    return result if name == "ViT" else result.flatten(0, 1)


def mark(backend: Any) -> Any:
    """This point of the compute stream, with its time."""
    event = backend.event(timing=True)
    backend.current_stream().record_event(event)
    return event


class Clock:
    """The modelled device's seconds for a block."""

    def __enter__(self) -> Clock:
        simulated.MACHINE.synchronize()
        self.began = simulated.MACHINE.host_time
        return self

    def __exit__(self, *exc: object) -> None:
        simulated.MACHINE.synchronize()
        self.seconds = simulated.MACHINE.host_time - self.began


@contextmanager
def windows_of(scale: float) -> Iterator[None]:
    """Within it windows are those of a network whose bytes stand for so many."""
    before = context.LEAST
    context.LEAST = int(before / scale)
    try:
        yield
    finally:
        context.LEAST = before


def measure(name: str, kind: str, tokens: int, layers: int, windows: int) -> dict[str, Any]:
    """Seconds of the last of a few steps, and the bytes of its copies, not yet scaled."""
    backend = backends.get("simulated")
    net = network(kind, layers)
    optimizer = torch.optim.Adam(net.parameters())
    size = sum(p.nbytes for p in net.parameters())
    largest = max(p.nbytes for p in net.parameters())
    window = windows * largest or None  # else the library's own
    inputs, labels = batch(kind, tokens)
    loss_of = torch.nn.CrossEntropyLoss()

    def passes() -> None:
        optimizer.zero_grad()
        loss_of(scores(kind, net, inputs), labels).backward()

    placed = memory.offload_states(
        net, optimizer, window=window, min_bytes=largest // 64, bring_back=name == "plain",
        **PLACES[name],
    )  # fmt: skip
    with placed:
        marks, before = [], {}
        for step in range(LEARNS + STEPS + 1):  # in which nothing waits for the device
            if step == LEARNS:
                gc.collect()
                backend.reset_peak_memory_stats()
                before = moved_by(placed)
            marks.append(mark(backend))
            if step == LEARNS + STEPS:
                moved = {key: (n - before[key]) / STEPS for key, n in moved_by(placed).items()}
            passes()
            optimizer.step()
        peak = backend.max_memory_allocated()
        report = placed.report()  # waits for the device
        whole = [] if PLACES[name] else times_of_gradients(backend, net, passes)
        with Clock() as first:
            passes()
    return {
        "size": size, "largest": largest, "moved": moved,
        "windows": {kind: report[kind]["limit"] or 0 for kind in report},
        "placed": {kind: report[kind]["bytes"] for kind in report},
        "seconds": marks[LEARNS].elapsed_time(marks[-1]) / 1e3 / STEPS, "pass": first.seconds,
        "whole": whole, "peak": peak,
    }  # fmt: skip


def moved_by(placed: Any) -> dict[tuple[str, str], float]:
    """Bytes that have come and gone so far, by kind and way; waits for nothing."""
    stats = {kind: window.options.counts.stats for kind, window in placed._windows.items()}
    return {(kind, "in"): float(s.moved_back_bytes) for kind, s in stats.items()} | {
        (kind, "out"): float(s.moved_to_host_bytes) for kind, s in stats.items()
    }


def times_of_gradients(backend: Any, net: Any, passes: Any) -> list[tuple[float, int]]:
    """When gradients are whole, in seconds from the begin of forward on, and their bytes."""
    seen: list[tuple[Any, int]] = []
    handles = [
        p.register_post_accumulate_grad_hook(lambda p: seen.append((mark(backend), p.nbytes)))
        for p in net.parameters()
    ]
    backend.synchronize()
    began = mark(backend)
    passes()
    backend.synchronize()
    for handle in handles:
        handle.remove()
    return [(began.elapsed_time(event) / 1e3, nbytes) for event, nbytes in seen]


def on_host(whole: list[tuple[float, float]], model: Any) -> list[tuple[float, float]]:
    """When the gradients are whole, and the seconds of the host's step of each; `whole` has their
    bytes.
    """
    return [(seconds, 7 * nbytes / model.host) for seconds, nbytes in whole]


def bound_of(name: str, taken: dict[str, Any], plain: Result, scale: float, model: Any) -> Any:
    """The least seconds of a step that makes these copies, see above; and of them alone."""
    moved, host = taken["moved"], PLACES[name].get("states") == "host"
    link = [
        sum([nbytes for (_, way), nbytes in moved.items() if way == which]) * scale / rate
        for which, rate in (("in", model.to_device), ("out", model.to_host))
    ]
    computing = plain.plain_pass + (0.0 if host else plain.plain_step)
    steps = on_host(plain.whole, model) if host else []
    others = max(*link, sum([seconds for _, seconds in steps]))
    return least_seconds(computing, *link, steps), others


def copied_of(name: str, taken: dict[str, Any]) -> float:
    """Bytes of states and gradients that move in a step, over those that there are, each way."""
    ratios = [
        taken["moved"][kind, way] / (taken["placed"][kind] or taken["placed"]["weights"])
        for kind, way in (("states", "in"), ("states", "out"), ("gradients", "out"))
        if taken["moved"][kind, way]
    ]
    return max(ratios, default=0.0)


def rivals_of(plain: Result, size: float, model: Any) -> dict[str, float]:
    """The seconds that two other schedules take at least; see above."""
    forward, backward = plain.plain_pass / 3, 2 * plain.plain_pass / 3
    way_in, out, host = size / model.to_device, size / model.to_host, 7 * size / model.host
    begins, takes = max(forward, way_in), max(backward + forward, way_in, out)
    whole = [  # as in plain training, but for backward beginning later and taking longer
        (begins + max(seconds - forward, 0.0) / backward * takes, nbytes)
        for seconds, nbytes in plain.whole
    ]
    return {
        "ZeRO-Offload": forward + max(backward, out) + max(host, way_in),
        "layer by layer": least_seconds(begins + takes, 0.0, 0.0, on_host(whole, model)),
    }


def simulate(
    name: str, kind: str, tokens: int, layers: int, preset: str, windows: int,
    plain: Result | None,
) -> Result:  # fmt: skip
    base = simulated.preset(preset)
    scale = float(NARROW**2)
    rates = {dtype: rate / NARROW for dtype, rate in base.flops.items()}
    # plain training takes what it takes; the others have what there is
    capacity = base.capacity if plain is None else int(base.capacity / scale)
    with simulated.configured(base, capacity, scale=scale, flops=rates, policy="timed"):
        gc.collect()  # what the one before has left has no room here
        simulated.reset()
        with windows_of(scale):
            taken = measure(name, kind, tokens, layers, windows)
    step = taken["seconds"]
    result = Result(
        name, tokens, taken["size"] * scale / 4, step, taken["pass"], step - taken["pass"], step,
        0.0, taken["peak"] * scale, 0.0, taken["moved"]["weights", "in"] * scale,
        taken["moved"]["gradients", "out"] * scale, copied_of(name, taken),
    )  # fmt: skip
    if plain is None:
        result.limit = result.peak
        result.whole = [(seconds, nbytes * scale) for seconds, nbytes in taken["whole"]]
        return result
    result.plain_pass, result.plain_step = plain.plain_pass, plain.plain_step
    result.bound, result.others = bound_of(name, taken, plain, scale, base)
    result.rivals = rivals_of(plain, taken["size"] * scale, base)
    # at its peak the plain step has its activations, and no gradients yet
    result.limit = plain.peak
    for kind in PLACES[name]:
        if kind != "step":
            gone = taken["placed"][kind] if kind != "gradients" else 0
            result.limit += (taken["windows"][kind] + taken["largest"] - gone) * scale
    return result


def table(results: list[Result]) -> str:
    lines = [
        "| places | tokens | step ms | plain | bound ms | step/bound | ZeRO-Offload "
        "| layer by layer | peak GB | limit GB | in GB | out GB | copied |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for r in results:
        plain = r.step / (r.plain_pass + r.plain_step)
        beside = [f"{seconds / r.step:.2f}" for seconds in r.rivals.values()] or ["", ""]
        lines.append(
            f"| {r.places} | {r.tokens} | {1e3 * r.step:.0f} | {plain:.2f} | {1e3 * r.bound:.0f} "
            f"| {r.distance:.3f} | {' | '.join(beside)} | {r.peak / 1e9:.1f} | {r.limit / 1e9:.1f} "
            f"| {r.weights_in / 1e9:.1f} | {r.gradients_out / 1e9:.1f} "
            f"| {r.copied:.2f} |"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="H200")
    parser.add_argument("--network", default="GPT", choices=["GPT", "ViT", "U-Net", "LSTM"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 16384])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--window", type=int, default=0, help="of each kind, in largest tensors")
    parser.add_argument("--only", nargs="+", default=list(PLACES), choices=list(PLACES))
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    results: list[Result] = []
    for tokens in asked.tokens:
        setting = asked.network, tokens, asked.layers, asked.preset, asked.window
        plain = simulate("plain", *setting, None)
        results.append(plain)
        for name in asked.only:
            if name != "plain":
                results.append(simulate(name, *setting, plain))
    count = results[0].parameters / 1e9
    print(f"{asked.network}, {count:.2f} B parameters in float32, Adam, {asked.preset}")
    print(table(results))
    there = simulated.preset(asked.preset).capacity / 1e9
    for plain in [r for r in results if r.places == "plain" and r.peak / 1e9 > there]:
        print(f"plain, {plain.tokens} tokens, does not fit {there:.1f} GB: as on one with more")
    if asked.json:
        found = [{**asdict(r), "distance": r.distance} for r in results]
        asked.json.write_text(json.dumps({**provenance(), "results": found}, indent=1))
    missed = [f"{r.places}, {r.tokens} tokens: {why}" for r in results for why in r.missed]
    if missed and asked.check:
        print("missed:", *missed, sep="\n  ")
    return bool(asked.check and missed)


if __name__ == "__main__":
    raise SystemExit(main())
