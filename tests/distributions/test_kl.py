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
    (p, first), (q, second) = (paired(library, name, names[0] == names[1]) for name in names)
    if names[0] == names[1] == "MultivariateNormal":
        q = type(q)(second["loc"].flip(-1), scale_tril=2 * q.scale_tril)
    elif names[0] == names[1]:
        shape = tuple(q.batch_shape)
        q = q.expand((2, *shape)) if len(shape) > 1 else type(q)(
            **{k: x.flip(-1) if hasattr(x, "flip") else x for k, x in arguments(q, second).items()}
        )  # fmt: skip
    result = library.distributions.kl_divergence(p, q)
    if result.requires_grad:  # PyTorch's infinite ones do not
        result[result.isfinite()].sum().backward()
    return result, [x.grad for x in (*first.values(), *second.values())]


def paired(library: Any, name: str, alike: bool) -> tuple[Any, dict[str, Any]]:
    """A law of at most two examples, as the others have."""
    law, tensors = made(library, NAMES[name])
    if tuple(law.batch_shape) == (3,) and not alike:
        law = type(law)(**{key: x[:2] for key, x in tensors.items()})
    return law, tensors


def arguments(law: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    case = CASES[NAMES[type(law).__name__]]
    return {**case, **tensors}


def test_all_pairs_of_pytorch_are_there() -> None:
    pytest.importorskip("torch")
    from torch.distributions.kl import _KL_REGISTRY

    theirs = {(p.__name__, q.__name__) for p, q in _KL_REGISTRY}
    assert theirs == {(p.__name__, q.__name__) for p, q in kl._FORMULAS}


# Laws of the same support: PyTorch takes an end that both have for one that only p has.
OPEN = {("Uniform", "ContinuousBernoulli"), ("ContinuousBernoulli", "Uniform")}


@pytest.mark.parametrize("names", [pair for pair in PAIRS if pair not in OPEN], ids="-".join)
def test_divergences(names: tuple[str, str]) -> None:
    torch = pytest.importorskip("torch")
    (got, slopes), (want, others) = divergence(cugrad, names), divergence(torch, names)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(slopes, others):
        if theirs is None or mine is None:  # of what is infinite everywhere
            assert theirs is None and (mine is None or not mine.any())
        else:
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-7, atol=1e-10)


def test_of_laws_made_of_others() -> None:
    p, q = (laws.Normal(cugrad.full((2, 3), loc), 1.0) for loc in (1.0, 0.0))
    assert laws.kl_divergence(laws.Independent(p, 1), laws.Independent(q, 1)).tolist() == [1.5, 1.5]
    assert laws.kl_divergence(laws.LogNormal(1.0, 1.0), laws.LogNormal(0.0, 1.0)).item() == 0.5


def test_laws_of_one_support() -> None:
    uniform, other = laws.Uniform(0.0, 1.0), laws.ContinuousBernoulli(cugrad.tensor(0.3))
    x = (cugrad.arange(20000) + 0.5) / 20000
    for p, q in ((uniform, other), (other, uniform)):
        density = p.log_prob(x)
        sum_of_parts = (density.exp() * (density - q.log_prob(x))).mean()
        assert laws.kl_divergence(p, q).item() == pytest.approx(sum_of_parts.item(), abs=1e-5)
    wide = laws.Uniform(-0.5, 1.0)
    assert laws.kl_divergence(wide, other).item() == float("inf")
    assert laws.kl_divergence(other, laws.Uniform(0.5, 1.0)).item() == float("inf")


def test_of_an_exponential_family() -> None:
    class Own(laws.Exponential):
        """A family of its own, with the formula of all families."""

    p, q = (Own(cugrad.tensor(rate, requires_grad=True)) for rate in (0.5, 2.0))
    general = kl._FORMULAS[laws.ExponentialFamily, laws.ExponentialFamily]
    mine, nearest = general(p, q), laws.kl_divergence(p, q)
    assert mine.item() == pytest.approx(nearest.item(), rel=1e-6)
    for first, second in zip(*(cugrad.autograd.grad(x, (p.rate, q.rate)) for x in (mine, nearest))):
        assert first.item() == pytest.approx(second.item(), rel=1e-5)
    with pytest.raises(NotImplementedError, match="want one family"):
        general(p, laws.Gamma(1.0, 1.0))


def test_one_parameter_of_a_family_may_be_made_of_another() -> None:
    class Own(laws.ExponentialFamily):
        """Its natural parameters are the tensors that it is given."""

        def __init__(self, *params: Any) -> None:
            self.params = params
            super().__init__(params[0].shape, validate_args=False)

        @property
        def _natural_params(self) -> Any:
            return self.params

        def _log_normalizer(self, x: Any, y: Any) -> Any:
            return cugrad.lgamma(x) + cugrad.lgamma(y) - cugrad.lgamma(x + y)

    a = cugrad.tensor([0.5, 1.5], requires_grad=True)
    q = Own(cugrad.tensor([0.7, 0.8]), cugrad.tensor([1.1, 0.3]))
    for params in ((a, a.exp()), (a.exp(), a), (a, a)):
        apart = Own(*[x.detach().requires_grad_() for x in params])
        general, expected = laws.kl_divergence(Own(*params), q), laws.kl_divergence(apart, q)
        cugrad.testing.assert_close(general, expected)
        slopes = cugrad.autograd.grad(expected.sum(), apart._natural_params)
        for mine, nearest in zip(
            cugrad.autograd.grad(general.sum(), a, retain_graph=True),
            cugrad.autograd.grad(params, a, slopes),
        ):
            cugrad.testing.assert_close(mine, nearest)


def test_normal_vectors_of_two_lengths() -> None:
    p, q = (laws.MultivariateNormal(cugrad.zeros(n), cugrad.eye(n)) for n in (2, 3))
    with pytest.raises(ValueError, match="want one shape"):
        laws.kl_divergence(p, q)


def test_a_pair_that_is_not_there() -> None:
    with pytest.raises(NotImplementedError, match="No KL"):
        laws.kl_divergence(laws.Cauchy(0.0, 1.0), laws.Normal(0.0, 1.0))
    with pytest.raises(TypeError, match="Expected type"):
        laws.register_kl("Normal", laws.Normal)  # type: ignore[arg-type]
