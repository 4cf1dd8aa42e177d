"""Offload where memory ends, when steps repeat, and where values are rounded."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import backends, memory
from cugrad.backends import simulated
from cugrad.backends.lending.slab import PinnedSlab
from cugrad.memory.codecs import CODECS, codec_of
from tests.memory.offload.cases import CASES
from tests.memory.offload.test_conformance import (
    SCHEDULES,
    Placement,
    assert_same,
    forget,
    held,
    nothing_leaks,
    on_numpy,
    plain,
    run,
    schedule,
    the_engine,
)

Host = np.ndarray[Any, Any]
KIB = 1024
DEVICE: Any = backends.get("simulated")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    forget()
    gc.collect()
    gc.freeze()  # for good: what is unfrozen, 50,000 tests and PyTorch, is walked each time
    DEVICE.empty_cache()
    yield
    simulated.reset()
    DEVICE.empty_cache()


def layers(x: Any, n: int = 16) -> Any:
    """Saves n results of the size of x."""
    h = x
    for _ in range(n):
        h = (h * 1.01).tanh()
    return h.sum()


def leaf(kib: int = 64) -> Any:
    values = np.random.default_rng(0).uniform(-1, 1, kib * KIB // 4).astype(np.float32)
    return cugrad.tensor(values, device="simulated").requires_grad_()


def gradient(context: Any, n: int = 16, kib: int = 64) -> bytes:
    x = leaf(kib)
    with context:
        y = layers(x, n)
    y.backward()
    return bytes(x.grad.cpu().numpy().tobytes())


def offload(**options: Any) -> Any:
    return memory.offload(**{"min_bytes": 0, "keep_last": 0, **options})


@functools.cache
def expected(codec: str | None = None) -> bytes:
    """The gradient with what a codec rounds, wherever and whenever copies go."""
    return gradient(offload(compress=codec) if codec else nullcontext())


# The device's memory ends -------------------------------------------------------------------------


def room(kib: int) -> int:
    """A capacity with `kib` KiB free."""
    gc.collect()
    DEVICE.empty_cache()
    return DEVICE.memory_reserved() + kib * KIB


FITTED: list[dict[str, Any]] = [
    {}, {"backlog": 1 << 40}, {"backlog": 0}, {"lookahead": 1 << 40}, {"lookahead": 0},
    {"backlog": 1 << 40, "lookahead": 1 << 40}, {"keep_last": None}, {"compress": "bf16"},
]  # fmt: skip


@pytest.mark.parametrize(("policy", "options"), [
    (policy, options) for i, policy in enumerate(simulated.POLICIES)
    for k, options in enumerate(FITTED) if not options or (i + k) % 2
], ids=str)  # fmt: skip
def test_what_does_not_fit_is_made_to_fit(policy: str, options: dict[str, Any]) -> None:
    """The device has room for 8 of 18 layers: copies on their way, and ahead, are given up."""
    layers_of_room = 20 if "compress" in options else 8  # codecs need some, too
    wanted = expected(options.get("compress"))
    with simulated.configured(policy=policy), nothing_leaks():
        small = offload(**options)
        for _ in range(3):
            with simulated.configured(capacity=room(layers_of_room * 64)):
                assert gradient(small) == wanted
        del small  # it keeps what its report will say of errors


@pytest.mark.parametrize("policy", simulated.POLICIES)
def test_a_device_that_is_too_small(policy: str) -> None:
    """Without offload it is; with it, one layer that does not fit is. Both leave nothing."""
    wanted = expected()
    with simulated.configured(policy=policy):
        for context, kib in ((cugrad.enable_grad(), 8 * 64), (offload(), 100)):
            with nothing_leaks(), simulated.configured(capacity=room(kib)):
                try:
                    gradient(context)
                    pytest.fail("it fitted")
                except MemoryError as error:
                    assert "Out of memory allocating 65,536 bytes" in str(error)
                    error.__traceback__ = None
        with nothing_leaks():
            assert gradient(offload()) == wanted


def test_memory_ends_in_backward() -> None:
    """The user fills the device between forward and backward; then backward has to do with less."""
    wanted = expected()
    saving = offload(lookahead=1 << 40)
    for _ in range(2):
        with nothing_leaks():
            x = leaf()
            with saving:
                y = layers(x)
            the_engine().drain()
            with simulated.configured(capacity=room(5 * 64)):
                y.backward()
                assert x.grad.cpu().numpy().tobytes() == wanted
            del x, y


def test_memory_ends_in_backward_and_comes_back() -> None:
    with nothing_leaks():
        x = leaf()
        saving = offload()
        with saving:
            y = layers(x)
        the_engine().drain()
        with simulated.configured(capacity=room(70)):
            try:
                y.backward(retain_graph=True)
                pytest.fail("it fitted")
            except MemoryError as error:
                error.__traceback__ = None
        y.backward()
        found = x.grad.cpu().numpy().tobytes()
        del x, y
    assert found == expected()


# The host's memory ends ---------------------------------------------------------------------------


def test_no_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds no page-locked memory goes to ordinary memory."""
    wanted, original = expected(), PinnedSlab.taken
    engine = the_engine()
    for part in (0, 3):
        left = [part]

        def take(slab: PinnedSlab, nbytes: int, within: Any = None, left: Any = left) -> Any:
            left[0] -= 1
            return original(slab, nbytes, within) if left[0] >= 0 else None

        monkeypatch.setattr(PinnedSlab, "taken", take)
        saving = offload()
        with nothing_leaks():
            assert gradient(saving) == wanted
        monkeypatch.undo()
        stats = saving.stats
        assert stats.pageable_bytes == stats.moved_to_host_bytes - part * 64 * KIB > 0
        assert stats.copied_ratio == 1 and engine.out.slab.used_bytes == 0


