"""The cases of the row tests: rows and their sample lines, called on arrays, and differentiated."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cugrad  # noqa: F401 -- declares every row
from cugrad import backends
from cugrad.autograd.recording import record
from cugrad.ops.table import ELEMENTWISE, TABLE, Op, raw
from tests.ops import samples
from tests.ops.sampling import LINES, REFERENCE, Input, Sample, variants

EPS = 1e-6
ASKED = "CUGRAD_DEVICE" in os.environ  # when this is imported; later each test sets it
TOLERANCE = {"float64": 1e-10, "complex128": 1e-10, "float32": 3e-5, "complex64": 3e-5,
             "float16": 2e-2, "bfloat16": 1e-1}  # fmt: skip
HOST = backends.get("cpu")
Grad = tuple[Any, ...]  # one entry per input array, None where it has no gradient


# Which cases --------------------------------------------------------------------------------------


def _known_failures() -> dict[str, str]:
    text = (pathlib.Path(__file__).parent / "known_failures.txt").read_text()
    rows = (line.split("#", 1) for line in text.splitlines() if not line.startswith("#"))
    return {where.strip(): why.strip() for where, why in filter(lambda r: len(r) == 2, rows)}


KNOWN_FAILURES = _known_failures()


def over_lines(
    wanted: Callable[[Op], Any] = lambda op: True, first: bool = False
) -> Callable[..., Any]:
    """Runs a test on every sample line of the rows that are `wanted`, or on their first lines.

    It is one test a row: an error names the line. A line that is known to fail must fail. On the
    simulated device, which computes with NumPy too, a row's first line is enough, except where
    CUGRAD_DEVICE asks for it.
    """

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def over(row: str, **fixtures: Any) -> None:
            place = getattr(fixtures.get("backend"), "name", fixtures.get("device"))
            few = first or place == "simulated" and not ASKED
            on_lines(test, LINES[row][:1] if few else LINES[row], fixtures)

        signature = inspect.signature(test)
        row = inspect.Parameter("row", inspect.Parameter.KEYWORD_ONLY)
        others = [p for name, p in signature.parameters.items() if name != "line"]
        over.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*[p.replace(kind=p.KEYWORD_ONLY) for p in others], row]
        )
        rows = [name for name in LINES if name in TABLE and wanted(TABLE[name])]
        return pytest.mark.parametrize("row", rows)(over)

    return decorate


def on_lines(test: Callable[..., Any], lines: list[Sample], fixtures: dict[str, Any]) -> None:
    """Calls a test on lines of a row; it is skipped where it is for all of them."""
    skipped = []
    for line in lines:
        why = KNOWN_FAILURES.get(f"{test.__name__} {line.row}[{line.index}]")
        with pytest.raises(Exception) if why else line_named(line):
            try:
                test(line=line, **fixtures)
            except pytest.skip.Exception as reason:
                skipped.append(reason)
    if len(skipped) == len(lines):
        raise skipped[0]


@contextlib.contextmanager
def line_named(line: Sample) -> Iterator[None]:
    """Says in a failure which line it was."""
    try:
        yield
    except Exception as error:
        if line.id in str(error):
            raise
        raise AssertionError(f"{line.id}: {error}") from error


def differentiable(op: Op) -> bool:
    return any(op.formulas)


def ways(op: Op) -> list[Callable[..., Any]]:
    """The two functions that record a row: the general one, and the one with a fast path."""

    def general(*args: Any, **params: Any) -> Any:
        args += (None,) * (len(op.inputs) - len(args))
        return record.apply(op, args, {**op.defaults, **params} if op.params else record.NO_PARAMS)

    return [general, getattr(record.recorded, op.name)]


@contextlib.contextmanager
def variant_named(case: Sample) -> Iterator[None]:
    """Says in a failure which variant of the line it was."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"variant {case.variant} of {case.id}: {error}") from error


def takes_complex(line: Sample) -> bool:
    specs = [s for a in line.args for s in (a if isinstance(a, list) else [a])]
    floats = [s for s in specs if isinstance(s, tuple) or isinstance(s, Input) and not s.real]
    if "c" in TABLE[line.row].refuses:
        return False
    return bool(floats) and line.row not in samples.REAL_ONLY


@functools.cache
def gradient_cases(line: Sample) -> list[Sample]:
    """The line in its shapes and layouts at float64, and once complex."""
    op = TABLE[line.row]
    is_ufunc = op.ufunc is not None  # of a row that has no kind because it has no gradient
    cases = list(variants(line, op.kind == ELEMENTWISE or is_ufunc))
    if takes_complex(line):
        cases.append(replace(line, dtype="complex128", variant="complex128"))
    return cases


