"""Each distribution beside PyTorch's: densities, moments, gradients, draws, shapes, refusals."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cugrad
import cugrad.distributions as laws
from tests.distributions.cases import CASES, made

# PyTorch's Wishart draws again what is not singular, and says that it was.
pytestmark = pytest.mark.filterwarnings("ignore:Singular sample detected")
every = pytest.mark.parametrize("name", CASES)
MOMENTS = ("mean", "variance", "stddev", "mode")


# Where PyTorch's answer is another one, and why.
DIFFERS = {("Kumaraswamy", "mode"): "PyTorch's is nan, by a logarithm of a negative number"}


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """PyTorch makes some constants in the default dtype, which would decide the digits."""
    torch = pytest.importorskip("torch")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def array(x: Any) -> Any:
    return np.asarray(x.detach().numpy())


def same(mine: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    assert tuple(mine.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(array(mine), array(theirs), rtol=tolerance, atol=1e-10)


def outcome(law: Any, attempt: Any) -> Any:
    """What an attempt returns, or NotImplementedError where it raises that."""
    try:
        return attempt(law)
    except NotImplementedError:
        return NotImplementedError


def gradients(value: Any, tensors: dict[str, Any]) -> Any:
    """Of the sum of the finite elements."""
    finite = value[value.isfinite()] if value.dim() else value
    for x in tensors.values():
        x.grad = None
    finite.sum().backward(retain_graph=True)
    return {k: x.grad for k, x in tensors.items()}


def compared(name: str, attempt: Any, value: Any = None) -> None:
    """The same result of an attempt, and the same gradients by the parameters."""
    torch = pytest.importorskip("torch")
    (mine, ours), (theirs, others) = made(cugrad, name), made(torch, name)
    results = []
    for library, law in ((cugrad, mine), (torch, theirs)):
        of = None if value is None else library.tensor(value)
        results.append(outcome(law, lambda law, of=of: attempt(law, of)))
    got, want = results
    if want is NotImplementedError or got is NotImplementedError:
        assert got is want
        return
    # PyTorch computes Bessel functions by polynomials of seven digits
    digits = 2e-7 if name == "VonMises" else 1e-9
    same(got, want, digits)
    assert got.requires_grad == want.requires_grad
    if want.requires_grad:
        slopes = outcome(ours, lambda ours: gradients(got, ours))
        wanted = outcome(others, lambda others: gradients(want, others))
        if wanted is NotImplementedError:
            assert slopes is wanted
            return
        for key, grad in wanted.items():
            if grad is not None and key == "scale_tril":  # the other triangle is not read
                same(slopes[key].tril(), grad.tril(), 100 * digits)
            elif grad is not None:
                same(slopes[key], grad, 100 * digits)


def events(name: str) -> Any:
    """Draws of PyTorch's law: what the densities are compared at."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    return made(torch, name)[0].sample((5,)).numpy()


@every
def test_densities_and_their_gradients(name: str) -> None:
    value = events(name)
    compared(name, lambda law, x: law.log_prob(x), value)
    compared(name, lambda law, x: law.cdf(x), value)
    compared(name, lambda law, x: law.support.check(x), value)
    compared(name, lambda law, x: law.entropy())


@every
def test_quantiles(name: str) -> None:
    shares = np.linspace(0.05, 0.95, 4)[:, None] * np.ones(made(cugrad, name)[0].batch_shape)
    compared(name, lambda law, x: law.icdf(x), shares)


@every
@pytest.mark.parametrize("moment", MOMENTS)
def test_moments(name: str, moment: str) -> None:
    if (name, moment) in DIFFERS:
        assert bool(made(cugrad, name)[0].mode.isfinite().all())
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compared(name, lambda law, x: getattr(law, moment))


