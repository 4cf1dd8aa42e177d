"""Properties of every row when it is recorded and differentiated by the engine."""

from __future__ import annotations

import gc
import inspect
import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cugrad.autograd import backward, detect_anomaly, grad
from cugrad.autograd.graph import saved_tensors_hooks
from cugrad.autograd.mode import no_grad
from cugrad.autograd.recording.inplace import apply_inplace
from cugrad.autograd.recording.record import recorded
from cugrad.ops.table import TABLE, Op
from cugrad.tensor import Tensor, make
from tests.ops import samples
from tests.ops.row_cases import (
    EPS,
    Call,
    assert_close,
    called,
    differentiable,
    freeze,
    gradient_cases,
    inner,
    is_array,
    is_inexact,
    narrow_cases,
    over_lines,
    variant_named,
    ways,
)
from tests.ops.sampling import Sample

pytestmark = pytest.mark.per_row

Tensors = tuple[Any, ...]


class Recording:
    """A case run on Tensors; `wanted` are the flat numbers of the inputs that require gradients."""

    def __init__(
        self, case: Sample, backend: Any, wanted: list[int] | None = None, way: Any = None
    ) -> None:
        self.call = call = called(case, backend)
        self.function = way or getattr(recorded, call.op.name)
        self.wanted = call.differentiable if wanted is None else wanted
        self.inputs = tuple(
            make(a, requires_grad=i in self.wanted) if is_array(a) else a
            for i, a in enumerate(call.inputs)
        )
        self.leaves = [self.inputs[i] for i in self.wanted]
        self.outputs = self.run(self.inputs)

    def run(self, inputs: Tensors) -> Tensors:
        args = (list(inputs),) if self.call.op.variadic else inputs
        with self.call.backend.quiet():
            found = self.function(*args, **self.call.given)
        return found if isinstance(found, tuple) else (found,)

    @property
    def roots(self) -> list[Tensor]:
        return [o for o in self.outputs if o.requires_grad]

    def gradients(self, cotangents: Tensors, **options: Any) -> Tensors:
        """The gradients of the leaves, for one array per differentiable output."""
        given = [make(v) for v in cotangents if v is not None]
        with self.call.backend.quiet():
            return grad(self.roots, self.leaves, given, allow_unused=True, **options)


def in_turns(line: Sample, cases: list[Sample]) -> Iterator[tuple[Sample, Any]]:
    """Each case of a line with one of the two functions that record it, the next with the other."""
    return zip(cases, itertools.cycle(ways(TABLE[line.row])[:: -1 if line.index % 2 else 1]))


def arrays_of(tensors: Tensors) -> list[Any]:
    return [None if t is None else t._array for t in tensors]


@over_lines()
def test_recorded_value_is_the_raw_one(line: Any, backend: Any) -> None:
    """Recording changes no bit of the outputs, which are arrays and never NumPy scalars.

    The two ways take turns from case to case.
    """
    for case, way in in_turns(line, gradient_cases(line) + narrow_cases(line)):
        with variant_named(case):
            run = Recording(case, backend, None, way)
            for out, raw in zip(run.outputs, run.call.results):
                assert isinstance(out._array, backend.array_types), type(out._array)
                assert not isinstance(out._array, np.generic), "a NumPy scalar"
                assert out._array.dtype == raw.dtype
                np.testing.assert_array_equal(run.call.host(out._array), run.call.host(raw))


