"""A backward pass is in order with whatever streams its graph was recorded on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.backends import simulated
from cugrad.backends.lending import queues
from cugrad.backends.lending.queues import Current, _forgotten, stretches
from cugrad.backends.simulated.streams import SimulatedStream
from cugrad.errors import RaceError
from cugrad.memory import offload, recompute, save_on_cpu
from cugrad.utils.checkpoint import checkpoint
from tests.support import ROOT

pytestmark = pytest.mark.host_only
N = 16


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    simulated.reset()
    yield
    stretches.clear()
    _forgotten.clear()
    simulated.MACHINE.freed_pinned.clear()
    simulated.reset()


@pytest.fixture
def b() -> Any:
    return backends.get("simulated")


@contextmanager
def current(b: Any, stream: Any) -> Iterator[None]:
    with Current(b, stream), b.use_stream(stream):
        yield


OPS: list[Any] = [
    lambda x, y: x * y, lambda x, y: x @ y, lambda x, y: (x + y).tanh(), lambda x, y: x.sin() - y,
    lambda x, y: checkpoint(lambda v, w: (v * w).exp().tanh(), x, y, use_reentrant=False),
    lambda x, y: cugrad.where(x > 0, x, y * 0.5), lambda x, y: x.t() * y.relu(),
]  # fmt: skip


def trained(b: Any, seed: int, on: str, rounds: int = 3) -> list[Any]:
    """Gradients of some rounds of a random graph, each op of which is queued on some stream behind
    its operands, as a user must see to. On a host the streams are nothing.
    """
    draw, rng, device = random.Random(seed), np.random.default_rng(seed), on == "simulated"
    streams = [b.default_stream(), b.stream(), b.stream()] if device else []

    def on_stream(at: int) -> Any:
        return current(b, streams[at]) if device and at else nullcontext()

    def order(at: int, *behind: int) -> None:
        for other in {*behind} - {at} if device else ():
            streams[at].wait_event(streams[other].record_event())

    weights = [cugrad.tensor(rng.standard_normal((N, N)) / 4, device=on, requires_grad=True)
               for _ in range(3)]  # fmt: skip
    for at in (1, 2):
        order(at, 0)
    back = 0
    for _ in range(rounds):
        made = [(w, 0) for w in weights]
        for _ in range(draw.randrange(3, 9)):
            op, (x, of_x), (y, of_y) = draw.choice(OPS), draw.choice(made), draw.choice(made)
            at = draw.randrange(3)
            order(at, of_x, of_y)
            with on_stream(at):
                made.append((op(x, y), at))
        at = draw.randrange(3)
        order(at, 0, 1, 2)
        with on_stream(at):  # of all: memory of what the pass does not know is the user's to order
            loss = sum(t.square().sum() for t, _ in made)
        back, before = draw.randrange(3), back
        order(back, before)  # as who adds to gradients has to
        with on_stream(back):
            loss.backward()
            for w in weights:
                w.grad.mul_(0.5)
        del made, loss, x, y
        for stream in streams:  # takes what the pass has freed
            with b.use_stream(stream):
                for _ in range(3):
                    cugrad.zeros(N, N, device=on, dtype=cugrad.float64).add_(1)
    order(0, back)
    return [w.grad.cpu().tolist() for w in weights]


CONTEXTS: dict[str, Any] = {
    "plain": nullcontext, "offload": lambda: offload(min_bytes=0), "save_on_cpu": save_on_cpu,
    "recompute": recompute,
}  # fmt: skip


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("seed", range(8))
def test_gradients_are_right_and_nothing_races(
    b: Any, monkeypatch: pytest.MonkeyPatch, seed: int, context: str, busy: bool
) -> None:
    want = trained(b, seed, "cpu")
    if busy:  # the device is behind the host all the time
        monkeypatch.setattr(SimulatedStream, "query", lambda stream: False)
    with CONTEXTS[context]():
        got = trained(b, seed, "simulated")
    np.testing.assert_allclose(got, want, rtol=1e-9)


def graph(b: Any, stream: Any) -> tuple[Any, Any]:
    x = cugrad.ones(N, N, device="simulated", requires_grad=True)
    stream.wait_event(b.default_stream().record_event())
    with current(b, stream):
        return x, (x @ x).tanh().sum()


def test_who_has_no_order_has_a_race(b: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So these tests can fail: without the stretches the first of them does."""
    x, y = graph(b, b.stream())
    stretches.clear()
    with pytest.raises(RaceError):
        y.backward()


