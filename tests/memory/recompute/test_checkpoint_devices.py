"""Checkpoints on devices: random numbers, memory, and results that wait in host memory."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import tracemalloc
import weakref
from typing import Any

import pytest

import cugrad
from cugrad import backends
from cugrad.backends import get, simulated
from cugrad.memory import offload
from cugrad.memory.offloading.engine import engine_of
from cugrad.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    get_device_states,
    set_device_states,
)
from tests.memory.recompute.checkpoint_cases import FUNCTIONS, OURS, WAYS, kit, leaves, loss
from tests.support import fake_cuda
from tests.support.patience import patient

HAS_CUDA = backends.is_usable("cuda")
DEVICES = ["cpu", "simulated"] + ["cuda"] * HAS_CUDA
IS_FAKE = HAS_CUDA and sys.modules["cupy"].__version__ == "fake"
COUNTING = ["simulated"] + ["cuda"] * (HAS_CUDA and not IS_FAKE)  # allocators


# Random numbers -----------------------------------------------------------------------------------


def drawing(x: Any, generator: Any) -> Any:
    device = x.device
    h = cugrad.nn.functional.dropout(x.exp(), 0.5) * cugrad.rand(4, 4, device=device)
    h = h * cugrad.randint(1, 5, (4, 4), device=device) + cugrad.bernoulli(h.detach().sigmoid())
    noise = cugrad.rand(4, 4, generator=generator, device="cpu")
    return (h * cugrad.randn_like(h)).sin() * (noise.to(device) + 1).sum() * h.tanh()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_every_generator_draws_the_same_again(device: str, reentrant: bool) -> None:
    """The device's, the host's, one of the user's own; and none is left elsewhere."""
    found = []
    for use in (False, True):
        cugrad.manual_seed(7)
        own = cugrad.Generator("cpu").manual_seed(8)
        x = cugrad.linspace(-1, 1, 16, device=device).reshape(4, 4).requires_grad_()
        for _ in range(2):
            cugrad.rand(3, device=device)  # the streams begin somewhere
            y = checkpoint(drawing, x, own, use_reentrant=reentrant) if use else drawing(x, own)
            cugrad.rand(5)
            y.sum().backward()
        after = [cugrad.rand(3, device=d).tolist() for d in ("cpu", device)]
        after.append(cugrad.rand(3, generator=own, device="cpu").tolist())
        found.append((x.grad.cpu().numpy().tobytes(), after))
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
def test_a_closure_that_draws_on_a_device(device: str) -> None:
    x = cugrad.ones(64, device=device, requires_grad=True)
    y = checkpoint(lambda: cugrad.nn.functional.dropout(x, 0.5).exp() * x, use_reentrant=False)
    y.sum().backward()
    kept = (y.detach().cpu() > 1.5).tolist()
    assert (x.grad.cpu() > 1.5).tolist() == kept and 0 < sum(kept) < 64


def test_seeding_within_is_seen_within_only() -> None:
    def f(x: Any) -> Any:
        cugrad.manual_seed(3)
        with cugrad.random.fork_rng():
            first = cugrad.rand(4)
        return x.exp() * first * cugrad.rand(4), first

    x = cugrad.ones(4, requires_grad=True)
    y, first = checkpoint(f, x, use_reentrant=False)
    cugrad.manual_seed(9)
    cugrad.rand(2)
    state = cugrad.get_rng_state()
    y.sum().backward()
    assert cugrad.equal(cugrad.get_rng_state(), state)
    cugrad.manual_seed(3)
    assert cugrad.allclose(x.grad, y.detach()) and cugrad.equal(first, cugrad.rand(4))


