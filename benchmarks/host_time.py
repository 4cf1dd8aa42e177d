"""The host's time for an op on CUDA, where launches do nothing, beside PyTorch's dispatch.

CuPy is whole but for the driver, the runtime and cuBLAS, whose functions return at once: see
`tests/support/still_cuda.py`. So what is measured is what Python and CuPy cost before a launch, its
memory pool included, and not the launch, which costs PyTorch some microseconds of the host as well.
PyTorch runs the same statement on the CPU, with its arithmetic on as few elements. No GPU is
needed.

    python benchmarks/host_time.py [--check] [--quick] [--json FILE] [--only REGEX]
"""

from __future__ import annotations

import gc
import os
import re
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch start their threads

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, best_of, library, paired  # noqa: E402
from tests.support.still_cuda import still  # noqa: E402

GOAL = 1.5  # times PyTorch's dispatch
ATTENTION, HEADS = "F.scaled_dot_product_attention(x, y, z)", ((2, 2, 16, 16),) * 3
IMAGES = (1, 4, 8, 8), (4, 4, 3, 3)
NORM, CHANNELS = "F.batch_norm(x, None, None, y, z, True)", ((2, 4, 8, 8), (4,), (4,))
DETACHED = "v, w = x.detach(), y.detach()"
BACK = "grad(r, (x, y, z), g, True)"


def on_still_device() -> Any:
    """cugrad with a CUDA device that does nothing."""
    still()  # before CuPy is imported
    import cugrad
    from cugrad.backends.cupy import backend, probe

    backend.why_uncompilable = probe.why_unusable = lambda: None  # type: ignore[assignment]
    cugrad.backends.get("cuda")
    cugrad.backends.wanted.wanted.cudnn.asked = False  # cuDNN asks the driver by itself
    return cugrad