def test_the_caller_waits_and_so_do_they(b: Any) -> None:
    side = b.stream()
    x, y = graph(b, side)
    y.backward()
    after = side.record_event()
    del y
    with b.use_stream(side):
        x.grad.clone()  # in order: the stream has waited for the pass
    assert after is not None and x.grad.sum().isfinite()


def test_streams_of_other_graphs_are_left_alone(b: Any, monkeypatch: Any) -> None:
    """A pass does not wait for a stream that is busy with another graph, nor that for the pass."""
    first, second = b.stream(), b.stream()
    x, y = graph(b, first)
    other, z = graph(b, second)
    big = b.empty_pinned((1 << 16,), np.dtype(np.float64))
    there = b.xp.zeros(1 << 16)
    second.wait_event(b.default_stream().record_event())
    b.copy_async(there, big, second)
    monkeypatch.setattr(second, "query", lambda: False)
    with current(b, first):
        y.backward()
        with pytest.raises(RaceError):
            there + 1
    b.synchronize()


def test_spans_do_not_grow(b: Any) -> None:
    x = cugrad.ones(2, device="simulated", requires_grad=True)
    b.synchronize()
    for _ in range(100):
        stream = b.stream()
        stream.wait_event(b.default_stream().record_event())
        for _ in range(12):
            with current(b, stream):
                x * 2
            with current(b, stream):
                pass
    streams = {id(s.stream) for s in stretches}
    assert len(streams) <= 33 and len(stretches) <= 9 * len(streams)
    assert all(s.start < s.end < 2**64 for s in stretches)


def order_free(b: Any, streams: list[Any], draw: random.Random) -> None:
    """Contexts of streams begin and end in any order, as those of generators do."""
    opened: list[Any] = []
    for _ in range(12):
        if opened and draw.random() < 0.5:
            opened.pop(draw.randrange(len(opened))).__exit__(None, None, None)
        else:
            opened.append(current(b, draw.choice(streams)))
            opened[-1].__enter__()


@pytest.mark.parametrize("seed", range(10))
def test_contexts_need_not_be_nested(b: Any, monkeypatch: Any, seed: int) -> None:
    monkeypatch.setattr(SimulatedStream, "query", lambda stream: False)
    draw, streams = random.Random(seed), [b.default_stream(), *(b.stream() for _ in range(3))]
    x = cugrad.ones(N, N, device="simulated", requires_grad=True)
    b.synchronize()
    with b.use_stream(b.default_stream()):
        order_free(b, streams, draw)
        here = b.current_stream()
        noted = [s.stream for s in stretches if s.end == 2**64]
        assert noted == ([] if here == b.default_stream() else [here])
        y = (x @ x).tanh().sum()
    with current(b, b.default_stream()):
        y.backward()
        assert not any(s.end == 2**64 for s in stretches)


def test_the_default_stream_needs_no_note(b: Any) -> None:
    x = cugrad.ones(2, device="simulated", requires_grad=True)
    with current(b, b.default_stream()):
        x * 2
    assert not stretches


def test_a_thread_that_ends_notes_no_more(b: Any) -> None:
    def work() -> None:
        stream = b.stream()
        b.use_stream(stream).__enter__()
        Current(b, stream).change(b.default_stream())
        cugrad.ones(2, requires_grad=True) * 2

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(stretches) == 3 and all(s.end < 2**64 for s in stretches)


