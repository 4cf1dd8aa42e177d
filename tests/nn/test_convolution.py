"""Convolutions that a host computes from lines of columns are PyTorch's, and so are gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.backends import get
from cugrad.ops.nn import lines

oracle = pytest.importorskip("torch")

GEOMETRIES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "a line": ((3, 2, 9), (3, 2, 3), {"padding": 1}),
    "padded": ((3, 2, 5, 6), (4, 2, 3, 3), {"padding": (1, 2)}),
    "dilated": ((2, 2, 9, 8), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (3, 0)}),
    "in groups": ((2, 4, 6, 5), (6, 2, 3, 2), {"groups": 2, "padding": (1, 0)}),
    "striding along lines": ((2, 2, 5, 9), (2, 2, 2, 3), {"stride": (1, 2), "padding": 1}),
    "a volume": ((2, 2, 4, 5, 3), (2, 2, 2, 3, 1), {"padding": (1, 1, 0)}),
    "padded beyond the kernel": ((2, 2, 3, 3), (2, 2, 2, 2), {"padding": 2}),
}


@pytest.mark.parametrize("room", [1 << 7, 1 << 9, 1 << 20])
@pytest.mark.parametrize("case", GEOMETRIES.values(), ids=GEOMETRIES)
def test_values_and_two_gradients(case: Any, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many images, or lines of one, the workspace has room for."""
    monkeypatch.setattr(get("cpu").xp, "workspace_bytes", room)
    monkeypatch.setattr(lines, "FEWEST", 1)
    monkeypatch.setattr(lines, "AT_ONCE", room // 8)
    taken: list[Any] = []
    of = lines.Lines.of
    monkeypatch.setattr(lines.Lines, "of", lambda *args: taken.append(args) or of(*args))
    size, kernel, how = case
    rng, results = np.random.default_rng(0), []
    x, w = rng.standard_normal(size), rng.standard_normal(kernel)
    for lib in (cugrad, oracle):
        leaves: Any = [lib.from_numpy(a.copy()).requires_grad_() for a in (x, w)]
        y = getattr(lib.nn.functional, f"conv{len(size) - 2}d")(*leaves, **how)
        first = lib.autograd.grad((y * y).sum(), leaves, create_graph=True)
        second = lib.autograd.grad(sum((g * g).sum() for g in first), leaves)
        results.append([t.detach().numpy() for t in (y, *first, *second)])
    assert taken
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, 1e-10, 1e-10)


@pytest.mark.parametrize(
    "name", [f"conv{way}{n}d" for way in ("", "_transpose") for n in (1, 2, 3)]
)
def test_images_without_extent_are_refused(name: str) -> None:
    """But where there are no images; a kernel that reaches beyond them is the first error."""
    n, ends = int(name[-2]), list[Any]()
    for lib in (cugrad, oracle):
        convolution, told = getattr(lib.nn.functional, name), list[Any]()
        for batch, extents in ((1, (0, 3, 4)), (0, (0, 3, 4)), (2, (3, 0, 4)), (None, (0, 2, 2))):
            for kernel, padding in ((1, 0), (2, 1), (3, 2), (3, 1)):
                x = lib.zeros(*([] if batch is None else [batch]), 2, *extents[:n])
                try:
                    y = convolution(x, lib.ones(2, 2, *[kernel] * n), padding=padding)
                    told.append(tuple(y.shape))
                except RuntimeError as error:
                    told.append("Only zero batch or zero channel" in str(error))
        ends.append(told)
    assert ends[0] == ends[1]
