"""Products of groups: values, gradients and refusals are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad

SHAPES = [
    ((8, 16), (3, 16, 8), (2, 5, 8)), ((3, 8, 16), (16, 8), (2, 5, 8)),
    ((16, 8), (8, 24), (2, 5, 8)), ((3, 8, 16), (3, 16, 8), None),
    ((8, 16), (3, 16, 8), (2, 2, 8)),
]  # fmt: skip
REFUSED = [
    ((8, 16), (3, 16, 8), None), ((3, 8, 16), (3, 16, 8), (2, 5, 8)), ((8, 16), (16,), (2, 5, 8)),
    ((8, 16), (3, 12, 8), (2, 5, 8)), ((8, 16), (3, 16, 8), (2, 5)), ((3, 8, 16), (2, 16, 8), None),
]  # fmt: skip


def grouped(lib: Any, a: Any, b: Any, offs: Any, dtypes: Any = ("float32",) * 2) -> list[Any]:
    draws = np.random.default_rng(0)
    operands = [
        lib.from_numpy(draws.standard_normal(shape).astype(dtype)).requires_grad_()
        for shape, dtype in zip((a, b), dtypes)
    ]
    offs = None if offs is None else lib.tensor(offs, dtype=lib.int32)
    result = lib.nn.functional.grouped_mm(*operands, offs=offs)
    result.square().sum().backward()
    return [x.detach().numpy() for x in (result, *[x.grad for x in operands])]


@pytest.mark.parametrize(("a", "b", "offs"), SHAPES)
def test_groups_are_multiplied(a: Any, b: Any, offs: Any) -> None:
    torch = pytest.importorskip("torch")
    for mine, theirs in zip(grouped(cugrad, a, b, offs), grouped(torch, a, b, offs)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("a", "b", "offs"), REFUSED)
def test_what_does_not_fit_is_refused(a: Any, b: Any, offs: Any) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as theirs:
        grouped(torch, a, b, offs)
    with pytest.raises(RuntimeError) as mine:
        grouped(cugrad, a, b, offs)
    assert str(mine.value).split("(")[0].strip() == str(theirs.value).strip()


@pytest.mark.parametrize("dtypes", [("float64", "float64"), ("float32", "float64")])
def test_other_dtypes_are_refused(dtypes: Any) -> None:
    for lib in (cugrad, pytest.importorskip("torch")):
        with pytest.raises(RuntimeError, match=r"^Expected mat_[ab] to be .* got Double"):
            grouped(lib, (3, 8, 16), (3, 16, 8), None, dtypes)


def test_rows_behind_the_last_group_are_zeros() -> None:
    x, w = cugrad.ones(4, 2), cugrad.ones(1, 2, 3)
    ends = cugrad.tensor([3], dtype=cugrad.int32)
    assert cugrad.nn.functional.grouped_mm(x, w, offs=ends)[3].tolist() == [0, 0, 0]
