"""Each byte leaves once, whatever parts of a storage are saved and in which order: random views."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import get, simulated
from cugrad.memory import offload, save_on_cpu, save_on_disk
from cugrad.memory.geometry import root_of
from cugrad.memory.offloading import storages
from cugrad.memory.offloading.engine import CopyEngine, engine_of

PROGRAMS = int(os.environ.get("CUGRAD_DRAWN_PROGRAMS", "20"))
N = 24  # storages are N x N of float32


@pytest.fixture(autouse=True)
def engine() -> Iterator[CopyEngine]:
    """The engine of the simulated device; clean afterwards."""
    found = engine_of(get("simulated"), 0)
    found.drain()
    found._plans.clear()
    with cugrad.device("simulated"):
        yield found
    simulated.reset()
    found.drain()
    assert (found.ledger.ahead, found.ledger.away, found.out.leaving_bytes) == (0, 0, 0)
    assert found.out.slab.used_bytes == 0


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(shape, np.float32)


def moving(**choices: Any) -> offload:
    """An offload that moves everything."""
    return offload(**{"min_bytes": 0, "keep_last": 0, **choices})


# Views drawn at random ----------------------------------------------------------------------------


def rows(draw: Random, t: Any) -> Any:
    """Some rows: a stretch of memory, less than half of it or all."""
    low = draw.randrange(N)
    return t[low : low + draw.randint(1, N // 2 - 1)] if draw.random() < 0.85 else t


def anything(draw: Random, t: Any) -> Any:
    """Views of every kind: nested, strided, overlapping, transposed, in other dtypes."""
    for _ in range(draw.randint(1, 2)):
        if t.dim() == 2 and t.numel():
            t = view_of(draw, t, draw.randrange(t.shape[0]), draw.randrange(t.shape[1]))
    return t


def view_of(draw: Random, t: Any, a: int, b: int) -> Any:
    size = draw.randint(1, 12)
    return draw.choice((
        lambda: t[a : a + 2 * size], lambda: t[:, b : b + 2 * size], lambda: t[a::size],
        lambda: t[:, b::size], lambda: t.t(), lambda: t[a], lambda: t[:, b], t.diagonal,
        lambda: t, lambda: t[a:, b:], lambda: t[a:, :1].expand(t.shape[0] - a, 5),
        lambda: t.view(cugrad.int32),
        lambda: t.as_strided((3, 4), (size % 3 + 1, size % 2 + 1)) if t.is_contiguous()
        and t.numel() > 12 else t,
    ))()  # fmt: skip


class Program:
    """Some storages and views of them, always the same; steps save and read them."""

    def __init__(self, seed: int, view: Any, storages: int = 3, views: int = 14) -> None:
        self.seed, self.view, self.storages, self.views = seed, view, storages, views
        self.spans: list[set[int]] = []  # of each storage, the bytes that are saved

    def saved(self, step: int) -> list[tuple[Any, int]]:
        """The views to save, in order, and the number of the storage of each."""
        draw = Random(self.seed)
        whole = [cugrad.tensor(values(N, N, seed=100 * step + k)) for k in range(self.storages)]
        numbers = [draw.randrange(self.storages) for _ in range(self.views)]
        return [(self.view(draw, whole[k]), k) for k in numbers]

    def bytes_saved(self) -> tuple[int, int]:
        """The bytes of the views, each once; and all bytes of the storages that they are of."""
        seen = np.zeros((self.storages, N * N), bool)
        for t, k in self.saved(0):
            if t.numel():
                offset, reach = t.storage_offset(), np.zeros(tuple(t.shape), np.int64)
                for d, (n, s) in enumerate(zip(t.shape, t.stride())):
                    line = np.arange(n) * s
                    reach = reach + line.reshape((n,) + (1,) * (t.dim() - 1 - d))
                seen[k, (offset + reach).reshape(-1)] = True
        return 4 * int(seen.sum()), 4 * N * N * int(seen.any(1).sum())

    def step(self, step: int, hooks: Any) -> list[Any]:
        """One step: what comes back is what was saved; the arrays that came back."""
        saved = self.saved(step)
        with hooks:
            packed = [hooks.pack_hook(t) for t, _ in saved]
        wanted = [t.cpu().numpy() for t, _ in saved]
        del saved
        order = list(range(len(packed)))[::-1]
        Random(self.seed if step < 4 else step).shuffle(order)
        back: list[Any] = [None] * len(packed)
        for k in order:
            back[k] = hooks.unpack_hook(packed[k])
            assert back[k].cpu().numpy().tobytes() == wanted[k].tobytes()
            assert back[k].dtype == cugrad.from_numpy(wanted[k]).dtype
        return back


def drawn(view: Any, **more: Any) -> Iterator[tuple[Program, int]]:
    """Programs, each under a schedule of its own."""
    for seed in range(PROGRAMS):
        policy = simulated.POLICIES[seed % len(simulated.POLICIES)]
        with simulated.configured(policy=policy, seed=seed):
            yield Program(seed, view, **more), seed


def test_from_the_second_step_on_each_byte_leaves_once_and_no_other(engine: CopyEngine) -> None:
    twice = 0
    for program, _ in drawn(rows):
        engine._plans.clear()
        wanted, _ = program.bytes_saved()
        for step in range(5):
            hooks = moving()
            back = program.step(step, hooks)
            stats = hooks.stats
            moved = stats.moved_to_host_bytes + stats.kept.get("alive", 0)  # `back` held it
            assert stats.unique_bytes == wanted
            if step == 0:
                twice += moved > wanted
                continue
            assert moved == wanted and stats.copied_ratio == 1.0
            assert stats.moved_back_bytes <= wanted
            pairs = list(zip(back, program.saved(step)))
            for (a, p), (b, q) in combinations(pairs, 2):
                assert root_of(a._array) is root_of(b._array) or not overlap(p, q)
    assert twice > PROGRAMS / 2  # or nothing was shown


def overlap(p: tuple[Any, int], q: tuple[Any, int]) -> bool:
    """Whether two views of rows have bytes in common."""
    (a, k), (b, n) = p, q
    first, second = a.storage_offset(), b.storage_offset()
    return k == n and first < second + b.numel() and second < first + a.numel()


@pytest.mark.parametrize("context", [
    moving, lambda: moving(lookahead=0, backlog=0), lambda: offload(min_bytes=0),
    lambda: moving(host_limit=0), lambda: moving(host_limit=1 << 12), save_on_cpu,
    lambda: save_on_cpu(pin_memory=True),
])  # fmt: skip
def test_views_of_every_kind(context: Any, engine: CopyEngine) -> None:
    """A storage never leaves more than once, and what is gathered of it counts as one."""
    for program, seed in drawn(anything):
        if seed % 4:  # the contexts are many
            continue
        engine._plans.clear()
        least, most = program.bytes_saved()
        for step in range(5):
            hooks = context()
            program.step(step, hooks)
            stats = hooks.stats
            assert least <= stats.unique_bytes
            if step:
                stayed = sum(stats.kept.values())
                assert stats.copied_ratio == 1.0 or not stats.moved_to_host_bytes
                assert least <= stats.moved_to_host_bytes + stayed <= most, f"{seed}, {step}"


def test_on_disk(tmp_path: Any) -> None:
    for program, seed in drawn(rows):
        if seed % 8:
            continue
        wanted, _ = program.bytes_saved()
        for step in range(3):
            hooks = save_on_disk(tmp_path)
            hooks._options.min_bytes = 0
            program.step(step, hooks)
        assert hooks.stats.moved_to_host_bytes == wanted


@pytest.mark.parametrize("seed", range(4))
def test_programs_that_take_turns(engine: CopyEngine, seed: int) -> None:
    """Each follows its own plan, or the hull of another one: numbers are right, bytes soon are.

    A step is known by what came before it, and that by what it sent: of some steps in a row the
    last follows one that was like it in both.
    """
    policy = simulated.POLICIES[seed % len(simulated.POLICIES)]
    with simulated.configured(policy=policy, seed=seed):
        programs = [Program(4 * seed + k, rows) for k in range(4)]
        draw = Random(seed)
        for step in range(20):
            draw.choice(programs).step(step, moving())
        for program in programs:
            wanted, _ = program.bytes_saved()
            for step in range(6):
                hooks = moving()
                program.step(step, hooks)
            alive = hooks.stats.kept.get("alive", 0)  # beside a part that had come back, and held
            assert hooks.stats.moved_to_host_bytes + alive == wanted


def gradients(seed: int, context: Any, steps: int = 4) -> list[bytes]:
    """Of a loss of many views, saved by ops."""
    found = []
    for step in range(steps):
        x = cugrad.tensor(values(N, N, seed=step), requires_grad=True)
        draw = Random(seed)
        with context():
            h = x * 3
            y = sum([(anything(draw, h).to(cugrad.float32) * 0.1).sin().sum() for _ in range(3)])
            y = y + sum([rows(draw, h).sin().sum() for _ in range(6)]) + h.cos().sum()
            y = y + (rows(draw, h) ** 2).sum()
        del h
        y.backward(retain_graph=step == 2)
        if step == 2:
            y.backward()
        found.append(x.grad.cpu().numpy().tobytes())
    return found


def test_gradients_are_bitwise_those_without() -> None:
    less = 0
    for seed in range(0, PROGRAMS, 2):
        policy = simulated.POLICIES[seed % len(simulated.POLICIES)]
        with simulated.configured(policy=policy, seed=seed):
            plain, made = gradients(seed, nullcontext), [moving() for _ in range(4)]
            assert gradients(seed, iter(made).__next__) == plain
            assert [c.stats.copied_ratio for c in made[1:]] == [1.0] * (len(made) - 1)
            before, after = (c.stats.moved_to_host_bytes for c in (made[0], made[-1]))
            assert after <= before
            less += after < before
    assert less > PROGRAMS / 4


# At once ------------------------------------------------------------------------------------------

NESTED = {
    "rows, then all": ((2, 5), (7, 9), (0, N)),
    "and again within": ((3, 4), (2, 6), (1, 8), (0, 11), (0, N)),
    "at the ends": ((0, 3), (N - 3, N), (0, N)),
    "side by side": ((4, 6), (6, 8), (8, 10), (3, 11), (0, N), (5, 9)),
    "nothing is left": ((0, 8), (8, 16), (16, N), (0, N)),
    "two covers": ((3, 5), (2, 6), (14, 15), (13, 17), (0, N), (2, 17)),
    "many, then all": (*((k, k + 1) for k in range(N)), (5, 9), (0, N), (3, 4)),
    "one overlaps": ((3, 6), (5, 8), (2, 9), (0, N)),
}


@pytest.mark.parametrize("low", [0, 9, N - 5])
def test_less_than_half_of_a_storage_leaves_alone(low: int) -> None:
    """Wherever it lies: else bytes would leave that are not saved."""
    t, hooks = cugrad.tensor(values(N, N)), moving()
    with hooks:
        packed = hooks.pack_hook(t[low : low + 5])
    back = hooks.unpack_hook(packed)
    assert back.cpu().numpy().tobytes() == t[low : low + 5].cpu().numpy().tobytes()
    assert hooks.stats.moved_to_host_bytes == 4 * N * 5


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("name", NESTED)
def test_what_covers_parts_sends_the_rest_of_it(name: str, drop: bool, engine: CopyEngine) -> None:
    """In the first step, too; and whoever has a part has a part of the whole, from then on."""
    for seed in range(8):
        policy = simulated.POLICIES[seed % len(simulated.POLICIES)]
        with simulated.configured(policy=policy, seed=seed):
            engine._plans.clear()
            for hooks in (moving(), moving(lookahead=0, backlog=0)):
                t, draw = cugrad.tensor(values(N, N, seed=seed)), Random(seed)
                spans = [slice(*span) for span in NESTED[name]]
                with hooks:
                    packed: list[Any] = [hooks.pack_hook(t[span]) for span in spans]
                wanted = [t[span].cpu().numpy().tobytes() for span in spans]
                del t
                if draw.random() < 0.5:
                    engine.drain()
                order = list(range(len(spans)))
                draw.shuffle(order)
                back = {}
                for k in (*order, *order):  # twice, as with retain_graph
                    if drop and k == order[0]:
                        packed[k] = None
                    else:
                        back[k] = hooks.unpack_hook(packed[k])
                        assert back[k].cpu().numpy().tobytes() == wanted[k]
                overlapping = name == "one overlaps" and hooks.stats.moved_to_host_bytes > 4 * N * N
                assert hooks.stats.moved_to_host_bytes == 4 * N * (N + overlapping)
                assert hooks.stats.moved_back_bytes <= 4 * N * N
                assert len({id(root_of(t._array)) for t in back.values()}) == 1
                del packed, back


def test_little_host_memory_and_other_contexts(engine: CopyEngine) -> None:
    """Where parts cannot be a part of the whole, it leaves whole."""
    for limit in (0, 512, 1024, 2048, 4096):
        t = cugrad.tensor(values(N, N))
        first, hooks = moving(), moving(host_limit=limit)
        packed = [first.pack_hook(t[2:4]), hooks.pack_hook(t[3:5]), hooks.pack_hook(t)]
        wanted = [t[2:4].tolist(), t[3:5].tolist(), t.tolist()]
        del t
        assert [hooks.unpack_hook(p).tolist() for p in packed] == wanted
        del packed
        engine.drain()
        assert engine.out.slab.used_bytes == 0


# What is learned ----------------------------------------------------------------------------------


def moved(hooks: offload, *parts: Any) -> int:
    """The bytes that leave when these parts of a matrix are saved, one step."""
    before = hooks.stats.moved_to_host_bytes
    t = cugrad.tensor(values(N, N))
    wanted = [t[part].cpu().numpy().tobytes() for part in parts]
    with hooks:
        packed = [hooks.pack_hook(t[part]) for part in parts]
    del t
    found = [hooks.unpack_hook(p).cpu().numpy().tobytes() for p in packed[::-1]]
    assert found[::-1] == wanted
    return hooks.stats.moved_to_host_bytes - before


def test_a_hull_that_is_not_needed_any_more_is_forgotten(engine: CopyEngine) -> None:
    hooks, row = moving(), 4 * N

    def step(*parts: Any) -> int:
        return moved(hooks, *parts)

    few, more, all_of_it = slice(2, 5), slice(4, 9), slice(2, 11)
    assert [step(few, more) for _ in range(3)] == [8 * row, 7 * row, 7 * row]
    assert [step(few) for _ in range(3)] == [7 * row, 3 * row, 3 * row]
    engine._plans.clear()
    assert [step(few, all_of_it) for _ in range(3)] == [9 * row] * 3
    engine._plans.clear()
    apart = slice(10, 12)
    assert [step(few, more, apart) for _ in range(3)] == [10 * row, 9 * row, 9 * row]


def test_a_column_and_then_the_matrix(engine: CopyEngine) -> None:
    hooks = moving()

    def step(*parts: Any) -> int:
        return moved(hooks, *parts, *[(slice(None), k) for k in (3, 3)])

    columns = [(slice(None), k) for k in (0, 5)]
    size = 4 * N * N
    assert [step(*columns) for _ in range(3)] == [3 * 4 * N] * 3  # gathered: that is less
    every = [(slice(None), slice(k, N, 12)) for k in range(12)]
    engine._plans.clear()
    assert [step(*every, *columns) for _ in range(3)] == [size + 3 * 4 * N, size, size]
    engine._plans.clear()
    assert [step(*columns, slice(None)) for _ in range(3)][1:] == [size, size]


def test_parts_do_not_keep_one_another_on_the_device() -> None:
    """What is still there only because another part of it is leaving is no reason to stay."""
    for policy in simulated.POLICIES:
        with simulated.configured(policy=policy, seed=1):
            hooks, row = moving(), 4 * N
            parts = [slice(k, k + 2) for k in (2, 7, 12, 17)]
            assert [moved(hooks, *parts) for _ in range(5)] == [8 * row] * 5
            assert hooks.stats.kept == {}


def test_parts_are_of_a_version() -> None:
    """What is written between two parts is no reason to send them together."""
    for _ in range(4):
        hooks = moving()
        t = cugrad.tensor(values(N, N))
        with hooks:
            first = hooks.pack_hook(t[:3])
            wanted = [t[:3].cpu().numpy().tobytes()]
            t.mul_(2)
            second, third = hooks.pack_hook(t[2:6]), hooks.pack_hook(t[4:8])
            wanted += [v.cpu().numpy().tobytes() for v in (t[2:6], t[4:8])]
        del t
        found = [hooks.unpack_hook(p).cpu().numpy().tobytes() for p in (first, second, third)]
        assert found == wanted
    assert hooks.stats.moved_to_host_bytes == (3 + 6) * 4 * N


def test_a_part_that_was_dropped_or_comes_later() -> None:
    """A plan knows what is likely, and nothing depends on it."""
    row = 4 * N
    hooks = moving()
    for step, parts in enumerate(((3, 9, N), (3, 9, N), (3,), (N, 3), (9, 3), (3, 9, N))):
        hooks.stats.reset()
        t = cugrad.tensor(values(N, N, seed=step))
        packed = []
        with hooks:
            for k in parts:
                packed.append(hooks.pack_hook(t[:k]))
                if step == 1:
                    packed.clear()  # its graph is gone
        wanted = [t[:k].cpu().numpy().tobytes() for k in parts][-len(packed) or len(parts) :]
        del t
        back = [hooks.unpack_hook(p).cpu().numpy().tobytes() for p in packed]
        assert step == 1 or back == wanted
        assert hooks.stats.moved_to_host_bytes <= (sum(parts) + N) * row


def test_a_graph_that_keeps_one_part_only(engine: CopyEngine) -> None:
    """What was sent together stays on the host as long as one of its parts is wanted, no longer."""
    hooks = moving()
    for _ in range(3):
        t = cugrad.tensor(values(N, N))
        with hooks:
            packed = [hooks.pack_hook(v) for v in (t[:3], t[2:6], t[4:9])]
        wanted = t[4:9].cpu().numpy().tobytes()
        del t
        hooks.unpack_hook(packed[0])
        del packed[:2]
        assert hooks.unpack_hook(packed[0]).cpu().numpy().tobytes() == wanted
        packed.clear()
        assert engine.out.slab.used_bytes == 0


def test_codecs_read_what_they_wrote() -> None:
    """Rounding by rows depends on the bytes that are sent: each step sends the same."""
    found: list[list[bytes]] = []
    for _ in range(3):
        hooks = moving(compress="bf16")
        t = cugrad.tensor(values(N, N))
        packed = [hooks.pack_hook(v) for v in (t.view(cugrad.int32)[2:5], t, t[9])]
        wanted = t.view(cugrad.int32)[2:5].tolist()
        del t
        assert hooks.unpack_hook(packed[0]).tolist() == wanted  # integers are not rounded
        assert hooks.unpack_hook(packed[1])[9].tolist() == hooks.unpack_hook(packed[2]).tolist()
    for _ in range(3):
        hooks = moving(compress="int8")
        t = cugrad.tensor(values(N, N))
        with hooks:
            packed = [hooks.pack_hook(v) for v in (t[3], t[2:6], t)]
        del t
        found.append([hooks.unpack_hook(p).cpu().numpy().tobytes() for p in packed])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("size", [1, 3])
def test_many_parts_cost_no_more_each_than_few(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a long sequence, or windows over it: nothing is looked for in a long list."""
    near, looked = storages.Spans.near, [0]

    def counted(self: Any, low: int, high: int) -> Any:
        found = near(self, low, high)
        looked.append(len(found))
        return found

    monkeypatch.setattr(storages.Spans, "near", counted)
    hooks = moving()
    for step in range(3):
        t = cugrad.tensor(values(150, 8, seed=step))
        packed = [hooks.pack_hook(t[k : k + size]) for k in range(148)]
        wanted = [t[k : k + size].cpu().numpy().tobytes() for k in range(148)]
        del t
        assert len({id(p.span) for p in packed}) == (148 if step == 0 or size == 1 else 1)
        for k in range(147, -1, -1):
            assert hooks.unpack_hook(packed.pop()).cpu().numpy().tobytes() == wanted[k]
    assert len(looked) > 148 and max(looked) <= 2 * size
