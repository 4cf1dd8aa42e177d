"""Measures saved tensors on disk: step time and memory, beside the hooks of PyTorch's tutorial.

Each number is of a fresh process, which trains one model with saved tensors kept in memory, or on
disk: cugrad by `save_on_disk`, PyTorch by the self-deleting files of its tutorial on saved tensor
hooks. What is compared is the slowdown over each library's own plain step.

    python benchmarks/disk.py [--quick] [--check] [--json FILE] [--directory DIR] [--only REGEX]
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch start their threads

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, fresh_process, library, paired  # noqa: E402

MLP_LIMIT, MEMORY_LIMIT = 1.25, 0.4  # of the plain step; elementwise ops outrun any disk

UNDER_WAY = 1 << 24  # bytes on their way to the disk, and from it


def mlp(x: Any, weights: list[Any]) -> Any:
    """Matrix products: enough arithmetic for each byte saved to hide the disk behind."""
    for w in weights:
        x = (x @ w).tanh()
    return x.sum()


def elementwise(x: Any, weights: list[Any]) -> Any:
    """One pass over memory for each byte saved: there is nothing to hide behind."""
    for w in weights:
        x = (x * w[0]).tanh()
    return x.sum()


MODELS: dict[str, Callable[[Any, list[Any]], Any]] = {"mlp": mlp, "elementwise": elementwise}


def tutorial_hooks(torch: Any, directory: str) -> Any:
    """The hooks that PyTorch's tutorial ends with."""

    class SelfDeletingTempFile:
        def __init__(self) -> None:
            self.name = os.path.join(directory, str(uuid.uuid4()))

        def __del__(self) -> None:
            os.remove(self.name)

    def pack(tensor: Any) -> Any:
        if tensor.numel() < 1000:
            return tensor
        file = SelfDeletingTempFile()
        torch.save(tensor, file.name)
        return file

    def unpack(packed: Any) -> Any:
        return packed if isinstance(packed, torch.Tensor) else torch.load(packed.name)

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def child(lib_name: str, model: str, place: str, directory: str, rows: int, depth: int) -> Any:
    """Milliseconds of the fastest of some steps, and the most bytes resident beyond the model."""
    lib = library(lib_name)
    assert lib is not None
    lib.manual_seed(0)
    width = 256
    weights = [(lib.rand(width, width) - 0.5).requires_grad_() for _ in range(depth)]
    x = lib.rand(rows, width)

    if place == "keep":
        saving: Any = contextlib.nullcontext()
    elif lib_name == "torch":
        saving = tutorial_hooks(lib, directory)
    else:
        saving = lib.memory.save_on_disk(
            directory, direct=place == "direct", backlog=UNDER_WAY, lookahead=UNDER_WAY
        )

    def step() -> float:
        start = perf_counter()
        with saving:
            loss = MODELS[model](x, weights)
        loss.backward()
        elapsed = perf_counter() - start
        for w in weights:
            w.grad = None
        return elapsed

    mlp(x[:8], weights[:1]).item()  # what is loaded when first used
    gc.collect()
    before = common.memory_now()
    common.reset_peak_memory()
    seconds = min(step() for _ in range(4))
    return {"ms": seconds * 1e3, "bytes": common.peak_memory() - before}


def compare(options: Any, model: str, place: str, peer: Any) -> list[Line]:
    """Slowdown, step time and memory of one model with its saved tensors in one place."""
    shape = (options.directory, *(("512", "3") if options.quick else ("4096", "48")))
    name = f"{model}_{place}"
    slowdown, memory = Line(name, "x plain"), Line(name + "_memory", "x plain")
    time = Line(name + "_time", "ms/step")
    if not options.quick:
        slowdown.limit = MLP_LIMIT if model == "mlp" else None
        memory.limit = MEMORY_LIMIT

    def run(lib: str, side: str) -> float:
        plain, disk = (
            fresh_process(__file__, "--child", lib, model, where, *shape)
            for where in ("keep", place)
        )
        getattr(time, side).append(disk["ms"])
        getattr(memory, side).append(disk["bytes"] / plain["bytes"])
        return disk["ms"] / plain["ms"]

    rounds = options.rounds or (1 if options.quick else 5)
    theirs = partial(run, "torch", "theirs") if peer else None
    return [paired(slowdown, partial(run, "cugrad", "ours"), theirs, rounds), time, memory]


def measure(options: Any) -> list[Line]:
    """The lines whose name `options.only` matches."""
    peer, lines = library("torch"), list[Line]()
    for model in MODELS:
        for place in ("disk", "direct"):  # through the page cache, and past it
            if re.search(options.only, f"{model}_{place}") is not None:
                lines += compare(options, model, place, peer)
    return lines


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        lib, model, place, directory, rows, depth = sys.argv[2:]
        print(json.dumps(child(lib, model, place, directory, int(rows), int(depth))))
        return 0
    parser = common.arguments(__doc__.splitlines()[0])
    parser.add_argument("--directory", default=None, help="where files are made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        options.directory = directory
        lines = measure(options)
        assert os.listdir(directory) == []
    return common.report(lines, options)


if __name__ == "__main__":
    sys.exit(main())