def test_a_host_that_cannot_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise MemoryError("cudaHostAlloc")

    wanted = expected()
    the_engine().out.slab.release()
    monkeypatch.setattr(type(DEVICE), "empty_pinned", refuse)
    for context in (offload(), memory.save_on_cpu(pin_memory=True)):
        with nothing_leaks():
            assert gradient(context) == wanted
        assert context.stats.pageable_bytes > 0


def test_a_host_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host has no room for stays on the device."""
    wanted = expected()
    x = leaf()
    saving = offload(host_limit=4 * 64 * KIB)
    with monkeypatch.context() as patch:
        patch.setattr(type(DEVICE), "to_host", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with saving:
            y = layers(x)
    y.backward()
    assert x.grad.cpu().numpy().tobytes() == wanted
    stats = saving.stats
    assert stats.moved_to_host_bytes == 4 * 64 * KIB and stats.pageable_bytes == 0
    assert stats.kept["host full"] == stats.unique_bytes - 4 * 64 * KIB


def test_the_limit_is_a_limit() -> None:
    engine = the_engine()
    for kib in (0, 64, 100, 64 * 5):
        engine.out.slab.peak_bytes = 0
        saving = offload(host_limit=kib * KIB)
        with nothing_leaks():
            gradient(saving)
        assert engine.out.slab.peak_bytes <= kib * KIB
        assert saving.stats.pageable_bytes == (16 - kib // 64) * 64 * KIB


# Steps that repeat --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", simulated.POLICIES)
@pytest.mark.parametrize("name", ["offload", "save_on_cpu"])
def test_nothing_is_allocated_or_waited_for_after_the_second_step(policy: str, name: str) -> None:
    machine, engine = simulated.MACHINE, the_engine()
    saving = offload() if name == "offload" else memory.save_on_cpu(pin_memory=True)
    waits: list[str] = []
    with simulated.configured(policy=policy, seed=5):
        found = []
        for _ in range(5):
            x = leaf()
            with saving:
                y = layers(x)
            before = machine.host_waits_for, machine.synchronize_stream, machine.synchronize
            for method in ("host_waits_for", "synchronize_stream", "synchronize"):
                setattr(machine, method, lambda *_, m=method: waits.append(m))
            try:
                y.backward()
            finally:
                for method in ("host_waits_for", "synchronize_stream", "synchronize"):
                    delattr(machine, method)
            assert before
            found.append((engine.out.slab.allocated_bytes, len(engine.out.slab._chunks)))
        assert found[2:] == found[1:2] * 3
        assert not waits


def test_after_the_first_step_nothing_is_asked_for_before_it_is_on_its_way() -> None:
    saving = offload(lookahead=3 * 64 * KIB)
    on_demand = []
    for _ in range(4):
        x = leaf()
        with saving:
            y = layers(x)
        the_engine().drain()  # all has left
        y.backward()
        on_demand.append(saving.stats.on_demand)
    assert on_demand[0] == 64 * KIB  # the very last tensor
    assert [b - a for a, b in zip(on_demand, on_demand[1:])] == [64 * KIB] * 3
    assert saving.stats.copied_ratio == 1
    assert saving.stats.moved_back_bytes == saving.stats.moved_to_host_bytes


@pytest.mark.parametrize("name", [
    "one_tensor_saved_many_times", "slices", "transposes", "parts_then_all_of_a_storage", "chain",
    "layers_of_parameters", "training_a_network", "training_attention", "a_long_chain", "diamond",
    "many_outputs", "unfolded", "overlapping",
])  # fmt: skip
def test_each_byte_leaves_once(name: str) -> None:
    """Bytes copied by bytes of unique storage: 1.00; and parameters stay.

    Who first saves a part, and then all of a storage, cannot know; from the second step on he does.
    """
    made: list[offload] = []

    def make() -> Any:
        made.append(offload())
        return made[-1]

    forget()
    for step in range(3):
        del made[:]
        assert_same(run(name, "simulated", Placement(make, moves=True)), name, name)
        if step or name != "parts_then_all_of_a_storage":
            assert [context.stats.copied_ratio for context in made] == [1.0] * len(made)
    for context in made:
        assert context.stats.moved_back_bytes <= context.stats.moved_to_host_bytes


# Values that are rounded --------------------------------------------------------------------------

LOSSY = {"bf16": 0.05, "fp16": 0.01, "fp8": 0.4, "int8": 0.1}  # error of the gradients that is ours
BEYOND_HALF = ("expanded", "permuted_and_reshaped")  # they save values beyond 65504


@pytest.mark.parametrize("codec", LOSSY)
def test_lossy_gradients_are_near_and_the_same_under_every_schedule(codec: str) -> None:
    place = Placement(lambda: offload(compress=codec), shares=False, moves=True)
    turn = list(LOSSY).index(codec)
    for number, name in enumerate(CASES):
        if SCHEDULES < 50 and number % (2 * len(LOSSY)) != turn:  # half of the cases, with one each
            continue
        if name in ("saved_values_are_looked_at", "aliases_share_memory_again"):
            continue
        first = None
        for seed in (number % 3, number + 3)[: 1 + number // (2 * len(LOSSY)) % 2]:
            forget()
            with nothing_leaks(), simulated.configured(**schedule(seed)):
                found = run(name, "simulated", place)
            if first is None:
                first = found
            for k, (a, b) in enumerate(zip(found, first, strict=True)):
                assert a.tobytes() == b.tobytes(), f"{name}, {schedule(seed)}: result {k}"
        if codec == "fp16" and name in BEYOND_HALF:
            continue
        for k, (a, b) in enumerate(zip(found, plain(name), strict=True)):
            if b.size and b.dtype != bool:
                error = np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-3)
                assert error < LOSSY[codec] * (4 if "third" in name else 1), f"{name}: result {k}"


@pytest.mark.parametrize("codec", CODECS)
def test_integers_are_never_rounded(codec: str) -> None:
    """Even where the storage is called one of floats: an index is an index."""
    order = np.random.default_rng(0).permutation(36).reshape(6, 6) % 6
    for device in ("cpu", "simulated"):
        x = cugrad.rand(6, 6, device=device, requires_grad=True)
        buffer = cugrad.zeros(6, 6, dtype=cugrad.float64, device=device)
        index = buffer.view(cugrad.int64)
        index.copy_(cugrad.tensor(order, device=device))
        with offload(compress=codec):
            y = x.gather(1, index).sum()
        del buffer, index
        y.backward()
        wanted = np.zeros((6, 6))
        np.add.at(wanted, (np.arange(6)[:, None], order), 1)
        assert np.array_equal(x.grad.cpu().numpy(), wanted), device


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_codec_saves_and_loses_is_told(codec: str) -> None:
    x = leaf()
    saving = offload(compress=codec)
    with saving:
        y = layers(x)
    y.backward()
    stats = saving.stats
    assert stats.encoded_bytes == stats.unique_bytes == 16 * 64 * KIB
    part = stats.moved_to_host_bytes / stats.unique_bytes
    assert part == 0.5 if codec in ("bf16", "fp16") else 0.25 < part < 0.27
    assert stats.moved_back_bytes <= stats.moved_to_host_bytes
    assert "codec" in str(saving.report()).lower() or codec in str(saving.report())


class Broken:
    """A codec that fails the nth time it encodes or decodes."""

    name = "broken"

    def __init__(self, where: str, after: int) -> None:
        self.where, self.left = where, after

    def applies(self, dtype: Any) -> bool:
        return bool(dtype == np.float32)

    def _count(self, where: str) -> None:
        self.left -= where == self.where
        if self.left == 0 and where == self.where:
            raise ZeroDivisionError("on purpose")

    def encode(self, xp: Any, array: Any) -> Any:
        self._count("encode")
        return codec_of("bf16").encode(xp, array)

    def decode(self, xp: Any, payload: Any, dtype: Any, shape: Any) -> Any:
        self._count("decode")
        return codec_of("bf16").decode(xp, payload, dtype, shape)


@pytest.mark.parametrize("where", ["encode", "decode"])
@pytest.mark.parametrize("after", [1, 5, 16])
def test_a_codec_that_raises_leaves_nothing(where: str, after: int) -> None:
    wanted = expected("bf16")
    with nothing_leaks():
        broken = offload(compress=Broken(where, after))
        try:
            gradient(broken)
        except ZeroDivisionError as error:
            error.__traceback__ = None
        assert gradient(broken) == wanted
        del broken  # it keeps what its report will say of errors


# A saved tensor and its context -------------------------------------------------------------------


def test_contexts_of_different_options_at_once() -> None:
    x, y = leaf(), leaf()
    with nothing_leaks():
        with offload() as a:
            p = layers(x, 4)
            with offload(lookahead=0, backlog=0) as b:
                q = layers(y, 4)
            p = p + layers(x, 2)
        (p + q).backward()
        assert a.stats.moved_back_bytes > 0 and b.stats.moved_back_bytes > 0
        found = [on_numpy(t.grad) for t in (x, y)]
        x.grad = y.grad = None
        del p, q
    x2, y2 = leaf(), leaf()
    (layers(x2, 4) + layers(x2, 2) + layers(y2, 4)).backward()
    for a, b in zip(found, (x2.grad, y2.grad), strict=True):
        assert a.tobytes() == on_numpy(b).tobytes()


def test_a_graph_outlives_its_context() -> None:
    saving = offload()
    x = leaf()
    with saving:
        y = layers(x)
    del saving
    gc.collect()
    y.backward()
    assert x.grad.cpu().numpy().tobytes() == expected()
    x.grad = None
    del y
    assert held()["pinned bytes"] == 0
