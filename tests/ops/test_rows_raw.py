"""Properties of every row of the op table on plain arrays, with no engine."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cugrad.backends.wanted import wanted
from cugrad.ops.table import ELEMENTWISE, LINEAR, TABLE
from tests.ops import samples, strict
from tests.ops.row_cases import (
    KNOWN_FAILURES,
    Call,
    assert_close,
    called,
    differentiable,
    gradient_cases,
    inner,
    is_array,
    is_inexact,
    narrow_cases,
    over_lines,
    variant_named,
)
from tests.ops.sampling import LINES, REFERENCE

pytestmark = pytest.mark.per_row

NARROW = {"float64": {}, "complex128": {},
          "float32": {"float64": "float32", "complex128": "complex64"},
          "float16": {"float64": "float16"}, "bfloat16": {"float64": "bfloat16"},
          "complex64": {"float64": "float32", "complex128": "complex64"}}  # fmt: skip


def test_every_row_has_a_sample() -> None:
    """A row without a sample line is a row without tests."""
    assert sorted(TABLE.keys() - LINES.keys() - samples.NO_SAMPLE.keys()) == []


def test_every_sample_has_a_row() -> None:
    """A sample of a row that is gone, or misspelt, tests nothing."""
    assert sorted(LINES.keys() - TABLE.keys()) == []
    listed = [samples.REAL_ONLY, samples.NO_HALF, samples.NO_REFERENCE, samples.NO_TORCH]
    listed.append(samples.FLOAT32_OUTPUTS)
    listed.append(samples.ONCE)
    assert sorted({name for names in listed for name in names} - TABLE.keys()) == []


def test_known_failures_name_tests() -> None:
    """A line of known_failures.txt that names no test would hide nothing, and lie."""
    sources = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    for where in KNOWN_FAILURES:
        test, _, line = where.partition(" ")
        name, index = line.rstrip("]").split("[")
        assert f"def {test}(" in sources and int(index) < len(LINES[name]), where


def test_every_row_has_a_reference() -> None:
    """The value of a row is checked against NumPy's function, a reference, or a stated reason."""
    numpys = {name for name in TABLE if hasattr(np, name)}
    assert sorted(TABLE.keys() - REFERENCE.keys() - samples.NO_REFERENCE.keys() - numpys) == []


@pytest.mark.per_row(simulated=True)
@over_lines(lambda op: op.name not in samples.NO_REFERENCE)
def test_value(line: Any, backend: Any) -> None:
    """Value, shape and dtype are the reference's; narrow dtypes stay what they are."""
    wide = samples.FLOAT32_OUTPUTS.get(line.row, "").split()
    for case in gradient_cases(line) + narrow_cases(line):
        with variant_named(case):
            call = called(case, backend)
            wanted_values = samples.with_signs(line.row, call.reference())
            results = samples.with_signs(line.row, [call.host(x) for x in call.results])
            assert len(results) == len(wanted_values)
            for i, (got, want) in enumerate(zip(results, wanted_values)):
                dtype = want.dtype.name
                if "dtype" not in call.params:
                    dtype = NARROW[case.dtype].get(dtype, dtype)
                if dtype == "float16" and call.op.outputs[i] in wide:
                    dtype = "float32"
                assert (got.dtype.name, got.shape) == (dtype, want.shape), f"output {i}"
                assert_close(got, want, case.dtype, case.tolerance, f"output {i}")


