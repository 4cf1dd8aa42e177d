"""Measures ways to checkpoint a transformer on the simulated device: time and allocated memory.

    python benchmarks/checkpoint_simulated.py [--model A100] [--blocks 8] [--only REGEX]

Runs on any machine; the numbers are the same everywhere. `scale` makes each byte and flop count so
many times: the network stands for a larger one.
"""

from __future__ import annotations

import argparse
import functools
import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cugrad as torch
from cugrad.backends import get, simulated
from cugrad.memory.offloading.engine import engine_of
from cugrad.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

WIDTH, LENGTH, BATCH, HEADS, SCALE = 256, 64, 16, 8, 32
nn, F = torch.nn, torch.nn.functional
Step = Callable[[Any, Any], Any]


class Block(nn.Module):
    """Attention and two layers, each beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        heads = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
        q, k, v = (t.reshape(heads).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)
        x = x + self.out(h)
        return x + self.down(F.gelu(self.up(self.second(x))))


def plain(net: Any, x: Any) -> Any:
    for block in net:
        x = block(x)
    return x


def in_parts(size: int, net: Any, x: Any, **how: Any) -> Any:
    for k in range(0, len(net), size):
        x = checkpoint(plain, net[k : k + size], x, use_reentrant=False, **how)
    return x


def selective(policy: CheckpointPolicy, ops: tuple[str, ...], net: Any, x: Any) -> Any:
    def choose(context: Any, op: str, *args: Any) -> CheckpointPolicy:
        return policy if op in ops else CheckpointPolicy.PREFER_RECOMPUTE

    moving = offload()
    contexts = functools.partial(create_selective_checkpoint_contexts, choose, offload=moving)
    return in_parts(1, net, x, context_fn=contexts)


def within_offload(step: Step, net: Any, x: Any) -> Any:
    with offload():
        return step(net, x)


def offload() -> Any:
    return torch.memory.offload(min_bytes=0, backlog=1 << 23, lookahead=1 << 23)


SAVE, AWAY = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_CPU_OFFLOAD
STEPS: dict[str, Step] = {
    "no checkpoint": plain,
    "each block": functools.partial(in_parts, 1),
    "every two blocks": functools.partial(in_parts, 2),
    "each block, products kept": functools.partial(selective, SAVE, ("linear",)),
    "each block, products in host memory": functools.partial(selective, AWAY, ("linear",)),
    "each block, its input in host memory": functools.partial(
        within_offload, functools.partial(in_parts, 1)
    ),
    "offload alone": functools.partial(within_offload, plain),
}


def measured(step: Step, blocks: int, model: str) -> tuple[float, float]:
    """Milliseconds of the third step, and the MiB that it held beside parameters and gradients."""
    engine_of(get("simulated"), 0)._plans.clear()
    simulated.reset()
    torch.manual_seed(0)
    with simulated.configured(model, policy="earliest", scale=SCALE):
        backend = get("simulated")
        net = nn.ModuleList([Block() for _ in range(blocks)]).to("simulated")
        x = torch.rand(BATCH, LENGTH, WIDTH, device="simulated")
        for _ in range(3):
            gc.collect()
            before = backend.memory_allocated()
            backend.reset_peak_memory_stats()
            with simulated.record() as timeline:
                step(net, x).sum().backward()
            held = backend.max_memory_allocated() - before
            for p in net.parameters():
                p.grad = None
    parameters = sum(p.numel() * 4 for p in net.parameters())
    return timeline.step_time * 1e3, (held - parameters) / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="A100", help="a preset of cugrad.backends.simulated")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--only", metavar="REGEX", default="", help="the ways it matches")
    options = parser.parse_args()
    base = None
    print(f"| {options.blocks} blocks on {options.model} | ms | of plain | MiB | of plain |")
    print("|---|---|---|---|---|")
    for name, step in STEPS.items():
        if base is not None and not re.search(options.only, name):
            continue
        ms, mib = measured(step, options.blocks, options.model)
        base = base or (ms, mib)
        print(f"| {name} | {ms:.1f} | {ms / base[0]:.2f} | {mib:.1f} | {mib / base[1]:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