def test_a_stream_that_stays_current_holds_no_others(b: Any) -> None:
    x = cugrad.ones(2, device="simulated", requires_grad=True)
    b.synchronize()
    with current(b, b.stream()):
        x * 2
        for _ in range(60):
            with current(b, b.stream()):
                x * 2
        x * 2
    assert len({s.stream for s in stretches}) <= 33


def filled(b: Any, stream: Any) -> None:
    with current(b, stream):
        for _ in range(4):
            cugrad.zeros(N, N, device="simulated").add_(1)


def test_memory_of_forgotten_streams_is_in_order(b: Any, monkeypatch: Any) -> None:
    """A graph of more streams than are remembered; they get what the pass has freed."""
    monkeypatch.setattr(SimulatedStream, "query", lambda stream: False)
    x = cugrad.ones(N, N, device="simulated", requires_grad=True)
    b.synchronize()
    streams, y = [b.stream() for _ in range(40)], x
    for before, stream in zip([b.default_stream(), *streams], streams, strict=False):
        stream.wait_event(before.record_event())
        with current(b, stream):
            y = (y @ x).tanh()
    b.default_stream().wait_event(streams[-1].record_event())
    y = y.sum()
    y.backward()
    for stream in streams:
        filled(b, stream)


def test_hooks_get_freed_memory_in_order(b: Any, monkeypatch: Any) -> None:
    """A hook works on the stream of forward, to which memory goes that the pass has freed."""
    monkeypatch.setattr(SimulatedStream, "query", lambda stream: False)
    side = b.stream()
    x = cugrad.ones(N, N, device="simulated", requires_grad=True)
    side.wait_event(b.default_stream().record_event())
    with current(b, side):
        parts = [x @ x]
        parts += [parts[-1].tanh()]
        loss = (parts[-1] * parts[-1]).sum()
    for part in [x, *parts]:
        part.register_hook(lambda g: filled(b, side))
    del parts, part
    loss.backward()


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_between_waits_leaves_no_pass_behind(
    b: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """And streams wait for what has run of it."""
    side = b.stream()
    x, y = graph(b, side)
    wait, left = queues._wait, [times]
    monkeypatch.setattr(SimulatedStream, "query", lambda stream: False)

    def interrupted(*args: Any) -> None:
        left[0] -= 1
        if not left[0]:  # the first is where a pass begins, the second where it ends
            raise KeyboardInterrupt
        wait(*args)

    monkeypatch.setattr(queues, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        y.backward()
    assert not queues._passes and left[0] < 0  # it waits all the same
    with b.use_stream(side):
        cugrad.zeros(N, N, device="simulated").add_(1)


class Reading(cugrad.autograd.Function):
    """A function of the user's, whose backward does what it is given to do."""

    @staticmethod
    def forward(ctx: Any, x: Any, act: Any) -> Any:
        ctx.act = act
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        g = g * 2
        ctx.act()
        return g, None


def acting(kind: str, act: Any, x: Any) -> Any:
    """A result of `x`, in whose backward pass something acts: a hook of some kind."""
    if kind == "Function":
        return Reading.apply(x * 1, act) * 0.5
    if kind == "unpack":
        with cugrad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: (act(), t)[1]):
            return (x @ x).exp().log() - x @ x + x
    y = x * 1
    if kind == "tensor":
        y.register_hook(lambda g: act())
    elif kind == "pre":
        y.grad_fn.register_prehook(lambda g: act())
    elif kind == "post":
        y.grad_fn.register_hook(lambda gi, go: act())
    elif kind == "leaf":
        x.register_hook(lambda g: act())
    elif kind == "accumulated":
        x.register_post_accumulate_grad_hook(lambda p: act())
    elif kind == "callback":
        queue = cugrad.autograd.Variable._execution_engine.queue_callback
        y.register_hook(lambda g: queue(act))
    return y


KINDS = ["tensor", "pre", "post", "leaf", "accumulated", "Function", "unpack", "callback"]


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("ends", ["never", "in the next"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_a_hook_sets_is_that_of_no_other_node(
    b: Any, monkeypatch: pytest.MonkeyPatch, kind: str, ends: str, busy: bool
) -> None:
    """Of none behind it, nor of what comes behind the pass; and all is in order with it."""
    if busy:
        monkeypatch.setattr(SimulatedStream, "query", lambda stream: False)
    opened: list[Any] = []
    streams = [b.stream() for _ in range(2)]

    def act() -> None:
        if opened and ends != "never":
            opened.pop().__exit__(None, None, None)
        else:
            opened.append(current(b, streams[len(opened) % 2]))
            opened[-1].__enter__()

    seen: list[Any] = []

    def grads(act: Any) -> Any:
        x = cugrad.linspace(0, 1, N * N, device="simulated").reshape(N, N).requires_grad_()
        y = cugrad.ones(N, N, device="simulated", requires_grad=True)
        z = acting(kind, act, x)
        z = (acting(kind, act, z) if kind in ("tensor", "pre", "post", "Function") else z) @ y
        (x.exp() * z).tanh().sum().backward()
        seen.append(b.current_stream())
        y.grad.mul_(2)
        x.grad.mul_(2)
        del z
        b.xp.zeros((N, N))[:] = 1  # memory that the pass has freed
        return x, y

    with current(b, b.default_stream()):  # contexts that are dropped make others current
        with current(b, b.stream()) if busy else nullcontext():
            here = b.current_stream()
            got, want = grads(act), grads(lambda: None)
            assert opened or ends != "never"
            assert seen == [here, here] == [b.current_stream()] * 2
            for mine, other in zip(got, want):
                assert bool((mine.grad == other.grad).all())
        opened.clear()
    assert b.current_stream() == b.default_stream()


WIRED = """
import warnings
warnings.simplefilter("ignore")
import cugrad as torch
x = torch.ones(32, 32, device="cuda", requires_grad=True)
s = torch.cuda.Stream()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    y = (x @ x).sum()
y.backward()  # on the default stream
with s:
    (g,) = torch.autograd.grad((x * 2).sum(), x)
    torch.cuda.set_stream(torch.cuda.default_stream())
    torch.cuda.set_stream(s)
    z = (x @ x).exp().sum()
    torch.cuda.set_stream(torch.cuda.default_stream())
    z.backward()
assert torch.cuda.current_stream() == torch.cuda.default_stream()
with torch.cuda.stream(torch.cuda.Stream()):
    torch.cuda.set_stream(torch.cuda.Stream())
assert torch.cuda.current_stream() == torch.cuda.default_stream()
found = []
v = x * 1
v.register_hook(lambda g: torch.cuda.set_stream(torch.cuda.Stream()))
v.grad_fn.register_hook(lambda gi, go: found.append(torch.cuda.current_stream()))
(v @ v).sum().backward()
assert [torch.cuda.current_stream(), *found] == [torch.cuda.default_stream()] * 2
import threading
inside, over, own = threading.Event(), threading.Event(), torch.cuda.Stream()
def work():
    with s:
        inside.set()
        over.wait()
        streams.append(torch.cuda.current_stream())
    streams.append(torch.cuda.current_stream())
streams = []
thread = threading.Thread(target=work)
with own, s:  # one stream, entered in two threads, of which neither is the inner one
    thread.start()
    inside.wait()
ended = torch.cuda.current_stream()
over.set()
thread.join()
assert [ended, *streams] == [torch.cuda.default_stream(), s, torch.cuda.default_stream()]
assert g.tolist()[0][0] == 2
x.grad.sum().item()
try:
    torch.cuda.stream(3)
except TypeError as error:
    assert "got int" in str(error)
else:
    raise SystemExit("a number is no stream")
"""


def test_streams_of_cuda_are_noted() -> None:
    env = {**os.environ, "CUGRAD_SIMULATE_CUDA": "1", "PYTHONPATH": str(ROOT)}
    env.pop("CUGRAD_DEVICE", None)
    done = subprocess.run(
        [sys.executable, "-c", WIRED], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
