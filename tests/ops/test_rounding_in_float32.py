"""Gradients in float32 lose no more digits than PyTorch's do, where conditions are bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch")

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "inv": lambda t, a: t.linalg.inv(a),
    "pinv": lambda t, a: t.linalg.pinv(a),
    "pinv hermitian": lambda t, a: t.linalg.pinv(a, hermitian=True),
    "pinv tall": lambda t, a: t.linalg.pinv(a[:, :3]),
    "pinv wide": lambda t, a: t.linalg.pinv(a[:3]),
    "det": lambda t, a: t.linalg.det(a),
    "slogdet": lambda t, a: t.linalg.slogdet(a)[1],
    "solve": lambda t, a: t.linalg.solve(a, a[:, :2] + 1),
    "cholesky": lambda t, a: t.linalg.cholesky(a @ a.mT + t.eye(5, dtype=a.dtype)),
    "qr": lambda t, a: t.linalg.qr(a)[1],
    "matrix_exp": lambda t, a: t.linalg.matrix_exp(a / 100),
    "matrix_power": lambda t, a: t.linalg.matrix_power(a, -2),
    "cond": lambda t, a: t.linalg.cond(a),
    "nuclear norm": lambda t, a: t.linalg.norm(a, "nuc"),
    "lstsq": lambda t, a: t.linalg.lstsq(a[:, :3], a[:, 3:]).solution,
    "lu": lambda t, a: t.linalg.lu(a)[1],
    "std": lambda t, a: a.std(0),
    "corrcoef": lambda t, a: t.corrcoef(a),
    "logsumexp": lambda t, a: a.logsumexp(0),
    "layer_norm": lambda t, a: t.nn.functional.layer_norm(a, (5,)),
    "cosine_similarity": lambda t, a: t.cosine_similarity(a, a.flip(0)),
}


def matrices() -> dict[str, Any]:
    q, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))
    turned = q @ np.diag([100.0, 10, 1, 0.1, 0.01]) @ q.T
    return {
        "equal but for one": np.full((5, 5), 80.36) + np.eye(5),
        "turned": (turned + turned.T) / 2,
    }


def gradient(t: Any, function: Callable[[Any, Any], Any], values: Any, dtype: str) -> Any:
    x = t.tensor(values.tolist(), dtype=getattr(t, dtype), requires_grad=True)
    y = function(t, x).to(t.float64)
    (gradient,) = t.autograd.grad((y.square() * 0.5 + y * 0.3).sum(), x)
    numbers = np.array(gradient.tolist())
    # Errors hide in the direction of the matrix itself, where there may be next to nothing.
    return np.append(numbers, (numbers * values).sum() / abs(values).max())


@pytest.mark.parametrize("matrix", matrices())
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_as_exact_as_in_pytorch(name: str, matrix: str) -> None:
    values = matrices()[matrix].astype(np.float32).astype(np.float64)
    exact = gradient(torch, FUNCTIONS[name], values, "float64")
    theirs = abs(gradient(torch, FUNCTIONS[name], values, "float32") - exact)
    ours = abs(gradient(cugrad, FUNCTIONS[name], values, "float32") - exact)
    of_entries, along = abs(exact[:-1]).max(), -1
    assert ours.max() <= max(10 * theirs.max(), 1e-5 * of_entries)
    assert ours[along] <= max(30 * theirs[along], 1e-5 * of_entries)