@pytest.mark.per_row(simulated=True)
@over_lines(differentiable)
def test_recorded_gradients_equal_raw_ones(line: Any, backend: Any) -> None:
    """The same values, shapes and dtypes with and without create_graph, as the formulas give.

    The two ways take turns from case to case.
    """
    for case, way in in_turns(line, gradient_cases(line)):
        with variant_named(case):
            run = Recording(case, backend, None, way)
            v = run.call.cotangents(run.call.rng)
            copies = [None if a is None else run.call.host(a).copy() for a in v]
            plain = run.gradients(v, retain_graph=True)
            graph = run.gradients(v, create_graph=True)
            formulas = run.call.vjp(v)
            for i, p, g in zip(run.wanted, plain, graph):
                array, what = run.call.inputs[i], f"gradient of input {i}"
                for found in (p, g):
                    assert found is not None, f"{what} is None"
                    assert type(found._array) in backend.array_types, f"{what}: {found._array!r}"
                    assert not isinstance(found._array, np.generic), f"{what} is a NumPy scalar"
                    assert found.shape == array.shape, f"{what}: {found.shape}, {array.shape}"
                    assert found._array.dtype == array.dtype, f"{what}: {found.dtype}"
                host = run.call.host(p._array)
                assert not p.requires_grad
                assert_close(run.call.host(g._array), host, case.dtype, 0.1, what)
                assert_close(host, run.call.host(formulas[i]), case.dtype, case.tolerance, what)
            for a, same in zip(v, copies):
                if a is not None:
                    np.testing.assert_array_equal(run.call.host(a), same, err_msg="cotangent")


@over_lines(differentiable)
def test_one_gradient_at_a_time(line: Any, backend: Any) -> None:
    """An input's gradient does not depend on which others require one.

    Where a kernel computes several together, it may add up in another order than for one.
    """
    near = 1e-12 if backend.runs_rows else 0.0
    run = Recording(line, backend)
    v = run.call.cotangents(run.call.rng)
    every = run.gradients(v)
    for way, (i, want) in itertools.product(ways(TABLE[line.row]), zip(run.wanted, every)):
        (got,) = Recording(line, backend, [i], way).gradients(v)
        np.testing.assert_allclose(
            run.call.host(got._array), run.call.host(want._array), near, near, err_msg=f"input {i}"
        )


@over_lines(differentiable)
def test_recorded_tangents_equal_raw_ones(line: Any, backend: Any) -> None:
    """Forward derivatives, too, are the same on Tensors as on arrays."""
    for case in gradient_cases(line):
        with variant_named(case):
            run = Recording(case, backend)
            call, rng = run.call, run.call.rng
            tangents = tuple(
                call.random_like(a, rng) if i in run.wanted else None
                for i, a in enumerate(call.inputs)
            )
            given = tuple(None if t is None else make(t) for t in tangents)
            with backend.quiet():
                found = call.op.jvp(recorded, run.inputs, given, run.outputs, call.given)
            outs = found if isinstance(found, tuple) else (found,)
            for got, want in zip(outs, call.jvp(tangents)):
                if want is not None:
                    got = np.broadcast_to(call.host(got._array), want.shape)
                    assert_close(got, call.host(want), case.dtype, 0.1, "tangent")


# Second order -------------------------------------------------------------------------------------


@over_lines(lambda op: differentiable(op) and op.name not in samples.ONCE)
def test_second_order(line: Any, backend: Any) -> None:
    """The gradient, as a function of inputs and cotangents, has the right gradient itself."""
    for case in gradient_cases(line):
        if "empty" in case.variant:
            continue
        with variant_named(case):
            second_order(Recording(case, backend), case)


def second_order(run: Recording, case: Sample) -> None:
    call, rng = run.call, np.random.default_rng(case.seed + 3)
    v = [a for a in call.cotangents(rng) if a is not None]
    x = [call.inputs[i] for i in run.wanted]
    w = [call.random_like(a, rng) for a in x]
    directions = [call.random_like(a, rng) for a in (*x, *v)]

    def gradients(arrays: list[Any], recording: bool) -> tuple[list[Tensor], list[Tensor]]:
        """The leaves (inputs and cotangents), and the gradients of the inputs."""
        leaves = [make(a, requires_grad=True) for a in arrays]
        inputs = list(run.inputs)
        for i, leaf in zip(run.wanted, leaves):
            inputs[i] = leaf
        roots = [o for o in run.run(tuple(inputs)) if o.requires_grad]
        found = grad(roots, leaves[: len(x)], leaves[len(x) :], create_graph=recording)
        return leaves, list(found)

    leaves, first = gradients([*x, *v], recording=True)
    where = [(g, make(s)) for g, s in zip(first, w) if g.requires_grad]
    assert where, "no gradient depends on the inputs or on the incoming gradient"
    second = grad([g for g, _ in where], leaves, [s for _, s in where], allow_unused=True)
    analytic = inner(arrays_of(second), tuple(directions), call.host)
    ends = []
    for sign in (EPS, -EPS):
        moved = [call.backend.wrap(a + sign * d) for a, d in zip((*x, *v), directions)]
        _, found = gradients(moved, recording=False)
        ends.append(inner(tuple(w), tuple(arrays_of(tuple(found))), call.host))
    numeric = (ends[0] - ends[1]) / (2 * EPS)
    limit = 1e-5 * case.tolerance * max(1.0, abs(numeric))
    assert abs(analytic - numeric) <= limit, f"got {analytic!r}, want {numeric!r} by differences"


