"""Measures what autograd itself costs: tiny operations, long chains, huge graphs, and the import.

Every workload is one piece of code, run unchanged with torch (eager, one thread) and with cugrad:

    python benchmarks/overhead.py [--quick] [--check] [--json FILE] [--device cuda] [--only REGEX]
"""

from __future__ import annotations

import compileall
import gc
import importlib.util
import json
import os
import re
import sys
import timeit
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch start their threads

from benchmarks import common  # noqa: E402
from benchmarks.common import Line, best_of, fresh_process, library, paired  # noqa: E402

# The goals hold on the CPU, where Python's share is all there is to see.
RECORD_GOAL, CHAIN_GOAL, MILLION_GOAL, MILLION_BYTES, IMPORT_GOAL = 1.0, 0.7, 0.7, 450, 2.0
PAIR_LIMIT = 15.0  # microseconds of the host for one saved tensor, there and back
# Microseconds that an op costs more, and a node, with an observer; bytes that it leaves behind.
OBSERVED_LIMITS = {"profile": 3.0, "emit_nvtx": 0.3}
GROWTH_LIMIT = 1.0


def tiny(lib: Any, device: str, requires_grad: bool = False) -> Any:
    """Eight float32 ones: any larger and the arithmetic would begin to count."""
    return lib.ones(8, dtype=lib.float32, device=device, requires_grad=requires_grad)


def synchronize(lib: Any, device: str) -> None:
    if device == "cuda":
        lib.cuda.synchronize()


def one_operation(statement: str, recorded: bool, lib: Any, device: str, n: int) -> float:
    """Seconds for `statement` n times, its result dropped each time; the collector stays on."""
    names = {"x": tiny(lib, device, recorded), "y": tiny(lib, device), "gc": gc}
    timer = timeit.Timer(statement, "gc.enable()", globals=names)
    synchronize(lib, device)
    start = perf_counter()
    timer.timeit(n)
    synchronize(lib, device)
    return perf_counter() - start


def chain_add(y: Any, c: Any, n: int) -> Any:
    for _ in range(n):
        y = y + c
    return y


def chain_mul(y: Any, c: Any, n: int) -> Any:
    for _ in range(n):
        y = y * c
    return y


