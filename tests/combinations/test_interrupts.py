"""After an interrupt between any two instructions all is as it was, and works.

CUGRAD_INTERRUPTS=1000 interrupts each program so many times where CPython looks for signals, and so
many times before any instruction (see interrupts.py beside this file); `all`, wherever it looks for
signals. `bash ci/fuzz.sh interrupts` does so for SMALL programs before every instruction there is.
"""

from __future__ import annotations

import ast
import gc
import itertools
import os
import random
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import cugrad as t
from cugrad import backends, memory
from cugrad.autograd import forward_ad, profiler
from cugrad.backends import simulated
from cugrad.cuda import devices, nvtx, sanitizer
from cugrad.cuda import emitter as emitter_module
from cugrad.cuda import profiler as cuda_profiler
from cugrad.cuda import streams as streams_module
from cugrad.cuda.emitter import Emitter
from cugrad.profiler import itt as emit_itt_module
from cugrad.profiler.nvidia import nvtx as emit_nvtx_module
from tests.combinations.interrupts import interruptions, ledger
from tests.conftest import fields_of, watched

TIMES = os.environ.get("CUGRAD_INTERRUPTS", "2")


def numbers_for(name: str) -> Callable[[list[int], int], list[int]]:
    """As many points of signals, and as many of all."""

    def numbers(signals: list[int], count: int) -> list[int]:
        if sys.version_info < (3, 11):  # a function says which instructions a `try` covers
            count = 0
        if TIMES in ("all", "every"):
            return list(range(1, count + 1)) if count and TIMES == "every" else signals
        drawn, times = random.Random(zlib.crc32(name.encode())), int(TIMES)
        return sorted(
            drawn.sample(signals, min(times, len(signals)))
            + drawn.sample(range(1, count + 1), min(times, count))
        )

    return numbers


# One place ----------------------------------------------------------------------------------------

DERIVED = {"fast", "grad_enabled", "grad_mode", "inference", "observers", "hooks", "levels",
           "stand_in", "before_op", "autocast"}  # fmt: skip


def test_what_decides_how_ops_run_changes_in_one_place() -> None:
    """`fast` follows from these fields: mode.py alone assigns them."""
    root = Path(t.__file__).parent
    wrong, named = [], re.compile(rf"\bstate\s*\.\s*({'|'.join(DERIVED)})\b")
    for path in root.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if named.search(text) else ():
            if (
                isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name) and node.value.id == "state"
                and node.attr in DERIVED
            ):  # fmt: skip
                wrong.append(f"{path.relative_to(root)}:{node.lineno}: state.{node.attr} =")
    assert not wrong, "use state.switch():\n" + "\n".join(wrong)


# The programs: each returns arrays ----------------------------------------------------------------


def leaf(*values: float, device: str = "cpu") -> Any:
    return t.tensor(values, dtype=t.float64, device=device, requires_grad=True)