def test_a_thread_that_draws_meanwhile_is_not_disturbed() -> None:
    """The second run has streams of its own: it never sets the ones that all threads share."""
    inside, drawn = threading.Event(), threading.Event()
    values: list[Any] = []
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        first = cugrad.rand(3)
        if len(runs) == 2:
            inside.set()
            drawn.wait(patient())
        values.append((first.tolist(), cugrad.rand(3).tolist()))
        return x * cugrad.nn.functional.dropout(x.exp(), 0.5)

    x = cugrad.ones(3, requires_grad=True)
    y = checkpoint(f, x, use_reentrant=False)
    state = cugrad.get_rng_state()
    thread = threading.Thread(target=y.sum().backward)
    thread.start()
    assert inside.wait(patient())
    here = cugrad.rand(5).tolist()
    drawn.set()
    thread.join()
    assert values[0] == values[1]
    cugrad.set_rng_state(state)
    assert cugrad.rand(5).tolist() == here


@pytest.mark.parametrize("device", DEVICES[1:])
def test_device_states(device: str) -> None:
    x = cugrad.ones(2, device=device)
    ids, states = get_device_states({"x": [x]}, x)
    assert ids == [0] and states[0].dtype is cugrad.uint8
    first = cugrad.rand(3, device=device).tolist()
    set_device_states(ids, states, device_type=device)
    assert cugrad.rand(3, device=device).tolist() == first


# Memory -------------------------------------------------------------------------------------------

SIZE = 64 * 64 * 4


def block(x: Any) -> Any:
    for _ in range(4):
        x = x.sin().exp().tanh()
    return x


def peak(run: Any, device: str = "simulated") -> float:
    """The most tensors of the model's size that a training step holds, by the allocator."""
    x = (cugrad.rand(64, 64, device=device) * 0.1).requires_grad_()
    backend = get(device)
    gc.collect()
    before = backend.memory_allocated()
    backend.reset_peak_memory_stats()
    h = run(x)
    loss = h.sum()
    del h
    loss.backward()
    return (backend.max_memory_allocated() - before) / SIZE


def blocks(x: Any, count: int = 8, use: bool = True, **how: Any) -> Any:
    for _ in range(count):
        x = checkpoint(block, x, use_reentrant=False, **how) if use else block(x)
    return x


@pytest.mark.parametrize("device", COUNTING)
def test_the_allocator_sees_less(device: str) -> None:
    """Eight blocks keep eight results each: all; one for each block and one block; less still."""

    def nested(x: Any) -> Any:
        for _ in range(2):
            x = checkpoint(functools.partial(blocks, count=4), x, use_reentrant=False)
        return x

    plain = peak(functools.partial(blocks, use=False), device)
    each, twice = peak(blocks, device), peak(nested, device)
    assert plain >= 8 * 8
    assert each <= 8 + 8 + 4 and twice <= 2 + 4 + 8 + 4, (each, twice)

    def moved(x: Any) -> Any:
        with offload(min_bytes=0, keep_last=0, backlog=0, lookahead=0):
            return blocks(x * 1)

    assert peak(moved, device) <= 8 + 6


@pytest.mark.parametrize("device", COUNTING)
def test_what_a_selective_checkpoint_keeps_is_all_that_is_added(device: str) -> None:
    def keeping(policy: Any) -> Any:
        moving = offload(min_bytes=0, keep_last=0, backlog=0, lookahead=0)
        return functools.partial(create_selective_checkpoint_contexts, policy, offload=moving)

    def offloaded(context: Any, op: str, *args: Any) -> CheckpointPolicy:
        P = CheckpointPolicy
        return P.MUST_CPU_OFFLOAD if op == "sin" else P.PREFER_RECOMPUTE

    each = peak(blocks, device)
    kept = peak(functools.partial(blocks, context_fn=keeping(["sin"])), device)
    away = peak(functools.partial(blocks, context_fn=keeping(offloaded)), device)
    assert 8 * 4 - 8 < kept - each <= 8 * 4
    assert away - each <= 4, (away, each, kept)


def test_host_memory_is_lower() -> None:
    def traced(use: bool) -> int:
        x = (cugrad.rand(128, 128) * 0.1).requires_grad_()
        gc.collect()
        tracemalloc.start()
        blocks(x, use=use).sum().backward()
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert traced(True) < (8 + 8 + 6) / (8 * 8) * traced(False)


