"""The offload engine over CuPy: on a GPU, and over the fake CUDA where there is none."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.autograd.graph import save_on_cpu
from cugrad.backends.lending.pinned import pinned_memory
from cugrad.backends.lending.slab import PinnedSlab
from cugrad.backends.reclaimers import Reclaimers
from cugrad.memory import offload
from cugrad.memory.geometry import root_of
from cugrad.memory.offloading.engine import engine_of
from tests.support import fake_cuda
from tests.support.fake_streams import PinnedMemory

HAS_CUDA = backends.is_usable("cuda")
on_cuda = pytest.mark.skipif(not HAS_CUDA, reason="no usable GPU, and no fake one")
N = 64


def moving(**choices: Any) -> offload:
    return offload(**{"min_bytes": 0, "keep_last": 0, "backlog": 0, **choices})


def gradient(context: Any, twice: bool = True) -> Any:
    values = np.arange(N * N, dtype=np.float32).reshape(N, N) % 37 / 37 - 0.5
    x = cugrad.tensor(values, device="cuda", requires_grad=True)
    with context:
        h = (x @ x / 8).tanh()
        y = ((h * h.t().contiguous().t()).exp() * h)[:, 1:50].sum() + h[3].sin().sum()
    y.backward(retain_graph=twice)
    if twice:
        y.backward()
    return x.grad.cpu().numpy()


@on_cuda
@pytest.mark.parametrize("name, context", [
    ("pinned", lambda: save_on_cpu(pin_memory=True)), ("pageable", save_on_cpu),
    ("at once", moving), ("automatic", lambda: offload(min_bytes=0)),
    ("on demand", lambda: moving(lookahead=0)), ("no pinned memory", lambda: moving(host_limit=0)),
])  # fmt: skip
def test_gradients_are_bitwise_those_without(name: str, context: Any) -> None:
    plain = gradient(nullcontext())
    for _ in range(4):
        assert gradient(context()).tobytes() == plain.tobytes()


@on_cuda
@pytest.mark.parametrize("codec", ["bf16", "fp16", "fp8", "int8"])
def test_codecs(codec: str) -> None:
    plain = gradient(nullcontext())
    hooks = moving(compress=codec)
    found = gradient(hooks)
    assert 0 < np.abs(found - plain).max() < 0.1 * np.abs(plain).max()
    assert np.array_equal(gradient(moving(compress=codec)), found)
    assert 0 < hooks.report()["error"]["relative_rms"] < 0.05


@on_cuda
def test_the_report_and_what_is_left() -> None:
    backend = backends.get("cuda")
    engine = engine_of(backend, backend.current_device())
    hooks = moving()
    for _ in range(3):
        gradient(hooks, twice=False)
    report = hooks.report()
    assert report["copied_ratio"] == 1.0 and report["times"]["out_bytes"] > 0
    assert report["over_bound"] > 0 and "verdict" in str(report)
    locked = engine.out.slab.allocated_bytes
    for _ in range(3):
        gradient(hooks, twice=False)
    assert engine.out.slab.allocated_bytes == locked
    engine.drain()
    assert (engine.ledger.ahead, engine.out.leaving_bytes, engine.out.slab.used_bytes) == (0, 0, 0)


@on_cuda
def test_a_failed_allocation_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backends.get("cuda")
    engine = engine_of(backend, backend.current_device())
    hooks = moving(backlog=1 << 40)
    t = cugrad.ones(1 << 16, device="cuda")
    with hooks:
        packed = hooks.pack_hook(t)
    calls = []

    def reclaim() -> bool:
        engine.reclaim()
        calls.append(engine.out.leaving_bytes)
        return len(calls) == 1

    failures = [True, False]

    def failing(size: int) -> Any:
        if failures and failures.pop(0):
            raise MemoryError("full")
        return object()

    from cugrad.backends.cupy import memory as cupy_memory

    wrapped = cupy_memory._retrying(failing)
    monkeypatch.setattr(cupy_memory, "_reclaimers", Reclaimers())
    cupy_memory._reclaimers.add(reclaim)
    assert wrapped(512) is not None
    failures[:] = [True, True]
    with pytest.raises(MemoryError):
        wrapped(512)
    assert calls == [0, 0]  # everything had left
    assert hooks.unpack_hook(packed).sum().item() == 1 << 16


@on_cuda
def test_a_full_host_takes_what_it_can_and_pageable_memory_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fake_cuda.REAL is None:
        pytest.skip("only the fake CUDA can be told how much memory the host has")
    backend, hooks = backends.get("cuda"), moving()
    engine_of(backend, 0).drain()
    engine_of(backend, 0).out.slab.release()
    pinned_memory(backend).release()
    plain = gradient(nullcontext())
    monkeypatch.setattr(PinnedMemory, "limit", 10_000)
    assert gradient(hooks).tobytes() == plain.tobytes()
    assert hooks.stats.pageable_bytes > 0
    slab = PinnedSlab(backend)
    assert slab.take(9_000) is not None and slab.take(11_000) is None  # less than it likes to lock
    with pytest.raises(MemoryError, match="cannot page-lock 200,000 bytes of host memory"):
        pinned_memory(backend).empty((50_000,), np.dtype(np.float32))


@on_cuda
def test_a_graph_that_is_captured_has_no_offload_in_it() -> None:
    t = cugrad.ones(96, device="cuda")
    hooks, stream = moving(), cugrad.cuda.Stream()
    packed = hooks.pack_hook(t)
    with cugrad.cuda.stream(stream):
        native = backends.get("cuda").current_stream().native
        native.begin_capture()
        try:
            for forbidden in (lambda: hooks.pack_hook(t), lambda: hooks.unpack_hook(packed)):
                with pytest.raises(RuntimeError, match="a CUDA graph is being captured"):
                    forbidden()
                assert native.is_capturing()  # it is as it was
        finally:
            native.end_capture()
    assert hooks.unpack_hook(packed).tolist() == t.tolist()


@on_cuda
def test_the_allocator_is_wrapped_wherever_that_is_asked_for() -> None:
    """As where a graph is captured, in a pool of its own."""
    import cupy

    from cugrad.backends.cupy import memory as cupy_memory

    before, own = cupy.cuda.get_allocator(), lambda size: None
    with cupy.cuda.using_allocator(own):
        cupy_memory.wrap_allocator(lambda allocate: ("wrapped", allocate))
        assert cupy.cuda.get_allocator() is own
    assert cupy.cuda.get_allocator() == ("wrapped", before)
    cupy.cuda.set_allocator(before)


@on_cuda
def test_a_library_without_memory_gets_what_the_pool_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fake_cuda.REAL is None:
        pytest.skip("only the fake CUDA can be told to have no memory for a handle")
    a = cugrad.ones(4, 4, device="cuda")
    monkeypatch.setattr(fake_cuda.STATE, "without_handle", 1)
    assert (a @ a).sum().item() == 64
    monkeypatch.setattr(fake_cuda.STATE, "without_handle", 2)
    assert (a @ a).sum().item() == 64  # the whole op again
    monkeypatch.setattr(fake_cuda.STATE, "without_handle", 9)
    with pytest.raises(RuntimeError, match="ALLOC_FAILED"):
        a @ a


@on_cuda
def test_streams_are_the_same_in_every_thread() -> None:
    from cugrad.backends.cupy.stream import CudaStream

    with pytest.raises(RuntimeError, match="CUPY_CUDA_PER_THREAD_DEFAULT_STREAM"):
        CudaStream(SimpleNamespace(ptr=2))


@on_cuda
def test_events_that_a_destructor_hands_on_are_not_destroyed() -> None:
    """The collector runs destructors of all that is in a cycle, CUDA's too: see a span's."""
    backend, handed = backends.get("cuda"), []

    class Holder:
        def __del__(self) -> None:
            handed.append((self.event, self.stream))

    for _ in range(8):
        holder: Any = Holder()
        holder.cycle, holder.stream = holder, backend.stream()
        holder.event = holder.stream.record_event()
        del holder
        gc.collect()
    assert len(handed) == 8
    for event, stream in handed:
        stream.wait_event(event)
        event.record(stream)
        stream.synchronize()


@on_cuda
def test_views_by_strides_are_of_the_storage_that_they_show() -> None:
    """CuPy's name no base."""
    t = cugrad.arange(64.0, device="cuda")
    window = t[8:].as_strided((4, 3), (2, 1))
    assert (window.storage_offset(), window[1:].storage_offset()) == (8, 10)
    assert window.untyped_storage().data_ptr() == t.data_ptr()
    assert window.as_strided((2,), (1,)).tolist() == [8, 9]
    assert window.as_strided((2,), (1,), 0).tolist() == [0, 1]
    assert t.unfold(0, 4, 3)[1].as_strided((2,), (1,), 62).tolist() == [62, 63]