@every
def test_shapes_words_and_what_is_there(name: str) -> None:
    torch = pytest.importorskip("torch")
    (mine, _), (theirs, _) = made(cugrad, name), made(torch, name)
    assert tuple(mine.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(mine.event_shape) == tuple(theirs.event_shape)
    assert repr(mine).splitlines()[0] == repr(theirs).splitlines()[0]
    for fact in ("has_rsample", "has_enumerate_support"):
        assert getattr(mine, fact) == getattr(theirs, fact), fact
    assert set(mine.arg_constraints) == set(theirs.arg_constraints)
    assert [repr(c) for c in mine.arg_constraints.values()][0].partition("(")[0] == (
        [repr(c) for c in theirs.arg_constraints.values()][0].partition("(")[0]
    )
    assert mine.support.event_dim == theirs.support.event_dim
    assert mine.support.is_discrete == theirs.support.is_discrete
    if mine.has_enumerate_support:
        for expand in (True, False):
            same(mine.enumerate_support(expand).double(), theirs.enumerate_support(expand).double())


@every
def test_expand(name: str) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = made(cugrad, name)[0], made(torch, name)[0]
    shape = (3, *theirs.batch_shape)
    got, want = mine.expand(shape), theirs.expand(shape)
    assert type(got) is type(mine) and tuple(got.batch_shape) == shape
    value = want.sample((2,))
    same(got.log_prob(cugrad.tensor(value.numpy())), want.log_prob(value), 2e-7)
    assert tuple(got.sample((4,)).shape) == (4, *shape, *theirs.event_shape)


@every
def test_draws(name: str) -> None:
    """Means and variances within five standard errors; the support holds all of them."""
    cugrad.manual_seed(11)
    law = made(cugrad, name)[0]
    drawn = law.sample((4000,))
    assert not drawn.requires_grad and bool(law.support.check(drawn).all())
    values = array(drawn).astype(float)
    if name == "VonMises":  # of the circle: the mean direction
        values = np.stack([np.cos(values - array(law.loc)), np.sin(values - array(law.loc))], -1)
        mean = np.stack([1 - array(law.variance), 0 * array(law.variance)], -1)
    else:
        known = outcome(law, lambda law: law.mean)
        if known is NotImplementedError or not np.isfinite(array(known)).all():
            return
        mean = array(known)
        spread = array(law.variance)
        fourth = ((values - mean) ** 4).mean(0)
        error = np.sqrt(np.maximum(fourth - spread**2, 0) / len(values))
        assert (np.abs(((values - mean) ** 2).mean(0) - spread) <= 5 * error + 1e-12).all()
    error = values.std(0) / np.sqrt(len(values))
    assert (np.abs(values.mean(0) - mean) <= 5 * error + 1e-12).all()


@every
def test_reparameterised_draws(name: str) -> None:
    """The gradient of the mean of draws is that of the mean."""
    cugrad.manual_seed(5)
    law, tensors = made(cugrad, name)
    if not law.has_rsample:
        with pytest.raises(NotImplementedError):
            law.rsample()
        return
    drawn = law.rsample((4000,))
    assert drawn.requires_grad
    known = outcome(law, lambda law: law.mean)
    if known is NotImplementedError or not np.isfinite(array(known)).all():
        return
    got = gradients(drawn.sum(tuple(range(1, drawn.dim()))) / 1.0, tensors)
    first = {k: g if g is None else array(g) / 4000 for k, g in got.items()}
    for key, want in gradients(known, tensors).items():
        if want is not None and first[key] is not None:
            np.testing.assert_allclose(first[key], array(want), rtol=0.3, atol=0.12, err_msg=key)


def test_gamma_draws_have_implicit_gradients() -> None:
    torch = pytest.importorskip("torch")
    cugrad.manual_seed(0)
    a = cugrad.tensor(np.repeat([0.05, 0.7, 3.0, 40.0, 900.0], 50), requires_grad=True)
    drawn = laws.Gamma(a, 1.0).rsample()
    (got,) = cugrad.autograd.grad(drawn.sum(), a, create_graph=True)
    want = torch._standard_gamma_grad(torch.tensor(array(a)), torch.tensor(array(drawn)))
    np.testing.assert_allclose(array(got), want.numpy(), rtol=2e-3)
    (second,) = cugrad.autograd.grad(got.sum(), a)
    assert bool(second.isfinite().all())


BAD = {
    "Normal": {"loc": 0.0, "scale": -1.0},
    "Bernoulli": {"probs": 1.5},
    "Categorical": {"probs": [-1.0, 2.0]},
    "Uniform": {"low": 1.0, "high": 0.0},
    "Poisson": {"rate": -1.0},
    "Geometric": {"probs": 0.0},
    "Dirichlet": {"concentration": [0.0, 1.0]},
}


@pytest.mark.parametrize("name", BAD)
def test_refused_parameters(name: str) -> None:
    torch = pytest.importorskip("torch")
    said = []
    for library in (cugrad, torch):
        arguments = {k: library.tensor(v) for k, v in BAD[name].items()}
        with pytest.raises(ValueError) as refused:
            getattr(library.distributions, name)(**arguments)
        said.append(str(refused.value).split()[:3])
        getattr(library.distributions, name)(**arguments, validate_args=False)
    assert said[0] == said[1]


def test_refused_values() -> None:
    torch = pytest.importorskip("torch")
    for name, value in (("Exponential", -1.0), ("Bernoulli", 0.5), ("Beta", 2.0)):
        said = []
        for library in (cugrad, torch):
            with pytest.raises(ValueError) as refused:
                made(library, name)[0].log_prob(library.tensor(value))
            said.append(str(refused.value).split()[:3])
        assert said[0] == said[1]
    with pytest.raises(ValueError, match="Value is not broadcastable"):
        made(cugrad, "Normal")[0].log_prob(cugrad.zeros(3))
    with pytest.raises(ValueError, match="but not both"):
        laws.Bernoulli()
    with pytest.raises(ValueError, match="greater than ndim - 1 = 1"):
        laws.Wishart(cugrad.tensor(1.0), covariance_matrix=cugrad.eye(2))


def test_above_the_support_all_has_been() -> None:
    law = laws.ContinuousBernoulli(cugrad.tensor(0.3), validate_args=False)
    assert law.cdf(cugrad.tensor([-0.5, 0.0, 1.0, 1.5])).tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of a loop over searchsorted
def test_laws_map(name: str) -> None:
    """A law may be made within vmap, with its checks on: densities of examples, and draws."""
    law, tensors = made(cugrad, name)
    others = {k: v for k, v in CASES[name].items() if k not in tensors}
    value = law.sample().detach()
    twice = [cugrad.stack([x.detach()] * 2) for x in (value, *tensors.values())]

    def of(parameters: Any) -> Any:
        return getattr(laws, name.partition(" ")[0])(**dict(zip(tensors, parameters)), **others)

    density = cugrad.vmap(lambda value, *parameters: of(parameters).log_prob(value))
    same(density(*twice), cugrad.stack([law.log_prob(value)] * 2))
    if name != "VonMises":  # which draws until all are accepted, as PyTorch's
        draws = cugrad.vmap(lambda *p: of(p).sample((3,)), randomness="different")(*twice[1:])
        assert draws.shape == (2, 3, *value.shape)


def test_the_default_of_validation() -> None:
    try:
        laws.Distribution.set_default_validate_args(False)
        laws.Normal(0.0, -1.0)
    finally:
        laws.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        laws.Normal(0.0, -1.0)