@functools.cache
def narrow_cases(line: Sample) -> list[Sample]:
    """A first line in the other floating-point dtypes, and each further line in one of them."""
    dtypes = ["float32"] + ["float16"] * (line.row not in samples.NO_HALF)
    if takes_complex(line):
        dtypes.append("complex64")
    if line.index:
        dtypes = [dtypes[line.index % len(dtypes)]]
    return [replace(line, dtype=d, variant=d) for d in dtypes]


# One case, called ---------------------------------------------------------------------------------


def is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "ndim")


def is_inexact(dtype: Any) -> bool:
    return dtype.kind in "fc" or dtype.name == "bfloat16"


def freeze(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array


def widened(value: Any) -> Any:
    """A float64 or complex128 copy of an inexact array; everything else as it is."""
    if not is_array(value) or not is_inexact(value.dtype):
        return value
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


class Call:
    """A row called on the arrays of a case, which are read-only where the backend can say so.

    Inputs are numbered flat: those of a row with `tensors*` are the members of its list.
    """

    def __init__(self, case: Sample, backend: Any) -> None:
        self.case, self.backend, self.op = case, backend, TABLE[case.row]
        args = case.arrays(backend)
        self.inputs: tuple[Any, ...] = tuple(args[0]) if self.op.variadic else args
        for array in filter(is_array, self.inputs):
            freeze(array)
        self.given = case.params_on(backend)
        self.params = {**self.op.defaults, **self.given}
        self.results = self.run(self.inputs)
        if self.op.many:
            self.op = self.op.counted(len(self.results))

    def run(self, inputs: tuple[Any, ...], m: Any = raw) -> tuple[Any, ...]:
        args = (list(inputs),) if self.op.variadic else inputs
        with self.backend.quiet():
            try:
                found = getattr(m, self.case.row)(*args, **self.given)
            except NotImplementedError as error:
                if "compute it on the CPU" in str(error):
                    pytest.skip(str(error))
                raise
        return found if isinstance(found, tuple) else (found,)

    def host(self, value: Any) -> Any:
        return self.backend.to_host(value) if is_array(value) else value

    def reference(self) -> tuple[Any, ...]:
        """The outputs of the row's NumPy reference, evaluated at float64."""
        function = REFERENCE.get(self.case.row)
        args, params = self.case.host_args(), self.case.params_on(HOST)
        args = ([widened(a) for a in args[0]],) if self.op.variadic else map(widened, args)
        with np.errstate(all="ignore"):
            if function is None:
                found = getattr(np, self.case.row)(*args, **params)
            else:
                found = function(np, *args, **params)
        return tuple(map(np.asarray, found)) if isinstance(found, tuple) else (np.asarray(found),)

    @property
    def differentiable(self) -> list[int]:
        """The inputs that have a formula and a dtype with gradients."""
        formulas = self.op.formulas * (len(self.inputs) if self.op.variadic else 1)
        return [
            i
            for i, (array, formula) in enumerate(zip(self.inputs, formulas))
            if formula is not None and is_array(array) and is_inexact(array.dtype)
        ]

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.case.seed + 1)

    def random_like(self, array: Any, rng: np.random.Generator) -> Any:
        """A normal array of the same shape and dtype, on the backend."""
        value = np.asarray(rng.standard_normal(array.shape))
        if array.dtype.kind == "c":
            value = value + 1j * np.asarray(rng.standard_normal(array.shape))
        return freeze(self.backend.asarray(value.astype(array.dtype)))

    def cotangents(self, rng: np.random.Generator) -> Grad:
        """A random gradient for each differentiable output, None for the others."""
        return tuple(
            self.random_like(r, rng) if i in self.op.differentiable else None
            for i, r in enumerate(self.results)
        )

    def all_cotangents(self, rng: np.random.Generator) -> list[Grad]:
        """Gradients for all outputs; then, as backward may bring them, for one output alone."""
        every = self.cotangents(rng)
        outputs = self.op.differentiable if len(self.op.differentiable) > 1 else ()
        alone = [tuple(g if i == o else None for i, g in enumerate(every)) for o in outputs]
        return [every, *alone]

    # ------------------------------------------------------------------ derivatives

    def saved(self, names: tuple[str, ...], wrap: Callable[[Any], Any]) -> list[Any]:
        op = self.op
        values = dict(zip(op.outputs, self.results))
        values.update({op.inputs[0]: list(self.inputs)} if op.variadic
                      else zip(op.inputs, self.inputs))  # fmt: skip
        return [wrap(values[n]) for n in names]

    def formulas(
        self, cotangents: tuple[Any, ...], m: Any = raw, wrap: Callable[[Any], Any] = lambda a: a
    ) -> Grad:
        """What the vjp formulas answer for all differentiable inputs, as they answer it."""
        op, wanted = self.op, self.differentiable
        mask = 1 if op.variadic else sum(1 << i for i in wanted)
        names, vjp = op.saves(mask), op.gradients(mask)
        shapes = tuple(getattr(a, "shape", ()) for a in self.inputs)
        gs = tuple(wrap(cotangents[i]) for i in op.differentiable)
        g = gs[0] if len(gs) == 1 else gs
        with self.backend.quiet():
            return tuple(vjp(m, g, self.saved(names, wrap), shapes, self.params))

    def vjp(self, cotangents: tuple[Any, ...]) -> Grad:
        """The gradient of each input, as the engine makes it of the formulas' answers."""
        conjugate = self.op.holomorphic and self.results[0].dtype.kind == "c"
        conj = (lambda a: a if a is None else a.conj()) if conjugate else (lambda a: a)
        found = self.formulas(tuple(map(conj, cotangents)))
        grads = []
        for i, (grad, array) in enumerate(zip(found, self.inputs)):
            if i not in self.differentiable:
                grads.append(None)
                continue
            grad = conj(grad)
            if array.dtype.kind != "c" and grad.dtype.kind == "c":
                grad = grad.real
            if self.op.kind == ELEMENTWISE or self.op.promote is not None:
                grad = sum_to(grad, array.shape)
            assert grad.shape == array.shape, f"gradient {i}: {grad.shape}, want {array.shape}"
            grads.append(grad)
        return tuple(grads)

    def jvp(self, tangents: Grad) -> tuple[Any, ...]:
        """The tangent of each output; an elementwise row's is broadcast as the engine does it."""
        with self.backend.quiet():
            found = self.op.jvp(raw, self.inputs, tangents, self.results, self.given)
        outs = found if isinstance(found, tuple) else (found,)
        assert len(outs) == len(self.results), f"{len(outs)} tangents, want {len(self.results)}"
        if self.op.kind == ELEMENTWISE:
            outs = tuple(np.broadcast_to(self.host(t), r.shape) for t, r in zip(outs, self.results))
        return outs

    def differences(self, tangents: Grad) -> tuple[np.ndarray | None, ...]:
        """The tangent of each differentiable output by central differences."""
        ends = []
        for sign in (EPS, -EPS):
            ends.append(
                self.run(
                    tuple(
                        a if t is None else self.backend.wrap(a + sign * t)
                        for a, t in zip(self.inputs, tangents)
                    )
                )
            )
        return tuple(
            (self.host(p) - self.host(q)) / (2 * EPS) if i in self.op.differentiable else None
            for i, (p, q) in enumerate(zip(*ends))
        )


