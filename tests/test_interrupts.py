"""After an interrupt between any two instructions all is as it was, and works.

CUGRAD_INTERRUPTS=1000 interrupts each program so many times, `all` at every instruction.
"""

from __future__ import annotations

import ast
import gc
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad as t
from cugrad import memory
from cugrad.autograd import forward_ad, profiler
from tests.conftest import fields_of, watched
from tests.interrupts import interruptions

TIMES = os.environ.get("CUGRAD_INTERRUPTS", "25")


def numbers_for(name: str) -> Callable[[int], list[int]]:
    def numbers(count: int) -> list[int]:
        if TIMES == "all" or int(TIMES) >= count:
            return list(range(1, count + 1))
        drawn = random.Random(zlib.crc32(name.encode()))
        return sorted(drawn.sample(range(1, count + 1), int(TIMES)))

    return numbers


# One place ----------------------------------------------------------------------------------------

DERIVED = {"fast", "grad_enabled", "grad_mode", "inference", "observers", "hooks", "levels",
           "stand_in", "before_op", "autocast"}  # fmt: skip


def test_what_decides_how_ops_run_changes_in_one_place() -> None:
    """`fast` follows from these fields: nobody but mode.py assigns them."""
    root = Path(t.__file__).parent
    wrong = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name) and node.value.id == "state"
                and node.attr in DERIVED
            ):  # fmt: skip
                wrong.append(f"{path.relative_to(root)}:{node.lineno}: state.{node.attr} =")
    assert not wrong, "use state.switch():\n" + "\n".join(wrong)


# The programs: each returns arrays ----------------------------------------------------------------


def leaf(*values: float, device: str = "cpu") -> Any:
    return t.tensor(values, dtype=t.float64, device=device, requires_grad=True)


class Cube(t.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


def views_and_changes() -> Any:
    x = leaf(0.3, 0.4, 0.5)
    u = x * x
    v = u[0:2]
    u.mul_(2.0)
    v[0] = x[2]
    return t.autograd.grad((u * v.sum()).sum(), x)


def twice() -> Any:
    x = leaf(0.3, 0.4)
    (g,) = t.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    return t.autograd.grad((g * g).sum(), x)


def hooks() -> Any:
    x = leaf(0.3, 0.4)
    with t.autograd.graph.saved_tensors_hooks(lambda a: a.numpy().copy(), t.from_numpy):
        y = (x.exp() * x).tanh()
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    return (x.grad,)


def function() -> Any:
    x = leaf(0.3, 0.4)
    return t.autograd.grad(Cube.apply(x * 2).sum(), x)


def checkpointed() -> Any:
    x = leaf(0.3, 0.4)
    y = t.utils.checkpoint.checkpoint(lambda a: (a.exp() * a).sin(), x, use_reentrant=False)
    return t.autograd.grad(y.sum(), x)


def transforms() -> Any:
    x = leaf(0.3, 0.4).detach()
    return (
        t.func.vmap(t.func.grad(lambda a: a.sin() * a))(x),
        t.func.jvp(lambda a: (a * a).sum(), (x,), (x,))[1],
        t.func.hessian(lambda a: (a**3).sum())(x),
    )


def dual() -> Any:
    x = leaf(0.3, 0.4).detach()
    with forward_ad.dual_level():
        a = forward_ad.make_dual(x, x * 2)
        a.mul_(a.clone())
        return (forward_ad.unpack_dual(a.sin()).tangent,)


def step() -> Any:
    x = leaf(0.3, 0.4)
    optimizer = t.optim.Adam([x], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.step()
    return (x,)


def modes() -> Any:
    x = leaf(0.3, 0.4)
    with t.no_grad():
        a = x * 2
    with t.inference_mode():
        b = x * 3
    with t.enable_grad(), t.autocast("cpu", dtype=t.float16):
        c = x.float().reshape(1, 2) @ t.ones(2, 1)
    return a, b, t.autograd.grad(c.sum(), x)[0]


def observed() -> Any:
    x = leaf(0.3, 0.4)
    with profiler.profile(), memory.recompute():
        y = (x.exp() * x).sum()
        y.backward()
    return (x.grad,)


def offloaded() -> Any:
    x = leaf(*np.linspace(0, 1, 64), device="simulated")
    with memory.offload(min_bytes=0):
        y = (x.exp() * x).tanh().sum()
    y.backward()
    return (x.grad,)


PROGRAMS = [views_and_changes, twice, hooks, function, checkpointed, transforms, dual, step, modes,
            observed]  # fmt: skip
if "CUGRAD_INTERRUPTS" in os.environ:
    # An interrupt as an event is recorded fails the next session that asks for the time between
    # the two: "elapsed_time: both events must be recorded first".
    PROGRAMS.append(offloaded)


# Python prints and forgets what is raised in a callback of the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_an_interrupt_leaves_all_as_it_was(program: Callable[[], Any]) -> None:
    """Modes, hooks, observers, levels and passes of the thread; and the program runs again."""

    def arrays() -> list[np.ndarray]:
        return [x.detach().numpy(force=True) for x in program()]

    want = arrays()
    before = {name: fields_of(state) for name, state in watched()}
    wrong: list[str] = []
    for _, place in interruptions(arrays, numbers_for(program.__name__)):
        for name, state in watched():
            after = fields_of(state)
            for field in after.keys() | before[name].keys():
                found, wanted = after.get(field), before[name].get(field)
                if found is not wanted and found != wanted:
                    wrong.append(f"{place}: {name}.{field} was {wanted!r}, is {found!r}")
                    setattr(state, field, wanted)
        try:
            got = arrays()
            assert all(map(np.array_equal, got, want)), f"got {got}, want {want}"
        except Exception as error:
            wrong.append(f"{place}: afterwards {type(error).__name__}: {error}")
    gc.collect()
    assert not wrong, "\n".join(dict.fromkeys(wrong))
