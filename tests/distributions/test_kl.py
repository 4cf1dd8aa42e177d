"""Divergences beside PyTorch's, with their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cugrad
import cugrad.distributions as laws
from cugrad.distributions import kl
from tests.distributions.cases import CASES, made

NAMES = {name.partition(" ")[0]: name for name in reversed(CASES)}
PAIRS = [
    (p.__name__, q.__name__) for p, q in kl._FORMULAS if p.__name__ in NAMES and q.__name__ in NAMES
]


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def divergence(library: Any, names: tuple[str, str]) -> tuple[Any, list[Any]]:
    """That of two laws whose parameters differ, and the gradients of its finite elements."""
    (p, first), (q, second) = (made(library, NAMES[name]) for name in names)
    if names[0] == names[1]:
        shape = tuple(q.batch_shape)
        q = q.expand((2, *shape)) if len(shape) > 1 else type(q)(
            **{k: x.flip(-1) if hasattr(x, "flip") else x for k, x in arguments(q, second).items()}
        )  # fmt: skip
    result = library.distributions.kl_divergence(p, q)
    result[result.isfinite()].sum().backward()
    return result, [x.grad for x in (*first.values(), *second.values())]


def arguments(law: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    case = CASES[NAMES[type(law).__name__]]
    return {**case, **tensors}


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_divergences(names: tuple[str, str]) -> None:
    torch = pytest.importorskip("torch")
    (got, slopes), (want, others) = divergence(cugrad, names), divergence(torch, names)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(slopes, others):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-7, atol=1e-10)


def test_of_laws_made_of_others() -> None:
    p, q = (laws.Normal(cugrad.full((2, 3), loc), 1.0) for loc in (1.0, 0.0))
    assert laws.kl_divergence(laws.Independent(p, 1), laws.Independent(q, 1)).tolist() == [1.5, 1.5]
    assert laws.kl_divergence(laws.LogNormal(1.0, 1.0), laws.LogNormal(0.0, 1.0)).item() == 0.5


def test_a_pair_that_is_not_there() -> None:
    with pytest.raises(NotImplementedError, match="No KL"):
        laws.kl_divergence(laws.Cauchy(0.0, 1.0), laws.Normal(0.0, 1.0))
    with pytest.raises(TypeError, match="Expected type"):
        laws.register_kl("Normal", laws.Normal)  # type: ignore[arg-type]
