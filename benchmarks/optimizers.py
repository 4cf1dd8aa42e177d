"""Measures steps of the optimizers on the CPU, beside PyTorch on one thread in the same run.

Three models: one with many small parameters (a small GPT's), one with a few of middle size (an
MLP's), and one with large ones:

    python benchmarks/optimizers.py [--quick] [--check] [--json FILE] [--only REGEX]
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch start their threads

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, best_of, library, paired  # noqa: E402

MODELS: dict[str, list[tuple[int, ...]]] = {
    "gpt": [(64, 64), (64, 256), (64,), (64,)] * 12,
    "mlp": [(128, 784), (128,), (128, 128), (128,), (10, 128), (10,)],
    "large": [(2048, 1024)] * 2,
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {}, "SGD_momentum": {"momentum": 0.9}, "Adam": {}, "AdamW": {}, "Adamax": {},
    "NAdam": {}, "RAdam": {}, "RMSprop": {}, "Adagrad": {}, "Adadelta": {}, "ASGD": {},
    "Rprop": {}, "Adafactor": {}, "Muon": {},
}  # fmt: skip


def stepper(lib: Any, name: str, shapes: list[tuple[int, ...]]) -> Callable[[], Any]:
    """A step of an optimizer whose parameters have gradients."""
    kind = name.partition("_")[0]
    params = []
    for shape in [(s + s)[:2] for s in shapes] if kind == "Muon" else shapes:
        param = lib.ones(shape, requires_grad=True)
        param.grad = lib.ones(shape) * 0.01
        params.append(param)
    return getattr(lib.optim, kind)(params, lr=1e-4, **OPTIMIZERS[name]).step  # type: ignore[no-any-return]


def microseconds(step: Callable[[], Any], repeat: int) -> float:
    """For one step, the best of a few."""

    def once() -> float:
        start = perf_counter()
        step()
        return (perf_counter() - start) * 1e6

    once()
    return best_of(repeat, once)


def measure(options: Any) -> list[Line]:
    """The lines whose name `options.only` matches."""
    ours, peer = library("cugrad"), library("torch")
    rounds = options.rounds or (1 if options.quick else 7)
    repeat = 2 if options.quick else 15
    lines = []
    for name in OPTIMIZERS:
        for model, shapes in MODELS.items():
            line = Line(f"{name}_{model}", "us")
            if not re.search(options.only, line.name) or line.name == "Muon_large":
                continue  # whose step takes seconds in either library
            sizes = [(8, 8)] if options.quick else shapes
            mine = partial(microseconds, stepper(ours, name, sizes), repeat)
            its = partial(microseconds, stepper(peer, name, sizes), repeat) if peer else None
            lines.append(paired(line, mine, its, rounds))
    return lines


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    if options.device != "cpu":
        raise SystemExit("optimizers.py measures the CPU")
    return common.report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