@on_cuda
def test_views_by_strides_leave_with_their_storage() -> None:
    for _ in range(3):
        t = cugrad.arange(64.0, device="cuda")
        hooks = moving()
        pairs = t[3:7].as_strided((2,), (2,))
        views = [t.as_strided((9, 8), (6, 1), 2), t, t.unfold(0, 5, 1), pairs]
        wanted = [v.tolist() for v in views]
        with hooks:
            packed = [hooks.pack_hook(v) for v in views]
        del t, views, pairs
        back = [hooks.unpack_hook(p) for p in packed]
        assert [v.tolist() for v in back] == wanted
        assert len({v.untyped_storage().data_ptr() for v in back}) == 1
        assert (hooks.stats.copied_ratio, hooks.stats.moved_to_host_bytes) == (1.0, 256)


@on_cuda
@pytest.mark.parametrize("saving", [moving, lambda: moving(host_limit=0)])
def test_what_comes_back_is_aligned_as_it_was(saving: Any) -> None:
    """A part of a storage, and in it a view of wider elements, which NumPy reads anywhere."""
    t = cugrad.arange(1000.0, device="cuda")
    views = [t[1:301], cugrad.view_as_complex(t[2:300].reshape(-1, 2))]
    wanted = [v.tolist() for v in views]
    hooks = saving()
    with hooks:
        packed = [hooks.pack_hook(v) for v in views]
    del t, views
    back = [hooks.unpack_hook(p) for p in packed]
    assert [(v + 0).tolist() for v in back] == wanted
    assert hooks.stats.moved_to_host_bytes == 1200
    assert len({v.untyped_storage().data_ptr() for v in back}) == 1


@on_cuda
def test_a_write_waits_for_what_is_leaving_of_the_same_memory() -> None:
    t = cugrad.arange(64.0, device="cuda")
    window = t.as_strided((8, 8), (7, 1))
    assert root_of(window._array) is root_of(t._array) is t._array


@on_cuda
def test_a_gradient_that_is_a_view_by_strides_is_not_taken_as_it_is() -> None:
    x = cugrad.ones(6, device="cuda", requires_grad=True)
    v = cugrad.ones(3, device="cuda", requires_grad=True)
    (g,) = cugrad.autograd.grad(x.as_strided((3,), (1,)), x, v, create_graph=True)
    h = cugrad.arange(6.0, device="cuda")
    g.backward(h)  # the gradient of v is a view of h
    v.grad.add_(1)
    assert h.tolist() == [0, 1, 2, 3, 4, 5] and v.grad.tolist() == [1, 2, 3]


@pytest.mark.skipif(HAS_CUDA, reason="the tests above have run")
def test_over_the_fake_cuda() -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    assert "24 passed" in fake_cuda.passed(__file__)
