"""segment_reduce beside PyTorch's: values, gradients and errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch")

WAYS = ["sum", "mean", "max", "min", "prod"]
OPTIONS: list[dict[str, Any]] = [{}, {"initial": 2.5}, {"unsafe": True}]


@pytest.mark.parametrize(("reduce", "options"), list(itertools.product(WAYS, OPTIONS)))
@pytest.mark.parametrize("axis", [0, 1])
def test_values_and_gradients(reduce: str, options: dict[str, Any], axis: int) -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((6, 2)) if axis == 0 else rng.standard_normal((2, 6, 2))
    lengths = np.array([2, 0, 3, 1]) if axis == 0 else np.array([[2, 0, 3, 1], [1, 1, 1, 3]])
    offsets = np.concatenate([np.zeros((*lengths.shape[:-1], 1), int), lengths.cumsum(-1)], -1)
    results = []
    for t, by in itertools.product((cugrad, torch), ("lengths", "offsets")):
        x = t.tensor(data, requires_grad=True)
        where = t.tensor(lengths if by == "lengths" else offsets)
        y = t.segment_reduce(x, reduce, axis=axis, **{by: where}, **options)
        (grad,) = t.autograd.grad(y[t.isfinite(y)].sum(), x)
        results.append((y.detach().numpy(), grad.numpy()))
    for y, grad in results[:-1]:
        np.testing.assert_allclose(y, results[-1][0])
        np.testing.assert_allclose(grad, results[-1][1])


@pytest.mark.parametrize("arguments", [
    {}, {"lengths": [2, 2]}, {"lengths": [-2, 8]}, {"lengths": [2.0, 4.0]}, {"indices": [0]},
    {"lengths": [6], "axis": 1}, {"lengths": [6], "reduce": "foo"},
])  # fmt: skip
def test_errors(arguments: dict[str, Any]) -> None:
    kinds = []
    for t in (cugrad, torch):
        given = {k: t.tensor(v) if isinstance(v, list) else v for k, v in arguments.items()}
        with pytest.raises((RuntimeError, NotImplementedError)) as error:
            t.segment_reduce(t.ones(6, 2), **{"reduce": "sum", **given})
        kinds.append(error.type)
    assert kinds[0] is kinds[1]
