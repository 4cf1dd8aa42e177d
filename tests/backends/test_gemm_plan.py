"""Proves the GEMM plans without a GPU: cuBLAS's reading of memory, written in NumPy, must give
NumPy's matmul.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cugrad.backends.cupy.gemm_plan import Copy, Gemm, plan

pytestmark = pytest.mark.host_only

Array = np.ndarray[Any, Any]


def flat(x: Array) -> Array:
    """The memory of `x` from its first element on, as cuBLAS gets it: a bare pointer."""
    reach = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.strides)) // x.itemsize
    return np.lib.stride_tricks.as_strided(x, (reach,), (x.itemsize,))


def column_major(memory: Array, start: int, rows: int, columns: int, ld: int) -> Array:
    """The matrix that BLAS sees; an index beyond the memory fails."""
    assert ld >= max(1, rows), f"cuBLAS refuses ld={ld} for {rows} rows"
    r, c = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    return memory[start + r + c * ld]


def cublas(gemm: Gemm, a: Array, b: Array, shape: tuple[int, ...]) -> Array:
    """gemmStridedBatchedEx: C = op(first) op(second), column-major, with `b` first."""
    out = np.empty(gemm.batch * gemm.m * gemm.n, a.dtype)
    first, second, m, n, k = flat(b), flat(a), gemm.m, gemm.n, gemm.k
    for i in range(gemm.batch):
        x_shape = (k, m) if gemm.first_transposed else (m, k)
        y_shape = (n, k) if gemm.second_transposed else (k, n)
        x = column_major(first, i * gemm.first_stride, *x_shape, gemm.first_ld)
        y = column_major(second, i * gemm.second_stride, *y_shape, gemm.second_ld)
        x = x.T if gemm.first_transposed else x
        y = y.T if gemm.second_transposed else y
        out[i * m * n : (i + 1) * m * n] = (x @ y).T.ravel()  # column-major with ld = m
    return out.reshape(shape)


def strides_of(x: Array) -> tuple[int, ...]:
    return tuple(s // x.itemsize for s in x.strides)


def product(a: Array, b: Array) -> tuple[Array, int]:
    """a @ b by way of the plan, and how many operands had to be copied."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    copies = 0
    while isinstance(step := plan(a.shape, strides_of(a), b.shape, strides_of(b), batch), Copy):
        copies += 1
        assert copies <= 2, "a copy must have a plan"
        x = (a, b)[step.operand]
        dense = np.ascontiguousarray(
            np.broadcast_to(x, (*batch, *x.shape[-2:])) if step.broadcast else x
        )
        a, b = (dense, b) if step.operand == 0 else (a, dense)
    assert step.fits
    return cublas(step, a, b, (*batch, a.shape[-2], b.shape[-1])), copies


def rand(*shape: int) -> Array:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float64)


B, T, C, D, H = 3, 4, 5, 6, 2

