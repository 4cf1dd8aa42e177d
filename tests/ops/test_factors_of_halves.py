"""A factor, or a divisor, that is one number is not rounded to half precision on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch")

VALUES = np.random.default_rng(0).standard_normal(5000) * 3
NUMBERS: dict[str, Any] = {
    "a number": lambda t: 0.1, "float32": lambda t: t.tensor(0.1, requires_grad=True),
    "float64": lambda t: t.tensor(3.14159, dtype=t.float64, requires_grad=True),
    "a small one": lambda t: t.tensor(1e-5), "a large one": lambda t: t.tensor(70000.0),
    "an integer": lambda t: t.tensor(2049), "one of half precision": lambda t: t.tensor(0.1).half(),
}  # fmt: skip
WAYS: dict[str, Any] = {
    "x * n": lambda t, x, n: x * n, "x / n": lambda t, x, n: x / n,
    "in place": lambda t, x, n: (x + 0).mul_(n), "strided": lambda t, x, n: x[::2] * n,
    "few": lambda t, x, n: x[:3] / n, "in rows": lambda t, x, n: x.reshape(-1, 5).t() * n,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_and_quotients_are_rounded_once(dtype: str, number: str, way: str) -> None:
    found = []
    for t in (torch, cugrad):
        x = t.tensor(VALUES, dtype=t.float32, device="cpu").to(getattr(t, dtype)).requires_grad_()
        with t.device("cpu"):
            n = NUMBERS[number](t)
        y = WAYS[way](t, x, n)
        wants = [x, n] if getattr(n, "requires_grad", False) else [x]
        grads = t.autograd.grad(y, wants, t.full_like(y, 0.7), create_graph=t is cugrad)
        numbers = [z.float().detach().numpy() for z in (y, *grads)]
        found.append(([str(z.dtype) for z in (y, *grads)], *numbers))
    theirs, ours = found
    assert ours[0] == theirs[0]
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_array_equal(ours[2], theirs[2])
    for a, b in zip(ours[3:], theirs[3:], strict=True):  # a sum of many
        np.testing.assert_allclose(a, b, rtol=0.02, atol=0.5)


def test_batched_and_forward() -> None:
    """By example, and tangents, as in one call."""
    with cugrad.device("cpu"):
        x, n = cugrad.rand(4, 3).half(), cugrad.tensor(1e-5)
    product = lambda row: row * n
    assert cugrad.equal(cugrad.vmap(product)(x), x * n) and (x * n).dtype is cugrad.float16
    y, tangent = cugrad.func.jvp(product, (x,), (x,))
    assert cugrad.equal(y, x * n) and cugrad.equal(tangent, x * n)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_bias_is_added_before_a_product_is_rounded(dtype: str) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape) for shape in ((6, 32), (32, 32), (32,), (2, 32, 8))]
    x, w, b, images = [
        cugrad.tensor(a, dtype=cugrad.float32, device="cpu").to(getattr(cugrad, dtype))
        for a in arrays
    ]
    functional = cugrad.nn.functional
    wide = [t.double() for t in (x, w, b, images)]
    pairs = [
        (functional.linear(x, w, b), functional.linear(*wide[:3])),
        (functional.linear(images.mT, w, b), functional.linear(wide[3].mT, *wide[1:3])),
        (functional.conv1d(images, w[:, :, None], b),
         functional.conv1d(wide[3], wide[1][:, :, None], wide[2])),
        (functional.conv1d(images, w.reshape(32, 16, 2), b, padding=1, groups=2),
         functional.conv1d(wide[3], wide[1].reshape(32, 16, 2), wide[2], padding=1, groups=2)),
    ]  # fmt: skip
    for found, exact in pairs:
        assert cugrad.equal(found, exact.to(found.dtype)) and found.stride() == exact.stride()
