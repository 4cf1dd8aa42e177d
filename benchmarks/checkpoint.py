"""Measures what a checkpoint costs: a training step with it over one without, beside PyTorch.

Every number is a ratio within one library: the step with checkpoints, and the plain step of the
same model, taken in turns in one process. Forward once more is a third of a step where forward is a
third; what is beyond that is the checkpoint's own.

    python benchmarks/checkpoint.py [--quick] [--check] [--json FILE] [--only REGEX] [--rounds N]
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch start their threads

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, library, paired  # noqa: E402

LIMIT = 1.40  # of the plain step, where forward once more makes it 1.33
LAYERS = 12


@dataclass
class Workload:
    """A model, and the parts of it that are checkpointed."""

    name: str
    rows: int
    width: int
    segments: int
    reentrant: bool = False
    limit: float | None = LIMIT


WORKLOADS = [
    Workload("mlp_each_layer", 256, 512, 12),
    Workload("mlp_4_segments", 256, 512, 4),
    Workload("mlp_4_segments_reentrant", 256, 512, 4, reentrant=True),
    Workload("mlp_small_each_layer", 64, 128, 12, limit=None),
    Workload("mlp_small_4_segments", 64, 128, 4, limit=None),
    Workload("mlp_tiny_4_segments", 8, 16, 4, limit=None),
]


def stepper(lib: Any, load: Workload, use: bool, device: str = "cpu") -> Callable[[], float]:
    """Runs a training step without the optimizer; the seconds it took."""
    lib.manual_seed(0)
    layers = [lib.nn.Linear(load.width, load.width, device=device) for _ in range(LAYERS)]
    size = LAYERS // load.segments
    parts = [
        lib.nn.Sequential(*[m for layer in layers[k : k + size] for m in (layer, lib.nn.Tanh())])
        for k in range(0, LAYERS, size)
    ]
    x = lib.rand(load.rows, load.width, device=device)
    if load.reentrant:
        x.requires_grad_()  # or the first part would have no gradients
    checkpoint = checkpoint_of(lib)

    def step() -> float:
        start = perf_counter()
        h = x
        for part in parts:
            h = checkpoint(part, h, use_reentrant=load.reentrant) if use else part(h)
        h.sum().backward()
        if device == "cuda":
            lib.cuda.synchronize()
        seconds = perf_counter() - start
        for layer in layers:
            for p in layer.parameters():
                p.grad = None
        return seconds

    return step


def checkpoint_of(lib: Any) -> Any:
    """`torch.utils.checkpoint.checkpoint` of either library."""
    if lib.__name__ == "torch":
        from torch.utils.checkpoint import checkpoint

        return checkpoint
    return lib.utils.checkpoint.checkpoint


def ratio(lib: Any, load: Workload, steps: int, device: str) -> float:
    """The best step with checkpoints over the best without, of `steps` taken in turns."""
    plain, less = (stepper(lib, load, use, device) for use in (False, True))
    plain(), less()  # what is made when first used
    times = [(plain(), less()) for _ in range(steps)]
    return min(b for _, b in times) / min(a for a, _ in times)


def measure(options: Any) -> list[Line]:
    """The lines whose name `options.only` matches."""
    ours, peer, lines = library("cugrad"), library("torch"), list[Line]()
    rounds = options.rounds or (1 if options.quick else 9)
    for load in WORKLOADS:
        if re.search(options.only, load.name) is None:
            continue
        if options.quick:
            load.rows, load.width, load.limit = min(load.rows, 32), min(load.width, 64), None
        line = Line(load.name, "x plain", limit=load.limit)
        steps = 3 if options.quick else 9 if load.width > 128 else 60
        more = load, steps, options.device
        theirs = partial(ratio, peer, *more) if peer else None
        lines.append(paired(line, partial(ratio, ours, *more), theirs, rounds))
    return lines


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    return common.report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