# (what it is, a, b, copies wanted)
CASES: list[tuple[str, Array, Array, int]] = [
    ("matrices", rand(T, C), rand(C, D), 0),
    ("x @ w.mT", rand(T, C), rand(D, C).T, 0),
    ("x.mT @ g", rand(C, T).T, rand(C, D), 0),
    ("both transposed", rand(C, T).T, rand(D, C).T, 0),
    ("a slice of columns", rand(T, 2 * C)[:, C:], rand(C, D), 0),
    ("a slice of rows and columns", rand(9, 9)[2:6, 1:6], rand(9, 9)[2:7, 3:9].copy(), 0),
    ("every second column", rand(T, 2 * C)[:, ::2], rand(C, D), 1),
    ("every second row", rand(2 * T, C)[::2], rand(C, D), 0),
    ("reversed", rand(T, C)[:, ::-1], rand(C, D)[::-1], 2),
    ("a broadcast row", np.broadcast_to(rand(1, C), (T, C)), rand(C, D), 1),
    ("one row", rand(1, C), rand(C, D), 0),
    ("one column", rand(T, C), rand(C, 1), 0),
    ("a strided column", rand(T, C), rand(C, D)[:, 2:3], 0),
    ("an outer product", rand(T, 1), rand(1, D), 0),
    ("an inner product", rand(1, C), rand(C, 1), 0),
    ("an outer product of slices", rand(T, 3)[:, 1:2], rand(3, D)[1:2], 0),
    ("Linear on (B, T, C)", rand(B, T, C), rand(C, D), 0),
    ("Linear with weight.mT", rand(B, T, C), rand(D, C).T, 0),
    ("Linear on four dimensions", rand(2, B, T, C), rand(C, D), 0),
    ("Linear on a batch of one", rand(1, T, C), rand(C, D), 0),
    ("Linear on a sliced batch", rand(B, 2 * T, C)[:, :T], rand(C, D), 0),
    ("Linear on swapped axes", rand(T, B, C).swapaxes(0, 1), rand(C, D), 0),
    ("a stack of transposed", rand(B, C, T).swapaxes(1, 2), rand(C, D), 0),
    ("one matrix times a stack", rand(T, C), rand(B, C, D), 0),
    ("stacks", rand(B, T, C), rand(B, C, D), 0),
    ("q @ k.mT", rand(B, H, T, D), rand(B, H, T, D).swapaxes(-1, -2), 0),
    ("heads split from (B, T, H, D)", rand(B, T, H, D).swapaxes(1, 2),
     rand(B, T, H, D).transpose(0, 2, 3, 1), 2),
    ("heads split, batch of one", rand(1, T, H, D).swapaxes(1, 2),
     rand(1, T, H, D).transpose(0, 2, 3, 1), 0),
    ("one head for all", rand(B, H, T, D), rand(1, 1, D, T), 0),
    ("heads broadcast over the batch", rand(B, H, T, D), rand(1, H, D, T), 1),
    ("an outer broadcast", rand(B, 1, T, C), rand(1, H, C, D), 2),
    ("an expanded stack", np.broadcast_to(rand(T, C), (B, T, C)), rand(B, C, D), 0),
    ("a reversed stack", rand(B, T, C)[::-1], rand(B, C, D), 1),
    ("a stack of columns", rand(B, T, C), rand(B, C, 1), 0),
    ("a stack of rows", rand(B, 1, C), rand(B, C, D), 0),
    ("k of one", rand(B, T, 1), rand(B, 1, D), 0),
]  # fmt: skip


@pytest.mark.parametrize("name, a, b, copies", CASES, ids=[case[0] for case in CASES])
def test_a_plan_is_matmul(name: str, a: Array, b: Array, copies: int) -> None:
    got, made = product(a, b)
    np.testing.assert_array_equal(got, a @ b)
    assert made == copies


def test_random_layouts_are_matmul() -> None:
    rng = np.random.default_rng(1)
    for _ in range(600):
        depth = int(rng.integers(0, 3))
        batch = tuple(int(n) for n in rng.integers(1, 4, depth))
        m, n, k = (int(x) for x in rng.integers(1, 5, 3))
        a, b = (_layout_at_random(rng, batch, r, c) for r, c in ((m, k), (k, n)))
        got, _ = product(a, b)
        np.testing.assert_array_equal(got, a @ b)


def _layout_at_random(rng: Any, batch: tuple[int, ...], rows: int, columns: int) -> Array:
    shape = tuple(1 if rng.random() < 0.2 else n for n in batch) + (rows, columns)
    shape = shape[int(rng.integers(0, len(batch) + 1)) if rng.random() < 0.3 else 0 :]
    order = rng.permutation(len(shape))
    stored = tuple(shape[i] for i in order)
    x = rng.integers(-4, 5, tuple(n + int(rng.integers(0, 2)) for n in stored)).astype(np.float64)
    return x[tuple(slice(0, n) for n in stored)].transpose(np.argsort(order))


def test_one_plan_for_a_linear_layer() -> None:
    step = plan((B, T, C), (T * C, C, 1), (C, D), (1, C), (B,))
    assert isinstance(step, Gemm)
    assert (step.batch, step.n, step.first_transposed) == (1, B * T, True)


def test_sizes_beyond_32_bits_do_not_fit() -> None:
    step = plan((2**31, 1), (1, 1), (1, 1), (1, 1), ())
    assert isinstance(step, Gemm) and not step.fits
