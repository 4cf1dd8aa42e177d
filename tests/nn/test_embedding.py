"""Embeddings: what is looked up is exactly what is in the table, and where gradients go."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import cugrad

INF = float("inf")


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_scaling_by_frequency_leaves_values_as_they_are(lib: Any, kind: str) -> None:
    """An infinite row too; and counts are whole numbers, where half precision has none so large."""
    dtype, times = getattr(lib, kind), 2500
    numbers = lib.tensor([0, 2, *[1] * times, 3, 3, 3])
    table = lib.tensor([[0.1, -0.0], [1 / 3, 2.7], [-INF, 5.1], [0.7, 1e-3]], dtype=dtype)
    table.requires_grad_()
    rows = lib.nn.functional.embedding(numbers, table, scale_grad_by_freq=True)
    assert lib.equal(rows, table[numbers])
    assert lib.equal(rows.signbit(), table[numbers].signbit())
    (grad,) = lib.autograd.grad(rows[1:5].sum(), table)
    want = lib.tensor([[0.0], [3 / times], [1.0], [0.0]], dtype=dtype).expand(4, 2)
    assert lib.allclose(grad, want, rtol=1e-2, atol=0)
    bags = lib.nn.functional.embedding_bag(
        numbers, table, lib.tensor([0, 1]), mode="sum", scale_grad_by_freq=True
    )
    assert lib.equal(bags[0], table[0])


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own call
@pytest.mark.parametrize("mapped", [False, True])
def test_scaling_by_frequency_in_other_modes(lib: Any, mapped: bool) -> None:
    numbers = lib.tensor([0, 0, 0, 1])

    def look(table: Any) -> Any:
        return lib.nn.functional.embedding(numbers, table, scale_grad_by_freq=True)

    table = lib.tensor([[0.5], [2.0]], dtype=lib.float64, requires_grad=True)
    rows = lib.func.vmap(look)(table[None])[0] if mapped else look(table)
    (grad,) = lib.autograd.grad((rows**3).sum(), table, create_graph=True)
    assert grad.requires_grad
    assert lib.allclose(grad, 3 * table**2, rtol=1e-14, atol=0)
    with lib.autograd.forward_ad.dual_level():
        dual = lib.autograd.forward_ad.make_dual(table.detach(), lib.ones_like(table))
        tangent = lib.autograd.forward_ad.unpack_dual(look(dual)).tangent
    assert tangent.tolist() == [[1.0]] * 4


def test_of_equal_rows_in_a_bag_the_first_gets_the_gradient(lib: Any) -> None:
    table = lib.tensor([[1.0, 2.0], [1.0, 3.0], [-INF, -INF]], requires_grad=True)
    numbers, offsets = lib.tensor([1, 0, 1, 2, 0]), lib.tensor([0, 0, 3, 4])
    bags = lib.nn.functional.embedding_bag(numbers, table, offsets, mode="max", padding_idx=0)
    assert bags.tolist() == [[0.0, 0.0], [1.0, 3.0], [-INF, -INF], [0.0, 0.0]]
    bags = lib.nn.functional.embedding_bag(numbers, table, offsets, mode="max")
    assert bags.tolist() == [[0.0, 0.0], [1.0, 3.0], [-INF, -INF], [1.0, 2.0]]
    (grad,) = lib.autograd.grad(bags.sum(), table)
    assert grad.tolist() == [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("bag", [False, True])
@pytest.mark.parametrize("made", ["w * 1", "w.clone()", "w + w", "w.tanh()", "w[:2]", "w.t()"])
def test_a_table_that_was_computed_may_be_looked_up_as_a_sparse_one(made: str, bag: bool) -> None:
    torch = pytest.importorskip("torch")

    def outcome(lib: Any, sparse: bool) -> list[Any]:
        w = lib.tensor([[0.3, 0.1], [0.2, -0.4], [1.0, 2.0]], requires_grad=True)
        table, at, F = eval(made, {"w": w}), lib.tensor([[0, 1], [1, 1]]), lib.nn.functional
        rows = F.embedding_bag(at, table, sparse=sparse, mode="sum") if bag else F.embedding(
            at, table, sparse=sparse)  # fmt: skip
        (g,) = lib.autograd.grad((rows * rows).sum(), w)
        return [rows.tolist(), g.tolist()]

    want = outcome(torch, False)  # sparse ones pass few of PyTorch's ops
    for got, exact in zip(outcome(cugrad, True), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-6)


def test_sparse_tables_in_transforms() -> None:
    """As those that are not sparse; by batches of numbers the gradient of a leaf is sparse."""
    F, func = cugrad.nn.functional, cugrad.func
    table = cugrad.arange(12.0).reshape(6, 2).requires_grad_()
    tables = cugrad.stack([table.detach(), table.detach() * 2]).requires_grad_()
    numbers = cugrad.tensor([[1, 2], [1, 3], [5, 5]])

    def results(sparse: bool) -> list[Any]:
        def rows(weight: Any, at: Any) -> Any:
            return F.embedding(at, weight, padding_idx=2, sparse=sparse).square()

        batches = func.vmap(partial(rows, table), in_dims=1)(numbers)
        (slope,) = cugrad.autograd.grad(batches.sum(), table)
        assert slope.is_sparse == sparse
        ensemble = func.vmap(rows, (0, None))(tables, numbers)
        (slopes,) = cugrad.autograd.grad(ensemble.sum(), tables)
        each = func.vmap(func.grad(lambda *a: rows(*a).sum()), (None, 0))(table, numbers)
        tangent = func.jvp(lambda w: rows(w, numbers), (table,), (table * 3,))[1]
        slope = slope.to_dense() if sparse else slope
        return [x.tolist() for x in (batches, slope, ensemble, slopes, each, tangent)]

    assert results(True) == results(False)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_are_pooled_as_in_pytorch(mode: str, kind: str) -> None:
    """Bags that are empty, of lines or offsets, whose numbers have weights, or do not count."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values, factors = rng.standard_normal((6, 5)).round(2), rng.random(8)
    lines = rng.integers(0, 6, (2, 4))

    def outcomes(lib: Any) -> list[Any]:
        dtype, found = getattr(lib, kind), []
        for turned, offsets, padding, last in (
            (False, None, None, False), (True, [0, 3, 3, 8], None, True),
            (False, [0, 5, 8], 2, False), (True, None, -2, False),
        ):  # fmt: skip
            table = lib.tensor(values.T.tolist() if turned else values.tolist(), dtype=dtype)
            table = (table.t() if turned else table).detach().requires_grad_()
            numbers = lib.tensor(lines.tolist() if offsets is None else lines.reshape(-1).tolist())
            weights, leaves = None, [table]
            if mode == "sum":
                weights = lib.tensor(factors.tolist(), dtype=dtype).reshape(numbers.shape)
                leaves.append(weights.requires_grad_())
            y = lib.nn.functional.embedding_bag(
                numbers, table, None if offsets is None else lib.tensor(offsets), mode=mode,
                per_sample_weights=weights, include_last_offset=last, padding_idx=padding,
            )  # fmt: skip
            assert y.dtype is dtype and type(y.grad_fn).__name__ == "EmbeddingBagBackward0"
            grads = lib.autograd.grad((y.float() ** 2).sum(), leaves)
            found += [x.detach().double().tolist() for x in (y, *grads)]
        return found

    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}[kind]
    for got, want in zip(outcomes(cugrad), outcomes(torch), strict=True):
        np.testing.assert_allclose(got, want, tolerance, tolerance)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own call
def test_a_tangent_is_that_of_rows_that_were_shortened(lib: Any) -> None:
    """As the gradient is: how rows were shortened is no part of the function."""
    table = lib.tensor([[3.0, 4.0], [0.1, 0.2], [6.0, 8.0]], dtype=lib.float64)
    numbers, along = lib.tensor([2, 0, 0]), lib.ones(3, 2, dtype=lib.float64)

    def look(p: Any) -> Any:
        return (lib.nn.functional.embedding(numbers, p, max_norm=1.0) ** 2).sum()

    _, slope = lib.func.jvp(look, (table.clone(),), (along,))
    assert slope.item() == pytest.approx(lib.func.grad(look)(table).sum().item())
    assert slope.item() == pytest.approx(3 * 2 * 1.4)


def test_arguments_in_their_old_order_are_warned_of(lib: Any) -> None:
    table, numbers = lib.arange(6.0).reshape(3, 2), lib.tensor([[0, 2]])
    bags = lib.nn.functional.embedding_bag
    with pytest.warns(UserWarning, match="Argument order of nn.functional.embedding_bag"):
        assert bags(table, numbers).tolist() == bags(numbers, table).tolist()
