"""Random numbers: generators repeat from a seed and a state, and draws have their distribution."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cugrad as torch
from tests.support.patience import patient

N = 20_000


def numbers(tensor: Any) -> np.ndarray:
    return tensor.cpu().numpy()


DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "rand": lambda g, device: torch.rand(7, generator=g, device=device),
    "rand complex": lambda g, device: torch.rand(
        7, generator=g, device=device, dtype=torch.complex64
    ),
    "randn": lambda g, device: torch.randn(2, 3, generator=g, device=device),
    "randint": lambda g, device: torch.randint(5, 50, (7,), generator=g, device=device),
    "randperm": lambda g, device: torch.randperm(9, generator=g, device=device),
    "bernoulli": lambda g, device: torch.bernoulli(
        torch.full((30,), 0.5, device=device), generator=g
    ),
    "normal": lambda g, device: torch.normal(1.0, 2.0, (7,), generator=g, device=device),
    "multinomial": lambda g, device: torch.multinomial(
        torch.ones(3, 9, device=device), 4, generator=g
    ),
    "uniform_": lambda g, device: torch.zeros(7, device=device).uniform_(-1, 1, generator=g),
    "normal_": lambda g, device: torch.zeros(7, device=device).normal_(generator=g),
    "exponential_": lambda g, device: torch.zeros(7, device=device).exponential_(2, generator=g),
    "bernoulli_": lambda g, device: torch.zeros(30, device=device).bernoulli_(0.3, generator=g),
    "random_": lambda g, device: torch.zeros(7, device=device).random_(0, 99, generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_state_repeats_and_a_stream_does_not(name: str, device: str) -> None:
    generator, draw = torch.Generator(device).manual_seed(3), DRAWS[name]
    state = generator.get_state()
    first, second = draw(generator, device), draw(generator, device)
    again = draw(generator.set_state(state), device)
    assert first.device.type == device
    np.testing.assert_array_equal(numbers(first), numbers(again))
    assert not np.array_equal(numbers(first), numbers(second))
    reseeded = draw(torch.Generator(device).manual_seed(3), device)
    np.testing.assert_array_equal(numbers(first), numbers(reseeded))


@pytest.mark.parametrize("name", DRAWS)
def test_the_default_generators_follow_manual_seed(name: str, device: str) -> None:
    draw = DRAWS[name]
    torch.manual_seed(5)
    first = draw(None, device)
    torch.manual_seed(5)
    np.testing.assert_array_equal(numbers(first), numbers(draw(None, device)))


MOMENTS: dict[str, tuple[Callable[[Any], Any], float, float]] = {  # draw, mean, variance
    "rand": (lambda device: torch.rand(N, device=device), 1 / 2, 1 / 12),
    "randn": (lambda device: torch.randn(N, device=device), 0, 1),
    "randint": (lambda device: torch.randint(2, 6, (N,), device=device), 3.5, 15 / 12),
    "normal": (lambda device: torch.normal(3.0, 2.0, (N,), device=device), 3, 4),
    "uniform_": (lambda device: torch.empty(N, device=device).uniform_(-1, 3), 1, 16 / 12),
    "exponential_": (lambda device: torch.empty(N, device=device).exponential_(2), 0.5, 0.25),
    "bernoulli_": (lambda device: torch.empty(N, device=device).bernoulli_(0.3), 0.3, 0.21),
    "random_": (lambda device: torch.empty(N, device=device).random_(4), 1.5, 15 / 12),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_mean_and_variance(name: str, device: str) -> None:
    draw, mean, variance = MOMENTS[name]
    x = numbers(draw(device)).astype(float)
    assert abs(x.mean() - mean) < 5 * (variance / N) ** 0.5
    assert abs(x.var() / variance - 1) < 0.06


def test_complex_normals_have_variance_one_in_all(device: str) -> None:
    x = numbers(torch.randn(N, dtype=torch.complex128, device=device))
    assert abs((abs(x) ** 2).mean() - 1) < 0.05
    assert abs(x.real.var() - 0.5) < 0.03


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_numbers_are_below_one(dtype: str, device: str) -> None:
    x = numbers(torch.rand(200_000, dtype=getattr(torch, dtype), device=device))
    assert x.dtype == dtype
    assert x.min() >= 0
    assert x.max() < 1


def test_a_permutation_has_every_number(device: str) -> None:
    drawn = torch.randperm(100, device=device)
    assert drawn.dtype is torch.int64
    assert sorted(numbers(drawn)) == list(range(100))


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_follows_its_weights(replacement: bool, device: str) -> None:
    weights = torch.tensor([[1.0, 3.0, 0.0, 4.0], [2.0, 0.0, 2.0, 0.0]], device=device)
    draws = 4000 if replacement else 1
    rounds = 1 if replacement else 4000
    rows = weights.repeat(rounds, 1)
    drawn = numbers(torch.multinomial(rows, draws, replacement)).reshape(rounds, 2, draws)
    for row, wanted in enumerate(([1 / 8, 3 / 8, 0, 1 / 2], [1 / 2, 0, 1 / 2, 0])):
        found = np.bincount(drawn[:, row].ravel(), minlength=4) / 4000
        np.testing.assert_allclose(found, wanted, atol=0.04)
        assert not found[[i for i, w in enumerate(wanted) if w == 0]].any()


def test_without_replacement_none_comes_twice(device: str) -> None:
    drawn = numbers(torch.multinomial(torch.ones(50, 6, device=device), 6))
    np.testing.assert_array_equal(np.sort(drawn, 1), np.tile(np.arange(6), (50, 1)))


def test_fork_rng_leaves_no_trace(device: str) -> None:
    torch.manual_seed(1)
    wanted = numbers(torch.rand(4, device=device))
    torch.manual_seed(1)
    with pytest.raises(KeyError), torch.random.fork_rng():
        torch.rand(9, device=device)
        raise KeyError
    np.testing.assert_array_equal(numbers(torch.rand(4, device=device)), wanted)


def test_default_state_is_bytes_on_the_host() -> None:
    state = torch.get_rng_state()
    assert (state.dtype, state.device.type, state.dim()) == (torch.uint8, "cpu", 1)
    first = torch.rand(3, device="cpu")
    torch.set_rng_state(state)
    assert torch.equal(first, torch.rand(3, device="cpu"))
    assert torch.equal(state, state.clone()), "a later draw does not change a state given out"


def test_seeds() -> None:
    assert torch.Generator().initial_seed() == 67280421310721
    assert torch.Generator().manual_seed(-1).initial_seed() == 2**64 - 1
    assert torch.manual_seed(7) is torch.default_generator
    assert torch.initial_seed() == 7
    assert torch.seed() == torch.initial_seed() != torch.seed()
    for wrong in (2**64, -(2**63) - 1):
        with pytest.raises(RuntimeError, match="Overflow"):
            torch.manual_seed(wrong)


def test_a_generator_travels() -> None:
    generator = torch.Generator().manual_seed(4)
    torch.rand(5, generator=generator, device="cpu")
    for copy in (pickle.loads(pickle.dumps(generator)), generator.clone_state()):
        state = generator.get_state()
        wanted = torch.rand(3, generator=generator, device="cpu")
        generator.set_state(state)
        assert torch.equal(torch.rand(3, generator=copy, device="cpu"), wanted)


def test_filling_forgets_the_past() -> None:
    x = torch.ones(3, device="cpu", requires_grad=True)
    y = (x * 2).uniform_()
    (y * 3).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(RuntimeError, match="leaf"):
        x.normal_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_chances_are_compared_in_their_own_precision(dtype: Any, device: str) -> None:
    chances = torch.full((64,), 0.3, dtype=dtype)
    torch.manual_seed(5)
    below = torch.rand(64, dtype=dtype) < chances
    torch.manual_seed(5)
    assert torch.equal(torch.bernoulli(chances).bool(), below)


@pytest.mark.parametrize(
    "draw, error, words",
    [
        (lambda: torch.rand(2, dtype=torch.int64), RuntimeError, "not implemented"),
        (lambda: torch.rand(-1), RuntimeError, "negative dimension"),
        (lambda: torch.randint(5, 5, (2,)), RuntimeError, "'from' to be less than 'to'"),
        (lambda: torch.randperm(-1), RuntimeError, "non-negative"),
        (lambda: torch.normal(0.0, -1.0, (2,)), RuntimeError, "std >= 0.0"),
        (lambda: torch.zeros(2).uniform_(1, 0), RuntimeError, "from=1 > to=0"),
        (lambda: torch.zeros(2).bernoulli_(2.0), RuntimeError, "p to be in"),
        (lambda: torch.multinomial(torch.ones(3), 4), RuntimeError, "without replacement"),
        (lambda: torch.set_rng_state(torch.zeros(3, device="cpu")), TypeError, r"got \S*float32;"),
        (lambda: torch.set_rng_state([3]), TypeError, "ByteTensor, but got list;"),
        (
            lambda: torch.set_rng_state(torch.zeros(3, dtype=torch.uint8, device="cpu")),
            RuntimeError,
            "wrong size",
        ),
    ],
)
def test_errors(draw: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        draw()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_draws_while_threads_of_its_parent_do() -> None:
    """Locks that other threads hold as the process is copied would stay closed in the child."""
    script = """
