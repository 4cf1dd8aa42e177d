"""vmap: every row in one batch as example by example, nested, and under every other transform."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.autograd import grad
from cugrad.autograd.recording.record import recorded
from cugrad.errors import InplaceError
from cugrad.func import vmap
from cugrad.ops.table import TABLE
from cugrad.tensor import Tensor, make
from tests.ops import samples
from tests.ops.row_cases import (
    assert_close,
    called,
    differentiable,
    is_array,
    is_inexact,
    over_lines,
    variant_named,
)
from tests.ops.sampling import Sample

pytestmark = pytest.mark.per_row

B = 3


@functools.cache
def examples(line: Sample) -> list[Sample]:
    return [replace(line, seed=line.seed + 1000 * b) for b in range(B)]


class Batch:
    """A case drawn three times, and its row as a function of what is mapped over."""

    def __init__(self, line: Sample, backend: Any) -> None:
        self.op = TABLE[line.row]
        self.calls = [called(case, backend) for case in examples(line)]
        self.first = self.calls[0]
        self.backend = backend
        shapes = [[getattr(a, "shape", None) for a in call.inputs] for call in self.calls]
        # what is mapped over: all arrays; those that are indices or masks stay one for all
        self.mapped = [
            i for i, a in enumerate(self.first.inputs)
            if is_array(a) and is_inexact(a.dtype) and len({s[i] for s in shapes}) == 1
        ]  # fmt: skip

    def stacked(self, wanted: list[int]) -> list[Tensor]:
        xp = self.backend.xp
        return [make(xp.stack([call.inputs[i] for call in self.calls])) for i in wanted]

    def function(self, wanted: list[int]) -> Any:
        def of_one(*given: Tensor) -> Any:
            inputs = [make(a) if is_array(a) else a for a in self.first.inputs]
            for i, x in zip(wanted, given, strict=True):
                inputs[i] = x
            args = (inputs,) if self.op.variadic else inputs
            found = getattr(recorded, self.op.name)(*args, **self.first.given)
            found = found if isinstance(found, tuple) else (found,)
            return with_signs(self.op.name, found) if self.op.name in samples.SIGNS else found

        return of_one

    def one(self, b: int, wanted: list[int]) -> tuple[Any, ...]:
        """The outputs for example b, whose other inputs are those of the first."""
        inputs = list(self.first.inputs)
        for i in wanted:
            inputs[i] = self.calls[b].inputs[i]
        outputs = self.first.run(tuple(inputs))
        return tuple(samples.with_signs(self.op.name, [*map(self.first.host, outputs)]))


def with_signs(row: str, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """As that of samples, of tensors: functions that are the same whichever signs there are."""
    vectors = outputs[min(samples.SIGNS[row])].detach()
    signs = vectors.gather(-2, vectors.abs().argmax(-2, keepdim=True)).sign()
    by_dim = {None: 1, -2: signs, -1: signs.mT}
    return tuple([x * by_dim[samples.SIGNS[row].get(i)] for i, x in enumerate(outputs)])


def quietly(call: Any, backend: Any) -> Any:
    """Rules that loop are allowed here, and say so."""
    with warnings.catch_warnings(), backend.quiet():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        return call()


def choices(mapped: list[int]) -> list[list[int]]:
    """All inputs mapped over, then each alone beside inputs that are the same for all."""
    return [mapped] + [[i] for i in mapped if len(mapped) > 1]


@over_lines()
def test_a_batch_is_its_examples(line: Any, backend: Any) -> None:
    batch = Batch(line, backend)
    for wanted in choices(batch.mapped):
        if not wanted:
            continue
        found = quietly(
            lambda w=wanted: vmap(batch.function(w), randomness="same")(*batch.stacked(w)), backend
        )
        for b in range(B):
            for nr, (got, want) in enumerate(zip(found, batch.one(b, wanted), strict=True)):
                got = batch.first.host(got._array[b])
                assert got.dtype == want.dtype and got.shape == want.shape, f"output {nr}"
                assert_close(got, want, line.dtype, line.tolerance, f"output {nr} of example {b}")


@over_lines(differentiable)
def test_gradients_of_a_batch(line: Any, backend: Any) -> None:
    """Gradients through a vmap, and per-example gradients taken inside it."""
    batch = Batch(line, backend)
    wanted = [i for i in batch.mapped if i in batch.first.differentiable]
    if not wanted:
        return
    function, rng = batch.function(wanted), np.random.default_rng(line.seed + 5)
    v = [None if g is None else make(g) for g in batch.first.cotangents(rng)]

    def pullback(*given: Tensor) -> tuple[Tensor, ...]:
        leaves = [x.detach().requires_grad_() for x in given]
        pairs = [(o, g) for o, g in zip(function(*leaves), v, strict=True) if g is not None]
        return grad([o for o, _ in pairs], leaves, [g for _, g in pairs])

    stacked = batch.stacked(wanted)
    inside = quietly(lambda: vmap(pullback, randomness="same")(*stacked), backend)
    leaves = [x.detach().requires_grad_() for x in stacked]

    def through() -> Any:
        outs = vmap(function, randomness="same")(*leaves)
        pairs = [(o, g) for o, g in zip(outs, v, strict=True) if g is not None]
        return grad([o for o, _ in pairs], leaves, [g.expand(o.shape) for o, g in pairs])

    outside = quietly(through, backend)
    for b in range(B):
        each = quietly(lambda b=b: pullback(*[x[b] for x in stacked]), backend)
        for k, want in enumerate(each):
            want = batch.first.host(want._array)
            for how, got in (("inside", inside[k]), ("outside", outside[k])):
                got = batch.first.host(got._array[b])
                assert_close(got, want, line.dtype, 10 * line.tolerance, f"{how}, input {k}")


@over_lines(differentiable)
def test_batched_cotangents(line: Any, backend: Any) -> None:
    """One recorded graph, many vectors at once: what a vectorized Jacobian does."""
    with variant_named(line):
        batch = Batch(line, backend)
        wanted = batch.first.differentiable
        inputs = [make(a) if is_array(a) else a for a in batch.first.inputs]
        leaves = [inputs[i].requires_grad_() for i in wanted]
        args = (inputs,) if batch.op.variadic else inputs
        found = getattr(recorded, batch.op.name)(*args, **batch.first.given)
        roots = [o for o in (found if isinstance(found, tuple) else (found,)) if o.requires_grad]
        rng = np.random.default_rng(line.seed)
        v = [[make(g) for g in batch.first.cotangents(rng) if g is not None] for _ in range(B)]
        stacked = [cugrad.stack(list(g)) for g in zip(*v, strict=True)]

        def pull(*g: Tensor) -> Any:
            return grad(roots, leaves, g, retain_graph=True)

        found = quietly(lambda: vmap(pull)(*stacked), backend)
        for b in range(B):
            for k, want in enumerate(pull(*v[b])):
                got = batch.first.host(found[k]._array[b])
                assert_close(got, batch.first.host(want._array), line.dtype, 10, f"input {k}")


@over_lines()
def test_a_batch_of_batches(line: Any, backend: Any) -> None:
    """A vmap within a vmap computes what one vmap over all examples does, gradients too."""
    batch = Batch(line, backend)
    wanted = batch.mapped
    if not wanted:
        return
    function = batch.function(wanted)
    rng = np.random.default_rng(line.seed + 5)
    inner = [i for i in wanted if i in batch.first.differentiable]
    v = [None if g is None else make(g) for g in batch.first.cotangents(rng)] if inner else []

    def both(*given: Tensor) -> tuple[Tensor, ...]:
        xs = [x.detach().requires_grad_(i in inner) for i, x in zip(wanted, given, strict=True)]
        found = function(*xs)
        pairs = [(o, g) for o, g in zip(found, v, strict=False) if g is not None]
        leaves = [x for x in xs if x.requires_grad]
        if not pairs or not leaves:
            return tuple([o.detach() for o in found])
        grads = grad([o for o, _ in pairs], leaves, [g for _, g in pairs])
        return (*[o.detach() for o in found], *grads)

    stacked = batch.stacked(wanted)
    single = quietly(lambda: vmap(both, randomness="same")(*stacked), backend)
    nested = quietly(
        lambda: vmap(vmap(both, randomness="same"), randomness="same")(
            *[cugrad.stack([x, x.roll(1, 0)]) for x in stacked]
        ), backend,
    )  # fmt: skip
    for nr, (got, want) in enumerate(zip(nested, single, strict=True)):
        for b in range(B):
            for i, like in ((0, b), (1, b - 1)):
                a, w = batch.first.host(got._array[i, b]), batch.first.host(want._array[like])
                assert_close(a, w, line.dtype, 10 * line.tolerance, f"result {nr} of {i}, {b}")


# What is saved has a version ----------------------------------------------------------------------


def is_changed_unseen(roots: list[Tensor], leaves: list[Tensor], target: Tensor) -> bool | None:
    """Whether backward runs after a change in place; None where the tensor takes no change."""
    with cugrad.no_grad():
        try:
            target.mul_(1)
        except RuntimeError as error:
            assert "single memory location" in str(error)
            return None
    try:
        grad(roots, leaves, [cugrad.ones_like(o) for o in roots], allow_unused=True)
    except InplaceError:
        return False
    except RuntimeError as error:
        assert "is a view and its base" in str(error)
        return False
    return True


@over_lines(differentiable, first=True)
def test_what_a_batch_saves_has_a_version(line: Any, backend: Any) -> None:
    """A change in place of an input, a result, or a closed-over tensor is noticed by backward
    exactly where it is without vmap."""
    batch = Batch(line, backend)
    wanted = [i for i in batch.mapped if i in batch.first.differentiable]
    for mapped in choices(wanted):
        count = len(batch.first.inputs) + len(batch.first.results)
        for number in range(count if mapped else 0):
            if batch.op.spared and number >= len(batch.first.inputs):
                continue  # it is copied before it is changed
            with variant_named(line):
                assert changed(batch, mapped, True, number) == changed(batch, mapped, False, number)


def changed(batch: Batch, mapped: list[int], in_vmap: bool, number: int) -> bool | None:
    """`is_changed_unseen` of the tensor of a number: inputs, then results."""
    wants = batch.first.differentiable
    leaves, inputs = [], []
    for i, a in enumerate(batch.first.inputs):
        if in_vmap and i in mapped:
            a = batch.stacked([i])[0]._array
        x = make(a, i in wants) if is_array(a) else a
        if i in wants:
            leaves.append(x)
            x = x * 1
        elif is_array(a):
            x = make(a.copy())
        inputs.append(x)

    def function(*given: Tensor) -> Any:
        args = list(inputs)
        for i, x in zip(mapped, given, strict=True):
            args[i] = x
        found = getattr(recorded, batch.op.name)(
            *((args,) if batch.op.variadic else args), **batch.first.given)  # fmt: skip
        return found if isinstance(found, tuple) else (found,)

    given = [inputs[i] for i in mapped]
    run = vmap(function, randomness="same") if in_vmap else function
    results = quietly(lambda: run(*given), batch.backend)
    target = [*inputs, *results][number]
    if not isinstance(target, Tensor) or target.dtype == cugrad.bool:
        return None
    roots = [o for o in results if o.requires_grad]
    return quietly(lambda: is_changed_unseen(roots, leaves, target), batch.backend)


def test_python_numbers_beside_every_dtype(device: str) -> None:
    """From both sides; bfloat16 ones are scalars of a type of their own."""
    functions = [
        lambda r: 1 - r, lambda r: 1 / r, lambda r: r - 1, lambda r: 2 ** r, lambda r: 2 * r + 1,
        lambda r: r > 1, lambda r: r > 1, lambda r: r.clamp(0, 1), lambda r: r // 2,
    ]  # fmt: skip
    for dtype in (cugrad.bfloat16, cugrad.float16, cugrad.float32, cugrad.int64):
        x = cugrad.tensor([[1, 2], [3, 4]], dtype=dtype)
        for function in functions:
            got, want = vmap(function)(x), function(x)
            assert got.dtype is want.dtype and got.tolist() == want.tolist()
    hessian = cugrad.func.hessian(lambda x: (1 / x).sum())(x.bfloat16()[0])
    assert hessian.dtype is cugrad.bfloat16 and hessian.tolist() == [[2.0, 0.0], [0.0, 0.25]]


def test_a_number_that_differs_by_example_cannot_be_read() -> None:
    for read in (float, int, complex, bool, lambda r: r.item()):
        with pytest.raises(RuntimeError, match="one value per example"):
            vmap(lambda r, read=read: read(r))(cugrad.ones(3))


def test_each_example_has_a_range_of_its_own() -> None:
    x = cugrad.tensor([[0.0, 1.0, 4.0], [2.0, 2.0, 2.0]])
    with pytest.warns(UserWarning, match="performance drop"):
        counts = vmap(lambda r: cugrad.histc(r, 4))(x)
    assert counts.tolist() == [cugrad.histc(r, 4).tolist() for r in x]


def test_each_index_belongs_to_a_vmap_of_its_own() -> None:
    """An index that the outer vmap maps over stays whole in the inner one."""
    table = cugrad.arange(60.0).reshape(3, 4, 5).requires_grad_()
    rows, columns = cugrad.arange(3), cugrad.arange(4)
    for read in (
        lambda r, c: table[r, c, cugrad.tensor([0, 3])],
        lambda r, c: table[r, c][..., [0, 3]],
    ):
        got, want = vmap(vmap(read, (None, 0)), (0, None))(rows, columns), table[:, :, [0, 3]]
        assert cugrad.equal(got, want)
        slope, wanted = (cugrad.autograd.grad((x**2).sum(), table)[0] for x in (got, want))
        assert cugrad.equal(slope, wanted)

    def write(r: Tensor, c: Tensor) -> Tensor:
        return cugrad.zeros(3, 4).index_put((r, c), cugrad.tensor(1.0))

    marks = vmap(vmap(write, (None, 0)), (0, None))(rows, columns)
    assert cugrad.equal(marks.reshape(12, 12), cugrad.eye(12))
