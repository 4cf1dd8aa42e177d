"""What a launch takes the host on a GPU: by our own start of a kernel, and by CuPy's.

The same kernel, started the same number of times before the device is waited for, in turns: one
that gets all it is told in a struct (`cugrad/backends/cupy/launches/starting.py`) beside a
RawKernel with arguments of its own; and an op whose launch is kept beside CuPy's ufunc.

    python benchmarks/launches.py [--rounds 5] [--json FILE]
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import common
from benchmarks.common import Line, best_of, paired

GRID, BLOCK, COUNT = (4,), (256,), 1024  # a kernel that is done before the next is there
APART = """
extern "C" __global__ void add_one(const float* x, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1.0f;
}
"""
TOGETHER = """
struct Told { const float* x; float* y; long long n; };
extern "C" __global__ void add_one(const Told t) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < t.n) t.y[i] = t.x[i] + 1.0f;
}
"""


def timed(call: Callable[[], Any], wait: Callable[[], Any], launches: int) -> float:
    """Microseconds of the host for one call, among those that go before a wait."""
    wait()
    start = perf_counter()
    for _ in range(launches):
        call()
    taken = perf_counter() - start
    wait()
    return taken / launches * 1e6


def kernels(cupy: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Our start of the kernel, and CuPy's."""
    from cugrad.backends.cupy.launches.starting import StructKernel

    x = cupy.zeros(COUNT, "float32")
    y, z = cupy.empty_like(x), cupy.empty_like(x)
    ours, pack = StructKernel(TOGETHER, "add_one"), struct.Struct("@PPq").pack
    theirs, many = cupy.RawKernel(APART, "add_one"), np.int64(COUNT)

    def start() -> Any:
        ours(GRID, BLOCK, pack(x.data.ptr, y.data.ptr, COUNT))
        return y

    def start_raw() -> Any:
        theirs(GRID, BLOCK, (x, z, many))
        return z

    return start, start_raw


def ops(cupy: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An op of ours on a tensor, and CuPy's ufunc on its array."""
    import cugrad

    x = cugrad.zeros(COUNT, device="cuda")
    return partial(cugrad.exp, x), partial(cupy.exp, cupy.zeros(COUNT, "float32"))


def measured(rounds: int, launches: int) -> list[Line]:
    """A line for each pair."""
    import cupy

    wait = cupy.cuda.get_current_stream().synchronize
    lines = []
    for name, pair in (("launch_of_a_kernel", kernels(cupy)), ("exp_of_1024", ops(cupy))):
        for call in pair:
            call()  # compiled
            call()  # kept
        line = Line(name, "us/launch", peer="cupy")
        sides = [partial(best_of, 3, partial(timed, call, wait, launches)) for call in pair]
        lines.append(paired(line, *sides, rounds))
    return lines


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    quick = options.quick
    return common.report(measured(options.rounds or 5, 10 if quick else 500), options)


if __name__ == "__main__":
    sys.exit(main())