class Cube(t.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


def views_and_changes() -> Any:
    x = leaf(0.3, 0.4, 0.5)
    u = x * x
    v = u[0:2]
    u.mul_(2.0)
    v[0] = x[2]
    return t.autograd.grad((u * v.sum()).sum(), x)


def twice() -> Any:
    x = leaf(0.3, 0.4)
    (g,) = t.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    return t.autograd.grad((g * g).sum(), x)


def hooks() -> Any:
    x = leaf(0.3, 0.4)
    with t.autograd.graph.saved_tensors_hooks(lambda a: a.numpy().copy(), t.from_numpy):
        y = (x.exp() * x).tanh()
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    return (x.grad,)


def function() -> Any:
    x = leaf(0.3, 0.4)
    return t.autograd.grad(Cube.apply(x * 2).sum(), x)


def checkpointed() -> Any:
    x = leaf(0.3, 0.4)
    y = t.utils.checkpoint.checkpoint(lambda a: (a.exp() * a).sin(), x, use_reentrant=False)
    return t.autograd.grad(y.sum(), x)


def transforms() -> Any:
    x = leaf(0.3, 0.4).detach()
    return (
        t.func.vmap(t.func.grad(lambda a: a.sin() * a))(x),
        t.func.jvp(lambda a: (a * a).sum(), (x,), (x,))[1],
        t.func.jacrev(lambda a: a**3)(x),
    )


def dual() -> Any:
    x = leaf(0.3, 0.4).detach()
    with forward_ad.dual_level():
        a = forward_ad.make_dual(x, x * 2)
        a.mul_(a.clone())
        return (forward_ad.unpack_dual(a.sin()).tangent,)


def step() -> Any:
    x = leaf(0.3, 0.4)
    optimizer = t.optim.Adam([x], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.step()
    return (x,)


def modes() -> Any:
    x = leaf(0.3, 0.4)
    with t.no_grad():
        a = x * 2
    with t.inference_mode():
        b = x * 3
    with t.enable_grad(), t.autocast("cpu", dtype=t.float16):
        c = x.float().reshape(1, 2) @ t.ones(2, 1)
    return a, b, t.autograd.grad(c.sum(), x)[0]


def observed() -> Any:
    x = leaf(0.3, 0.4)
    with profiler.profile(), memory.recompute():
        y = (x.exp() * x).sum()
        y.backward()
    return (x.grad,)


def layers(device: str, count: int = 5) -> tuple[Any, Any]:
    x = leaf(*np.linspace(0, 1, 64), device=device)
    h = x
    for _ in range(count):
        h = (h * 1.1).tanh() * h.exp() * 0.5
    return x, h.sum()


def offloaded() -> Any:
    """Two steps: the second one follows what the first has taught."""
    for _ in range(2):
        with memory.offload(min_bytes=0, keep_last=0, lookahead=2048, backlog=1024):
            x, loss = layers("simulated")
        loss.backward()
    return (x.grad,)


def saved_on_disk() -> Any:
    with memory.save_on_disk(min_bytes=0, lookahead=1024, backlog=1024):
        x, loss = layers("cpu")
    loss.backward()
    return (x.grad,)


STORES: list[Any] = []


def spilled() -> Any:
    """Through page-locked memory to a file, and to memory where that is full."""
    if not STORES:
        STORES.append(memory.DiskStore(limit=1 << 14))
        STORES[0]._warned = True  # that it is full
    with memory.offload(min_bytes=0, keep_last=0, host_limit=4096, lookahead=1024, backlog=1024,
                        spill=STORES[0]):  # fmt: skip
        x, loss = layers("simulated")
    loss.backward()
    return (x.grad,)


def encoded() -> Any:
    with memory.offload(min_bytes=0, keep_last=0, compress="bf16"):
        x, loss = layers("simulated", 2)
    loss.backward()
    return (x.grad,)


def streams() -> Any:
    x = leaf(0.3, 0.4, device="simulated")
    backend = backends.get("simulated")
    other = backend.stream()
    other.wait_event(backend.current_stream().record_event())
    try:
        with backend.use_stream(other):
            with memory.offload(min_bytes=0, keep_last=0):
                y = (x * x).exp().sum()
            y.backward()
    finally:
        backend.current_stream().wait_event(other.record_event())
    return (x.grad,)


def budgeted(limit: int = 6 << 10) -> Any:
    with memory.budget(limit, device="simulated"):
        x, loss = layers("simulated", 3)
        loss.backward()
    return (x.grad,)


def planned() -> Any:
    """Two steps under a budget of its own: the first is measured, the second planned."""
    limit = (6 << 10) + next(numbers)
    budgeted(limit)
    return budgeted(limit)


numbers = itertools.count()


def nested() -> Any:
    """A vmap of a checkpoint, under offload, in a profile."""
    x = leaf(*np.linspace(0, 1, 8), device="simulated").reshape(4, 2)
    x = x.detach().requires_grad_()
    with profiler.profile(), memory.offload(min_bytes=0, keep_last=0):
        y = t.func.vmap(
            lambda a: t.utils.checkpoint.checkpoint(
                lambda b: (b.exp() * b).sin(), a, use_reentrant=False
            )
        )(x)
        y.sum().backward()
    return (x.grad,)


def timelines() -> Any:
    """Of the host and of a device; both tell again what the most in use was before."""
    x, y = leaf(0.3, 0.4), leaf(0.3, 0.4, device="simulated")
    with t.profiler.MemoryTimeline("cpu"), t.profiler.MemoryTimeline("simulated"):
        (x.exp() * x).sum().backward()
        (y.exp() * y).sum().backward()
    return x.grad, y.grad


def grouped() -> Any:
    """Passes that share what a checkpoint computes again, on a device of a block."""
    with t.device("simulated"), t.utils.checkpoint.GraphExecGroup():
        x = t.ones(2, dtype=t.float64).requires_grad_()
        with t.utils.checkpoint.set_checkpoint_early_stop(False):
            a, b = t.utils.checkpoint.checkpoint(
                lambda x: (x.exp().sin(), x.cos()), x, use_reentrant=False
            )
        a.sum().backward()
        b.sum().backward()
    return (x.grad,)


def mutations() -> Any:
    """What was saved changes, where that is allowed; it must not be packed elsewhere."""
    x = leaf(0.3, 0.4)
    with t.autograd.graph.disable_saved_tensors_hooks("none here"):
        a = x * x
    with t.autograd.graph.allow_mutation_on_saved_tensors():
        b = a.clone()
        c = (b**2).sum() + (b * x).sum()
        b.sin_()
        b.cos_()
        c.backward()
    return (x.grad,)


LAYER = t.nn.Linear(2, 1, dtype=t.float64)
WEIGHT = LAYER.weight.detach().clone()


def functional() -> Any:
    """A module with other parameters for a while; then it has its own."""
    x = leaf(0.3, 0.4)
    other = {"weight": x.reshape(1, 2) * 2, "bias": x[:1]}
    y = t.func.functional_call(LAYER, other, (x,))
    assert t.equal(LAYER.weight, WEIGHT)
    return t.autograd.grad(y.sum(), x)


def forked() -> Any:
    """Numbers are drawn that leave no trace."""
    with t.random.fork_rng():
        return t.rand(3), t.rand(3, device="simulated"), t.rand(3)


PUSHED: list[Any] = []  # the ranges and tasks that a tool shows as open


class Domain:
    """What the packages nvtx and ittapi call to open and close a range, in compiled functions."""

    def get_event_attributes(self, **settings: Any) -> None:
        return None

    def push_range(self, message: str = "", payload: Any = None) -> None:
        PUSHED.append(message)

    def pop_range(self) -> None:
        PUSHED.pop()

    mark = start_range = end_range = push_range


def tools() -> tuple[Emitter, Emitter]:
    """The library's use of both packages."""
    names = ("domain", "string_handle", "task_begin", "task_end")
    calls = (str, str, lambda domain, name: PUSHED.append(name), lambda domain: PUSHED.pop())
    packages = SimpleNamespace(get_domain=Domain, **dict(zip(names, calls)))
    with mock.patch.dict(sys.modules, nvtx=packages, ittapi=packages):  # type: ignore[arg-type]
        return emitter_module._nvtx(), emit_itt_module._library.__wrapped__()


NVTX, ITT = tools()


def ranges() -> Any:
    """A tool is attached, and shows the ranges of ops, of nodes and of the user."""
    x = leaf(0.3, 0.4)
    attached = mock.patch.object
    with (
        attached(emit_nvtx_module, "emitter", lambda: NVTX._replace(attached=lambda: True)),
        attached(nvtx, "emitter", lambda: NVTX),
        attached(emit_itt_module, "_library", lambda: ITT),
        nvtx.range("step"),
        profiler.emit_nvtx(),
        profiler.emit_itt(record_shapes=True),
    ):
        nvtx.range_push("inner")
        (x.exp() * x).sum().backward()
    return (x.grad,)


def cuda_streams() -> Any:
    """torch.cuda's, over the simulated device."""
    x = leaf(0.3, 0.4, device="simulated")
    backend = backends.get("simulated")
    with (
        mock.patch.object(devices, "cuda_backend", lambda: backend),
        mock.patch.object(streams_module, "cuda_backend", lambda: backend),
    ):
        other = t.cuda.Stream()
        backend.synchronize()
        try:
            with t.cuda.stream(other), t.cuda.stream(None):
                y = (x * x).exp().sum()
                y.backward()
        finally:
            backend.synchronize()
    return (x.grad,)


X, W = leaf(0.3, 0.4), leaf(0.3, 0.4)
START = W.detach().clone()
OPTIMIZER = t.optim.SGD([W], lr=0.5, momentum=0.5)


def small_forward() -> Any:
    return (X * X,)


def small_backward() -> Any:
    X.grad = None
    (X * X).backward(START)
    return (X.grad,)


def small_grad() -> Any:
    return t.autograd.grad(X * X, X, START, create_graph=True)


def small_packed() -> Any:
    with t.autograd.graph.saved_tensors_hooks(lambda a: a.detach(), lambda a: a):
        y = X * X
    return t.autograd.grad(y, X, START)


def small_step() -> Any:
    W.data.copy_(START)
    W.grad = START
    OPTIMIZER.state.clear()
    OPTIMIZER.step()
    return (W,)


SMALL = [small_forward, small_backward, small_grad, small_packed, small_step]
PROGRAMS = SMALL + [
    views_and_changes, twice, hooks, function, checkpointed, transforms, dual, step, modes,
    observed, offloaded, saved_on_disk, spilled, encoded, streams, budgeted, nested, timelines,
    grouped, mutations, functional, forked, ranges, cuda_streams,
]  # fmt: skip
if "CUGRAD_INTERRUPTS" in os.environ:  # planning takes seconds while it is traced
    PROGRAMS.append(planned)


def failures(name: str, program: Callable[[], Any]) -> Iterator[str]:
    """What is not as it was after an interrupt, and what does not work then."""

    def arrays() -> list[np.ndarray]:
        return [x.detach().numpy(force=True) for x in program()]

    want = [arrays() for _ in range(6)][-1]  # a budget has settled on a plan
    before, held = {name: fields_of(state) for name, state in watched()}, ledger()
    for _, place in interruptions(arrays, numbers_for(name)):
        for name, state in watched():
            after = fields_of(state)
            for field in after.keys() | before[name].keys():
                found, wanted = after.get(field), before[name].get(field)
                if found is not wanted and found != wanted:
                    yield f"{place}: {name}.{field} was {wanted!r}, is {found!r}"
                    setattr(state, field, wanted)
        if PUSHED:
            yield f"{place}: a tool still shows {PUSHED}"
            PUSHED.clear()
        try:
            got = arrays()
            assert all(map(np.array_equal, got, want)), f"got {got}, want {want}"
        except Exception as error:
            yield f"{place}: afterwards {type(error).__name__}: {error}"
    for thing, now in ledger().items():
        if now != held.get(thing):
            yield f"{name}: of {thing} there was {held.get(thing)}, is {now}"


# Python prints and forgets what is raised in a callback of the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_an_interrupt_leaves_all_as_it_was(program: Callable[[], Any]) -> None:
    """Modes, hooks, observers, levels and passes of the thread; streams, what is queued on them,
    device and page-locked memory, copies, files; and the program runs again, without a race.
    """
    wrong = list(failures(program.__name__, program))
    gc.collect()
    assert not wrong, "\n".join(dict.fromkeys(wrong))


# Contexts that switch what is not of a thread -----------------------------------------------------

SIMULATED = backends.get("simulated")
CONTEXTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "configured": (
        lambda: simulated.configured("H200", policy="random", seed=3, scale=2.0),
        lambda: [getattr(simulated.MACHINE, n) for n in ("model", "capacity", "policy", "random")],
    ),
    "cudnn.flags": (
        lambda: t.backends.cudnn.flags(benchmark=True, deterministic=True),
        lambda: [getattr(t.backends.cudnn, n) for n in ("enabled", "benchmark", "deterministic")],
    ),
    "cuda.profiler.profile": (t.cuda.profiler.profile, lambda: len(PUSHED)),
    "sanitizer.check": (
        sanitizer.check,
        lambda: [sanitizer.is_enabled(), *map(vars(SIMULATED).get, ("xp", "copy_async"))],
    ),
    "safe_globals": (
        lambda: t.serialization.safe_globals([Cube]), t.serialization.get_safe_globals,
    ),
}  # fmt: skip


class Collecting:
    """A CUDA whose profiler collects between start and stop; stopped twice, it is stopped."""

    profiler_start = staticmethod(lambda: PUSHED.append("collects"))
    profiler_stop = staticmethod(PUSHED.clear)


@pytest.mark.parametrize("name", CONTEXTS)
def test_an_interrupted_context_has_been_left(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, state = CONTEXTS[name]
    monkeypatch.setattr(sanitizer, "cuda_backend", lambda: SIMULATED)
    monkeypatch.setattr(cuda_profiler, "cuda_backend", Collecting)
    before = state()

    def program() -> None:
        with make():
            assert state() != before
            t.ones(2)

    program()
    assert state() == before
    for _, place in interruptions(program, lambda signals, count: signals[:400]):
        assert state() == before, place
