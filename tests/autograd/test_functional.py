"""autograd.functional beside PyTorch's: the same results, forms, histories and errors."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Library = Any


def values(shape: tuple[int, ...], start: float = 0.3) -> Any:
    return (np.arange(int(np.prod(shape)), dtype=np.float64) * 0.37 % 1.3 + start).reshape(shape)


def real(t: Library, *shape: int, start: float = 0.3, requires_grad: bool = False) -> Any:
    return t.tensor(values(shape, start).tolist(), dtype=t.float64, requires_grad=requires_grad)


def complex_(t: Library, *shape: int) -> Any:
    return t.tensor((values(shape) + 1j * values(shape, -0.4)).tolist(), dtype=t.complex128)


# What is differentiated: library -> (function, inputs, a vector like the outputs) --------------


CASES: dict[str, Callable[[Library], tuple[Any, ...]]] = {
    "reducer": lambda t: (lambda x: x.exp().sum(dim=1), real(t, 3, 2), real(t, 3)),
    "scalar": lambda t: (lambda x: (x**3).sum(), real(t, 2, 2), None),
    "scalar of a scalar": lambda t: (lambda x: x**3, real(t), None),
    "one element": lambda t: (lambda x: x**3, real(t, 1), None),
    "one element of several": lambda t: (lambda x: (x**3).sum(0, keepdim=True), real(t, 3), None),
    "elementwise": lambda t: (lambda x: x.sin() * x, real(t, 2, 3), real(t, 2, 3)),
    "linear": lambda t: (lambda x: 2 * x, real(t, 3), real(t, 3)),
    "linear scalar": lambda t: (lambda x: (2 * x).sum(), real(t, 3), None),
    "quadratic": lambda t: (lambda x: (x * x).sum(), real(t, 3), None),
    "two inputs": lambda t: (
        lambda x, y: 2 * x.exp() + 3 * y,
        (real(t, 2), real(t, 2, start=1.0)),
        real(t, 2),
    ),
    "two inputs, a scalar": lambda t: (
        lambda x, y: (2 * x**2 * y + 3 * y**3).sum(),
        (real(t, 2), real(t, 2, start=1.0)),
        None,
    ),
    "inputs of two shapes": lambda t: (
        lambda x, y: (x @ y).sum() * y.sum(),
        (real(t, 2, 3), real(t, 3, 1)),
        None,
    ),
    "matrix product": lambda t: (
        lambda x, y: x @ y,
        (real(t, 2, 3), real(t, 3, 2)),
        real(t, 2, 2),
    ),
    "two outputs": lambda t: (
        lambda x: (x.exp(), (x * x).sum()),
        real(t, 3),
        (real(t, 3), real(t)),
    ),
    "two of each": lambda t: (
        lambda x, y: (x * y, (x + y).cos()),
        (real(t, 3), real(t, 3, start=0.5)),
        (real(t, 3), real(t, 3)),
    ),
    "a tuple of one": lambda t: (lambda x: (x * x,), (real(t, 2),), (real(t, 2),)),
    "a tuple of one in": lambda t: (lambda x: (x * x).sum(), (real(t, 2),), None),
    "an unused input": lambda t: (
        lambda x, y: (x * x).sum(),
        (real(t, 2), real(t, 3)),
        None,
    ),
    "an input used once": lambda t: (
        lambda x, y: (x * x * x).sum() + y.sum(),
        (real(t, 2), real(t, 3)),
        None,
    ),
    "a constant output": lambda t: (lambda x: t.ones(2).double(), real(t, 3), real(t, 2)),
    "a constant scalar": lambda t: (lambda x: t.ones(()).double(), real(t, 3), None),
    "one output constant": lambda t: (
        lambda x: (x * x, t.ones(2).double()),
        real(t, 2),
        (real(t, 2), real(t, 2)),
    ),
    "detached": lambda t: (lambda x: (x.detach() * 2).sum(), real(t, 2), None),
    "the input itself": lambda t: (lambda x: x, real(t, 2), real(t, 2)),
    "a view": lambda t: (lambda x: x.t(), real(t, 2, 3), real(t, 3, 2)),
    "part of it": lambda t: (lambda x: x[0] ** 2, real(t, 3), None),
    "an expanded view": lambda t: (
        lambda x: x.expand(2, 3) ** 2,
        real(t, 3),
        real(t, 2, 3),
    ),
    "a transposed input": lambda t: (lambda x: (x**3).sum(), real(t, 2, 3).t(), None),
    "an input with history": lambda t: (
        lambda x: (x**3).sum(),
        real(t, 3, requires_grad=True) * 2,
        None,
    ),
    "an input that requires grad": lambda t: (
        lambda x: (x**3).sum(),
        real(t, 3, requires_grad=True),
        None,
    ),
    "a closure": lambda t: (closure(t), real(t, 3), None),
    "in place": lambda t: (lambda x: x.clone().mul_(x).sin_().sum(), real(t, 3), None),
    "in place on a view": lambda t: (in_place_on_a_view, real(t, 4), real(t, 4)),
    "a result in place": lambda t: (lambda x: (x * x).mul_(x).sigmoid_().sum(), real(t, 3), None),
    "softmax": lambda t: (lambda x: x.softmax(-1), real(t, 2, 3), real(t, 2, 3)),
    "max": lambda t: (lambda x: x.max(1).values, real(t, 2, 3), real(t, 2)),
    "no elements": lambda t: (lambda x: (x**2).sum(), real(t, 0), None),
    "no outputs": lambda t: (lambda x: x**2, real(t, 0), real(t, 0)),
    "single precision": lambda t: (lambda x: (x**3).sum(), real(t, 3).float(), None),
    "two dtypes": lambda t: (
        lambda x, y: (x * y).exp(),
        (real(t, 3).float(), real(t, 3)),
        real(t, 3),
    ),
    "complex": lambda t: (lambda z: z * z * z, complex_(t, 2), complex_(t, 2)),
    "complex scalar": lambda t: (lambda z: (z * z).sum(), complex_(t, 2), None),
    "complex to real": lambda t: (lambda z: (z.abs() ** 3).sum(), complex_(t, 2), None),
    "real to complex": lambda t: (lambda x: x * x * 2j, real(t, 2), complex_(t, 2)),
}


def closure(t: Library) -> Any:
    y = real(t, 3, requires_grad=True)
    return lambda x: (x * y).sum() ** 2


def in_place_on_a_view(x: Any) -> Any:
    y = x.clone()
    y[:2].mul_(x[2:])
    return y * y


# Mistakes of the caller ------------------------------------------------------------------------

MISTAKES: dict[str, Callable[[Library], tuple[Any, ...]]] = {
    "a number in": lambda t: (lambda x: x, 3.0, None),
    "a list in": lambda t: (lambda x: x, [real(t, 2)], None),
    "a number in a tuple": lambda t: (lambda x, y: x, (real(t, 2), 3.0), None),
    "a number out": lambda t: (lambda x: 3.0, real(t, 2), None),
    "a list out": lambda t: (lambda x: [x, x], real(t, 2), None),
    "a number in a tuple out": lambda t: (lambda x: (x, 3.0), real(t, 2), None),
    "a vector that is none": lambda t: (lambda x: x * x, real(t, 2), 2.0),
    "a tuple with none": lambda t: (lambda x: x * x, real(t, 2), (real(t, 2), 2.0)),
    "no vector": lambda t: (lambda x: x * x, real(t, 2), None),
    "no vector for two": lambda t: (lambda x, y: (x, y), (real(t, 1), real(t, 1)), None),
    "a wrong shape": lambda t: (lambda x: x * x, real(t, 2), real(t, 3)),
    "a wrong shape for a scalar": lambda t: (lambda x: (x * x).sum(), real(t), real(t, 1)),
    "a wrong count": lambda t: (lambda x: x * x, real(t, 2), (real(t, 2), real(t, 2))),
    "a wrong count of two": lambda t: (
        lambda x, y: (x * x, y),
        (real(t, 2), real(t, 2)),
        real(t, 2),
    ),
    "a wrong shape of two": lambda t: (
        lambda x, y: (x * x, y),
        (real(t, 2), real(t, 2)),
        (real(t, 2), real(t, 3)),
    ),
    "integers": lambda t: (lambda x: x * x, t.arange(3), t.arange(3)),
    "a failing function": lambda t: (fails, real(t, 2), None),
}


def fails(x: Any) -> Any:
    raise OSError("enough")


# Comparison --------------------------------------------------------------------------------------


def plain(x: Any) -> Any:
    """A result as what is compared: form, shapes, dtypes, values, and whether it has a history."""
    if isinstance(x, (cugrad.Tensor, torch.Tensor)):
        kind = str(x.dtype).rpartition(".")[2]
        return kind, tuple(x.shape), x.requires_grad, np.asarray(x.detach().tolist())
    return "tuple", [plain(y) for y in x]  # in forward mode PyTorch's are lists, against its word


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.allclose(a, b, 1e-5 if a.dtype == np.float32 else 1e-6)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def outcome(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(call())
        except Exception as error:
            text = str(error).replace("cugrad.tensor.Tensor", "torch.Tensor")
            for ours, theirs in SAME_TEXTS:
                text = re.sub(ours, theirs, text)
            return type(error).__name__, text.split("\n")[0]


# Where a text of cugrad's says more than PyTorch's, or PyTorch's no name ("given to None"):
SAME_TEXTS = [
    ("(only Tensors of floating point dtype can require gradients).*", r"\1"),
    ("outputs of the user-provided function (given to|has type)", r"outputs \1"),
    ("given to None", "given to jacobian"),
]  # fmt: skip


def compare(call: Callable[[Library], Any]) -> None:
    ours, theirs = outcome(lambda: call(cugrad)), outcome(lambda: call(torch))
    assert equal(ours, theirs), f"cugrad: {ours}\ntorch:  {theirs}"


FLAGS = [{"create_graph": c, "strict": s} for c, s in product((False, True), repeat=2)]
VECTORIZED = [
    {"vectorize": True, "create_graph": c, "strategy": s}
    for c, s in product((False, True), ("reverse-mode", "forward-mode"))
]
EVERYTHING = CASES | MISTAKES
NOT_EMPTY = {  # PyTorch's vmap fails over dims of size 0
    name: case for name, case in EVERYTHING.items() if name not in ("no elements", "no outputs")
}


def compare_with_flags(call: Callable[..., Any]) -> None:
    """Compares what a call gives with each of the flags."""
    for options in FLAGS:
        try:
            compare(lambda t, options=options: call(t, **options))
        except AssertionError as error:
            raise AssertionError(f"with {options}: {error}") from error


@pytest.mark.parametrize("case", EVERYTHING.values(), ids=EVERYTHING)
def test_vjp(case: Any) -> None:
    def call(t: Library, **options: bool) -> Any:
        func, inputs, v = case(t)
        return t.autograd.functional.vjp(func, inputs, v, **options)

    compare_with_flags(call)


@pytest.mark.parametrize("name", ["jvp", "vhp", "hvp"])
@pytest.mark.parametrize("case", EVERYTHING.values(), ids=EVERYTHING)
def test_products_with_a_vector_like_the_inputs(case: Any, name: str) -> None:
    def call(t: Library, given: bool, **options: bool) -> Any:
        func, inputs, v = case(t)
        if given and case not in MISTAKES.values():
            like = inputs if isinstance(inputs, tuple) else (inputs,)
            v = tuple(x.detach() * 0.5 + 1 for x in like)
            v = v if isinstance(inputs, tuple) else v[0]
        return getattr(t.autograd.functional, name)(func, inputs, v, **options)

    compare_with_flags(partial(call, given=True))
    compare_with_flags(partial(call, given=False))


@pytest.mark.parametrize("name", ["jacobian", "hessian"])
@pytest.mark.parametrize("case", EVERYTHING.values(), ids=EVERYTHING)
def test_jacobian_and_hessian(case: Any, name: str) -> None:
    compare_with_flags(
        lambda t, **options: getattr(t.autograd.functional, name)(*case(t)[:2], **options)
    )


@pytest.mark.parametrize(
    "options", VECTORIZED, ids=lambda o: o["strategy"] + " create_graph" * o["create_graph"]
)
@pytest.mark.parametrize("name", ["jacobian", "hessian"])
@pytest.mark.parametrize("case", NOT_EMPTY.values(), ids=NOT_EMPTY)
def test_vectorized(case: Any, name: str, options: Any) -> None:
    options = dict(options)
    forward = options["strategy"] == "forward-mode"
    if name == "hessian":
        options["outer_jacobian_strategy"] = options.pop("strategy")

    def call(t: Library) -> Any:
        found = getattr(t.autograd.functional, name)(*case(t)[:2], **options)
        return detached(found) if forward and name == "hessian" else found

    compare(call)


def detached(x: Any) -> Any:
    """PyTorch's Hessian in forward mode has a history that leads nowhere; cugrad's often none."""
    return x.detach() if hasattr(x, "detach") else [detached(y) for y in x]


@pytest.mark.parametrize("strategy", ["forward-mode", "reverse-mode"])
def test_vectorized_of_nothing(strategy: str) -> None:
    for name, shape in (("no elements", (0,)), ("no outputs", (0, 0))):
        func, inputs, _ = CASES[name](cugrad)
        options: Any = {"vectorize": True, "strategy": strategy}
        assert cugrad.autograd.functional.jacobian(func, inputs, **options).shape == shape


def test_in_forward_mode_too_results_are_tuples() -> None:
    func, inputs, _ = CASES["two of each"](cugrad)
    found = cugrad.autograd.functional.jacobian(
        func, inputs, vectorize=True, strategy="forward-mode"
    )
    assert type(found) is tuple and type(found[0]) is tuple


@pytest.mark.parametrize("name", ["jacobian", "hessian"])
@pytest.mark.parametrize("strategy", ["forward-mode", "reverse-mode", "sideways"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("vectorize", [False, True])
def test_options_that_exclude_one_another(
    name: str, strategy: str, strict: bool, vectorize: bool
) -> None:
    key = "strategy" if name == "jacobian" else "outer_jacobian_strategy"
    options: Any = {key: strategy, "strict": strict, "vectorize": vectorize}
    compare(
        lambda t: getattr(t.autograd.functional, name)(
            lambda x: (x**3).sum(), real(t, 2), **options
        )
    )
