"""Measures large tensors on the CPU: elementwise ops and reductions, beside plain NumPy.

Every workload is a cugrad call and the same mathematics in NumPy's functions, paired in one run;
a second line beside it has PyTorch on one thread, as information:

    python benchmarks/throughput.py [--quick] [--check] [--json FILE] [--only REGEX]
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

import numpy as np  # noqa: E402

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, best_of, library, paired  # noqa: E402

GOAL = 1.15  # of NumPy's time
ROOT_2_OVER_PI = np.float32(0.7978845608028654)
Work = Callable[..., Any]  # of a library and the arrays or tensors x, y, m (a matrix), c (a mask)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(ROOT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def softmax(m: Any) -> Any:
    e = np.exp(m - m.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def log_softmax(m: Any) -> Any:
    shifted = m - m.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def logsumexp(m: Any) -> Any:
    top = m.max(1, keepdims=True)
    return (np.log(np.exp(m - top).sum(1, keepdims=True)) + top).squeeze(1)


def variance(m: Any) -> Any:
    d = m - m.mean(1, keepdims=True)
    return (d * d).sum(1) / (m.shape[1] - 1)


def layer_norm(m: Any) -> Any:
    d = m - m.mean(1, keepdims=True)
    return d * (1 / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5))


def sort(m: Any) -> Any:
    order = np.argsort(m, 1)
    return np.take_along_axis(m, order, 1), order


def top_10(m: Any) -> Any:
    n = m.shape[1]
    part = np.argpartition(m, n - 10, 1)[:, n - 10 :]
    values = np.take_along_axis(m, part, 1)
    order = np.argsort(-values, 1)
    return np.take_along_axis(values, order, 1), np.take_along_axis(part, order, 1)


# name -> what the tensor libraries run, and what NumPy runs, None where it cannot.
ELEMENTWISE: dict[str, tuple[Work, Work | None]] = {
    "add": (lambda t, x, y, m, c: x + y, lambda x, y, m, c: x + y),
    "add_scalar": (lambda t, x, y, m, c: x + 1.5, lambda x, y, m, c: x + 1.5),
    "mul": (lambda t, x, y, m, c: x * y, lambda x, y, m, c: x * y),
    "div": (lambda t, x, y, m, c: x / y, lambda x, y, m, c: x / y),
    "neg": (lambda t, x, y, m, c: -x, lambda x, y, m, c: -x),
    "abs": (lambda t, x, y, m, c: x.abs(), lambda x, y, m, c: abs(x)),
    "square": (lambda t, x, y, m, c: x**2, lambda x, y, m, c: x * x),
    "sqrt": (lambda t, x, y, m, c: y.sqrt(), lambda x, y, m, c: np.sqrt(y)),
    "rsqrt": (lambda t, x, y, m, c: y.rsqrt(), lambda x, y, m, c: 1 / np.sqrt(y)),
    "exp": (lambda t, x, y, m, c: x.exp(), lambda x, y, m, c: np.exp(x)),
    "log": (lambda t, x, y, m, c: y.log(), lambda x, y, m, c: np.log(y)),
    "sin": (lambda t, x, y, m, c: x.sin(), lambda x, y, m, c: np.sin(x)),
    "tanh": (lambda t, x, y, m, c: x.tanh(), lambda x, y, m, c: np.tanh(x)),
    "sigmoid": (lambda t, x, y, m, c: x.sigmoid(), lambda x, y, m, c: sigmoid(x)),
    "relu": (lambda t, x, y, m, c: t.relu(x), lambda x, y, m, c: np.maximum(x, 0)),
    "silu": (lambda t, x, y, m, c: t.nn.functional.silu(x), lambda x, y, m, c: x * sigmoid(x)),
    "gelu_tanh": (
        lambda t, x, y, m, c: t.nn.functional.gelu(x, approximate="tanh"),
        lambda x, y, m, c: gelu_tanh(x),
    ),
    "gelu": (lambda t, x, y, m, c: t.nn.functional.gelu(x), None),  # NumPy has no erf
    "maximum": (lambda t, x, y, m, c: t.maximum(x, y), lambda x, y, m, c: np.maximum(x, y)),
    "clamp": (lambda t, x, y, m, c: x.clamp(-1, 1), lambda x, y, m, c: np.clip(x, -1, 1)),
    "where": (lambda t, x, y, m, c: t.where(c, x, y), lambda x, y, m, c: np.where(c, x, y)),
    "masked_fill": (
        lambda t, x, y, m, c: x.masked_fill(c, 0.0), lambda x, y, m, c: np.where(c, 0.0, x)
    ),
    "compare": (lambda t, x, y, m, c: x > y, lambda x, y, m, c: x > y),
    "add_in_place": (lambda t, x, y, m, c: m.add_(0.0), lambda x, y, m, c: np.add(m, 0.0, out=m)),
    "broadcast": (lambda t, x, y, m, c: m * m[0], lambda x, y, m, c: m * m[0]),
}  # fmt: skip
REDUCTIONS: dict[str, tuple[Work, Work | None]] = {
    "sum": (lambda t, x, y, m, c: x.sum(), lambda x, y, m, c: x.sum()),
    "sum_rows": (lambda t, x, y, m, c: m.sum(1), lambda x, y, m, c: m.sum(1)),
    "sum_columns": (lambda t, x, y, m, c: m.sum(0), lambda x, y, m, c: m.sum(0)),
    "mean": (lambda t, x, y, m, c: m.mean(1), lambda x, y, m, c: m.mean(1)),
    "prod": (lambda t, x, y, m, c: m.prod(1), lambda x, y, m, c: m.prod(1)),
    "var": (lambda t, x, y, m, c: m.var(1), lambda x, y, m, c: variance(m)),
    "amax": (lambda t, x, y, m, c: m.amax(1), lambda x, y, m, c: m.max(1)),
    "max": (
        lambda t, x, y, m, c: m.max(1),
        lambda x, y, m, c: (i := m.argmax(1, keepdims=True), np.take_along_axis(m, i, 1)),
    ),
    "argmax": (lambda t, x, y, m, c: m.argmax(1), lambda x, y, m, c: m.argmax(1)),
    "norm": (lambda t, x, y, m, c: m.norm(dim=1), lambda x, y, m, c: np.sqrt((m * m).sum(1))),
    "all": (lambda t, x, y, m, c: (x == x).all(), lambda x, y, m, c: (x == x).all()),
    "count_nonzero": (
        lambda t, x, y, m, c: t.count_nonzero(x), lambda x, y, m, c: (x != 0).sum()
    ),
    "softmax": (lambda t, x, y, m, c: t.softmax(m, 1), lambda x, y, m, c: softmax(m)),
    "log_softmax": (lambda t, x, y, m, c: t.log_softmax(m, 1), lambda x, y, m, c: log_softmax(m)),
    "logsumexp": (lambda t, x, y, m, c: t.logsumexp(m, 1), lambda x, y, m, c: logsumexp(m)),
    "layer_norm": (
        lambda t, x, y, m, c: t.nn.functional.layer_norm(m, m.shape[1:]),
        lambda x, y, m, c: layer_norm(m),
    ),
    "cumsum": (lambda t, x, y, m, c: m.cumsum(1), lambda x, y, m, c: m.cumsum(1)),
    "cumprod": (lambda t, x, y, m, c: m.cumprod(1), lambda x, y, m, c: m.cumprod(1)),
    "logcumsumexp": (
        lambda t, x, y, m, c: m.logcumsumexp(1), lambda x, y, m, c: np.logaddexp.accumulate(m, 1)
    ),
    "sort": (lambda t, x, y, m, c: m.sort(1), lambda x, y, m, c: sort(m)),
    "argsort": (lambda t, x, y, m, c: m.argsort(1), lambda x, y, m, c: m.argsort(1)),
    "topk": (lambda t, x, y, m, c: m.topk(10, 1), lambda x, y, m, c: top_10(m)),
    "median": (lambda t, x, y, m, c: x.median(), lambda x, y, m, c: np.median(x)),
    "unique": (
        lambda t, x, y, m, c: m[:64].unique(), lambda x, y, m, c: np.unique(m[:64])
    ),
    "searchsorted": (
        lambda t, x, y, m, c: t.searchsorted(m[0].sort()[0], m[:64]),
        lambda x, y, m, c: np.searchsorted(np.sort(m[0]), m[:64]),
    ),
}  # fmt: skip


def arrays(n: int) -> tuple[Any, ...]:
    """x and y > 0 of n float32 elements, a matrix of as many with 4096 columns, and a mask."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n, np.float32)
    y = rng.random(n, np.float32) + np.float32(0.5)
    m = rng.standard_normal((n // 4096, 4096), np.float32)
    return x, y, m, rng.random(n) < 0.5


def tensors(lib: Any, n: int) -> tuple[Any, ...]:
    return tuple(lib.from_numpy(a) for a in arrays(n))


def milliseconds(work: Work, inputs: tuple[Any, ...], repeat: int) -> float:
    """For one run, the best of a few; the result is dropped inside the time."""

    def once() -> float:
        start = perf_counter()
        work(*inputs)
        return (perf_counter() - start) * 1e3

    first = once()
    return min(first, best_of(repeat if first > 5 else 5 * repeat, once))


def measure(options: Any) -> list[Line]:
    """The lines whose name `options.only` matches, one beside NumPy and one beside PyTorch."""
    ours, peer = library("cugrad"), library("torch")
    assert ours is not None
    rounds = options.rounds or (1 if options.quick else 7)
    n = 1 << (14 if options.quick else 22)
    repeat = 2 if options.quick else 3
    given = {None: arrays(n), ours: tensors(ours, n)} | ({peer: tensors(peer, n)} if peer else {})
    lines = []
    with ours.no_grad():
        for name, (work, plain) in {**ELEMENTWISE, **REDUCTIONS}.items():
            if not re.search(options.only, name):
                continue
            mine = partial(milliseconds, partial(work, ours), given[ours], repeat)
            if plain is not None:
                its = partial(milliseconds, plain, given[None], repeat)
                lines.append(paired(Line(name, "ms", goal=GOAL, peer="numpy"), mine, its, rounds))
            if peer:
                torchs = partial(milliseconds, partial(work, peer), given[peer], repeat)
                lines.append(paired(Line(name + "_torch", "ms"), mine, torchs, (rounds + 1) // 2))
    return lines


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    if options.device != "cpu":
        raise SystemExit("throughput.py measures the CPU; on a GPU the kernels are CuPy's own")
    return common.report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
