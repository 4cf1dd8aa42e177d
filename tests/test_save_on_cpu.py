"""save_on_cpu on a device that copies as late as its events allow, and poisons what is dropped."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends
from cugrad.autograd.graph import save_on_cpu
from cugrad.backends.numpy import NumpyBackend
from cugrad.memory import offload
from cugrad.tensor import make

Host = np.ndarray[Any, Any]
POISON = 0xA5


# A device that is late ----------------------------------------------------------------------------


class LateArray(np.ndarray):
    """An array of the fake device. Whatever computes with it first runs the compute stream."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        compute.synchronize()
        if "out" in kwargs:
            kwargs["out"] = tuple([bare(x) for x in kwargs["out"]])
        return clothed(getattr(ufunc, method)(*[bare(x) for x in inputs], **kwargs))

    def copy(self, order: Any = "C") -> Any:
        compute.synchronize()
        return clothed(bare(self).copy(order))

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        compute.synchronize()
        return clothed(bare(self).astype(*args, **kwargs))

    def __setitem__(self, index: Any, value: Any) -> None:
        compute.synchronize()
        super().__setitem__(index, value)


def bare(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, LateArray) else x


def clothed(x: Any) -> Any:
    return x.view(LateArray) if isinstance(x, np.ndarray) else x


class LateStream:
    """A queue of copies, each of which runs only when somebody has to wait for it."""

    ptr = 1

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue: list[Any] = []  # callables, run in order

    def wait_event(self, event: LateEvent) -> None:
        self.queue.append(event.happen)

    def record_event(self, event: LateEvent | None = None) -> LateEvent:
        event = event or LateEvent()
        event.record(self)
        return event

    def run(self, length: int) -> None:
        """Runs the first `length` entries ever queued that have not run."""
        while self.queue and length > 0:
            length -= 1
            self.queue.pop(0)()

    def synchronize(self) -> None:
        self.run(len(self.queue))

    def query(self) -> bool:
        return not self.queue


class LateEvent:
    """A marker in a stream's queue; asking whether it happened makes nothing happen."""

    def __init__(self) -> None:
        self.stream: LateStream | None = None
        self.happened = False

    def record(self, stream: LateStream | None = None) -> None:
        assert stream is not None
        self.stream, self.happened = stream, False

        def mark() -> None:
            self.happened = True

        stream.queue.append(mark)

    def happen(self) -> None:
        while not self.happened:
            assert self.stream is not None and self.stream.queue, "wait for an event never recorded"
            self.stream.run(1)

    def wait(self, stream: LateStream | None = None) -> None:
        assert stream is not None
        stream.wait_event(self)

    def synchronize(self) -> None:
        self.happen()

    def query(self) -> bool:
        return self.happened


compute = LateStream("compute")


class LateNamespace:
    """NumPy's functions; all but those that only allocate run the compute stream first."""

    def __init__(self, host: Any) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._host, name)
        if not callable(value) or isinstance(value, type):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if name not in ("empty", "empty_like"):
                compute.synchronize()
            return clothed(value(*args, **kwargs))

        return call


class LateBackend(NumpyBackend):
    """A "cuda" of NumPy arrays whose copies happen at the last moment that events allow."""

    name, device_type = "late", "cuda"
    array_types = (LateArray,)

    def __init__(self) -> None:
        super().__init__()
        self.compute = compute
        compute.queue.clear()
        self.streams: list[LateStream] = []
        self.pinned: list[Host] = []
        self.copies: list[tuple[str, int]] = []
        self.xp = LateNamespace(backends.get("cpu").xp)

    def wrap(self, value: Any) -> Any:
        return value if type(value) is LateArray else np.asarray(value).view(LateArray)

    def asarray(self, value: Any, dtype: Any = None) -> Any:
        return np.asarray(value, dtype).view(LateArray)

    def to_host(self, array: Any) -> Host:
        self.compute.synchronize()
        return np.array(array, copy=True).view(np.ndarray)

    def device_index(self, array: Any) -> int:
        return 0

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def use_device(self, index: int | None) -> Any:
        return nullcontext()

    def stream(self, priority: int = 0) -> Any:
        made = LateStream(f"side {len(self.streams)}")
        self.streams.append(made)
        return made

    def current_stream(self) -> Any:
        return self.compute

    def event(self, timing: bool = False) -> Any:
        return LateEvent()

    def empty_pinned(self, shape: Any, dtype: Any) -> Host:
        made = np.empty(shape, dtype)
        made.view(np.uint8).fill(POISON)
        self.pinned.append(made)
        return made

    def is_pinned(self, array: Any) -> bool:
        return any(array is p for p in self.pinned)

    def copy_async(self, dst: Any, src: Any, stream: Any) -> None:
        assert dst.flags.c_contiguous and src.flags.c_contiguous and dst.nbytes == src.nbytes
        self.copies.append(("out" if isinstance(src, LateArray) else "back", src.nbytes))
        stream.queue.append(Copy(dst, src))