import os, threading
import cugrad as torch
done = threading.Event()
def draw():
    while not done.is_set():
        torch.randn(100000)
threads = [threading.Thread(target=draw) for _ in range(2)]
for thread in threads:
    thread.start()
try:
    for _ in range(8):
        child = os.fork()
        if child == 0:
            torch.randn(3), torch.rand(2, generator=torch.Generator().manual_seed(1))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
finally:
    done.set()
print("drawn")
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=patient(),
        env={**os.environ, "CUGRAD_DEVICE": "cpu"},
    )
    assert done.stdout.strip() == "drawn", done.stderr


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", ["zeros_like", "empty_like", "rand_like", "randn_like"])
def test_what_is_like_a_tensor_lies_in_its_order(name: str, device: str) -> None:
    theirs = pytest.importorskip("torch")

    def strides(lib: Any) -> list[Any]:
        shapes = [
            lib.zeros(3, 4).t(), lib.zeros(2, 3, 4, 5).transpose(1, 2), lib.zeros(4, 6)[:, ::2].t(),
            lib.zeros(2, 3, 4, 5).to(memory_format=lib.channels_last), lib.zeros(4, 1).expand(4, 5),
        ]  # fmt: skip
        return [getattr(lib, name)(x, device=device).stride() for x in shapes]

    assert strides(torch) == strides(theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "args"), [
    ("uniform_", (-2.0, 3.0)), ("normal_", (1.0, 0.5)), ("log_normal_", (0.5, 0.25)),
    ("exponential_", (2.0,)), ("geometric_", (0.3,)), ("cauchy_", (1.0, 2.0)),
    ("bernoulli_", (0.3,)), ("random_", (3, 90)),
])  # fmt: skip
def test_kernels_and_functions_make_the_same_of_what_is_drawn(
    name: str, args: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cugrad.backends.wanted import wanted

    drawn = []
    for fused in (wanted.fused, wanted.fused, False):
        monkeypatch.setattr(wanted, "fused", fused)
        torch.manual_seed(7)
        parts = [torch.empty(shape, dtype=getattr(torch, dtype)) for shape in ((5, 3), (), (0,))]
        drawn.append([getattr(x, name)(*args).double().cpu().numpy() for x in parts])
    near = {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 2e-6)
    for first, again, plain in zip(*drawn):
        np.testing.assert_array_equal(first, again)
        np.testing.assert_allclose(first, plain, near, near)
