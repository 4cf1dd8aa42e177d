"""Checks what is drawn: distributions by Kolmogorov-Smirnov, ranges, errors, gradients, windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cugrad

N = 20_000
CONTINUOUS: dict[str, tuple[Callable[[Any], Any], str, tuple[float, ...]]] = {
    "uniform": (lambda x: x.uniform_(-1, 3), "uniform", (-1.0, 4.0)),
    "normal": (lambda x: x.normal_(2, 3), "norm", (2.0, 3.0)),
    "exponential": (lambda x: x.exponential_(2), "expon", (0.0, 0.5)),
    "cauchy": (lambda x: x.cauchy_(1, 2), "cauchy", (1.0, 2.0)),
    "log_normal": (lambda x: x.log_normal_(0.5, 0.75), "lognorm", (0.75, 0.0, float(np.exp(0.5)))),
    "rand_like": (lambda x: cugrad.rand_like(x), "uniform", ()),
    "randn_like": (lambda x: cugrad.randn_like(x), "norm", ()),
    "normal of tensors": (lambda x: cugrad.normal(x, x + 1), "norm", ()),
}


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distributions(name: str, kind: str, device: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    cugrad.manual_seed(7)
    draw, wanted, arguments = CONTINUOUS[name]
    drawn = draw(cugrad.zeros(N, dtype=getattr(cugrad, kind), device=device))
    assert drawn.dtype is getattr(cugrad, kind)
    law = getattr(stats, wanted)(*arguments)  # SciPy 1.18 fails where it is to find "norm" itself
    assert stats.kstest(drawn.cpu().numpy(), law.cdf).pvalue > 1e-3


DISCRETE: dict[str, tuple[Callable[[Any], Any], str, tuple[float, ...]]] = {
    "poisson": (lambda x: cugrad.poisson(x + 3.5), "poisson", (3.5,)),
    "poisson of a large rate": (lambda x: cugrad.poisson(x + 900), "poisson", (900.0,)),
    "binomial": (lambda x: cugrad.binomial(x + 12, x + 0.3), "binom", (12.0, 0.3)),
    "geometric": (lambda x: x.geometric_(0.3), "geom", (0.3,)),
    "bernoulli": (lambda x: cugrad.bernoulli(x + 0.3), "bernoulli", (0.3,)),
    "random": (lambda x: x.random_(2, 9), "randint", (2.0, 9.0)),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distributions(name: str, device: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    cugrad.manual_seed(7)
    draw, wanted, arguments = DISCRETE[name]
    drawn = draw(cugrad.zeros(N, dtype=cugrad.float64, device=device)).cpu().numpy()
    law = getattr(stats, wanted)(*arguments)
    values = np.unique(drawn)
    assert (values == np.round(values)).all()
    edges = np.quantile(values, np.linspace(0, 1, 9)[1:-1], method="nearest")
    for edge in np.unique(edges):  # within four standard deviations of a count
        share = law.cdf(edge)
        assert (drawn <= edge).mean() == pytest.approx(share, abs=4 * np.sqrt(share / N) + 1e-3)


@pytest.mark.parametrize("name", ["geometric_", "log_normal_", "cauchy_", "exponential_"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_hold_what_is_drawn(name: str, kind: str, device: str) -> None:
    pytest.importorskip("ml_dtypes")
    x = cugrad.zeros(100, dtype=getattr(cugrad, kind), device=device)
    getattr(x, name)(*((0.5,) if name == "geometric_" else ()))
    assert x.dtype is getattr(cugrad, kind) and not x.isnan().any()


@pytest.fixture
def on_the_host(sealed_state: None) -> Iterator[None]:
    """New tensors on the CPU, whatever device is under test."""
    with cugrad.device("cpu"):
        yield


@pytest.mark.usefixtures("on_the_host")  # where all errors are noticed
def test_errors_are_pytorchs(lib: Any) -> None:
    x = lib.ones(3)
    for wrong in (
        lambda: x.geometric_(0), lambda: x.geometric_(1.0), lambda: x.cauchy_(0, -1),
        lambda: x.log_normal_(0, -1), lambda: x.exponential_(-1), lambda: x.bernoulli_(2),
        lambda: x.random_(5, 3), lambda: x.random_(0), lambda: x.byte().random_(0, 300),
        lambda: x.half().random_(0, 70000), lambda: lib.poisson(-x), lambda: lib.bernoulli(x * 2),
        lambda: lib.multinomial(x * 0, 1), lambda: lib.multinomial(-x, 1),
        lambda: lib.multinomial(x.int(), 1), lambda: lib.normal(x, -x), lambda: lib.rand(-1),
        lambda: lib.randint(300, (2,), dtype=lib.uint8), lambda: lib.randint(5, 5, (2,)),
        lambda: lib.randperm(300, dtype=lib.uint8), lambda: lib.rand(2, dtype=lib.int32),
        lambda: lib.poisson(x.int()), lambda: lib.bernoulli(x.int()), lambda: x.int().cauchy_(),
        lambda: x.int().log_normal_(), lambda: x.int().normal_(), lambda: lib.hann_window(-1),
        lambda: lib.hann_window(3, dtype=lib.int32),
    ):  # fmt: skip
        with pytest.raises(RuntimeError):
            wrong()
    for mistyped in (lambda: lib.randint(1.5, (2,)), lambda: lib.randint(5, 3),
                     lambda: lib.normal(1.0, 2.0), lambda: lib.rand(2, generator=3)):  # fmt: skip
        with pytest.raises(TypeError):
            mistyped()
    with pytest.raises(ValueError):
        lib.binomial(x.int(), x)


def test_ranges_of_random_(lib: Any) -> None:
    assert lib.zeros(50, dtype=lib.bool).random_().any()
    assert int(lib.zeros(999, dtype=lib.int8).random_().min()) >= 0
    assert int(lib.zeros(999).random_(3).max()) == 2
    assert set(lib.zeros(99).random_(4, to=6).tolist()) == {4.0, 5.0}
    assert set(lib.zeros(99, dtype=lib.uint8).random_(to=2).tolist()) == {0, 1}


@pytest.mark.parametrize("draw", ["poisson", "bernoulli"])
def test_what_is_drawn_has_a_zero_gradient(lib: Any, draw: str) -> None:
    x = lib.full((4,), 0.5, requires_grad=True)
    getattr(lib, draw)(x).sum().backward()
    assert x.grad.tolist() == [0.0] * 4


def test_drawing_in_place_forgets_history(lib: Any) -> None:
    x = lib.ones(4, requires_grad=True)
    for fill in ("uniform_", "normal_", "exponential_", "bernoulli_", "cauchy_", "log_normal_"):
        x.grad = None
        y = x * 2
        getattr(y, fill)()
        assert y.grad_fn is not None
        y.sum().backward()
        assert x.grad.tolist() == [0.0] * 4
    with pytest.raises(RuntimeError, match="leaf"):
        x.uniform_()


OLD = ["hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"]
NEW: dict[str, dict[str, Any]] = {
    "hann": {}, "hamming": {}, "blackman": {}, "bartlett": {}, "nuttall": {}, "cosine": {},
    "kaiser": {"beta": 8.0}, "gaussian": {"std": 2.0}, "exponential": {"tau": 1.5},
    "general_hamming": {"alpha": 0.6}, "general_cosine": {"a": [0.5, 0.3, 0.2]},
}  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("name", [*OLD, *NEW])
def test_windows_are_pytorchs(name: str, flag: bool, size: int) -> None:
    torch = pytest.importorskip("torch")
    made = []
    for lib in (cugrad, torch):
        if name in OLD:
            made.append(getattr(lib, name)(size, flag, dtype=lib.float64))
        else:
            options = {**NEW[name], "sym": flag, "dtype": lib.float64}
            made.append(getattr(lib.signal.windows, name)(size, **options))
    assert made[0].dtype is cugrad.float64
    np.testing.assert_allclose(made[0].numpy(), made[1].numpy(), atol=1e-12)


def test_states_are_per_device_and_forked(device: str) -> None:
    cugrad.manual_seed(3)
    x = cugrad.rand(5, device=device)
    with cugrad.random.fork_rng():
        cugrad.manual_seed(99)
        cugrad.poisson(cugrad.ones(5, device=device))
    y = cugrad.rand(5, device=device)
    cugrad.manual_seed(3)
    assert cugrad.equal(x, cugrad.rand(5, device=device))
    assert cugrad.equal(y, cugrad.rand(5, device=device))
    generator = cugrad.Generator(device).manual_seed(5)
    first = cugrad.poisson(cugrad.full((9,), 8.0, device=device), generator=generator)
    again = cugrad.poisson(
        cugrad.full((9,), 8.0, device=device), cugrad.Generator(device).manual_seed(5)
    )
    assert cugrad.equal(first, again)
