"""L-BFGS beside PyTorch's, whose steps evaluate the model often."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import cugrad
from tests.optim.starts import host

SETTINGS: list[dict[str, Any]] = [
    {},
    {"lr": 0.1, "max_iter": 3},
    {"line_search_fn": "strong_wolfe"},
    {"lr": 0.5, "line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 6},
    {"max_iter": 5, "max_eval": 3, "tolerance_grad": 1e-2},
]


def problem(lib: Any, dtype: str) -> tuple[list[Any], Any]:
    """Parameters of different shapes, and the loss of a valley that bends."""
    kind = getattr(lib, dtype)
    x = lib.tensor([-1.5, 2.0], dtype=kind).requires_grad_()
    y = lib.tensor([[0.5, -1.0]], dtype=kind).requires_grad_()

    def loss() -> Any:
        valley = (1 - x[0]).abs() ** 2 + 10 * (x[1] - x[0] * x[0]).abs() ** 2
        return valley + (y.abs() ** 2 * lib.tensor([1.0, 3.0])).sum()

    return [x, y], loss


def train(lib: Any, params: list[Any], loss: Any, optimizer: Any, steps: int) -> list[float]:
    def closure() -> Any:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return [optimizer.step(closure).item() for _ in range(steps)]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "defaults")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_steps_equal_pytorch(settings: dict[str, Any], dtype: str, torch: Any) -> None:
    found = []
    for lib in (torch, cugrad):
        params, loss = problem(lib, dtype)
        optimizer = lib.optim.LBFGS(params, **settings)
        losses = train(lib, params, loss, optimizer, 3)
        (state,) = optimizer.state.values()
        found.append((losses, [host(p) for p in params], state["func_evals"], state["n_iter"]))
    rough = dtype == "float32"
    for wanted, got in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(
            got, wanted, rtol=1e-2 if rough else 1e-6, atol=1e-4 if rough else 1e-7
        )
    if not rough:
        np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-6, atol=1e-9)
        assert found[0][2:] == found[1][2:]


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_search_goes_on_in_the_other_library(search: str | None, torch: Any) -> None:
    settings = {"lr": 0.3, "max_iter": 2, "line_search_fn": search}
    params, loss = problem(torch, "float64")
    train(torch, params, loss, torch.optim.LBFGS(params, **settings), 4)
    wanted = [host(p) for p in params]
    for a, b in ((torch, cugrad), (cugrad, torch)):
        params, loss = problem(a, "float64")
        optimizer = a.optim.LBFGS(params, **settings)
        train(a, params, loss, optimizer, 2)
        file = io.BytesIO()
        a.save([params, optimizer.state_dict()], file)
        values, saved = b.load(io.BytesIO(file.getvalue()))
        params, loss = problem(b, "float64")
        with b.no_grad():
            for param, value in zip(params, values):
                param.copy_(value)
        optimizer = b.optim.LBFGS(params, **settings)
        optimizer.load_state_dict(saved)
        train(b, params, loss, optimizer, 2)
        for param, want in zip(params, wanted, strict=True):
            np.testing.assert_allclose(host(param), want, rtol=1e-6)


def test_a_loss_that_is_nan_is_looked_at_again(lib: Any) -> None:
    """As a number is: a comparison with nan ends no step."""
    x, seen = lib.ones(2, requires_grad=True), []

    def closure() -> Any:
        seen.append(x.tolist())
        loss = (x * float("nan")).sum()
        loss.backward()
        return loss

    lib.optim.LBFGS([x], max_iter=3).step(closure)
    assert len(seen) == 3


def test_what_it_refuses() -> None:
    a, b = (cugrad.ones(1, requires_grad=True) for _ in range(2))
    with pytest.raises(ValueError, match="doesn't support per-parameter options"):
        cugrad.optim.LBFGS([{"params": [a]}, {"params": [b]}])
    optimizer = cugrad.optim.LBFGS([a], line_search_fn="other")
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        train(cugrad, [a], lambda: (a * a).sum(), optimizer, 1)
    optimizer = cugrad.optim.LBFGS([b])
    assert optimizer.step(lambda: 1) == 1  # no gradient: nothing to do
