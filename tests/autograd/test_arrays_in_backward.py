"""Backward is given arrays and hands out arrays, 0-d ones too; no view leaves its memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd import grad
from cugrad.backends.owners import root_of
from cugrad.ops.table import TABLE
from cugrad.tensor import Tensor, make
from tests.ops.row_cases import HOST, Call, called, gradient_cases, is_array, variant_named, ways
from tests.ops.sampling import LINES, Sample

# What a row calls: its forward gets arrays after `xp`, its formulas gradients and saved values.
CODES = {
    function.__code__: op
    for op in TABLE.values()
    for function in (op.forward, *op.formulas, op.jvp_formula)
    if function is not None
}


@contextmanager
def only_arrays() -> Iterator[None]:
    """AssertionError if a forward or a formula of a row is called with a NumPy scalar."""
    wrong: list[str] = []

    def watch(frame: Any, event: str, arg: Any) -> None:
        op = CODES.get(frame.f_code) if event == "call" else None
        if op is None:
            return
        values = frame.f_locals
        for name in ("g", "self", *op.inputs, *op.outputs):
            value = values.get(name)
            for x in value if type(value) in (tuple, list) else (value,):
                if isinstance(x, np.generic):
                    wrong.append(f"{op.name} got {name} as {type(x).__name__}")

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)
    assert not wrong, wrong


def owner(array: Any) -> Any:
    """The array that owns the memory, also behind the views that NumPy's as_strided makes."""
    found = array
    while hasattr(array, "base"):
        found, array = array if isinstance(array, np.ndarray) else found, array.base
    return found


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views by strides are checked to lie in the memory of what they are views of."""
    made = np.lib.stride_tricks.as_strided

    def checked(x: Any, shape: Any = None, strides: Any = None, **more: Any) -> Any:
        assert type(x) is np.ndarray, f"as_strided of {type(x).__name__}"
        view = made(x, shape, strides, **more)
        if view.size:
            (low, high), inside = map(np.lib.array_utils.byte_bounds, (owner(x), view))
            assert low <= inside[0] and inside[1] <= high, f"{view.shape} by {view.strides}"
        return view

    monkeypatch.setattr(np.lib.stride_tricks, "as_strided", checked)


def is_flat(case: Sample, backend: Any) -> bool:
    """Whether an input or an output is 0-d."""
    call = called(case, backend)
    return any(is_array(a) and a.shape == () for a in (*call.inputs, *call.results))


def checked(values: Any, backend: Any) -> None:
    for x in values:
        if x is not None:
            assert type(x._array) in backend.array_types and not isinstance(x._array, np.generic)


@pytest.mark.parametrize("name", [n for n in LINES if n in TABLE and any(TABLE[n].formulas)])
def test_rows_get_arrays_and_give_arrays(name: str, backend: Any, windows: None) -> None:
    """With 0-d operands, whose arithmetic gives NumPy scalars: gradients of first and second order,
    sums of gradients, and what hooks see. The two ways of recording take turns; on the simulated
    device it is a line in the way that users have."""
    every, lines = ways(TABLE[name]), LINES[name]
    if backend.name == "simulated":
        every, lines = every[1:], lines[:1]
    cases = [case for line in lines for case in gradient_cases(line) if is_flat(case, HOST)]
    for case, way in zip(cases, cycle(every), strict=False):
        with variant_named(case), only_arrays(), backend.quiet():
            twice(Call(case, backend), way, backend)


def twice(call: Call, way: Any, backend: Any) -> None:
    leaves = [make(a, i in call.differentiable) if is_array(a) else a
              for i, a in enumerate(call.inputs)]  # fmt: skip
    inner = [x * 1 + x if isinstance(x, Tensor) and x.requires_grad else x for x in leaves]
    found = way(*((inner,) if call.op.variadic else inner), **call.given)
    roots = [o * 2 for o in (found if isinstance(found, tuple) else (found,)) if o.requires_grad]
    wanted = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
    v = [make(backend.xp.ones_like(o._array)) for o in roots]
    in_batch(roots, wanted, v)
    seen: list[Any] = []
    for o in roots:
        o.grad_fn.register_hook(lambda ins, outs: seen.extend((*ins, *outs)))
    checked(grad(roots, wanted, v, retain_graph=True), backend)
    first = grad(roots, wanted, v, create_graph=True)
    checked(first, backend)
    again = [g for g in first if g.requires_grad]
    if again:
        v2 = [g.detach() for g in again]
        checked(grad(again, wanted, v2, retain_graph=True, allow_unused=True), backend)
    checked(seen, backend)
    cugrad.autograd.backward(roots, v)
    checked([x.grad for x in wanted], backend)


def in_batch(roots: list[Any], wanted: list[Any], vectors: list[Any]) -> None:
    """Two gradients at once, of which the second is of twice the vectors; the forward's scalars
    meet arrays of a vmap there.
    """
    plain = grad(roots, wanted, vectors, retain_graph=True)
    pairs = [cugrad.stack([v, v * 2]) for v in vectors]
    batch = grad(roots, wanted, pairs, retain_graph=True, is_grads_batched=True)
    for one, both in zip(plain, batch, strict=True):
        assert cugrad.allclose(both, cugrad.stack([one, one * 2]), equal_nan=True)


# Functions of a 0-d tensor, which have 0-d arrays on the way that no sample of a row has.
FLAT: dict[str, Callable[[Any, Any], Any]] = {
    "complex": lambda t, x: t.complex(x * 1.0, x * x),
    "polar": lambda t, x: t.polar(x * 1.0, x * x),
    "view_as_complex": lambda t, x: t.view_as_complex(t.stack([x, x * x])),
    "a mask": lambda t, x: masked(t, x * 1.0, x * x),
    "masked_fill": lambda t, x: x.masked_fill(x > 9, 2.0) * x,
    "as_strided": lambda t, x: (x * 1.0).as_strided((2, 2), (0, 0)).sum() * x,
    "diagonal": lambda t, x: t.diag_embed(x.reshape(1)).diagonal()[0] * x,
    "unfold": lambda t, x: x.unfold(0, 1, 1).sum() * x,
    "softmax": lambda t, x: x.softmax(0) * x.log_softmax(0) + x.logsumexp(0),
    "scans": lambda t, x: x.cumsum(0) * x.cumprod(0) * x.logcumsumexp(0),
    "reductions": lambda t, x: x.var(correction=0) + x.mean() * x.norm() * x.prod(),
    "in place": lambda t, x: (x * 1.0).mul_(x).add_(x).exp_(),
    "views": lambda t, x: (x * 1.0).view(1, 1).squeeze().expand(2)[0].clone() * x.unsqueeze(0)[0],
    "sorted": lambda t, x: x.sort()[0] * x.max() * t.cummax(x, 0)[0] * x.median(),
    "where": lambda t, x: t.where(x > 0, x * x, x) * t.stack([x, x]).prod(0),
}
COMPLEX = {
    "view_as_real": lambda t, z: (t.view_as_real(z) * t.view_as_real(z * z)).sum(),
    "real, imag": lambda t, z: z.real * (z * z).imag * z.abs() + z.angle(),
    "conj": lambda t, z: (z * z.conj() + z * z).real,
}


def masked(t: Any, y: Any, value: Any) -> Any:
    y[t.tensor(True)] = value
    return y


@pytest.mark.parametrize("name", [*FLAT, *COMPLEX])
def test_functions_of_a_single_number(name: str, device: str, windows: None) -> None:
    """Value, gradient and second gradient as in PyTorch, with arrays in every row."""
    torch = pytest.importorskip("torch")
    both = []
    for lib in (cugrad, torch):
        x = lib.tensor(0.7, dtype=lib.float64, requires_grad=True)
        z = lib.tensor(0.7 + 0.4j, dtype=lib.complex128, requires_grad=True)
        leaf, function = (x, FLAT[name]) if name in FLAT else (z, COMPLEX[name])
        with only_arrays():
            y = function(lib, leaf)
            y = (y * y.conj()).real if y.is_complex() else y
            (plain,) = lib.autograd.grad(y, leaf, retain_graph=True)
            (first,) = lib.autograd.grad(y, leaf, create_graph=True)
            squared = (first * first.conj()).real
            (second,) = lib.autograd.grad(squared, leaf)
        both.append([complex(v.item()) for v in (y, plain, first, second)])
    np.testing.assert_allclose(*both, rtol=1e-12, atol=1e-14)


def test_a_gradient_in_another_shape_is_not_copied_unless_it_is_seen() -> None:
    """A view of all of an array that nothing else refers to becomes the gradient of a leaf."""
    for seen in (False, True):
        kept = list[cugrad.Tensor]()
        leaf = cugrad.ones(4, 6).requires_grad_()
        flat = leaf.reshape(24)
        if seen:
            flat.register_hook(kept.append)
        (flat * cugrad.arange(24.0)).sum().backward()
        assert leaf.grad is not None and leaf.grad.tolist()[1][0] == 6
        array = leaf.grad._array
        assert (root_of(array) is array) == seen
        assert not any(np.shares_memory(array, g._array) for g in kept) and len(kept) == seen


def test_a_part_of_an_array_does_not_keep_the_rest_as_a_gradient() -> None:
    leaf = cugrad.ones(3, 4).requires_grad_()
    cugrad.cat([leaf, cugrad.ones(100, 4)]).mul(2).sum().backward()
    assert leaf.grad is not None and root_of(leaf.grad._array) is leaf.grad._array
