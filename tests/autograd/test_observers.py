"""An observer changes nothing: no value, no gradient, no number that the engine sorts by."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import memory
from cugrad.autograd import profiler
from cugrad.autograd.recording.record import recorded
from cugrad.tensor import make
from tests.autograd.graph_order import assert_ordered
from tests.autograd.test_inplace_views import STALE as STALE_TEXT
from tests.autograd.test_inplace_views import random_program, run_program
from tests.autograd.test_random_graphs import build
from tests.ops.row_cases import HOST, called, differentiable, is_array, over_lines
from tests.ops.sampling import Sample

OBSERVERS: dict[str, Callable[[], Any]] = {
    "profile": lambda: profiler.profile(record_shapes=True),
    "timeline": lambda: cugrad.profiler.MemoryTimeline(),
    "emit_nvtx": lambda: profiler.emit_nvtx(),
    "emit_itt": lambda: profiler.emit_itt(),
    "recompute": lambda: memory.recompute(),
    "budget": lambda: memory.budget("1GB"),
    "anomaly": lambda: cugrad.autograd.detect_anomaly(check_nan=False),
}


@contextlib.contextmanager
def observed_by(*names: str) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for name in names:
            stack.enter_context(OBSERVERS[name]())
        yield


def through_stale_views(line: Sample, backend: Any) -> list[Any]:
    """First and second derivatives of a row, given views whose bases have changed since."""
    call = called(line, backend)
    inputs, leaves = list(call.inputs), []
    for i, a in enumerate(call.inputs):
        if i in call.differentiable:
            leaves.append(make(a, requires_grad=True))
            base = recorded.clone(leaves[-1])
            inputs[i] = base[...]
            base.mul_(1)
        elif is_array(a):
            inputs[i] = make(a)
    with backend.quiet():
        found = getattr(recorded, call.op.name)(
            *((inputs,) if call.op.variadic else inputs), **call.given
        )
        outputs = [o for o in (found if type(found) is tuple else (found,)) if o.requires_grad]
        if not outputs:
            return []
        assert assert_ordered(outputs) > len(leaves)
        rng = call.rng
        vectors = [make(call.random_like(o._array, rng)) for o in outputs]
        options = {"create_graph": True, "allow_unused": True}
        first = cugrad.autograd.grad(outputs, leaves, vectors, **options)
        again = [g for g in first if g is not None and g.requires_grad]
        assert_ordered(again)
        vectors = [make(call.random_like(g._array, rng)) for g in again]
        second = cugrad.autograd.grad(again, leaves, vectors, allow_unused=True) if again else ()
    return [None if g is None else backend.to_host(g._array) for g in (*first, *second)]


def assert_same(got: list[Any], want: list[Any], what: str) -> None:
    assert len(got) == len(want), what
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w, err_msg=what)


@over_lines(differentiable, first=True)
def test_a_row_of_stale_views_is_differentiated_alike(line: Sample) -> None:
    """Of each row: bit-equal derivatives under one observer, or under all of them, in turn."""
    plain = through_stale_views(line, HOST)
    turn = line.seed % (2 * len(OBSERVERS))
    names = tuple(OBSERVERS) if turn >= len(OBSERVERS) else ([*OBSERVERS][turn],)
    with observed_by(*names):
        assert_same(through_stale_views(line, HOST), plain, " and ".join(names))


@pytest.mark.parametrize("name", OBSERVERS)
def test_drawn_programs_of_views_and_changes_are_the_same_observed(name: str) -> None:
    number = [*OBSERVERS].index(name)
    for seed in range(1000 + 15 * number, 1015 + 15 * number):
        program = random_program(seed)
        plain = run_program(cugrad, program)
        with observed_by(name):
            found = run_program(cugrad, program)
        if name in ("recompute", "budget") and STALE_TEXT in plain:
            continue  # what they have copied may change
        assert found == plain, f"seed {seed}: {program}"


@pytest.mark.parametrize("name", OBSERVERS)
def test_drawn_graphs_are_the_same_observed(name: str) -> None:
    number = [*OBSERVERS].index(name)

    def derivatives(seed: int) -> list[Any]:
        leaves, total = build(cugrad, seed)
        if not getattr(total, "requires_grad", False):
            return []
        assert_ordered([total])
        grads = cugrad.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
        assert_ordered([g for g in grads if g is not None])
        return [None if g is None else g.numpy(force=True) for g in grads]

    for seed in range(2000 + 20 * number, 2020 + 20 * number):
        plain = derivatives(seed)
        with observed_by(name):
            assert_same(derivatives(seed), plain, f"seed {seed}")


class _Double(cugrad.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


STALE: dict[str, Callable[[Any, Any], Any]] = {
    "an op": lambda u, v: (u * u).sum() + (v * v).sum(),
    "the view alone": lambda u, v: (v * v).sum(),
    "a change of the view": lambda u, v: v.mul_(3.0).sum() + (u * u).sum(),
    "a custom Function": lambda u, v: (_Double.apply(v) * v).sum(),
    "an index": lambda u, v: (v[0] * u[1]).sum(),
    "inside vmap": lambda u, v: cugrad.func.vmap(lambda a: a * v)(u).sum(),
    "a hook": lambda u, v: (v.register_hook(lambda g: g * 2), v.mul_(2.0), (u * v).sum())[-1],
}


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("use", STALE)
def test_a_view_made_before_a_change_keeps_its_history(use: str, name: str) -> None:
    def gradient() -> list[float]:
        x = cugrad.tensor([0.3, 0.4], dtype=cugrad.float64, requires_grad=True)
        u = x * x
        v = u[0:1]
        u.mul_(2.0)
        total = STALE[use](u, v)
        assert_ordered([total, u, v])
        return cugrad.autograd.grad(total, x)[0].tolist()

    plain = gradient()
    with observed_by(name):
        assert gradient() == plain


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_leaf_changed_under_no_grad_asks_for_no_history(name: str) -> None:
    with observed_by(name):
        w = cugrad.ones(3, requires_grad=True)
        with cugrad.no_grad():
            w[0:2] *= 2.0
        assert w.tolist() == [2, 2, 1]
        w.sum().backward()
        assert w.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("observed", [
    lambda: cugrad.profiler.profile(), lambda: cugrad.autograd.profiler.profile(),
    lambda: cugrad.profiler.MemoryTimeline(), lambda: cugrad.memory.recompute(),
])  # fmt: skip
def test_who_looks_on_asks_for_no_node(observed: Any, device: str) -> None:
    """A view whose base has changed gets its node when it is used: gradients add up in one order.

    What is computed of it beside, and has no gradient, asks for none.
    """
    for beside in ("signbit", "isnan", "argmax", "long", "bool", "floor", "exp"):
        grads = []
        for context in (contextlib.nullcontext, observed):
            with context():
                x = cugrad.tensor([1.608, 1.322, -1.328], dtype=cugrad.float64, requires_grad=True)
                view = x[None]
                with cugrad.no_grad():
                    view += cugrad.tensor([[0.768, -0.692, 0.564]], dtype=cugrad.float64)
                getattr(view, beside)()
                made = view._node is not None
                total = sum((each**2).sum() * 0.5 + each.sum() * 0.3 for each in (x, view, x))
                grads.append((made, *cugrad.autograd.grad(total, x)[0].tolist()))
        assert grads[0] == grads[1], beside
