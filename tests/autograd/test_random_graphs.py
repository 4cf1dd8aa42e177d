"""Random graphs of ops, views and in-place changes, differentiated twice beside PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad

pytestmark = pytest.mark.usefixtures("device")  # each test runs on each usable device

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

SHAPES = [(3, 4), (4,), (3, 1), (), (3, 4)]
UNARY = ("exp", "sin", "tanh", "sigmoid", "abs", "square", "neg", "cos")


def in_place(t: Any, x: Any, y: Any, r: random.Random) -> Any:
    z = x.clone()
    getattr(z, r.choice(["mul_", "add_", "sub_"]))(r.choice([2.0, 0.5]))
    return z


def in_place_on_a_view(t: Any, x: Any, y: Any, r: random.Random) -> Any:
    """Returns the base or the view, both of which have a history that the view has rebased."""
    z = x.clone()
    v = z[0] if r.random() < 0.5 else z[1:]
    v.mul_(2.0)
    return v if r.random() < 0.5 else z


def assign(t: Any, x: Any, y: Any, r: random.Random) -> Any:
    z = x.clone()
    z[0] = y.sum()
    return z


Step = Callable[[Any, Any, Any, random.Random], Any]
ANY_SHAPE: list[Step] = [
    lambda t, x, y, r: getattr(t, r.choice(UNARY))(x),
    lambda t, x, y, r: x + y,
    lambda t, x, y, r: x * y,
    lambda t, x, y, r: x - y * 0.5,
    lambda t, x, y, r: x / (y * y + 1),
    in_place,
]
WITH_DIMENSIONS: list[Step] = [
    lambda t, x, y, r: x.sum(-1, keepdim=r.random() < 0.5),
    lambda t, x, y, r: t.sort(x, dim=-1)[0],
    lambda t, x, y, r: t.softmax(x, -1),
    lambda t, x, y, r: t.cat([x, x * 2], 0),
    lambda t, x, y, r: x[r.choice([slice(1, None), slice(None, None, 2), 0, -1])],
    lambda t, x, y, r: x.reshape(-1) if r.random() < 0.5 else x.transpose(0, -1),
    lambda t, x, y, r: x @ x.transpose(0, -1),
    in_place_on_a_view,
    assign,
]


def build(t: Any, seed: int) -> tuple[list[Any], Any]:
    """Leaves, and a scalar that depends on all that was made of them; equal for equal seeds."""
    r, numbers = random.Random(seed), np.random.default_rng(seed)
    values = [(numbers.standard_normal(s) * 0.5).tolist() for s in SHAPES]
    leaves = [t.tensor(v, dtype=t.float64, requires_grad=True) for v in values]
    pool = list(leaves)
    for _ in range(r.randint(4, 14)):
        x, y, dice = r.choice(pool), r.choice(pool), random.Random(r.random())
        steps = ANY_SHAPE + WITH_DIMENSIONS if x.dim() and x.shape[0] > 1 else ANY_SHAPE
        try:
            made = r.choice(steps)(t, x, y, dice)
        except RuntimeError:  # shapes that do not fit
            continue
        if made.numel() < 200:
            pool.append(made)
    total = sum(((z * z).sum() if r.random() < 0.5 else z.sum()) for z in pool[len(SHAPES) :])
    return leaves, total


def derivatives(t: Any, seed: int) -> list[Any]:
    """First derivatives, plain and recorded, then those of the sum of their squares."""
    leaves, total = build(t, seed)
    if not getattr(total, "requires_grad", False):
        return []
    plain = t.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
    graph = t.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    squares = [(g * g).sum() for g in graph if g is not None and g.requires_grad]
    found = [*plain, *graph]
    if squares:
        found += t.autograd.grad(sum(squares), leaves, allow_unused=True)
    return [np.zeros(()) if g is None else g.detach().numpy(force=True) for g in found]


@cache
def theirs(seed: int) -> list[Any]:
    """PyTorch's, once for all devices of ours."""
    return derivatives(torch, seed)


@pytest.mark.parametrize("block", range(6))
def test_random_graphs(block: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # or PyTorch may set it, and leak
    for seed in range(block * 50, block * 50 + 25):
        got, want = derivatives(cugrad, seed), theirs(seed)
        assert len(got) == len(want), f"seed {seed}"
        for i, (g, w) in enumerate(zip(got, want)):  # None and zeros are one gradient
            np.testing.assert_allclose(
                g, w, rtol=1e-7, atol=1e-9, err_msg=f"seed {seed}, gradient {i}"
            )


# Passes within passes -----------------------------------------------------------------------------

LARGE = 2.0**53  # beside which 1 is lost: a sum says in which order it was added up


def gradients_of_checkpoints(lib: Any, seed: int) -> list[Any]:
    """Of leaves that are used in checkpoints, which run backward within backward, and outside."""
    rng = random.Random(seed)
    start = lib.zeros(1, dtype=lib.float64, requires_grad=True)
    leaves = [lib.ones(1, dtype=lib.float64, requires_grad=True) for _ in range(2)]
    for leaf in leaves:
        if rng.random() < 0.2:
            leaf.register_post_accumulate_grad_hook(lambda x: None)
        if rng.random() < 0.5:
            leaf.grad = lib.full((1,), rng.choice([1, 3, LARGE]), dtype=lib.float64)

    def grown(seed: int, depth: int) -> Any:
        rng, total = random.Random(seed), 0
        for _ in range(rng.randint(1, 4)):
            deeper = rng.random()
            if rng.random() < 0.6 or depth == 3:
                factor = rng.choice([LARGE, -LARGE, 1, 3, -1])
                total = total + rng.choice(leaves) * factor
            else:
                inner = lambda x, deeper=deeper: grown(deeper, depth + 1) + x
                total = total + lib.utils.checkpoint.checkpoint(inner, start, use_reentrant=True)
        return total

    grown(seed, 0).sum().backward()
    return [None if leaf.grad is None else leaf.grad.item() for leaf in leaves]


def test_passes_within_passes_add_up_in_pytorchs_order() -> None:
    for seed in range(60):
        theirs = gradients_of_checkpoints(torch, seed)
        assert gradients_of_checkpoints(cugrad, seed) == theirs
