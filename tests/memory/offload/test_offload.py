"""save_on_cpu and memory.offload, on a device that copies as late as its events allow."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd.graph import save_on_cpu, saved_tensors_hooks
from cugrad.backends import get, simulated
from cugrad.memory import OffloadStats, lower_bound, offload
from cugrad.memory.geometry import root_of
from cugrad.memory.offloading.engine import CopyEngine, engine_of
from cugrad.memory.offloading.outbound import Outbound

pytestmark = pytest.mark.host_only

MACHINE = simulated.MACHINE


@pytest.fixture(autouse=True)
def engine() -> Iterator[CopyEngine]:
    """The engine of the simulated device, whose copies run at the last moment; clean afterwards."""
    found = engine_of(get("simulated"), 0)
    found.drain()
    found._plans.clear()
    with simulated.configured(policy="latest", seed=0), cugrad.device("simulated"):
        MACHINE.reset_time()
        yield found
    simulated.reset()
    found.drain()
    assert (found.ledger.ahead, found.ledger.away, found.out.leaving_bytes) == (0, 0, 0)
    assert found.out.slab.used_bytes == 0


def values(*shape: int) -> Any:
    n = int(np.prod(shape))
    return (np.arange(n) * 0.37 % 1.7 - 0.6).reshape(shape).astype(np.float32)


def on_device(array: Any, requires_grad: bool = True) -> Any:
    return cugrad.tensor(array, requires_grad=requires_grad)


def copies(kind: str) -> list[int]:
    return [r.nbytes for r in MACHINE.timeline().records if r.kind == kind]


def bytes_of(t: Any) -> bytes:
    return t.detach().cpu().numpy().tobytes()


def moving(**choices: Any) -> offload:
    """An offload that moves everything, at once, unless told otherwise."""
    return offload(**{"min_bytes": 0, "keep_last": 0, "backlog": 0, **choices})


# What comes back is what was saved ----------------------------------------------------------------

LAYOUTS = {
    "plain": lambda t: t,
    "permuted": lambda t: t.permute(1, 0, 2),
    "reversed dims": lambda t: t.permute(2, 1, 0),
    "sliced": lambda t: t[:, 1:3],
    "strided": lambda t: t[::2, :, ::3],
    "a row": lambda t: t[1],
    "a column": lambda t: t[:, :, 0],
    "little of much": lambda t: t.repeat(4, 4, 4)[:, ::8, ::11],
    "broadcast": lambda t: t[:1].expand(4, 4, 6),
    "broadcast within": lambda t: t[:, :, :1].expand(4, 4, 6),
    "diagonal": lambda t: t.diagonal(0, 0, 1),
    "overlapping": lambda t: t.as_strided((5, 4), (3, 1), 2),
    "0-d": lambda t: t[0, 0, 0],
    "one": lambda t: t[:1, :1, :1],
    "empty": lambda t: t[:0],
    "half": lambda t: t.half(),
    "double": lambda t: t.double().permute(2, 0, 1),
    "integers": lambda t: (t * 10).long(),
    "bool": lambda t: t > 0,
    "complex": lambda t: t + 1j * t.flip(0),
    "real of complex": lambda t: (t + 1j * t.flip(0)).imag,
    "bfloat16": lambda t: t.bfloat16(),
}


@pytest.mark.parametrize("context", [
    lambda: save_on_cpu(pin_memory=True), save_on_cpu, moving,
    lambda: moving(backlog=None, lookahead=0), lambda: moving(host_limit=0),
])  # fmt: skip
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_saved_tensor_comes_back_as_it_was(layout: str, context: Any) -> None:
    if layout == "bfloat16":
        pytest.importorskip("ml_dtypes")
    t = LAYOUTS[layout](on_device(values(4, 4, 6), requires_grad=False))
    wanted, strides, dtype = bytes_of(t), t.stride(), t.dtype
    hooks = context()
    with hooks:
        packed = hooks.pack_hook(t)
    del t
    for _ in range(3):  # any number of times
        back = hooks.unpack_hook(packed)
        assert bytes_of(back) == wanted and back.dtype == dtype
        if layout != "little of much":  # what was gathered is contiguous
            assert back.stride() == strides


def training(context: Any, steps: int = 3) -> list[bytes]:
    """Gradients of a graph with views, transposed and sliced tensors, each step twice backward."""
    found = []
    for _ in range(steps):
        x, w = on_device(values(6, 6)), on_device(values(6, 6).T * 0.5)
        inside: AbstractContextManager[Any] = context()
        with inside:
            h = (x @ w).tanh()
            y = ((h * h.t().contiguous().t()).exp() * h)[:, 1:5].sum()
        y.backward(retain_graph=True)
        y.backward()
        found += [bytes_of(t.grad) for t in (x, w)]
    return found


@functools.cache
def plain() -> list[bytes]:
    return training(nullcontext)


CONTEXTS = {
    "pinned": lambda: save_on_cpu(pin_memory=True),
    "pageable": save_on_cpu,
    "automatic": lambda: offload(min_bytes=0),
    "eager": moving,
    "on demand": lambda: moving(lookahead=0),
    "small steps": lambda: moving(backlog=600, lookahead=600),
    "kept": lambda: moving(keep_last=300),
    "no host memory": lambda: moving(host_limit=0),
    "little host memory": lambda: moving(host_limit=512),
}


@pytest.mark.parametrize("policy", simulated.POLICIES)
@pytest.mark.parametrize("name", CONTEXTS)
def test_gradients_are_bitwise_those_without(name: str, policy: str) -> None:
    for seed in range(5 if policy == "random" else 2):  # the others depend on no seed
        with simulated.configured(policy=policy, seed=seed):
            assert training(CONTEXTS[name]) == plain()


@pytest.mark.parametrize("name", CONTEXTS)
def test_second_derivatives(name: str) -> None:
    found = []
    for context in (nullcontext, CONTEXTS[name]):
        x = on_device(values(3, 3))
        with context():
            y = (x.exp() * x).sum()
            (g,) = cugrad.autograd.grad(y, x, create_graph=True)
        (h,) = cugrad.autograd.grad(g.sum(), x, retain_graph=True)
        y.backward(retain_graph=True)
        y.backward()
        found.append([bytes_of(t) for t in (g, h, x.grad)])
    assert found[0] == found[1]


# Once, and shared again ---------------------------------------------------------------------------


def test_a_storage_is_copied_once_whatever_is_saved_of_it() -> None:
    x = on_device(values(32, 32))
    hooks = moving()
    with hooks:
        h = x.exp()  # saves its result
        z = ((h * h.t()) * h.view(32, 32)).sum()
    assert hooks.stats.saved_bytes > 2 * hooks.stats.unique_bytes
    assert hooks.stats.copied_ratio == 1.0
    z.backward()
    assert sum(copies("d2h")) == hooks.stats.unique_bytes


def test_aliases_share_their_storage_again() -> None:
    hooks = moving()
    with hooks:
        h = on_device(values(8, 8), requires_grad=False).exp()
        packed = [hooks.pack_hook(t) for t in (h, h.t(), h[2:6], h.view(-1))]
    before = [t.storage_offset() for t in (h, h.t(), h[2:6], h.view(-1))]
    del h
    back = [hooks.unpack_hook(p) for p in packed]
    assert len({id(root_of(t._array)) for t in back}) == 1
    assert [t.storage_offset() for t in back] == before
    assert copies("d2h") == [256] and hooks.stats.moved_back_bytes == 256


@pytest.mark.parametrize("compress", [None, "bf16"])
def test_what_came_back_is_the_storage_from_then_on(compress: str | None) -> None:
    hooks = moving(compress=compress)
    with hooks:
        h = on_device(values(8, 8), requires_grad=False).exp()
        packed = [hooks.pack_hook(t) for t in (h, h.t())]
        del h
        back = hooks.unpack_hook(packed[0])
        again = [hooks.pack_hook(t) for t in (back, back[2:])]  # as a graph of gradients saves it
        assert {p.span for p in (*packed, *again)} == {packed[0].span}
        for _ in range(2):
            other = hooks.unpack_hook(packed[1])
            assert root_of(other._array) is root_of(back._array)
    assert hooks.stats.unique_bytes == 256 and len(copies("d2h")) == 1
    assert bytes_of(hooks.unpack_hook(again[1])) == bytes_of(back[2:])


def test_a_new_version_is_another_storage() -> None:
    hooks = moving()
    t = on_device(values(8, 8), requires_grad=False)
    with hooks:
        first = hooks.pack_hook(t)
        wanted = bytes_of(t)
        t.add_(1)
        second = hooks.pack_hook(t)
        assert hooks.pack_hook(t).span is second.span
    assert first.span is not second.span
    changed = bytes_of(t)
    del t
    assert (bytes_of(hooks.unpack_hook(first)), bytes_of(hooks.unpack_hook(second))) == (
        wanted, changed,
    )  # fmt: skip


def test_memory_that_is_used_again_is_no_alias() -> None:
    """A new array at the address, or under the id, of one that is gone is not taken for it."""
    hooks = moving()
    packed, wanted = [], []
    with hooks:
        for k in range(20):
            t = on_device(values(16) + k, requires_grad=False)
            packed.append(hooks.pack_hook(t))
            wanted.append(bytes_of(t))
            del t
    assert [bytes_of(hooks.unpack_hook(p)) for p in packed] == wanted
    assert hooks.stats.unique_bytes == hooks.stats.moved_to_host_bytes == 20 * 64


def test_a_part_of_a_large_storage_leaves_alone() -> None:
    hooks = moving()
    with hooks:
        t = on_device(values(64, 64), requires_grad=False)
        packed = hooks.pack_hook(t[3:5])
        column = hooks.pack_hook(t[:, 7])
        again = hooks.pack_hook(t[:, 7])
    assert copies("d2h") == [512, 256] and column.span is again.span
    wanted = values(64, 64)
    assert np.array_equal(hooks.unpack_hook(column).cpu().numpy(), wanted[:, 7])  # still there
    del t
    assert np.array_equal(hooks.unpack_hook(packed).cpu().numpy(), wanted[3:5])
    assert np.array_equal(hooks.unpack_hook(column).cpu().numpy(), wanted[:, 7])
    assert np.array_equal(hooks.unpack_hook(again).cpu().numpy(), wanted[:, 7])


# What stays ---------------------------------------------------------------------------------------


def test_parameters_and_their_views_stay() -> None:
    w = on_device(values(8, 8))
    with moving() as hooks:
        ((w.t() @ w) * w.view(8, 8)).sum()
    assert hooks.stats.kept == {"leaf": 4 * 256 - 256} and copies("d2h") == [256]


def test_small_and_filtered_tensors_stay() -> None:
    x = on_device(values(8, 8))
    with moving(min_bytes=257) as hooks:
        x.exp()
    with moving(filter=lambda t: t.dim() != 2) as filtered:
        x.exp()
    assert hooks.stats.kept == {"small": 256} and filtered.stats.kept == {"filter": 256}
    assert not copies("d2h")


def test_what_the_user_keeps_stays_from_the_second_step_on() -> None:
    x = on_device(values(8, 8))
    moved: list[Any] = []
    kept: list[Any] = []
    for _ in range(4):
        with moving() as hooks:
            h = x.exp()
            y = h.sigmoid().exp()
        y.sum().backward()
        moved.append((hooks.stats.moved_to_host_bytes, hooks.stats.kept))
        kept[:] = h, y  # until the next step is over
    assert moved[0] == (3 * 256, {})
    assert moved[1:] == [(256, {"alive": 512})] * 3


def test_what_the_user_keeps_no_more_leaves_again() -> None:
    x = on_device(values(8, 8))
    moved: list[int] = []
    kept: list[Any] = []
    for step in range(6):
        with moving() as hooks:
            h = x.exp()
            y = h.sigmoid().sum()
        if step < 3:
            kept[:] = [h]
        else:
            kept.clear()
        del h
        y.backward()
        moved.append(hooks.stats.moved_to_host_bytes)
    assert moved == [512, 256, 256, 256, 512, 512]


def deep(x: Any, depth: int) -> Any:
    for _ in range(depth):
        x = x.exp().sin()
    return x.sum()


def test_the_last_ones_stay_from_the_second_step_on() -> None:
    x = on_device(values(8, 8) / 4)
    kept = []
    for _ in range(4):
        with moving(keep_last=600) as hooks:
            y = deep(x, 5)
        y.backward()
        kept.append(hooks.stats.kept.get("last", 0))
    assert kept == [0, 512, 512, 512]


def test_what_would_not_leave_in_time_stays_and_no_more() -> None:
    x = on_device(values(8, 8) / 4)
    kept, moved = [], []
    for _ in range(5):
        with moving(keep_last=None, backlog=800) as hooks:
            y = deep(x, 10)
        y.backward()
        kept.append(hooks.stats.kept.get("last", 0))
        moved.append(hooks.stats.moved_to_host_bytes)
    assert kept == [0, 768, 768, 768, 768]
    assert moved == [10 * 256] + [7 * 256] * 4


# The order of copies ------------------------------------------------------------------------------


def unpacks_and_copies(steps: int, lookahead: int | None, order: Any) -> list[int]:
    """Bytes asked for before they were on their way back, step by step."""
    late = []
    for step in range(steps):
        hooks = moving(lookahead=lookahead)
        with hooks:
            packed = [
                hooks.pack_hook(on_device(values(8, 8) + k, requires_grad=False)) for k in range(6)
            ]
        for k in order(step):
            back = hooks.unpack_hook(packed[k]).cpu().numpy()
            assert np.array_equal(back, values(8, 8) + k)
        late.append(hooks.stats.on_demand)
        assert hooks.stats.moved_back_bytes == 6 * 256
    return late


def test_what_comes_next_is_brought_back_ahead() -> None:
    backwards = [5, 4, 3, 2, 1, 0]
    assert unpacks_and_copies(3, None, lambda step: backwards) == [256] * 3
    assert unpacks_and_copies(1, 0, lambda step: backwards) == [6 * 256]


def test_networks_that_begin_alike_and_take_turns_each_have_a_plan(engine: CopyEngine) -> None:
    def step(name: str) -> tuple[Any, Any]:
        x = on_device(values(8, 8))
        with moving(keep_last=None):
            y = ((x * 2).tanh() * 3).exp()
            y = (y[:4] if name == "A" else y.repeat(2, 1)) * 2
            y = (y.sin() * 2).cos()
        session = engine._thread.current
        y.sum().backward()
        return None if session is None else session.plan, session

    for name in "AABAB":
        step(name)
    for name in "ABBBAABAAAB":
        plan, session = step(name)
        assert plan is not None and plan.sizes == session.sizes


def test_what_would_not_leave_in_time_is_known_after_one_step() -> None:
    with simulated.configured("H200", policy="timed", scale=4096):
        x, saving, times = on_device(values(64, 64)), moving(keep_last=None, backlog=70_000), []
        for _ in range(6):
            with simulated.record() as timeline:
                with saving:
                    y = deep(x, 24)
                y.backward()
            times.append(timeline.step_time)
    assert times[1] < 0.95 * times[0]
    assert times[2:] == pytest.approx([times[1]] * 4, rel=0.03)


def test_the_order_is_learned_and_another_is_only_slower() -> None:
    strange = [3, 0, 5, 1, 4, 2]
    late = unpacks_and_copies(3, 256, lambda step: strange)
    assert late[0] > 256 and late[1:] == [256, 256]
    late = unpacks_and_copies(4, 256, lambda step: strange if step != 2 else strange[::-1])
    assert late[2] > 256 and late[3] >= 256


def test_the_look_ahead_is_bounded(engine: CopyEngine) -> None:
    hooks = moving(lookahead=600)
    with hooks:
        packed = [hooks.pack_hook(on_device(values(8, 8) + k, False)) for k in range(9)]
    most = 0
    for p in reversed(packed):
        hooks.unpack_hook(p)
        most = max(most, engine.ledger.ahead)
    assert most == 768  # the last of them began below the bound


def test_back_pressure_bounds_what_is_on_its_way(engine: CopyEngine) -> None:
    hooks = moving(backlog=100)
    with hooks:
        packed = []
        for k in range(10):
            packed.append(hooks.pack_hook(on_device(values(16) + k, False)))
            assert engine.out.leaving_bytes <= 100
    assert [hooks.unpack_hook(p).tolist() for p in packed] == [
        (values(16) + k).tolist() for k in range(10)
    ]


def test_memory_does_not_grow_past_plain_training() -> None:
    def peak(context: Any) -> int:
        for _ in range(2):
            x = on_device(values(64, 64) / 8)
            get("simulated").reset_peak_memory_stats()
            with context():
                y = deep(x, 20)
            y.backward()
            del y
        return get("simulated").max_memory_allocated()

    plain = peak(nullcontext)
    assert peak(lambda: moving(lookahead=1 << 14)) < plain / 3
    assert peak(lambda: moving(backlog=1 << 15, lookahead=1 << 15)) < plain / 2
    with simulated.configured("H200", policy="timed"):  # what has left by then is let go of
        assert peak(lambda: moving(backlog=None)) <= plain
        assert peak(lambda: offload(min_bytes=0)) <= plain


def test_nothing_is_allocated_and_the_host_waits_for_nothing_after_the_second_step(
    engine: CopyEngine,
) -> None:
    x, w = on_device(values(16, 16)), on_device(values(16, 16))
    locked, held = [], []
    for step in range(6):
        if step == 2:
            MACHINE.reset_time()
        with moving(timing=False):
            y = ((x @ w).tanh().exp() @ w).sum()
        y.backward()
        locked.append(engine.out.slab.allocated_bytes)
        held.append(MACHINE.pool.held)  # what cudaMalloc would have been asked for
    assert locked[1:] == [locked[1]] * 5 and held[1:] == [held[1]] * 5
    assert [r for r in MACHINE.timeline().records if r.kind == "host"] == []


# In-place changes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_change_after_saving_does_no_harm(name: str) -> None:
    """Whether what was saved had left, or was meant to stay: what is written to has a copy."""
    for _ in range(3):
        x = on_device(values(4))
        with CONTEXTS[name]():
            y = x * 1
            z = (y * y).sin()
        y.add_(1)  # what leaves has left before that: no RaceError
        y[2:].zero_()
        z.sum().backward()
        v = values(4)
        assert np.allclose(x.grad.cpu().numpy(), 2 * v * np.cos(v * v), atol=1e-6)


def test_changes_that_are_allowed_wait_for_the_copy() -> None:
    y = on_device(values(64)) * 1
    wanted = bytes_of(y)
    hooks = moving(backlog=None)
    with hooks:
        packed = hooks.pack_hook(y.detach())
    y.detach().mul_(3)
    y[:3] = 5
    assert packed.span.copy.block is not None
    del y
    assert bytes_of(hooks.unpack_hook(packed)) == wanted


def test_a_saved_result_makes_no_cycle() -> None:
    import weakref

    gc.disable()
    try:
        with moving():
            y = on_device(values(8)).exp()
        node, storage = weakref.ref(y.grad_fn), weakref.ref(y._array)
        del y
        engine_of(get("simulated"), 0).drain()
        assert node() is None and storage() is None
    finally:
        gc.enable()


# Graphs, threads, errors --------------------------------------------------------------------------


def test_two_graphs_in_flight() -> None:
    plain, found = [], []
    for context, into in ((nullcontext, plain), (moving, found)):
        x = on_device(values(8, 8))
        with context():
            first, second = deep(x, 3), deep(x.t() * 0.5, 4)
        second.backward()
        with context():
            third = deep(x * 0.25, 2)
        first.backward()
        third.backward()
        into.append(bytes_of(x.grad))
    assert plain == found


def test_threads() -> None:
    x = on_device(values(8, 8))
    wanted = training(nullcontext, 1)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with cugrad.device("simulated"):
                for _ in range(3):
                    assert training(moving, 1) == wanted
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[0]
    with moving():
        y = deep(x, 3)
    other = threading.Thread(target=y.backward)  # in another thread than forward
    other.start()
    other.join()
    z = on_device(values(8, 8))
    deep(z, 3).backward()
    assert bytes_of(x.grad) == bytes_of(z.grad)


def test_backward_on_another_stream() -> None:
    x, z = on_device(values(8, 8)), on_device(values(8, 8))
    deep(z, 3).backward()
    with moving():
        y = deep(x, 3)
    backend: Any = get("simulated")
    other = backend.stream()
    other.wait_event(backend.current_stream().record_event())
    with backend.use_stream(other):
        y.backward()
        del y
    backend.current_stream().wait_event(other.record_event())
    assert bytes_of(x.grad) == bytes_of(z.grad)
    backend.synchronize()


@pytest.mark.parametrize("where", ["forward", "backward", "a filter"])
def test_an_exception_leaks_nothing(engine: CopyEngine, where: str) -> None:
    x = on_device(values(4))

    def fail(_: Any = None) -> None:
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            with moving(filter=fail if where == "a filter" else None):
                y = (x * x).exp()
                if where == "forward":
                    fail()
            y.register_hook(fail)
            y.sum().backward()
        y = None
    engine.drain()
    assert engine.out.slab.used_bytes == 0 and cugrad.autograd.mode.state.hooks == ()
    training(moving, 1)


def test_a_full_device_is_drained_and_tried_again() -> None:
    x = on_device(values(256, 256) / 64)
    MACHINE.pool.release()  # of other tests, blocks that would serve as well
    with simulated.configured(capacity=MACHINE.pool.held + 5 * x.nbytes):
        with pytest.raises(MemoryError):
            deep(x, 20).backward()
        gc.collect()
        with offload(backlog=1 << 40, lookahead=1 << 40, keep_last=0):  # would keep all
            y = deep(x, 20)
        y.backward()
    z = on_device(values(256, 256) / 64)
    deep(z, 20).backward()
    assert bytes_of(x.grad) == bytes_of(z.grad)


def test_a_full_host_takes_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = training(nullcontext, 1)
    hooks = moving(host_limit=512)
    assert training(lambda: hooks, 1) == plain
    stats = hooks.stats
    assert 0 < stats.pageable_bytes < stats.moved_to_host_bytes == stats.unique_bytes

    def full(*args: Any) -> Any:
        raise MemoryError("the host is full")

    backend: Any = type(get("simulated"))  # older pytests leave what was put on an instance there
    monkeypatch.setattr(backend, "empty_pinned", full)
    monkeypatch.setattr(backend, "to_host", full)
    hooks = moving(host_limit=0)
    x = on_device(values(8, 8))
    with hooks:
        y = deep(x, 2)
    y.backward()
    assert hooks.stats.kept == {"host full": 2 * 256} and hooks.stats.moved_to_host_bytes == 0


# What it counts, and what it says -----------------------------------------------------------------


def test_statistics() -> None:
    x = on_device(values(4, 4))
    with save_on_cpu(pin_memory=True) as context:
        y = (x * x).exp().sum()
    stats = context.stats
    assert (stats.saved_tensors, stats.saved_bytes, stats.kept) == (3, 3 * 64, {"leaf": 128})
    assert (stats.moved_to_host_bytes, stats.moved_back_bytes) == (64, 0)
    y.backward()
    assert stats.forwarded == 64 and stats.already_on_host == 0
    stats.reset()
    assert stats == OffloadStats()


def test_host_tensors_are_not_copied() -> None:
    x = cugrad.tensor([1.0, 2.0], device="cpu", requires_grad=True)
    with save_on_cpu(pin_memory=True) as context:
        y = x * x
    assert context.stats.already_on_host == 16 and context.stats.moved_to_host_bytes == 0
    assert y.grad_fn._saved_self.data_ptr() == x.data_ptr()
    y.sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_the_report() -> None:
    with simulated.configured("H200", policy="timed", scale=3000):
        x = on_device(values(64, 64) / 8)
        hooks = moving(backlog=1 << 15, lookahead=1 << 15)
        for _ in range(3):
            with hooks:
                y = deep(x, 20)
            y.backward()
            del y
        report = hooks.report()
        assert report["copied_ratio"] == 1.0 and report["times"]["out_bytes"] == 20 * 16384
        # deep() is all memory traffic: the link is slower than that
        assert report["verdict"].startswith("link-bound: ")
        assert report["bound"] < report["step"] < 1.2 * report["bound"]
        assert abs(report["to_host_rate"] * 3000 / 52e9 - 1) < 0.05
        assert any("seq=" in name for name in report["stalls"])
        assert "verdict     link-bound" in str(report) and "GB/s" in str(report)
        assert report["saving_peak"] < report["saving_peak_without"] / 2


def test_a_peak_elsewhere_is_said() -> None:
    hooks = moving(lookahead=1 << 14)
    backend = get("simulated")
    backend.reset_peak_memory_stats()
    with hooks:
        y = deep(on_device(values(64, 64) / 8), 16)
    y.backward()
    del y
    report = hooks.report()
    assert report["device_peak_without"] > 1.3 * report["device_peak"]
    assert "nothing" not in report["verdict"]
    workspace = on_device(values(512, 512), requires_grad=False)
    assert workspace.sum().item() and hooks.report()["verdict"].startswith("offload buys nothing")


def test_the_report_of_nothing() -> None:
    assert offload().report()["verdict"].startswith("nothing was saved")
    hooks = moving()
    with hooks:
        on_device(values(8, 8)).exp()
    assert hooks.report()["verdict"].startswith("no times were taken")


def test_the_plot() -> None:
    pytest.importorskip("matplotlib")
    hooks = moving()
    with hooks:
        y = deep(on_device(values(8, 8)), 4)
    y.backward()
    assert len(hooks.report().plot().axes) == 3


def test_the_bound() -> None:
    assert lower_bound(1, 2, 100e9, 50e9, 25e9, compression=2, recompute=1, coding=0.5) == 4.5
    assert lower_bound(1, 2, 10, 50e9, 50e9) == 3


# Bad arguments ------------------------------------------------------------------------------------


def test_bad_arguments() -> None:
    wanted = "device_type: got 'tpu', want 'cuda', 'simulated' or 'cpu'"
    for context in (save_on_cpu, offload):
        with pytest.raises(ValueError, match=wanted):
            context(device_type="tpu")
    with pytest.raises(ValueError, match="offload: backlog: got -1, want bytes"):
        offload(backlog=-1)
    with pytest.raises(ValueError, match="offload: min_bytes: got None"):
        offload(min_bytes=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="offload: filter: got 3, want a function"):
        offload(filter=3)  # type: ignore[arg-type]


def test_hooks_inside_are_the_ones_that_apply() -> None:
    x = on_device(values(8, 8))
    with moving() as outer, saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x.exp()
    assert outer.stats.saved_tensors == 0
    with moving() as outer, saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2, compose=True):
        y = x.exp()
    assert outer.stats.moved_to_host_bytes == 256
    y.sum().backward()
    assert np.allclose(x.grad.cpu().numpy(), np.exp(values(8, 8)))


# Codecs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["simulated", "cpu"])
@pytest.mark.parametrize("name, error, part", [
    ("bf16", 3e-3, 0.5), ("fp16", 4e-4, 0.5), ("fp8", 4e-2, 0.27), ("int8", 1e-2, 0.27),
])  # fmt: skip
def test_codecs(name: str, error: float, part: float, device: str) -> None:
    def gradient(context: Any) -> Any:
        x = cugrad.tensor(values(64, 64), device=device, requires_grad=True)
        with context:
            y = ((x.exp() @ x.t().tanh()) / 64).sigmoid().sum()
        y.backward()
        return x.grad.cpu().numpy()

    plain = gradient(nullcontext())
    first = hooks = moving(compress=name)
    found = gradient(hooks)
    assert 0 < np.abs(found - plain).max() / np.abs(plain).max() < 8 * error
    assert hooks.stats.moved_to_host_bytes <= part * hooks.stats.encoded_bytes
    report = hooks.report()
    assert 0 < report["error"]["relative_rms"] < error and report["codec"] == name
    assert "relative error" in str(report)
    for policy in simulated.POLICIES:  # time decides nothing
        with simulated.configured(policy=policy):
            for lookahead in (0, 1 << 20):
                hooks = moving(compress=name, lookahead=lookahead, backlog=1 << 20)
                assert np.array_equal(gradient(hooks), found)
    assert first.stats.kept == {}


def test_a_codec_leaves_integers_alone() -> None:
    hooks = moving(compress="int8")
    t = on_device((values(8, 8) * 10).astype(np.int64), requires_grad=False)
    wanted = bytes_of(t)
    with hooks:
        packed = hooks.pack_hook(t)
    del t
    assert bytes_of(hooks.unpack_hook(packed)) == wanted and hooks.stats.encoded_bytes == 0


def test_a_codec_of_your_own() -> None:
    class Halves:
        name = "halves"

        def applies(self, dtype: Any) -> bool:
            return dtype == np.float32

        def encode(self, xp: Any, array: Any) -> Any:
            return array.reshape(-1)[::2].copy().view("uint8")

        def decode(self, xp: Any, payload: Any, dtype: Any, shape: Any) -> Any:
            return xp.repeat(payload.view(dtype), 2).reshape(shape)

    hooks = moving(compress=Halves())
    with hooks:
        packed = [hooks.pack_hook(t) for h in [on_device(values(4, 4), False)] for t in (h, h.t())]
    back = [hooks.unpack_hook(p).cpu().numpy() for p in packed]
    assert np.array_equal(back[0], np.repeat(values(4, 4).reshape(-1)[::2], 2).reshape(4, 4))
    assert np.array_equal(back[1], back[0].T) and hooks.stats.moved_to_host_bytes == 32
    with pytest.raises((TypeError, ValueError), match="compress"):
        offload(compress="zip")


@pytest.mark.parametrize("where", ["save_on_cpu", "save_on_disk"])
def test_what_changes_before_its_copy_is_noted_comes_back_from_the_copy(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that has ended may wait in its queue for one before it that has not."""
    contexts = {
        "save_on_cpu": lambda: cugrad.memory.save_on_cpu(pin_memory=True),
        "save_on_disk": lambda: cugrad.memory.save_on_disk(min_bytes=0),
    }
    device = "simulated" if where == "save_on_cpu" else "cpu"
    x = cugrad.ones(64, device=device, requires_grad=True)
    with monkeypatch.context() as patch:
        patch.setattr(Outbound, "release_finished", lambda self, *_: None)
        with contexts[where]():
            y = x.exp()
            total = y.sum()
            y.add_(1)
        (g,) = cugrad.autograd.grad(total, x)
    assert (g == x.detach().exp()).all().item()


@pytest.mark.parametrize("change", [
    lambda h: h.conj().imag.add_(2), lambda h: h.conj()[0].mul_(2), lambda h: h.conj().zero_(),
    lambda h: h.mT.conj().copy_(h), lambda h: h.conj().imag[1].neg_(),
])  # fmt: skip
def test_a_change_through_a_conjugate_waits_for_what_leaves(change: Any) -> None:
    """It is written to what is on its way out, too: the copy has the values of before."""
    found = []
    for changes in (False, True):
        x = (cugrad.arange(4.0).reshape(2, 2) + 1j).requires_grad_()
        with offload(min_bytes=0, keep_last=0):
            h = x * 2
            y = (h * h.exp()).abs().sum()
            if changes:
                with cugrad.no_grad():
                    change(h)
        y.backward()
        found.append(x.grad.tolist())
    assert found[0] == found[1]