def tensors(lib: Any, device: str, dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    """Tensors that require gradients; on the still device their values are whatever was there."""
    if device == "cpu":
        kind = getattr(lib, dtype)
        return [lib.ones(shape, dtype=kind, requires_grad=True) for shape in shapes]
    import cupy

    from cugrad.tensor import make

    kind = getattr(lib, dtype).numpy
    return [make(cupy.ndarray(shape, kind), True) for shape in shapes]


class Statement(NamedTuple):
    """What is run, with tensors x, y, z of a dtype and these shapes, and what is done before."""

    text: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    goal: float | None
    before: str = ""


STATEMENTS: dict[str, tuple[Any, ...]] = {
    "add": ("x + y", "float32", ((8, 8), (8, 8)), GOAL),
    "add_bfloat16": ("x + y", "bfloat16", ((8, 8), (8, 8)), GOAL),
    "mul_number": ("x * 2.5", "float32", ((8, 8),), GOAL),
    "mul_number_bfloat16": ("x * 2.5", "bfloat16", ((8, 8),), GOAL),
    "mul": ("x * y", "float32", ((8, 8), (8, 8)), GOAL),
    "mul_whole_number": ("x * 2", "float32", ((8, 8),), GOAL),
    "add_": ("v.add_(w)", "float32", ((8, 8), (8, 8)), None, DETACHED),
    "mul_then_add_": ("v = x * 2.5; v += y", "float32", ((8, 8), (8, 8)), None),
    "mul_then_relu_": ("v = x * 2.5; v.relu_()", "float32", ((8, 8),), None),
    "mul_by_number_": ("v.mul_(0.5)", "float32", ((8, 8), (8, 8)), GOAL, DETACHED),
    "copy_": ("v.copy_(w)", "float32", ((8, 8), (8, 8)), None, DETACHED),
    "fill_": ("v.fill_(0.5)", "float32", ((8, 8), (8, 8)), None, DETACHED),
    "zero_": ("v.zero_()", "float32", ((8, 8), (8, 8)), None, DETACHED),
    "cast": ("x.to(torch.bfloat16)", "float32", ((8, 8),), None),
    "where_number": ("torch.where(c, x, 0.5)", "float32", ((8, 8),), GOAL, "c = x.detach() > 0"),
    "autocast": ("with cast: r = F.linear(x, y); r = r + 1; r = F.linear(r, y)", "float32",
                 ((8, 8), (8, 8)), None, "cast = torch.autocast(x.device.type, torch.bfloat16)"),
    "exp": ("x.exp()", "float32", ((8, 8),), GOAL),
    "relu": ("F.relu(x)", "float32", ((8, 8),), GOAL),
    "gelu": ("F.gelu(x)", "float32", ((8, 8),), GOAL),
    "sum": ("x.sum()", "float32", ((8, 8),), GOAL),
    "sum_rows": ("x.sum(1)", "float32", ((8, 8),), GOAL),
    "mean": ("x.mean()", "float32", ((8, 8),), GOAL),
    "add_bias": ("x + y", "float32", ((8, 8), (8,)), GOAL),
    "linear": ("F.linear(x, y, z)", "float32", ((2, 4, 8), (8, 8), (8,)), GOAL),
    "linear_bfloat16": ("F.linear(x, y, z)", "bfloat16", ((2, 4, 8), (8, 8), (8,)), GOAL),
    "matmul": ("x @ y", "float32", ((8, 8), (8, 8)), GOAL),
    "layer_norm": ("F.layer_norm(x, (8,), y, z)", "float32", ((8, 8), (8,), (8,)), GOAL),
    "layer_norm_bfloat16": ("F.layer_norm(x, (8,), y, z)", "bfloat16", ((8, 8), (8,), (8,)), GOAL),
    "softmax": ("F.softmax(x, -1)", "float32", ((8, 8),), GOAL),
    "sort": ("x.sort()", "float32", ((8, 8),), GOAL),
    "cat": ("torch.cat([x, y])", "float32", ((8, 8), (8, 8)), None),
    "stack": ("torch.stack([x, y])", "float32", ((8, 8), (8, 8)), None),
    "cat_backward": ("grad(r, (x, y), g, True)", "float32", ((8, 8), (8, 8)), GOAL,
                     "r = torch.cat([x, y])"),
    "conv2d": ("F.conv2d(x, y)", "float32", IMAGES, None),
    "conv2d_backward": ("grad(r, (x, y), g, True)", "float32", IMAGES, GOAL, "r = F.conv2d(x, y)"),
    "batch_norm": (NORM, "float32", CHANNELS, None),
    "batch_norm_backward": (BACK, "float32", CHANNELS, GOAL, f"r = {NORM}"),
    "batch_norm_of_given": (
        "F.batch_norm(x, m, v, y, z)", "float32", CHANNELS, None,
        "m, v = torch.zeros_like(y.detach()), torch.ones_like(z.detach())",
    ),
    "max_pool2d_backward": ("grad(r, x, g, True)", "float32", IMAGES[:1], GOAL,
                            "r = F.max_pool2d(x, 2)"),
    "embedding_backward": (
        "grad(r, x, g, True)", "float32", ((8, 8),), GOAL,
        "r = F.embedding(torch.zeros(8, dtype=torch.int64, device=x.device), x)",
    ),
    "by_index": ("x[t]", "float32", ((8, 8),), None,
                 "t = torch.zeros(8, dtype=torch.int64, device=x.device)"),
    "split": ("x.split(4, 1)", "float32", ((8, 8),), None),
    "contiguous": ("x.t().contiguous()", "float32", ((8, 8),), None),
    "attention": (ATTENTION, "float32", HEADS, None),
    "attention_bfloat16": (ATTENTION, "bfloat16", HEADS, None),
    "attention_backward": (BACK, "bfloat16", HEADS, GOAL, f"r = {ATTENTION}"),
}  # fmt: skip


def timed(lib: Any, device: str, statement: Statement, n: int) -> float:
    """Microseconds for one run of a recorded statement."""
    text, dtype, shapes, _, before = statement
    names: dict[str, Any] = dict(zip("xyz", tensors(lib, device, dtype, *shapes)))
    names |= {"F": lib.nn.functional, "torch": lib, "grad": lib.autograd.grad, "gc": gc}
    exec(before, names)
    if "r" in names:  # a result, of which there is a gradient
        names["g"] = lib.empty_like(names["r"])
    timer = timeit.Timer(text, "gc.enable()", globals=names)
    timer.timeit(10)
    start = perf_counter()
    timer.timeit(n)
    return (perf_counter() - start) / n * 1e6


def measure(options: Any) -> list[Line]:
    lib, torch = on_still_device(), library("torch")
    n, repeat = (50, 20) if options.quick else (50, 120)  # the least of many short runs
    lines = []
    for name, fields in STATEMENTS.items():
        statement = Statement(*fields)
        if not re.search(options.only, name):
            continue

        def run(lib: Any, device: str, statement: Statement = statement) -> Callable[[], float]:
            return lambda: best_of(repeat, lambda: timed(lib, device, statement, n))

        line = Line(f"host_{name}", "us/op", goal=statement.goal)
        theirs = run(torch, "cpu") if torch is not None else None
        rounds = options.rounds or (1 if options.quick else 5)
        lines.append(paired(line, run(lib, "cuda"), theirs, rounds))
    return lines


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    return common.report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