def called(case: Sample, backend: Any) -> Call:
    """The call of a case; on the host it is made once, for all tests that look at it."""
    return _on_host(case) if backend is HOST else Call(case, backend)


@functools.cache
def _on_host(case: Sample) -> Call:
    return Call(case, HOST)


def sum_to(grad: Any, shape: tuple[int, ...]) -> Any:
    """Undoes a broadcast."""
    lead = grad.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        lead + i for i, n in enumerate(shape) if n == 1 and grad.shape[lead + i] != 1
    )
    return grad.sum(axis=axes).reshape(shape) if axes else grad


def inner(xs: tuple[Any, ...], ys: tuple[Any, ...], host: Callable[[Any], Any]) -> float:
    """The real inner product of two lists of arrays; where either is None the term is zero."""
    return sum(
        float(np.sum(host(x).conj() * host(y)).real)
        for x, y in zip(xs, ys)
        if x is not None and y is not None
    )


def assert_close(got: Any, want: Any, dtype: str, factor: float, what: str) -> None:
    """Equal to the dtype's tolerance, relative to the largest element; NaN and inf exactly."""
    got, want = widened(np.asarray(got)), np.asarray(want)
    if np.array_equal(got, want):
        return
    finite = np.abs(want[np.isfinite(want)]) if is_inexact(want.dtype) else want
    scale = max(1.0, float(finite.max(initial=0.0))) if is_inexact(want.dtype) else 1.0
    limit = TOLERANCE.get(dtype, 0.0) * factor * scale if is_inexact(want.dtype) else 0.0
    np.testing.assert_allclose(got, want, rtol=0.0, atol=limit, err_msg=what)