def chain_exp(y: Any, c: Any, n: int) -> Any:
    """exp and its inverse in turn, so that the value stays where it is."""
    for _ in range(n // 2):
        y = y.exp().log()
    return y


def fan_out(x: Any, c: Any, n: int) -> Any:
    """One tensor with n uses, whose results are summed: n gradients meet in x."""
    total = x
    for _ in range(n // 2):
        total = total + x * c
    return total


def diamonds(y: Any, c: Any, n: int) -> Any:
    """Each value is used twice and meets itself again, halved so that its size stays."""
    c = c * 0.5
    for _ in range(n // 3):
        y = y * c + y * c
    return y


Graph = Callable[[Any, Any, int], Any]  # a leaf, a constant, how many nodes -> the root
GRAPHS: dict[str, Graph] = {
    graph.__name__: graph for graph in (chain_add, chain_mul, chain_exp, fan_out, diamonds)
}


def forward_backward(graph: Graph, lib: Any, device: str, n: int) -> float:
    """Seconds to build a graph of about n nodes and to run it backwards."""
    x, c = tiny(lib, device, True), tiny(lib, device)
    gc.collect()
    synchronize(lib, device)
    start = perf_counter()
    y = graph(x, c, n)
    y.backward(c)
    synchronize(lib, device)
    return perf_counter() - start


def forward(graph: Graph, lib: Any, device: str, n: int) -> float:
    """Seconds to build a graph."""
    x, c = tiny(lib, device, True), tiny(lib, device)
    gc.collect()
    synchronize(lib, device)
    start = perf_counter()
    y = graph(x, c, n)
    synchronize(lib, device)
    elapsed = perf_counter() - start
    del y
    return elapsed


def build_and_drop(graph: Graph, lib: Any, device: str, n: int) -> float:
    """Seconds to build a graph and to drop it without backward."""
    x, c = tiny(lib, device, True), tiny(lib, device)
    gc.collect()
    synchronize(lib, device)
    start = perf_counter()
    y = graph(x, c, n)
    del y
    synchronize(lib, device)
    return perf_counter() - start


USES = {use.__name__: use for use in (forward_backward, build_and_drop)}


def child(lib_name: str, device: str, use: str, graph: str, n: int) -> dict[str, float]:
    """In a fresh process: seconds for one use of a graph, and the peak of memory above the base."""
    lib = library(lib_name)
    USES[use](GRAPHS[graph], lib, device, 1000)  # first calls import and allocate once
    gc.collect()
    common.reset_peak_memory()
    base = common.memory_now()
    seconds = USES[use](GRAPHS[graph], lib, device, n)
    return {"seconds": seconds, "bytes": common.peak_memory() - base}


def huge(use: str, graph: str, n: int, rounds: int, peer: Any, device: str) -> list[Line]:
    """Time and memory per node of a graph of n nodes, each run in a process of its own."""
    title = f"{'drop' if use == 'build_and_drop' else 'graph'}_{graph}_{n:.0e}".replace("e+0", "e")
    time, memory = Line(title, "us/node"), Line(title + "_memory", "B/node")

    def run(lib_name: str, values: list[float]) -> float:
        seen = fresh_process(__file__, "--child", lib_name, device, use, graph, str(n))
        values.append(seen["bytes"] / n)
        return seen["seconds"] / n * 1e6

    paired(
        time,
        partial(run, "cugrad", memory.ours),
        partial(run, "torch", memory.theirs) if peer else None,
        rounds,
    )
    if device == "cpu" and graph.startswith("chain") and use == "forward_backward":
        time.goal, memory.limit = MILLION_GOAL, MILLION_BYTES
    return [time, memory]


def import_time(rounds: int) -> Line:
    """Milliseconds for `import cugrad` beside `import numpy`, in fresh processes."""

    def run(name: str) -> float:
        code = f"from time import perf_counter as t; s = t(); import {name}; print(t() - s)"
        return best_of(3, lambda: fresh_process("-c", code) * 1e3)

    for name in ("cugrad", "numpy"):  # to bytecode, also where Python is told to write none
        package = importlib.util.find_spec(name)
        assert package is not None and package.submodule_search_locations is not None
        for folder in package.submodule_search_locations:
            compileall.compile_dir(folder, quiet=2)
    line = Line("import", "ms", goal=IMPORT_GOAL, peer="numpy")
    return paired(line, partial(run, "cugrad"), partial(run, "numpy"), rounds)


def offload_pair(n: int, steps: int = 6) -> float:
    """Microseconds to send a saved tensor away and to bring it back, on streams that do nothing.

    The hooks of `memory.offload` run whole: sessions, the plan of the step before, pinned blocks,
    look-ahead; copies of 256 bytes are NumPy's.
    """
    lib = library("cugrad")
    assert lib is not None
    from cugrad.backends.numpy.backend import HostEvent, HostStream, NumpyBackend
    from cugrad.memory.offloading import context as offloading

    class Idle(HostStream):
        happened = HostEvent()

        def wait_event(self, event: Any) -> None:
            pass

        def record_event(self, event: HostEvent | None = None) -> HostEvent:
            return self.happened

    device, idle = NumpyBackend(), Idle()
    device.device_type = "pretended"  # not the host, from which nothing would be moved
    device.stream = lambda priority=0: idle
    device.current_stream = lambda: idle
    found, offloading.backend_of = offloading.backend_of, lambda array: device
    try:
        context = lib.memory.offload(min_bytes=0, keep_last=0, timing=False)

        def step() -> float:
            tensors = [lib.ones(64, device="cpu") for _ in range(n)]
            start = perf_counter()
            views = [context.pack_hook(tensor) for tensor in tensors]
            forward = perf_counter() - start
            del tensors  # what is on the device anyway would stay from the second step on
            start = perf_counter()
            while views:
                context.unpack_hook(views.pop())
            return forward + perf_counter() - start

        least = best_of(steps, step) / n * 1e6
        assert context.stats.moved_back_bytes == context.stats.unique_bytes == 256 * n * steps
        return least
    finally:
        offloading.backend_of = found


def observer(name: str) -> Any:
    """A context in which ops are seen: a profile, or NVTX ranges that no tool takes."""
    lib = library("cugrad")
    assert lib is not None
    return lib.autograd.profiler.profile() if name == "profile" else lib.profiler.emit_nvtx()


def observed(name: str, use: str, n: int) -> float:
    """Microseconds that an op, or a node of backward, costs more than without an observer."""
    lib = library("cugrad")
    x, c = tiny(lib, "cpu", True), tiny(lib, "cpu")

    def op() -> float:
        return one_operation("x * y", True, lib, "cpu", n)

    def node() -> float:
        y = chain_mul(x, c, n)
        start = perf_counter()
        y.backward(c)
        return perf_counter() - start

    run, plain, seen = op if use == "op" else node, [], []
    for _ in range(40):  # short ones in turn: one of each is undisturbed
        plain.append(run())
        with observer(name):
            seen.append(run())
    return (min(seen) - min(plain)) / n * 1e6


def growth(name: str, n: int) -> float:
    """Bytes per op that are left when an observer has gone, and another one, and another one."""
    lib = library("cugrad")
    x, sizes = tiny(lib, "cpu", True), []
    for _ in range(4):
        with observer(name) as seen:
            for _ in range(n):
                x * x
        del seen
        gc.collect()
        tracemalloc.start()
        sizes.append(-tracemalloc.get_traced_memory()[0])
        with observer(name) as seen:
            for _ in range(n):
                x * x
        del seen
        gc.collect()
        sizes[-1] += tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    return max(0.0, min(sizes) / n)


def measure(options: Any) -> list[Line]:
    """The lines whose name `options.only` matches."""
    ours, peer = library("cugrad"), library("torch")
    if options.device == "cuda" and peer and not peer.cuda.is_available():
        peer = None
    on_cpu = options.device == "cpu"
    rounds = options.rounds or (2 if options.quick else 9)
    few = options.rounds or (1 if options.quick else 3)
    n = 500 if options.quick else 20_000
    huge_n = 20_000 if options.quick else 1_000_000
    lines: list[Line] = []

    def wanted(name: str) -> bool:
        return re.search(options.only, name) is not None

    def compare(name: str, goal: float | None, count: int, run: Callable[..., float]) -> None:
        if not wanted(name):
            return

        def side(lib: Any) -> Callable[[], float]:
            return lambda: best_of(3, lambda: run(lib, options.device, count)) / count * 1e6

        for lib in filter(None, (ours, peer)):
            run(lib, options.device, min(count, 100))  # first calls import, compile and allocate
        line = Line(name, "us/op", goal=goal if on_cpu else None)
        lines.append(paired(line, side(ours), side(peer) if peer else None, rounds))

    for name, statement in {"add": "x + y", "mul": "x * y", "exp": "x.exp()"}.items():
        compare(f"op_nograd_{name}", None, n, partial(one_operation, statement, False))
        compare(f"op_record_{name}", RECORD_GOAL, n, partial(one_operation, statement, True))
    for name in ("add", "mul", "exp"):
        graph = GRAPHS[f"chain_{name}"]
        compare(f"chain1000_{name}_forward", None, 1000, partial(forward, graph))
        compare(f"chain1000_{name}", CHAIN_GOAL, 1000, partial(forward_backward, graph))
    compare("fan_out_10000", None, n // 2, partial(forward_backward, fan_out))
    compare("diamonds_1000", None, 1000, partial(forward_backward, diamonds))
    for use, graph_name in (
        ("forward_backward", "chain_add"),
        ("forward_backward", "chain_mul"),
        ("build_and_drop", "chain_mul"),
    ):
        if wanted(f"graph_{graph_name}" if use == "forward_backward" else f"drop_{graph_name}"):
            lines += huge(use, graph_name, huge_n, few, peer, options.device)
    if wanted("offload_pair") and on_cpu:
        line = Line("offload_pair", "us/op", limit=PAIR_LIMIT, peer="nobody")
        lines.append(paired(line, partial(offload_pair, min(n, 2000)), None, few))
    for name, limit in OBSERVED_LIMITS.items() if on_cpu else ():
        title = f"profiler_{name}"
        for use in ("op", "node") if wanted(title) else ():
            line = Line(f"{title}_{use}", "us/op", limit=limit, peer="nobody")
            lines.append(paired(line, partial(observed, name, use, min(n, 500)), None, few))
        if wanted(title):
            line = Line(f"{title}_growth", "B/op", limit=GROWTH_LIMIT, peer="nobody")
            lines.append(paired(line, partial(growth, name, n // 5), None, 1))
    if wanted("import"):
        lines.append(import_time(few))
    return lines


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        lib_name, device, use, graph, n = sys.argv[2:]
        print(json.dumps(child(lib_name, device, use, graph, int(n))))
        return 0
    options = common.arguments(__doc__.splitlines()[0]).parse_args()
    return common.report(measure(options), options)


if __name__ == "__main__":
    sys.exit(main())
