"""Checks that rows computed some at a time, as many as a cache holds, give what all at once do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cugrad.ops import apart
from cugrad.ops.nn import norm_weights
from cugrad.ops.table import raw

WEIGHTS = {
    "native_layer_norm_backward_weight": ((30, 10, 400), {"normalized_shape": (400,)}),
    "native_group_norm_backward_weight": ((30, 8, 20, 30), {"num_groups": 4}),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_sums_over_rows_that_are_added_up_in_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, how = WEIGHTS[name]
    rng = np.random.default_rng(0)
    g, x = (rng.standard_normal(shape) for _ in range(2))
    whole = getattr(raw, name)(g, x, None, None, **how)
    sizes: list[int] = []
    summed = apart.summed_by_rows

    def noting(xp: Any, function: Any, dims: int, *arrays: Any, **options: Any) -> Any:
        def of_part(*parts: Any) -> Any:
            sizes.append(parts[0].size)
            return function(*parts)

        return summed(xp, of_part, dims, *arrays, **options)

    monkeypatch.setattr(apart, "MANY", 1)
    monkeypatch.setattr(apart, "ROOMS", 1)
    monkeypatch.setattr(norm_weights, "summed_by_rows", noting)
    blocked = getattr(raw, name)(g, x, None, None, **how)
    assert len(sizes) > 1 and sum(sizes) == x.size
    np.testing.assert_allclose(blocked, whole, rtol=1e-10)


@pytest.mark.parametrize("on_host", [True, False])
def test_products_of_rows_begin_with_the_longer_matrix_on_a_host(on_host: bool) -> None:
    class Asked:
        sums_by_blas = on_host
        swapaxes = staticmethod(np.swapaxes)
        first: list[int] = []

        def matmul(self, a: Any, b: Any) -> Any:
            self.first.append(a.shape[-2])
            return np.matmul(a, b)

    rng, xp = np.random.default_rng(0), Asked()
    a, b = rng.standard_normal((2, 3, 7)), rng.standard_normal((2, 5, 7))
    for x, y in ((a, b), (b, a)):
        want = np.einsum("nik,njk->nij", x, y)
        np.testing.assert_allclose(apart.row_products(xp, x, y), want)
    assert xp.first == ([5, 5] if on_host else [3, 5])
