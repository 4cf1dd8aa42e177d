"""Whatever raises in the middle of a copy: no leak, no race, and the next step is right."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import get, simulated
from cugrad.memory import offload, save_on_cpu, save_on_disk
from cugrad.memory.disk import store as disk_store
from cugrad.memory.offloading.engine import engine_of
from tests.memory.offload.test_conformance import Exact, held

DEVICE: Any = get("simulated")
CODEC = Exact()


def step(context: Any, seed: int, twice: bool = False, device: str = "simulated") -> bytes:
    values = np.random.default_rng(seed).random((24, 24), np.float32)
    x = cugrad.tensor(values, device=device, requires_grad=True)
    with context:
        h = (x * 3).tanh()
        y = h[2:4].sin().sum() + (h * h.t()).exp().sum() + h[:, 2].sin().sum()
        z = (y * 0.01).exp() + (h @ h).sin().sum()
    h = y = None
    z.backward(retain_graph=twice)
    if twice:
        z.backward()
    found: bytes = x.grad.cpu().numpy().tobytes()
    return found


CONTEXTS: dict[str, Any] = {
    "at once": lambda path: offload(min_bytes=0, keep_last=0, backlog=0),
    "learns": lambda path: offload(min_bytes=0),
    "pageable": lambda path: save_on_cpu(),
    "encoded": lambda path: offload(min_bytes=0, compress=CODEC),
    "some on disk": lambda path: offload(min_bytes=0, keep_last=0, host_limit=4096, spill=path),
    "on disk": lambda path: save_on_disk(path, min_bytes=0),
}


def places() -> list[tuple[Any, str]]:
    """Every way in which the engine asks for memory, or lets bytes move."""
    engine = engine_of(DEVICE, 0)
    pool = DEVICE.machine.pool
    found = [(DEVICE, "copy_async"), (DEVICE, "to_host"), (DEVICE, "asarray"), (pool, "allocate"),
             (engine.out.slab, "taken"), (engine.out.slab, "_grown"), (CODEC, "encode"),
             (CODEC, "decode"), (disk_store.DiskStore, "write"), (disk_store.DiskStore, "_read"),
             (disk_store.DiskStore, "_fetch")]  # fmt: skip
    return found + [(s, m) for s in (engine.out.stream, engine.back.stream)
                    for m in ("wait_event", "record_event")]  # fmt: skip


def planted(place: Any, method: str, number: int, error: Any) -> Any:
    """A patch with which one call of a method raises; and the calls."""
    original, calls = getattr(place, method), list[None]()

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        if len(calls) == number:
            raise error("planted")
        return original(*args, **kwargs)

    patch = pytest.MonkeyPatch()
    patch.setattr(place, method, failing)
    return patch, calls


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_step_after_one_that_failed(name: str, tmp_path: Path) -> None:
    """In each place, at several of its calls; also while the error is held."""
    plain = [step(nullcontext(), seed, seed == 1) for seed in range(3)]
    engine_of(DEVICE, 0).drain()
    raised = 0
    for k, (place, method) in enumerate(places()):
        for number in (1, 15 if (k + len(name)) % 2 else 4):
            error = (MemoryError, KeyboardInterrupt, OSError)[(k + number) % 3]
            how = {"policy": simulated.POLICIES[(k + number) % 4], "seed": number}
            with simulated.configured(**how):  # type: ignore[arg-type]
                context, before = CONTEXTS[name](tmp_path), held()
                kept, reached = fails(place, method, number, error, context)
                raised += kept is not None
                assert step(context, 1, True) == plain[1], (method, number, error)
                kept = context = None
                gc.collect()
                assert held() == before, (method, number, error)
            if not reached:
                break
    assert raised > 1
    context = CONTEXTS[name](tmp_path)
    assert [step(context, seed, seed == 1) for seed in range(3)] == plain


def fails(place: Any, method: str, number: int, error: Any, context: Any) -> tuple[Any, bool]:
    """The error with which a step ended, with its frames; and whether the call was reached."""
    patch, calls = planted(place, method, number, error)
    try:
        step(context, 0, True)
    except error as e:
        assert "planted" in str(e), e
        return e, True
    finally:
        patch.undo()
    return None, len(calls) >= number


def test_a_saved_tensor_can_be_asked_for_again() -> None:
    """After each failure of the way back, in the same graph."""
    context = offload(min_bytes=0, keep_last=0, backlog=0)
    x = cugrad.linspace(0.1, 2, 96, device="simulated").requires_grad_()
    with context:
        y = (x * 2).exp().sin().tanh().sum()
    wanted = cugrad.autograd.grad(y, x, retain_graph=True)[0].tolist()
    engine = engine_of(DEVICE, 0)
    for place, method in ((DEVICE, "copy_async"), (DEVICE.machine.pool, "allocate"),
                          (engine.back.stream, "wait_event"), (engine, "_present")):  # fmt: skip
        for number in range(1, 6):
            patch, _ = planted(place, method, number, MemoryError)
            with patch.context():
                try:
                    cugrad.autograd.grad(y, x, retain_graph=True)
                except MemoryError:
                    pass
            patch.undo()
            assert cugrad.autograd.grad(y, x, retain_graph=True)[0].tolist() == wanted


def test_what_failed_is_not_taken_for_what_was_saved() -> None:
    """The error of a pack is held, and with it all that the pack had begun."""
    x = cugrad.ones(64, device="simulated", requires_grad=True)
    h = x * 2
    context = offload(min_bytes=0, keep_last=0)
    patch, _ = planted(DEVICE, "copy_async", 1, MemoryError)
    with pytest.raises(MemoryError) as kept, context:
        h.sin()
    patch.undo()
    assert context.stats.saved_tensors == context.stats.unique_bytes == 0
    with context:
        y = h.sin().sum()
    del h
    y.backward()
    assert x.grad is not None and cugrad.allclose(x.grad, 2 * cugrad.cos(2 * x.detach()))
    assert kept


@pytest.mark.parametrize("policy", ["latest", "random", "timed"])
def test_the_collector_frees_a_graph_with_a_prefetch_under_way(policy: str) -> None:
    """It finalizes the parts of a cycle in any order: what a copy writes to is not held by it."""

    def one(saving: Any, fails: bool) -> Any:
        x = cugrad.full((6,), 0.3, device="simulated", requires_grad=True)
        h = x
        with saving:
            for i in range(6):
                h = (h * x).sin()
                if fails and i == 3:
                    h.register_hook(lambda g: 1 / 0)
        if fails:
            with pytest.raises(ZeroDivisionError):
                h.sum().backward()
        else:
            h.sum().backward()
        return h

    gc.disable()
    try:
        for make in (lambda: offload(min_bytes=0, keep_last=0), lambda: save_on_cpu(True),
                     lambda: offload(min_bytes=0, backlog=0, lookahead=1 << 20)):  # fmt: skip
            with simulated.configured(policy=policy, seed=1):
                saving = make()
                for k in range(4):
                    h = one(saving, k == 3)
                    h.mine = h
                    del h
                    gc.collect()
                    for _ in range(8):
                        y = cugrad.ones(6, device="simulated") * 2
                        (y + y).add_(1)
    finally:
        gc.enable()
        simulated.reset()
    engine = engine_of(DEVICE, 0)
    engine.drain()
    assert not engine.ledger.coming and not engine.ledger.ahead