@over_lines()
def test_arrays_in_arrays_out(line: Any, backend: Any) -> None:
    """Inputs are left alone, results are arrays and never scalars, only views share memory."""
    for case in gradient_cases(line):
        with variant_named(case):
            call = Call(case, backend)
            fresh = [a for a in called(case, backend).inputs if is_array(a)]
            arrays = [a for a in call.inputs if is_array(a)]
            for array, same in zip(arrays, fresh):
                np.testing.assert_array_equal(call.host(array), call.host(same))
            for result in call.results:
                assert isinstance(result, backend.array_types), type(result)
                assert not isinstance(result, np.generic), "a NumPy scalar"
            shared = [backend.xp.may_share_memory(r, a) for r in call.results for a in arrays]
            if call.op.view and not call.op.mirrors:
                moved = case.variant == "strided" or not call.results[0].size
                assert shared[0] or moved, "a view that shares no memory with input 0"
            else:
                assert not any(shared), "an output that shares memory, of a row that is no view"


@over_lines(differentiable)
def test_vjp_is_the_transposed_jacobian(line: Any, backend: Any) -> None:
    """<v, J u> by central differences equals <vjp(v), u>, for one input at a time."""
    for case in gradient_cases(line):
        with variant_named(case):
            call, rng = called(case, backend), np.random.default_rng(case.seed + 1)
            assert call.differentiable, "no input of this line can be differentiated"
            for v in call.all_cotangents(rng):
                grads = call.vjp(v)
                for i in call.differentiable:
                    u = one_tangent(call, i, rng)
                    numeric = inner(v, call.differences(u), call.host)
                    analytic = inner(grads, u, call.host)
                    assert_derivative(analytic, numeric, case, f"gradient of input {i}")


@over_lines(differentiable)
def test_jvp_agrees(line: Any, backend: Any) -> None:
    """<v, jvp(t)> equals <vjp(v), t>, for each input alone and for all together."""
    for case in gradient_cases(line):
        with variant_named(case):
            call, rng = called(case, backend), np.random.default_rng(case.seed + 1)
            v = call.cotangents(rng)
            grads = call.vjp(v)
            every = tuple(call.random_like(a, rng) if i in call.differentiable else None
                          for i, a in enumerate(call.inputs))  # fmt: skip
            tries = [one_tangent(call, i, rng) for i in call.differentiable]
            for t in [*tries, every] if len(tries) > 1 else tries:
                out = call.jvp(t)
                for o, r in zip(out, call.results):
                    assert o is None or o.shape == r.shape, f"{o.shape}, want {r.shape}"
                where = [i for i, x in enumerate(t) if x is not None]
                forward, backward = inner(v, out, call.host), inner(grads, t, call.host)
                assert_derivative(forward, backward, case, f"tangent of inputs {where}")


@over_lines(lambda op: op.kind == ELEMENTWISE)
def test_elementwise_is_true(line: Any, backend: Any) -> None:
    """The output has the broadcast shape; one element of an input reaches only its own outputs."""
    for case in gradient_cases(line):
        with variant_named(case):
            call = called(case, backend)
            arrays = [a for a in call.inputs if is_array(a)]
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
            assert [r.shape for r in call.results] == [shape] * len(call.results)
            for i, array in enumerate(call.inputs):
                if not is_array(array) or not array.size:
                    continue
                reached = np.zeros(array.shape, bool)
                reached.flat[call.rng.integers(array.size)] = True
                nudged = np.where(reached, other_value(call.host(array)), call.host(array))
                inputs = list(call.inputs)
                inputs[i] = backend.asarray(nudged)
                outputs = call.run(tuple(inputs))
                allowed = np.broadcast_to(reached, shape)
                for before, after in zip(call.results, outputs):
                    same = call.host(before)[~allowed], call.host(after)[~allowed]
                    np.testing.assert_array_equal(*same, err_msg=f"input {i} reaches neighbours")


