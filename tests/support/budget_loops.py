"""Random training loops within a budget, on the simulated device, beside the same ones without it.

    python -m tests.support.budget_loops --seed 1 --count 20

With `--device cuda` they run on the GPU, or where there is none on the CuPy that NumPy plays.

A budget keeps its word where losses are as without it, no step takes more than the limit, and the
least that an error names is enough for what was known by then: on entering the model alone, in the
first op what is beside it, too, and behind the first pass all that there is. So each of the three
may raise once, and once more for what the host lacks. A device that has no more memory shows only
how far a step came, each time. Each line says what a loop was, and what it took; the number of
those that differ is the status.
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cugrad
from cugrad import backends, memory, nn
from cugrad.backends import simulated
from cugrad.backends.cupy import probe
from cugrad.utils.checkpoint import checkpoint
from tests.memory.states.training import deep
from tests.support.programs.__main__ import play_cuda

__all__ = ["Loop", "Verdict", "draw", "judged"]

LEAST = re.compile(r"(?:at least|least took|few:) ([\d.]+) ([KM])iB")
ADDING = re.compile(r"([\d.]+) ([KM])iB if passes add to gradients")  # in the place of that
IN_EACH_TURN = re.compile(r"([\d.]+) ([KM])iB are needed in each turn of the loop")
FULL = "the first step, which sends away all that it can"  # of a device that has no more
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.01}), ("SGD", {"lr": 0.01, "momentum": 0.9}), ("Adam", {}),
    ("AdamW", {"amsgrad": True}), ("Adafactor", {}), ("RMSprop", {"momentum": 0.9}),
    ("Adagrad", {}), ("ASGD", {}), ("NAdam", {}), ("Adadelta", {"weight_decay": 0.1}),
]  # fmt: skip
NEAR = 2e-3  # of losses, where a step has been taken on the host or in an order of its own


class Words(nn.Module):
    """A small language model, whose last weight is that of its embedding where it is tied."""

    def __init__(self, width: int, depth: int, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        layer = lambda: nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True)
        self.layers = nn.ModuleList([layer() for _ in range(depth)])
        self.out = nn.Linear(width, 64, bias=False)
        if tied:
            self.out.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        words = (x[:, :8] * 1e3).long().remainder(64)
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


class Steps(nn.Module):
    """A recurrent network."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(width, width, depth, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layers(x.unsqueeze(1).expand(-1, 5, -1))[0]