@pytest.mark.parametrize("how", ["backward", "none", "in part", "again"])
@pytest.mark.parametrize("way", [*WAYS, *OURS])
def test_nothing_waits_for_the_garbage_collector(way: str, how: str) -> None:
    gc.collect()
    gc.disable()
    try:
        x, w = leaves(cugrad)
        held: list[Any] = []

        def f(lib: Any, x: Any, w: Any) -> Any:
            h = FUNCTIONS["diamond"](lib, x, w)
            held.append(weakref.ref(h))
            return h.exp(), h.sin()

        h = x * 1
        held.append(weakref.ref(h))
        found = {**WAYS, **OURS}[way](kit(cugrad), cugrad, f, h, w)
        if how == "in part":
            found[1].sum().backward()
        elif how != "none":
            loss(found).backward(retain_graph=how == "again")
        del h, found
        assert [ref() for ref in held if ref() is not None] == []
    finally:
        gc.enable()


# Results that wait in host memory -----------------------------------------------------------------


def offloading(context: Any, op: str, *args: Any) -> CheckpointPolicy:
    P = CheckpointPolicy
    return P.MUST_CPU_OFFLOAD if op == "mm" else P.PREFER_RECOMPUTE


def two_products(x: Any, w: Any, v: Any) -> Any:
    return ((x @ w).tanh() @ v).sigmoid()


def test_copies_run_beside_kernels() -> None:
    """After one step to learn from, a step costs little more than its kernels, or its copies."""
    contexts = functools.partial(create_selective_checkpoint_contexts, offloading)
    engine_of(get("simulated"), 0)._plans.clear()
    link = {"to_host": 2.5e11, "to_device": 2.5e11}  # or so small a model is all copies
    with simulated.configured("A100", policy="earliest", scale=1000, **link):
        ws = [(cugrad.rand(64, 64, device="simulated") * 0.1).requires_grad_() for _ in range(12)]
        x = cugrad.rand(256, 64, device="simulated")
        for _ in range(3):
            with simulated.record() as timeline:
                h = x
                for w, v in zip(ws[::2], ws[1::2], strict=True):
                    h = checkpoint(two_products, h, w, v, use_reentrant=False, context_fn=contexts)
                h.sum().backward()
    simulated.reset()
    assert timeline.moved("d2h") == timeline.moved("h2d") == 12 * 256 * 64 * 4
    assert not [r for r in timeline.records if r.kind == "host"]  # the host waits for nothing
    copies = timeline.busy("d2h", "h2d")
    assert copies > 0.4 * timeline.busy("kernel") and timeline.overlap > 0.8
    assert timeline.step_time < 1.15 * timeline.busy("kernel")


@pytest.mark.parametrize("policy", simulated.POLICIES)
def test_no_schedule_changes_a_bit(policy: str) -> None:
    def gradients(use: bool) -> list[bytes]:
        cugrad.manual_seed(0)
        ws = [(cugrad.rand(8, 8, device="simulated") * 0.3).requires_grad_() for _ in range(6)]
        h = cugrad.rand(4, 8, device="simulated")
        for w, v in zip(ws[::2], ws[1::2], strict=True):
            how = {"context_fn": lambda: create_selective_checkpoint_contexts(offloading)}
            h = checkpoint(two_products, h, w, v, use_reentrant=False, **how) if use else (
                two_products(h, w, v)
            )  # fmt: skip
        h.sum().backward()
        return [w.grad.cpu().numpy().tobytes() for w in ws]

    plain = gradients(False)
    for seed in range(6):
        with simulated.configured(policy=policy, seed=seed):
            assert gradients(True) == plain
    simulated.reset()


@pytest.mark.skipif(HAS_CUDA, reason="the tests above have run")
def test_over_the_fake_cuda() -> None:
    """This file's tests for "cuda", in a process that has one."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    fake_cuda.passed(__file__, "-k", "cuda and not fake")