class Copy:
    """A queued copy. It knows addresses: once its source was dropped, and the compute stream came
    past that point, others write there."""

    def __init__(self, dst: Any, src: Any) -> None:
        self.dst, self.src = (np.frombuffer(memoryview_of(x), np.uint8) for x in (dst, src))
        self.reused = False
        held = src if isinstance(src, LateArray) or src.base is None else src.base  # pinned: all
        weakref.finalize(held, self.drop).atexit = False

    def drop(self) -> None:
        compute.queue.append(self.reuse)

    def reuse(self) -> None:
        self.reused = True

    def __call__(self) -> None:
        self.dst[...] = POISON if self.reused else self.src


def memoryview_of(array: Any) -> Any:
    """The bytes of an array, whose memory stays while the array object may go."""
    kept = (ctypes.c_uint8 * array.nbytes).from_address(array.__array_interface__["data"][0])
    kept.owner = array if array.base is None else array.base
    assert not isinstance(array, LateArray) or array.base is not None
    return kept


@pytest.fixture
def late() -> Iterator[LateBackend]:
    """The fake device, registered as "cuda" for one test."""
    by_device = dict(backends._by_device_type)
    by_array = dict(backends._by_array_type)
    engines = dict(offload._engines)
    offload._engines.clear()
    backend = LateBackend()
    backends._register(backend)
    with cugrad.device("cuda"):
        yield backend
    for registry, before in ((backends._by_device_type, by_device),
                             (backends._by_array_type, by_array),
                             (offload._engines, engines)):  # fmt: skip
        registry.clear()
        registry.update(before)


def on_device(values: Any, requires_grad: bool = True) -> Any:
    return make(np.asarray(values).view(LateArray)).requires_grad_(requires_grad)


@contextmanager
def no_offload() -> Iterator[None]:
    yield


def values(*shape: int, dtype: Any = np.float32) -> Any:
    n = int(np.prod(shape))
    return (np.arange(n) * 0.37 % 1.7 - 0.6).reshape(shape).astype(dtype)


# What comes back is what was saved ----------------------------------------------------------------


