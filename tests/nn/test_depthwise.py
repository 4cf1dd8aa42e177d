"""Convolutions of each channel by itself, which a host computes by shifted runs, are PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import get
from cugrad.ops.nn import bands

oracle = pytest.importorskip("torch")

GEOMETRIES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "a line": ((3, 4, 9), (3,), {}),
    "padded": ((2, 4, 5, 6), (3, 3), {"padding": 1}),
    "padded to the full": ((2, 4, 5, 6), (3, 2), {"padding": (2, 1)}),
    "dilated along lines": ((2, 4, 5, 9), (3, 3), {"dilation": (1, 3), "padding": (1, 2)}),
    "reaching beyond lines": ((2, 4, 5, 2), (2, 5), {"padding": (0, 4)}),
    "dilated": ((2, 4, 9, 8), (3, 2), {"dilation": (2, 3), "padding": (1, 0)}),
    "a volume": ((2, 4, 4, 5, 3), (2, 3, 1), {"padding": (0, 1, 0)}),
    "one by one": ((2, 4, 3, 3), (1, 1), {}),
    "padded beyond the kernel": ((2, 4, 3, 3), (2, 2), {"padding": 2}),
}


@pytest.mark.parametrize("widest", [0, 16], ids=["runs", "bands"])
@pytest.mark.parametrize("room", [20, 1 << 16])
@pytest.mark.parametrize("case", GEOMETRIES.values(), ids=GEOMETRIES)
def test_values_and_two_gradients(
    case: Any, room: int, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(get("cpu").xp, "block_elements", room)
    monkeypatch.setattr(bands, "WIDEST", widest)
    monkeypatch.setattr(bands, "BLOCKS", 1)
    size, kernel, how = case
    rng, results = np.random.default_rng(0), []
    x, w = rng.standard_normal(size), rng.standard_normal((size[1], 1, *kernel))
    for lib in (cugrad, oracle):
        leaves: Any = [lib.from_numpy(a.copy()).requires_grad_() for a in (x, w)]
        conv = getattr(lib.nn.functional, f"conv{len(kernel)}d")
        y = conv(*leaves, groups=size[1], **how)
        first = lib.autograd.grad((y * y).sum(), leaves, create_graph=True)
        second = lib.autograd.grad(sum((g * g).sum() for g in first), leaves)
        results.append([t.detach().numpy() for t in (y, *first, *second)])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, 1e-10, 1e-10)


def test_half_precision_is_summed_in_float32() -> None:
    x, w = cugrad.full((1, 2, 1, 4096), 0.001).half(), cugrad.ones(2, 1, 1, 4096).half()
    y = cugrad.nn.functional.conv2d(x, w, groups=2)
    assert y.dtype is cugrad.float16
    np.testing.assert_allclose(y.numpy().ravel(), 4096 * np.float16(0.001), 1e-3)