class Images(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[Any] = [nn.Conv2d(1, width // 8, 3, padding=1)]
        for _ in range(depth):
            layers += [nn.Conv2d(width // 8, width // 8, 3, padding=1), nn.GroupNorm(2, width // 8),
                       nn.ReLU()]  # fmt: skip
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return self.layers(x[:, :64].reshape(-1, 1, 8, 8))


class Recomputed(nn.Module):
    """Layers that are checkpoints."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([deep(width, 2) for _ in range(depth)])
        self.reentrant = False

    def forward(self, x: Any) -> Any:
        x = x.detach().requires_grad_() if self.reentrant else x
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


NETS: dict[str, Callable[[int, int], Any]] = {
    "deep": deep,
    "words": lambda width, depth: Words(width, depth, False),
    "tied words": lambda width, depth: Words(width, depth, True),
    "steps": Steps,
    "images": Images,
    "recomputed": Recomputed,
}


@dataclass(frozen=True)
class Loop:
    """What a loop is."""

    net: str
    width: int
    depth: int
    batch: int
    optimizer: str
    settings: dict[str, Any]
    passes: int  # backward passes for each step
    zero: str  # gradients: "none", "zeros", or "alone", where each parameter's is set to None
    frozen: bool  # whether every third parameter is not trained
    looks: bool  # whether there is a pass without gradients between steps
    scaled: bool
    autocast: bool
    share: float  # of what the loop takes without a budget
    host: float | None  # of the bytes of its states
    capacity: float | None  # of the limit, where the device has no more
    step: str | None  # what is asked for
    clip: bool = False  # gradients, by their norm
    averaged: bool = False  # whether averages of the weights are kept
    reentrant: bool = False  # what is recomputed
    normed: bool = False  # whether linear layers have directions and lengths

    def start(self, device: str) -> tuple[Any, Any]:
        cugrad.manual_seed(0)
        net = NETS[self.net](self.width, self.depth)
        net.reentrant = self.reentrant
        for layer in [each for each in net.modules() if type(each) is nn.Linear and self.normed]:
            nn.utils.parametrizations.weight_norm(layer)
        net.to(device)
        for k, param in enumerate(net.parameters()):
            param.requires_grad_(not self.frozen or k % 3 != 1)
        params = [param for param in net.parameters() if param.requires_grad]
        return net, getattr(cugrad.optim, self.optimizer)(params, **self.settings)

    def train(
        self, net: Any, optimizer: Any, steps: int = 7, ended: list[str] | None = None
    ) -> list[float]:
        """The losses; `ended` gets a word for each pass and each step that has ended."""
        ended = [] if ended is None else ended
        device = next(net.parameters()).device
        x = cugrad.rand(self.batch, max(self.width, 64), device=device)
        scaler = cugrad.amp.GradScaler(device.type, 64.0, enabled=self.scaled)
        width = slice(0, None if self.net in ("words", "tied words", "images") else self.width)
        losses = []
        averages = [cugrad.optim.swa_utils.AveragedModel(net)] if self.averaged else []
        for _ in range(steps):
            if self.zero == "alone":
                for param in net.parameters():
                    param.grad = None
            else:
                optimizer.zero_grad(set_to_none=self.zero == "none")
            for _ in range(self.passes):
                with cugrad.autocast(device.type, cugrad.bfloat16, enabled=self.autocast):
                    loss = net(x[:, width]).float().square().mean()
                scaler.scale(loss).backward()
                ended.append("pass")
            if self.clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            ended.append("step")
            for each in averages:
                each.update_parameters(net)
            losses.append(loss.item())
            del loss
            if self.looks:
                with cugrad.no_grad():
                    losses.append(net(x[:, width]).float().mean().item())
        return losses


def draw(seed: int, plain: bool = False) -> Loop:
    """A loop; a plain one has none of what is drawn last."""
    rng = random.Random(seed)
    pick = rng.choice
    name, settings = pick(OPTIMIZERS)
    scaled = rng.random() < 0.15
    loop = Loop(
        net=pick([*NETS]), width=pick([64, 96, 128]), depth=pick([2, 4, 6]),
        batch=pick([8, 64, 256]), optimizer=name, settings=settings, passes=pick([1, 1, 2, 3]),
        zero=pick(["none", "none", "zeros", "alone"]), frozen=rng.random() < 0.2,
        looks=rng.random() < 0.25, scaled=scaled, autocast=rng.random() < 0.2,
        share=pick([0.1, 0.25, 0.4, 0.6, 0.8]), host=pick([None, None, None, 0.3]),
        capacity=pick([None, None, 1.25]), step=None,
    )  # fmt: skip
    if plain:
        return loop
    drawn = {name: rng.random() < 0.2 for name in ("clip", "averaged", "reentrant", "normed")}
    drawn["reentrant"] &= loop.net == "recomputed"
    return replace(loop, **drawn)


@dataclass
class Verdict:
    """How a loop went: `faults` is empty where the budget has kept its word."""

    loop: Loop
    plain: int  # bytes
    limit: int
    peak: int
    tries: int
    faults: list[str]

    def __str__(self) -> str:
        words = [f"{k} {v}" for k, v in vars(self.loop).items() if v not in (None, False, {})]
        took = f"{self.peak / self.limit:.3f} of {self.limit / self.plain:.2f} of {self.plain}"
        return f"{', '.join(words)}: {took}, {self.tries} tries; {'; '.join(self.faults) or 'ok'}"


def judged(loop: Loop, name: str = "simulated") -> Verdict:
    """Runs a loop without a budget and within one, on a device."""
    device: Any = backends.get(name)
    bounded = loop.capacity is not None and name == "simulated"  # no other has less than it has

    host: int | None = None
    ended: list[str] = []

    def measured(limit: int | None) -> tuple[list[float], int, Any]:
        nonlocal host
        ended.clear()
        net, optimizer = loop.start(name)
        gc.collect()
        device.synchronize()
        device.reset_peak_memory_stats()
        if limit is None:
            return loop.train(net, optimizer), device.max_memory_allocated(), None
        if host is None and loop.host is not None:
            host = int(loop.host * 3 * sum(p.nbytes for p in net.parameters()))
        capacity = int(loop.capacity * limit) if bounded and loop.capacity else None
        with simulated.configured(capacity=capacity), memory.budget(
            limit, model=net, optimizer=optimizer, host_limit=host,
            bring_back=not bounded, step=loop.step or "behind backward",
        ) as plan:  # fmt: skip
            ended.append("entering")
            losses = loop.train(net, optimizer, ended=ended)
        return losses, plan.peak(), plan

    gc.collect()
    base = device.memory_allocated()
    expected, plain, _ = measured(None)
    limit, tries, faults = base + int(loop.share * (plain - base)), 0, []
    said: list[str] = []
    raised: list[tuple[bool, int]] = []  # whether the host lacks something, and when
    while True:
        tries += 1
        gc.collect()
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                losses, peak, plan = measured(limit)
            break
        except memory.BudgetError as error:
            text = str(error)
            adds = loop.passes > 1
            least = adds and ADDING.search(text) or LEAST.search(text)
            error.__traceback__ = None
        if FULL not in text:  # what a pass has taken is all that there is to know
            raised.append(("the host needs" in text, min(len(ended), 2)))
        if least is None or tries > 20:
            return Verdict(loop, plain, limit, 0, tries, [text[:300]])
        enough = int(float(least[1]) * 1024 ** " KM".index(least[2]) * 1.001)
        if "the host needs" in text:
            host = enough
        else:
            limit = enough
        said.append(text)
    if len({*raised}) < len(raised):
        faults.append(f"only the {tries}th try was enough: " + " | ".join(said))
    # as averages may between steps, and a look for which the limit is too small, which is said
    turns = [found for each in told for found in IN_EACH_TURN.findall(str(each.message))]
    most = max([limit, *(float(n) * 1024 ** " KM".index(k) * 1.001 for n, k in turns)])
    if peak > most:
        faults.append(f"{peak / limit - 1:.2%} over")
    if losses != expected:
        off = float(np.abs(np.subtract(losses, expected)).max() / max(map(abs, expected)))
        if not off < NEAR:
            faults.append(f"losses differ by {off:.1e}")
    return Verdict(loop, plain, limit, peak, tries, faults)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.budget_loops")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--device", choices=["simulated", "cuda"], default="simulated")
    asked = parser.parse_args(words)
    if asked.device == "cuda" and not backends.is_usable("cuda"):
        play_cuda()
        probe.why_unusable.cache_clear()
    wrong = 0
    for seed in range(asked.seed, asked.seed + asked.count):
        verdict = judged(draw(seed), asked.device)
        wrong += bool(verdict.faults)
        print(f"{seed}: {verdict}", flush=True)
    print(f"{wrong} of {asked.count} loops were not as they should be")
    return min(wrong, 125)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