@over_lines(lambda op: op.kind == LINEAR)
def test_linear_is_true(line: Any, backend: Any) -> None:
    """f(a x + b y) = a f(x) + b f(y) in each argument; optional arguments are left out."""
    for case in gradient_cases(line):
        with variant_named(case):
            call, rng = called(case, backend), np.random.default_rng(case.seed + 1)
            complex_too = case.dtype.startswith("complex") and call.op.holomorphic
            a, b = (0.7 - 0.2j, -1.3 + 0.4j) if complex_too else (0.7, -1.3)
            if call.op.variadic:
                x, y = call.inputs, tuple(call.random_like(i, rng) for i in call.inputs)
                sums = tuple(backend.wrap(a * p + b * q) for p, q in zip(x, y))
                trials = [(x, y, sums)]
            else:
                trials = [linear_trial(call, i, a, b, rng) for i in call.differentiable]
            for x, y, sums in trials:
                for fx, fy, f in zip(call.run(x), call.run(y), call.run(sums)):
                    want = a * call.host(fx) + b * call.host(fy)
                    assert_close(call.host(f), want, case.dtype, 10 * case.tolerance, "not linear")


@contextmanager
def deterministic() -> Iterator[None]:
    """Atomics add up in any order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "deterministic", True)
        yield


@over_lines(differentiable)
@deterministic()
def test_formulas_are_strict(line: Any, backend: Any) -> None:
    """Formulas use operators and m.* only and keep the gradient's dtype, in every dtype."""
    for case in [line, *gradient_cases(line)[-1:], *narrow_cases(line)]:
        with variant_named(case):
            call = called(case, backend)
            v = call.cotangents(call.rng)
            fast = call.formulas(v)
            m = strict.StrictNamespace()
            slow = call.formulas(v, m, strict.strict)
            expected = [r.dtype for i, r in enumerate(call.results) if v[i] is not None]
            for i in call.differentiable:
                assert isinstance(slow[i], strict.StrictArray), f"gradient {i}: {slow[i]!r}"
                got, dtypes = strict.value_of(slow[i]), {call.inputs[i].dtype, *expected}
                turned = got.dtype.kind == "c" and call.inputs[i].dtype.kind != "c"
                kept = got.dtype in dtypes or turned  # the engine takes the real part
                assert kept, f"gradient {i} is {got.dtype}, want {dtypes}"
                assert fast[i].dtype == got.dtype, f"gradient {i} is {fast[i].dtype} on arrays"
                np.testing.assert_array_equal(call.host(fast[i]), call.host(got))
            tangents = tuple(call.random_like(a, call.rng) if i in call.differentiable else None
                             for i, a in enumerate(call.inputs))  # fmt: skip
            with backend.quiet():
                call.op.jvp(m, strict.strict(call.inputs), strict.strict(tangents),
                            strict.strict(call.results), call.given)  # fmt: skip


# --------------------------------------------------------------------------------------------------


def one_tangent(call: Call, i: int, rng: np.random.Generator) -> tuple[Any, ...]:
    """A random direction for input i, none for the others."""
    tangents: list[Any] = [None] * len(call.inputs)
    tangents[i] = call.random_like(call.inputs[i], rng)
    return tuple(tangents)


def assert_derivative(got: float, want: float, case: Any, what: str) -> None:
    limit = 2e-6 * case.tolerance * max(1.0, abs(want))
    assert abs(got - want) <= limit, f"{what}: got {got!r}, want {want!r}"


def other_value(array: Any) -> Any:
    """A value that differs from each element, in the same dtype and in the row's domain."""
    if array.dtype == bool:
        return ~array
    if is_inexact(array.dtype):
        return array * array.dtype.type(0.875)
    return np.where(array > 0, array - 1, array + 1)


def linear_trial(call: Call, i: int, a: Any, b: Any, rng: np.random.Generator) -> Any:
    """Arguments x, y and a x + b y in place i; others that are optional and differentiable are left
    out.
    """
    rest = [None if n in call.op.optional and j != i and call.op.formulas[j] else x
            for j, (n, x) in enumerate(zip(call.op.inputs, call.inputs))]  # fmt: skip
    x, y = call.inputs[i], call.random_like(call.inputs[i], rng)
    both = call.backend.wrap(a * x + b * y)
    return tuple((*rest[:i], value, *rest[i + 1 :]) for value in (x, y, both))
