"""Programs drawn at random, with checkpoints in checkpoints: bit for bit as without."""

from __future__ import annotations

import gc
import os
import random
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import cugrad
from cugrad.backends import get, simulated
from cugrad.memory.offloading.engine import engine_of
from cugrad.utils.checkpoint import (
    CheckpointPolicy,
    GraphExecGroup,
    checkpoint,
    create_selective_checkpoint_contexts,
)

DRAWS = int(os.environ.get("CUGRAD_CHECKPOINT_PROGRAMS", "48"))


class Twice(cugrad.autograd.Function):
    """Two outputs from one node, which saves an input, a result and what lies between."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        between = x.cos()
        z = x.sin() * y
        ctx.save_for_backward(x, y, between, z)
        return z, x + y

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y, between, _ = ctx.saved_tensors
        return g * between * y + h, g * x.sin() + h


OPS: list[Callable[[random.Random, Any, Any], Any]] = [
    lambda d, x, y: x.sin(),
    lambda d, x, y: x.tanh() * 2,
    lambda d, x, y: (x * 0.5).exp().sigmoid(),
    lambda d, x, y: x.relu() + y,
    lambda d, x, y: x * y,
    lambda d, x, y: (x @ y).tanh(),
    lambda d, x, y: cugrad.nn.functional.linear(x, y, x[0]).sigmoid(),
    lambda d, x, y: x.t() - y[:, :1],
    lambda d, x, y: cugrad.cat(y.chunk(2, 1)[::-1], 1),
    lambda d, x, y: x.softmax(d.randrange(2)),
    lambda d, x, y: x.detach() * y,
    lambda d, x, y: cugrad.nn.functional.dropout(x, 0.4),
    lambda d, x, y: x * cugrad.rand(4, 4, device=x.device, dtype=x.dtype),
    lambda d, x, y: (x * 1).mul_(y).sin_(),
    lambda d, x, y: _with_row(x * 1, y),
    lambda d, x, y: Twice.apply(x, y)[d.randrange(2)],
    lambda d, x, y: x.cumsum(0).std(1, keepdim=True) * y,
    lambda d, x, y: _with_gradient(x, y),
]


def _with_row(x: Any, y: Any) -> Any:
    x[1] = y[2]
    x[:, 1].tanh_()
    return x * x


def _with_gradient(x: Any, y: Any) -> Any:
    """Backward within the function, as far as it has come."""
    h = (x * y).sin()
    if not h.requires_grad:
        return h
    wanted = x if x.requires_grad else y
    (g,) = cugrad.autograd.grad(h.square().sum(), wanted, retain_graph=True)
    return h + g


class Part:
    """A drawn list of steps: ops on tensors of a pool, and other parts."""

    def __init__(self, draw: random.Random, depth: int) -> None:
        self.seed = draw.random()
        self.steps: list[Any] = []
        for _ in range(draw.randint(2, 6)):
            if depth and draw.random() < 0.45:
                self.steps.append((Part(draw, depth - 1), self.choices(draw)))
            else:
                self.steps.append((draw.choice(OPS), draw.randrange(99), draw.randrange(99)))
        self.several = draw.random() < 0.4

    def choices(self, draw: random.Random) -> dict[str, Any]:
        """How a part is run, its context apart."""
        return {
            "inputs": [draw.randrange(99) for _ in range(draw.randint(1, 3))],
            "early_stop": draw.random() < 0.8,
            "determinism_check": draw.choice(["default", "bits", "none"]),
            "keeps": draw.choice([None, None, None, 0.2, 0.5]),
            "context": draw.choice(["", "", "", "hooks", "offload"]),
            "inside": draw.random() < 0.5,
            "containers": draw.random() < 0.3,
            "checkpoint": draw.random() < 0.85,
        }

    def __call__(self, use: bool, *given: Any) -> Any:
        draw, pool = random.Random(self.seed), list(given)
        for step in self.steps:
            if isinstance(step[0], Part):
                found = _run(step[0], step[1], use, [pool[i % len(pool)]
                                                     for i in step[1]["inputs"]])  # fmt: skip
                pool += found if isinstance(found, tuple) else [found]
            else:
                op, i, j = step
                pool.append(op(draw, pool[i % len(pool)], pool[j % len(pool)]))
        return tuple(pool[-2:]) if self.several and len(pool) > 1 else pool[-1]


def _run(part: Part, how: dict[str, Any], use: bool, inputs: list[Any]) -> Any:
    """A part as it was drawn, checkpointed where `use` says so."""
    context: Callable[[], Any] = {
        "": nullcontext,
        "hooks": lambda: cugrad.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda t: t[0]),
        "offload": lambda: cugrad.memory.offload(min_bytes=0, keep_last=0, backlog=0),
    }[how["context"]]

    def function(*args: Any, **more: Any) -> Any:
        tensors = [*(args[0] if how["containers"] else args)]
        with context() if how["inside"] else nullcontext():
            return part(use, *tensors)

    with nullcontext() if how["inside"] else context():
        given = ([*inputs],) if how["containers"] else tuple(inputs)
        if not (use and how["checkpoint"]):
            return function(*given)
        more: dict[str, Any] = {k: how[k] for k in ("early_stop", "determinism_check")}
        if how["keeps"] is not None:
            more["context_fn"] = lambda: create_selective_checkpoint_contexts(
                _policy(random.Random(part.seed), how["keeps"]), allow_cache_entry_mutation=False
            )
        return checkpoint(function, *given, use_reentrant=False, **more)


IN_PLACE = ("mul", "mul_")


def _policy(draw: random.Random, chance: float) -> Any:
    P = CheckpointPolicy

    def policy(context: Any, op: str, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if op in IN_PLACE or draw.random() > chance:  # what a step may change afterwards
            return P.PREFER_RECOMPUTE
        return draw.choice([P.MUST_SAVE, P.PREFER_SAVE, P.MUST_CPU_OFFLOAD])

    return policy


def _passes(kind: str, y: list[Any], x: Any, w: Any) -> list[Any]:
    total = sum(t.square().sum() * (k + 1) for k, t in enumerate(y))
    if kind == "grad":
        return list(cugrad.autograd.grad(total, (x, w), allow_unused=True))
    if kind == "twice":
        total.backward(retain_graph=True)
        total.backward()
    elif kind == "each":
        for t in y:
            t.sum().backward(retain_graph=t is not y[-1])
    elif kind == "group":
        with GraphExecGroup():
            total.backward()
    elif kind == "double":
        g = cugrad.autograd.grad(total, (x, w), create_graph=True, allow_unused=True)
        again = sum((t.sin().sum() for t in g if t is not None and t.requires_grad), x.sum() * 0)
        return [*g, *cugrad.autograd.grad(again, (x, w), allow_unused=True)]
    else:
        total.backward()
    return [x.grad, w.grad]


def _bits(program: Part, use: bool, kind: str, device: str) -> list[Any]:
    cugrad.manual_seed(11)
    generator = cugrad.Generator("cpu").manual_seed(2)
    x, w = (
        (cugrad.rand(4, 4, dtype=cugrad.float64, generator=generator, device="cpu") - 0.5)
        .to(device).requires_grad_()
        for _ in range(2)
    )  # fmt: skip
    how = {"inputs": [0, 1], "early_stop": True, "determinism_check": "default", "keeps": None,
           "context": "", "inside": False, "containers": False, "checkpoint": True}  # fmt: skip
    found = _run(program, how, use, [x * 1, w * 1])
    y = [t for t in (found if isinstance(found, tuple) else (found,)) if t.requires_grad]
    after = cugrad.rand(2, device=device).cpu().tolist()
    if not y:
        return [after]
    alive = [weakref.ref(t) for t in y]
    results = _passes(kind, y, x, w)
    del y, found
    assert not any(ref() is not None for ref in alive)
    return [after, *[None if t is None else t.detach().cpu().numpy().tobytes() for t in results]]


@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_drawn_programs(device: str) -> None:
    gc.collect()
    gc.disable()
    try:
        for seed in range(DRAWS if device == "cpu" else DRAWS // 5):
            draw = random.Random(seed)
            program = Part(draw, 3)
            kind = draw.choice(["backward", "grad", "twice", "each", "group", "double"])
            policy = draw.choice(simulated.POLICIES)
            engine_of(get("simulated"), 0)._plans.clear()
            with simulated.configured(policy=policy, seed=seed):
                wanted = _bits(program, False, kind, device)
                found = _bits(program, True, kind, device)
            assert found == wanted, f"seed {seed}, {kind}"
        simulated.reset()
    finally:
        gc.enable()