LAYOUTS = {
    "plain": lambda a: a,
    "permuted": lambda a: a.transpose(1, 0, 2),
    "reversed dims": lambda a: a.transpose(2, 1, 0),
    "sliced": lambda a: a[:, 1:3],
    "strided": lambda a: a[::2, :, ::3],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "broadcast within": lambda a: np.broadcast_to(a[:, :, :1], a.shape),
    "0-d": lambda a: a[0, 0, 0:1].reshape(()),
    "one": lambda a: a[:1, :1, :1],
    "empty": lambda a: a[:0],
    "half": lambda a: a.astype(np.float16),
    "double": lambda a: a.astype(np.float64).transpose(2, 0, 1),
    "integers": lambda a: (a * 10).astype(np.int64),
    "bool": lambda a: a > 0,
    "complex": lambda a: a + 1j * a[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pin_memory", [True, False])
def test_a_saved_tensor_comes_back_as_it_was(
    late: LateBackend, layout: str, pin_memory: bool
) -> None:
    array = LAYOUTS[layout](values(4, 4, 6)).view(LateArray)
    t = on_device(array, requires_grad=False)
    wanted, strides = np.array(array), t.stride()
    hooks = save_on_cpu(pin_memory=pin_memory)
    packed = hooks.pack_hook(t)
    del array, t
    for _ in range(3):  # any number of times
        back = hooks.unpack_hook(packed)
        late.compute.synchronize()
        got = np.array(back._array)
        assert got.tobytes() == wanted.tobytes() and got.dtype == wanted.dtype
        assert type(back._array) is LateArray
        if layout in ("plain", "permuted", "reversed dims", "double", "half", "0-d"):
            assert back.stride() == strides


def test_bfloat16_comes_back(late: LateBackend) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    t = on_device(values(3, 4).astype(ml_dtypes.bfloat16), requires_grad=False)
    hooks = save_on_cpu(pin_memory=True)
    back = hooks.unpack_hook(hooks.pack_hook(t))
    late.compute.synchronize()
    assert back.dtype is cugrad.bfloat16
    assert np.array(back._array).tobytes() == np.array(t._array).tobytes()


def step(x: Any, w: Any) -> Any:
    h = (x @ w).tanh()
    return ((h * h.t().contiguous().t()).exp() * h).sum()


def gradients(context: Any) -> tuple[Any, Any]:
    x, w = on_device(values(6, 6)), on_device(values(6, 6).T * 0.5)
    with context:
        y = step(x, w)
    y.backward()
    return x.grad._array.tobytes(), w.grad._array.tobytes()


def test_gradients_are_bitwise_those_without(late: LateBackend) -> None:
    plain = gradients(no_offload())
    assert gradients(save_on_cpu(pin_memory=True)) == plain
    assert gradients(save_on_cpu()) == plain


def test_retain_graph_and_second_derivatives(late: LateBackend) -> None:
    found = []
    for context in (no_offload(), save_on_cpu(pin_memory=True)):
        x = on_device(values(3, 3))
        with context:
            y = (x.exp() * x).sum()
            (g,) = cugrad.autograd.grad(y, x, create_graph=True)
        (h,) = cugrad.autograd.grad(g.sum(), x, retain_graph=True)
        y.backward(retain_graph=True)
        y.backward()
        late.compute.synchronize()
        found.append([t._array.tobytes() for t in (g, h, x.grad)])
    assert found[0] == found[1]


# The order of events ------------------------------------------------------------------------------


def test_a_source_lives_until_it_was_copied(late: LateBackend) -> None:
    hooks = save_on_cpu(pin_memory=True)
    packed = [hooks.pack_hook(on_device(values(8) + k, False)) for k in range(5)]
    assert len(late.copies) == 5 and late.streams[0].queue  # nobody waited: nothing has run
    for k in reversed(range(5)):
        back = hooks.unpack_hook(packed[k])
        late.compute.synchronize()
        assert np.array(back._array).tolist() == (values(8) + k).tolist()


def test_compute_waits_for_what_comes_back(late: LateBackend) -> None:
    hooks = save_on_cpu(pin_memory=True)
    packed = hooks.pack_hook(on_device(values(8), False))
    back = hooks.unpack_hook(packed)
    assert (back * 1).tolist() == values(8).tolist()  # ops run the compute stream, nothing else


def test_a_buffer_is_not_reused_before_its_last_copy(late: LateBackend) -> None:
    """Packed objects die while copies out and back are still queued."""
    hooks = save_on_cpu(pin_memory=True)
    kept = []
    for k in range(6):
        packed = hooks.pack_hook(on_device(values(8) + k, False))
        kept.append(hooks.unpack_hook(packed))
        del packed
    assert len(late.pinned) == 1  # each copy out waits for the copy back before it, on its stream
    late.streams[0].synchronize()  # the copies out run as early as they may
    late.compute.synchronize()
    for k, back in enumerate(kept):
        assert np.array(back._array).tolist() == (values(8) + k).tolist()


def test_a_buffer_that_still_comes_back_is_not_written(late: LateBackend) -> None:
    hooks = save_on_cpu(pin_memory=True)
    packed = hooks.pack_hook(on_device(values(8), False))
    outward = late.streams[0]
    outward.synchronize()
    back = hooks.unpack_hook(packed)
    del packed
    another = hooks.pack_hook(on_device(values(8) + 1, False))
    outward.synchronize()  # the copy of the second tensor overtakes that of the first one back
    late.compute.synchronize()
    assert np.array(back._array).tolist() == values(8).tolist()
    assert another is not None


def test_copies_wait_for_the_kernels_before_them(late: LateBackend) -> None:
    """One that writes the source, and one that still uses the block the target was given."""
    array, log = values(8).view(LateArray), []
    late.compute.queue.append(lambda: array.view(np.ndarray).fill(7))
    hooks = save_on_cpu(pin_memory=True)
    packed = hooks.pack_hook(on_device(array, False))
    outward, inward = late.streams
    outward.synchronize()
    late.compute.queue.append(lambda: log.append("kernel"))
    back = hooks.unpack_hook(packed)
    assert not log
    inward.synchronize()
    assert log == ["kernel"]
    assert np.array(back._array).tolist() == [7] * 8


def test_a_buffer_of_a_tensor_that_never_came_back(late: LateBackend) -> None:
    hooks = save_on_cpu(pin_memory=True)
    for k in range(3):
        hooks.pack_hook(on_device(values(8) - k, False))  # dropped at once, its copy still queued
    back = hooks.unpack_hook(hooks.pack_hook(on_device(values(8), False)))
    late.compute.synchronize()
    assert np.array(back._array).tolist() == values(8).tolist()
    made = len(late.pinned)
    for _ in range(made):
        hooks.pack_hook(on_device(values(8), False))
    assert len(late.pinned) == made


def test_no_pinned_memory_after_the_second_step(late: LateBackend) -> None:
    x, w = on_device(values(6, 6)), on_device(values(6, 6))
    counts = []
    for _ in range(6):
        with save_on_cpu(pin_memory=True):
            y = step(x, w)
        y.backward()
        y.item()
        del y
        counts.append(len(late.pinned))
    assert counts[1:] == [counts[1]] * 5


def test_too_many_copies_on_their_way_make_compute_wait(
    late: LateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload.CopyEngine, "MAX_PENDING", 100)
    hooks = save_on_cpu(pin_memory=True)
    packed = [hooks.pack_hook(on_device(values(16) + k, False)) for k in range(10)]
    engine = offload.engine_of(late, 0)
    assert engine._pending_bytes <= 100 + 2 * 64
    for k, box in enumerate(packed):
        back = hooks.unpack_hook(box)
        late.compute.synchronize()
        assert np.array(back._array).tolist() == (values(16) + k).tolist()


# What it counts, and what it leaves alone ---------------------------------------------------------


def test_statistics(late: LateBackend) -> None:
    x = on_device(values(4, 4))
    with save_on_cpu(pin_memory=True) as context:
        y = (x * x).exp().sum()
    stats = context.stats
    assert (stats.saved_tensors, stats.saved_bytes) == (3, 3 * 64)
    assert (stats.moved_to_host_bytes, stats.moved_back_bytes) == (3 * 64, 0)
    y.backward()
    assert stats.moved_back_bytes == 3 * 64 and stats.already_on_host == 0
    stats.reset()
    assert stats == offload.OffloadStats()


def test_host_tensors_are_not_copied(late: LateBackend) -> None:
    x = cugrad.tensor([1.0, 2.0], device="cpu", requires_grad=True)
    with save_on_cpu(pin_memory=True) as context:
        y = x * x
    assert context.stats.already_on_host == 16 and context.stats.moved_to_host_bytes == 0
    assert y.grad_fn._saved_self.data_ptr() == x.data_ptr()
    assert not late.copies and not late.pinned
    y.sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_a_changed_tensor_is_still_noticed(late: LateBackend) -> None:
    x = on_device(values(4))
    y = x * 1
    with save_on_cpu(pin_memory=True):
        z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_exception_leaks_nothing(late: LateBackend, where: str) -> None:
    x = on_device(values(4))

    def fail(g: Any = None) -> None:
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError), save_on_cpu(pin_memory=True):
            y = (x * x).exp()
            if where == "forward":
                fail()
            x_hook = x.register_hook(fail)
            try:
                y.sum().backward()
            finally:
                x_hook.remove()
        del y
        for stream in late.streams:
            stream.synchronize()
    made = len(late.pinned)
    assert made <= 3
    with save_on_cpu(pin_memory=True):
        (x * x).exp()
    assert len(late.pinned) == made  # all had been given back
    assert cugrad.autograd.mode.state.hooks == ()


def test_a_wrong_device_type_is_refused() -> None:
    wanted = "device_type: got 'tpu', want 'cuda', 'simulated' or 'cpu'"
    with pytest.raises(ValueError, match=wanted):
        save_on_cpu(device_type="tpu")


def test_a_buffer_is_overwritten_only_behind_the_copy_that_still_reads_it(
    late: LateBackend,
) -> None:
    hooks = save_on_cpu(pin_memory=True)
    first = hooks.pack_hook(on_device(values(64), requires_grad=False))
    # another thread's stream wants it back; through one stream alone, order would follow by itself
    late.compute = other = LateStream("other compute")
    back = hooks.unpack_hook(first)  # the copy back is queued: it has not read the buffer yet
    late.compute = compute
    del first
    second = hooks.pack_hook(on_device(values(64) + 5, requires_grad=False))
    assert len(late.pinned) == 1  # the same buffer again
    second.copied.happen()  # the device does the copies out as early as events allow
    other.synchronize()
    assert np.array_equal(np.array(back._array), values(64))
