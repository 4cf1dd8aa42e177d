"""The custom Functions of PyTorch's own tests, under each transform, beside PyTorch."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
database = pytest.importorskip("torch.testing._internal.autograd_function_db")

pytestmark = pytest.mark.host_only

LIBRARIES = (cugrad, torch)
Call = Callable[..., Any]
MOST_REFUSED = 11  # transforms, of one Function: of NumpyCubeNotComposable


def functions(lib: Any) -> dict[str, Any]:
    """The classes of the database, defined by a library: its samples and infos are left out."""
    text = Path(database.__file__).read_text()
    text = text[text.index("def to_numpy") : text.index("autograd_function_db = [")]
    text = re.sub(r"^def sample_inputs.*?(?=^class |^def |\Z)", "", text, flags=re.S | re.M)
    defined: dict[str, Any] = {"torch": lib, "np": np}
    exec(text, defined)
    return defined


DEFINED = {lib: functions(lib) for lib in LIBRARIES}


def row(t: Any) -> Any:
    return t.tensor([0.9, 1.5, 1.1], dtype=t.float64)


def grid(t: Any) -> Any:
    return t.tensor([[0.3, -1, 2], [1.5, 0.2, -0.7]], dtype=t.float64)


def two(t: Any) -> Any:
    return grid(t), grid(t).sin() + 2


def changed(apply: Call, x: Any) -> Any:
    apply(x[..., 1:])
    return x


# Each: what is called, of the classes, and what it gets.
CASES: dict[str, tuple[Callable[[Any], Call], Call]] = {
    "NumpyCube": (lambda n: n["NumpyCube"].apply, lambda t: (row(t),)),
    "NumpyExp_": (lambda n: lambda x: n["NumpyExp_"].apply(x.clone()), lambda t: (row(t),)),
    "NumpyExp_ of a view": (
        lambda n: lambda x: n["NumpyExp_"].apply(x.clone()[0:]), lambda t: (row(t),)),
    "NumpyExp_ of a part": (lambda n: lambda x: changed(n["NumpyExp_"].apply, x.clone()),
                            lambda t: (row(t),)),
    "NumpyMul": (lambda n: n["NumpyMul"].apply, two),
    "NumpyMul, broadcast": (lambda n: n["NumpyMul"].apply, lambda t: (grid(t), grid(t)[0])),
    "NumpyCubeNotComposable": (
        lambda n: lambda x: n["NumpyCubeNotComposable"].apply(x)[0], lambda t: (row(t),)),
    "NumpySort": (lambda n: lambda x: n["NumpySort"].apply(x, -1)[0], lambda t: (grid(t),)),
    "SortGenVmap": (lambda n: lambda x: n["SortGenVmap"].apply(x, -1)[0], lambda t: (grid(t),)),
    "TakeGenVmap": (
        lambda n: lambda x: n["TakeGenVmap"].apply(x, *n["SortGenVmap"].apply(x, -1)[1:], -1),
        lambda t: (grid(t),)),
    "Select": (lambda n: lambda x: n["Select"].apply(x, 1), lambda t: (grid(t),)),
    "SelectGenVmap": (lambda n: lambda x: n["SelectGenVmap"].apply(x, 1), lambda t: (grid(t),)),
    "CubeGenVmap": (lambda n: n["CubeGenVmap"].apply, lambda t: (row(t),)),
    "MulGenVmap": (lambda n: n["MulGenVmap"].apply, two),
    "ScaleGradGenVmap": (lambda n: n["ScaleGradGenVmap"].apply, lambda t: (row(t),)),
    "ZeroGradientsGenVmap": (lambda n: n["ZeroGradientsGenVmap"].apply, two),
    "ForwardHasDefaultArgs": (
        lambda n: lambda x: n["ForwardHasDefaultArgs"].apply(x, slice(0, 1)),
        lambda t: (grid(t),)),
}  # fmt: skip


def first(y: Any) -> Any:
    return y[0] if isinstance(y, (tuple, list)) else y


def total(f: Call) -> Call:
    """A number that depends on a result, and whose gradient does."""

    def run(*args: Any) -> Any:
        y = first(f(*args))
        return (y * y.detach().cos() + y * 0.5).sum() + (y**2).sum() * 0.25

    return run


def pairs(t: Any, args: Any) -> Any:
    return tuple([t.stack([x, x * 0.9]) for x in args])


def graph(t: Any, f: Call, args: Any, order: int) -> Any:
    """Gradients of gradients, as long as there is a graph."""
    leaves = [x.detach().clone().requires_grad_() for x in args]
    y, found = total(f)(*leaves), []
    for _ in range(order):
        grads = t.autograd.grad(y, leaves, create_graph=True, allow_unused=True)
        found.append(grads)
        again = [g for g in grads if g is not None and g.requires_grad]
        if not again:
            return found
        y = sum([(g * g).sum() + g.sin().sum() for g in again])
    return found


def pulled(t: Any, f: Call, args: Any) -> Any:
    y, pull = t.func.vjp(lambda *x: first(f(*x)), *args)
    return y, pull(y.cos())


TRANSFORMS: dict[str, Callable[[Any, Call, Any], Any]] = {
    "none": lambda t, f, a: f(*a),
    "three gradients": lambda t, f, a: graph(t, f, a, 3),
    "checkpoint": lambda t, f, a: graph(
        t, lambda *x: t.utils.checkpoint.checkpoint(f, *x, use_reentrant=False), a, 1),
    "grad": lambda t, f, a: t.func.grad(total(f), tuple(range(len(a))))(*a),
    "grad of grad": lambda t, f, a: t.func.grad(total(t.func.grad(total(f))))(*a),
    "vjp": pulled,
    "jvp": lambda t, f, a: t.func.jvp(lambda *x: first(f(*x)), a, a),
    "vmap": lambda t, f, a: t.func.vmap(f)(*pairs(t, a)),
    "vmap of the last": lambda t, f, a: t.func.vmap(f, -1)(
        *[x.movedim(0, -1) for x in pairs(t, a)]),
    "vmap of one": lambda t, f, a: t.func.vmap(f, (0, *[None] * (len(a) - 1)))(
        pairs(t, a)[0], *a[1:]),
    "vmap of vmap": lambda t, f, a: t.func.vmap(t.func.vmap(f))(*pairs(t, pairs(t, a))),
    "vmap of grad": lambda t, f, a: t.func.vmap(t.func.grad(total(f)))(*pairs(t, a)),
    "grad of vmap": lambda t, f, a: t.func.grad(total(t.func.vmap(f)))(*pairs(t, a)),
    "jvp of vmap": lambda t, f, a: t.func.jvp(
        lambda *x: first(t.func.vmap(f)(*x)), pairs(t, a), pairs(t, a)),
    "jacrev": lambda t, f, a: t.func.jacrev(lambda *x: first(f(*x)))(*a),
    "jacfwd": lambda t, f, a: t.func.jacfwd(lambda *x: first(f(*x)))(*a),
    "hessian": lambda t, f, a: t.func.hessian(total(f))(*a),
    "jacrev of jacfwd": lambda t, f, a: t.func.jacrev(t.func.jacfwd(total(f)))(*a),
    "jacobian": lambda t, f, a: t.autograd.functional.jacobian(lambda *x: first(f(*x)), a),
    "hvp": lambda t, f, a: t.autograd.functional.hvp(total(f), a, a),
}  # fmt: skip


def described(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, cugrad.Tensor)):
        return [tuple(value.shape), bool(value.requires_grad), np.array(value.detach().tolist())]
    return [described(x) for x in value] if isinstance(value, (list, tuple)) else value


def agree(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and np.allclose(a, b, 1e-6, 1e-9, equal_nan=True)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(agree, a, b))
    return bool(a == b)


@pytest.mark.parametrize("name", CASES)
def test_under_each_transform(name: str) -> None:
    called, args = CASES[name]
    wrong, refused = [], 0
    for transform, run in TRANSFORMS.items():
        ends = list[Any]()
        for lib in LIBRARIES:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ends.append(described(run(lib, called(DEFINED[lib]), args(lib))))
            except (RuntimeError, NotImplementedError) as error:
                ends.append(type(error).__name__)
        if isinstance(ends[1], str):  # PyTorch's may be refused, and ours be right
            refused += 1
        elif not agree(*ends):
            wrong.append((transform, *ends))
    assert not wrong and refused <= MOST_REFUSED