# What is saved ------------------------------------------------------------------------------------


@contextmanager
def no_garbage_collector() -> Iterator[None]:
    """Only reference counts free memory inside: what dies there was in no cycle."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def named_by_formulas(run: Recording) -> set[str]:
    """The inputs and outputs that formulas of inputs which need a gradient ask for by name."""
    op, names = run.call.op, set()
    for i, formula in enumerate(op.formulas):
        if formula is not None and (i in run.wanted or op.variadic and run.wanted):
            names |= set(inspect.signature(formula).parameters)
    return names & {*op.inputs, *op.outputs}


def subsets(call: Call) -> list[list[int]]:
    every = call.differentiable
    return [[], every] + ([[i] for i in every] if len(every) > 1 else [])


@over_lines(differentiable)
def test_saved_is_minimal(line: Any, backend: Any) -> None:
    """A node saves what the formulas that will run name, and a constant call saves nothing."""
    for wanted, way in itertools.product(subsets(called(line, backend)), ways(TABLE[line.row])):
        run = Recording(line, backend, wanted, way)
        if not wanted:
            assert not run.roots and all(o.grad_fn is None for o in run.outputs)
            continue
        node = run.roots[0].grad_fn
        assert node.name() == run.call.op.name_of_node(node.params)
        names = [*run.call.op.inputs, *run.call.op.outputs]
        saved = {n for n in names if f"_raw_saved_{n}" in dir(node)}
        assert saved == named_by_formulas(run), f"with inputs {wanted} requiring gradients"
        for name in saved:
            value = getattr(node, f"_saved_{name}")
            assert value is None or isinstance(value, (Tensor, tuple, int, float, bool)), name


@over_lines(lambda op: differentiable(op) and not op.view)
def test_saved_lives_until_backward(line: Any, backend: Any) -> None:
    """An input or output lives on in the graph exactly if it is saved; backward frees it."""
    for wanted, way in itertools.product(subsets(called(line, backend)), ways(TABLE[line.row])):
        with no_garbage_collector():
            alive, release = lives(Recording(line, backend, wanted, way))
            for name, watch, saved in alive:
                assert (watch() is not None) == saved, f"{name} after forward, {wanted} wanted"
            release()
            dead = {name: watch() is None for name, watch, _ in alive}
            assert all(dead.values()), f"alive after backward: {dead}"


def lives(run: Recording) -> tuple[list[Any], Callable[[], Any]]:
    """Records the call of `run` again, on copies that only the graph can hold.

    Returns (name, weak reference to the array, whether it should live) for the inputs and the
    outputs, and a function that runs backward.
    """
    op, backend = run.call.op, run.call.backend
    names = named_by_formulas(run) if run.wanted else set()
    copies = []
    for i, t in enumerate(run.inputs):
        if i in run.wanted:
            copies.append(recorded.mul(t, 1.0))
        else:
            copies.append(make(freeze(t._array.copy())) if isinstance(t, Tensor) else t)
    outputs = run.run(tuple(copies))
    watched = []
    for i, t in enumerate(copies):
        if isinstance(t, Tensor):
            name = op.inputs[0 if op.variadic else i]
            watched.append((name, weakref.ref(t._array), name in names))
    for name, o in zip(op.outputs, outputs):
        watched.append((name, weakref.ref(o._array), name in names))
    edges = [o.grad_fn for o in outputs if o.requires_grad]
    seeds = [make(backend.xp.ones_like(o._array)) for o in outputs if o.requires_grad]
    roots = [gradient_edge(o) for o in outputs if o.requires_grad]
    leaves = run.leaves

    def release() -> Any:
        assert bool(edges) == bool(leaves)
        return grad(roots, leaves, seeds, allow_unused=True) if leaves else None

    return watched, release


def gradient_edge(t: Tensor) -> Any:
    from cugrad.autograd.graph import get_gradient_edge

    return get_gradient_edge(t)


@over_lines(lambda op: differentiable(op) and not op.view)
def test_everything_saved_passes_the_hooks(line: Any, backend: Any) -> None:
    """Hooks that move saved tensors away leave nothing behind, and gradients are the same."""
    for way in ways(TABLE[line.row]):
        plain = Recording(line, backend, None, way)
        v = plain.call.cotangents(plain.call.rng)
        want = plain.gradients(v)
        away: list[Any] = []

        def pack(t: Tensor, away: list[Any] = away) -> int:
            away.append(t._array.copy())
            return len(away) - 1

        def unpack(index: int, away: list[Any] = away) -> Tensor:
            return make(away[index].copy())

        with no_garbage_collector(), saved_tensors_hooks(pack, unpack):
            alive, release = lives(plain)
            here = [name for name, watch, _ in alive if watch() is not None]
            assert not here, f"{here} kept beside the hooks"
            assert len(away) == sum(saved for _, _, saved in alive)
            release()
        with saved_tensors_hooks(pack, unpack):
            run = Recording(line, backend, None, way)
        for create_graph in (True, False):
            for i, g, w in zip(run.wanted, run.gradients(v, create_graph=create_graph), want):
                got = run.call.host(g._array)
                assert_close(got, run.call.host(w._array), line.dtype, 0.1, f"input {i}")


@over_lines(differentiable)
def test_freed_graph_says_so(line: Any, backend: Any) -> None:
    """A second backward, and a look at a saved tensor, raise after the first has freed them."""
    for way in ways(TABLE[line.row]):
        freed_graph_says_so(Recording(line, backend, None, way))


def freed_graph_says_so(run: Recording) -> None:
    node = run.roots[0].grad_fn
    v = run.call.cotangents(run.call.rng)
    names = named_by_formulas(run)
    run.gradients(v)
    for name in names:
        with pytest.raises(RuntimeError, match="Saved intermediate values of the graph are freed"):
            getattr(node, f"_saved_{name}")
    if names:
        with pytest.raises(RuntimeError, match="Trying to backward through the graph a second"):
            run.gradients(v)


@over_lines(differentiable)
def test_gradients_go_nowhere_from_views_of_leaves_without_history(line: Any, backend: Any) -> None:
    """Such a node saves nothing, and no kernel is asked for its gradients; nor in anomaly mode."""
    for case in narrow_cases(line):
        run = Recording(case, backend)
        with no_grad():
            views = [t.view_as(t) if i in run.wanted else t for i, t in enumerate(run.inputs)]
        v = run.call.cotangents(run.call.rng)
        with pytest.warns(UserWarning, match="Anomaly Detection"):
            anomalies = detect_anomaly(check_nan=False)
        with variant_named(case), anomalies:
            run.outputs = run.run(tuple(views))
            with backend.quiet():
                backward(run.roots, [make(x) for x in v if x is not None])
        assert all(leaf.grad is None for leaf in run.leaves)


# In place -----------------------------------------------------------------------------------------


@over_lines(lambda op: op.kind == "elementwise" and op.inputs[0] == "self")
def test_in_place_is_the_same(line: Any, backend: Any) -> None:
    """The op put into its first input: same value and gradients, a new version, or a refusal."""
    op = TABLE[line.row]
    for case in gradient_cases(line):
        call = called(case, backend)
        if not is_array(call.inputs[0]) or call.results[0].dtype != call.inputs[0].dtype:
            continue
        for wanted in subsets(call):
            with variant_named(case):
                in_place(Recording(case, backend, wanted), op)


def in_place(run: Recording, op: Any) -> None:
    call = run.call
    first = run.inputs[0]
    target = recorded.mul(first, 1.0) if first.requires_grad else make(first._array.copy())
    args = (target, *run.inputs[1:])
    version = target._version
    params = {**op.defaults, **call.given}
    if call.results[0].shape != call.inputs[0].shape:
        with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
            apply_inplace(op, args, params)
        return
    with call.backend.quiet():
        answer = apply_inplace(op, args, params)
    assert answer is target and target._version == version + 1
    assert target.requires_grad == bool(run.wanted)
    np.testing.assert_array_equal(call.host(target._array), call.host(call.results[0]))
    np.testing.assert_array_equal(call.host(first._array), call.host(call.inputs[0]))
    if not run.wanted:
        return
    v = call.cotangents(call.rng)
    for create_graph in (True, False):
        got = grad(target, run.leaves, make(v[0]), create_graph=create_graph, retain_graph=True)
        for i, g, want in zip(run.wanted, got, run.gradients(v, retain_graph=True)):
            same = call.host(g._array), call.host(want._array)
            assert_close(*same, run.call.case.dtype, 0.1, f"gradient of input {i}")


# Mixed dtypes -------------------------------------------------------------------------------------


def promotes(op: Any) -> bool:
    return op.promote in ("common", "float") and (op.variadic or len(op.promoted) > 1)


PAIRS = [("float32", "float64"), ("float64", "float32"), ("float16", "float32"),
         ("float32", "complex64"), ("complex128", "float32"), ("float32", "int64"),
         ("int64", "float64")]  # fmt: skip


@over_lines(lambda op: differentiable(op) and promotes(op))
def test_gradient_has_the_dtype_and_shape_of_its_input(line: Any, backend: Any) -> None:
    """Whatever dtypes and shapes the other operands of a promoting row have."""
    op = TABLE[line.row]
    cases = [case for case in gradient_cases(line) if case.dtype == "float64"]
    for case, pair in itertools.product(cases, PAIRS):
        if line.row in samples.REAL_ONLY and any(d.startswith("complex") for d in pair):
            continue
        with variant_named(case):
            call = called(case, backend)
            tensors, position = [], 0
            for i, a in enumerate(call.inputs):
                if is_array(a) and (op.variadic or i in op.promoted):
                    a = backend.wrap(a.astype(np.dtype(pair[position % 2])))
                    position += 1
                wants = i in call.differentiable and is_inexact(a.dtype)
                tensors.append(make(a, requires_grad=wants) if is_array(a) else a)
            run = Recording.__new__(Recording)
            run.call, run.function = call, getattr(recorded, op.name)
            leaves = [t for t in tensors if isinstance(t, Tensor) and t.requires_grad]
            if not leaves:
                continue
            roots = [o for o in run.run(tuple(tensors)) if o.requires_grad]
            seeds = [make(call.random_like(o._array, call.rng)) for o in roots]
            for graph in (False, True):
                grads = grad(roots, leaves, seeds, retain_graph=True, create_graph=graph)
                for g, leaf in zip(grads, leaves):
                    assert (g.dtype, g.shape) == (leaf.dtype, leaf.shape), f"{pair}: {g.dtype}"


def keeps_what_has_no_gradient(op: Op) -> bool:
    hidden = {name for i, name in enumerate(op.outputs) if i not in op.differentiable}
    return differentiable(op) and not op.variadic and bool(hidden & set(op.saves(-1)))


@over_lines(keeps_what_has_no_gradient, first=True)
def test_a_saved_output_without_a_gradient_has_none_in_backward(line: Sample, backend: Any) -> None:
    """Else derivatives of the backward pass get a gradient that was never sent, at third order."""
    recording = Recording(line, backend)
    node = recording.roots[0].grad_fn
    hidden = [n for i, n in enumerate(node.plan.op.outputs) if i not in node.plan.op.differentiable]
    saved = [getattr(node, f"_saved_{name}") for name in hidden if name in node.plan.saves]
    assert all(tensor.grad_fn is None and not tensor.requires_grad for tensor in saved)
