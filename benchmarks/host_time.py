"""The host's time for an op on CUDA, where launches do nothing, beside PyTorch's dispatch.

Arrays are CuPy's own, in memory of the host that is not read; kernels, products by cuBLAS and the
driver are stand-ins that return at once. So what is measured is what Python and CuPy cost before a
launch, and not the launch, which costs PyTorch some microseconds of the host as well. PyTorch runs
the same statement on the CPU, with its arithmetic on as few elements. No GPU is needed.

    python benchmarks/host_time.py [--check] [--quick] [--json FILE] [--only REGEX]
"""

from __future__ import annotations

import gc
import os
import re
import sys
import timeit
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch start their threads

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, best_of, library, paired  # noqa: E402

GOAL = 1.5  # times PyTorch's dispatch
BYTES = 1 << 22  # that all arrays share, each of some kilobytes


def still() -> None:
    """Makes CuPy allocate at once, and launch nothing, for this process."""
    import cupy
    import numpy as np
    from cupy_backends.cuda.api import runtime

    block = np.zeros(BYTES, np.uint8)
    start = -block.ctypes.data % 512
    memory = cupy.cuda.UnownedMemory(block.ctypes.data + start, BYTES - start, block, 0)
    pointers = cycle([cupy.cuda.MemoryPointer(memory, 4096 * k) for k in range(256)])
    cupy.cuda.set_allocator(lambda size: next(pointers))

    class RawKernel:
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

        def __call__(self, grid: Any, block: Any, args: Any, **kwargs: Any) -> None: ...

    cupy.RawKernel = RawKernel
    runtime.getDevice = lambda: 0
    runtime.getDeviceCount = lambda: 1
    runtime.deviceSynchronize = lambda: None
    cupy.cuda.get_cublas_handle = lambda: 0
    cublas: Any = ModuleType("cublas")
    for kind in (
        "COMPUTE_32F",
        "COMPUTE_64F",
        "COMPUTE_32F_FAST_TF32",
        "OP_N",
        "OP_T",
        "GEMM_DEFAULT",
    ):
        setattr(cublas, f"CUBLAS_{kind}", 0)
    cublas.gemmEx = cublas.gemmStridedBatchedEx = lambda *args: None
    sys.modules["cupy_backends.cuda.libs.cublas"] = cublas
    sys.modules["cupy_backends.cuda.libs"].cublas = cublas  # type: ignore[attr-defined]


def on_still_device() -> Any:
    """cugrad with a CUDA device that does nothing."""
    still()
    import cugrad
    from cugrad.backends.cupy import backend, probe

    backend.why_uncompilable = probe.why_unusable = lambda: None  # type: ignore[assignment]
    cugrad.backends.get("cuda")
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


Statement = tuple[str, str, tuple[tuple[int, ...], ...], float | None]
STATEMENTS: dict[str, Statement] = {
    "add": ("x + y", "float32", ((8, 8), (8, 8)), GOAL),
    "add_bfloat16": ("x + y", "bfloat16", ((8, 8), (8, 8)), GOAL),
    "mul_number": ("x * 2.5", "float32", ((8, 8),), GOAL),
    "mul_number_bfloat16": ("x * 2.5", "bfloat16", ((8, 8),), GOAL),
    "gelu": ("F.gelu(x)", "float32", ((8, 8),), GOAL),
    "add_bias": ("x + y", "float32", ((8, 8), (8,)), GOAL),
    "linear": ("F.linear(x, y, z)", "float32", ((2, 4, 8), (8, 8), (8,)), GOAL),
    "linear_bfloat16": ("F.linear(x, y, z)", "bfloat16", ((2, 4, 8), (8, 8), (8,)), GOAL),
    "matmul": ("x @ y", "float32", ((8, 8), (8, 8)), GOAL),
    "layer_norm": ("F.layer_norm(x, (8,), y, z)", "float32", ((8, 8), (8,), (8,)), GOAL),
    "layer_norm_bfloat16": ("F.layer_norm(x, (8,), y, z)", "bfloat16", ((8, 8), (8,), (8,)), GOAL),
    "softmax": ("F.softmax(x, -1)", "float32", ((8, 8),), GOAL),
}  # fmt: skip


def timed(lib: Any, device: str, statement: Statement, n: int) -> float:
    """Microseconds for one run of a recorded statement."""
    text, dtype, shapes, _ = statement
    names = dict(zip("xyz", tensors(lib, device, dtype, *shapes)))
    timer = timeit.Timer(text, "gc.enable()", globals={**names, "F": lib.nn.functional, "gc": gc})
    timer.timeit(10)
    start = perf_counter()
    timer.timeit(n)
    return (perf_counter() - start) / n * 1e6


def measure(options: Any) -> list[Line]:
    lib, torch = on_still_device(), library("torch")
    n, repeat = (150, 8) if options.quick else (150, 80)  # the least of many short runs
    lines = []
    for name, statement in STATEMENTS.items():
        if not re.search(options.only, name):
            continue

        def run(lib: Any, device: str, statement: Statement = statement) -> Callable[[], float]:
            return lambda: best_of(repeat, lambda: timed(lib, device, statement, n))

        line = Line(f"host_{name}", "us/op", goal=statement[3])
        theirs = run(torch, "cpu") if torch is not None else None
        rounds = options.rounds or (1 if options.quick else 5)
        lines.append(paired(line, run(lib, "cuda"), theirs, rounds))
    return lines


def main() -> int:
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    return common.report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
