"""Checkpoints under the transforms of torch.func, in forward mode and within threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import cugrad
from cugrad import func
from cugrad.autograd import forward_ad
from cugrad.utils.checkpoint import checkpoint
from tests.memory.recompute.checkpoint_cases import FUNCTIONS, kit

Function = Callable[[Any], Any]


def values(*shape: int, seed: int = 0) -> Any:
    generator = cugrad.Generator("cpu").manual_seed(seed)
    return cugrad.rand(*shape, dtype=cugrad.float64, generator=generator, device="cpu")


X, W, V = values(3, 4), values(4, 4, seed=1), values(3, 4, seed=2)


def plain(x: Any) -> Any:
    return ((x @ W).sin().exp() * x.tanh()).sum(-1)


def simply(x: Any) -> Any:
    return checkpoint(plain, x, use_reentrant=False)


def nested(x: Any) -> Any:
    return checkpoint(simply, x, use_reentrant=False)


def under_hooks(x: Any) -> Any:
    with cugrad.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda t: t[0]):
        return simply(x)


def hooks_alone(x: Any) -> Any:
    with cugrad.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda t: t[0]):
        return plain(x)


def total(f: Function) -> Function:
    return lambda x: f(x).sum()


def within_a_level(f: Function) -> Any:
    x = X.clone().requires_grad_()
    with forward_ad.dual_level():
        y = f(forward_ad.make_dual(x, V))
        (g,) = cugrad.autograd.grad(y.sum(), x)
        return forward_ad.unpack_dual(y).tangent, g, forward_ad.unpack_dual(g).tangent


def after_a_level(f: Function) -> Any:
    x = X.clone().requires_grad_()
    with forward_ad.dual_level():
        y = f(forward_ad.make_dual(x, V))
        tangent = forward_ad.unpack_dual(y).tangent
    return cugrad.autograd.grad(tangent.sum(), x)


def after_two_levels(f: Function) -> Any:
    """The inner tangent has one of the outer level, which is over as well."""
    x = X.clone().requires_grad_()
    tangent = func.jvp(lambda a: func.jvp(f, (a,), (a.sin(),))[1], (x,), (V,))[1]
    return cugrad.autograd.grad(tangent.sum(), x)


def batched_gradients(f: Function) -> Any:
    x = X.clone().requires_grad_()
    rows = cugrad.eye(3, dtype=cugrad.float64, device="cpu")
    return cugrad.autograd.grad(f(x), x, rows, is_grads_batched=True)


def of_a_batch(f: Function) -> Any:
    x = X.clone().requires_grad_()
    func.vmap(f)(x).sum().backward()
    return x.grad


TRANSFORMS: dict[str, Callable[[Function], Any]] = {
    "grad": lambda f: func.grad(total(f))(X),
    "grad of grad": lambda f: func.grad(lambda x: func.grad(total(f))(x).sin().sum())(X),
    "vmap": lambda f: func.vmap(f)(X),
    "vmap of grad": lambda f: func.vmap(func.grad(total(f)))(X),
    "grad of vmap": lambda f: func.grad(lambda x: func.vmap(f)(x).sum())(X),
    "jvp": lambda f: func.jvp(f, (X,), (V,)),
    "jvp of grad": lambda f: func.jvp(func.grad(total(f)), (X,), (V,)),
    "grad of jvp": lambda f: func.grad(lambda x: func.jvp(f, (x,), (V,))[1].sum())(X),
    "jvp of jvp": lambda f: func.jvp(lambda x: func.jvp(f, (x,), (V,))[1], (X,), (V,)),
    "hessian": lambda f: func.hessian(total(f))(X),
    "jacrev": lambda f: func.jacrev(f)(X),
    "jacfwd": lambda f: func.jacfwd(f)(X),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(total(f)))(X),
    "vmap of vjp": lambda f: func.vmap(func.vjp(f, X)[1])(
        cugrad.eye(3, dtype=cugrad.float64, device="cpu")
    ),
    "linearize": lambda f: func.linearize(f, X)[1](V),
    "hvp": lambda f: cugrad.autograd.functional.hvp(total(f), X, V),
    "jacobian": lambda f: cugrad.autograd.functional.jacobian(f, X, vectorize=True),
} | {f.__name__: f for f in (within_a_level, after_a_level, after_two_levels,
                                    batched_gradients, of_a_batch)}  # fmt: skip


def flat(found: Any) -> list[Any]:
    if isinstance(found, (tuple, list)):
        return [x for part in found for x in flat(part)]
    return [found.detach()]


@pytest.mark.parametrize("way", [simply, nested, under_hooks, hooks_alone])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_is_bitwise_the_plain_one(name: str, way: Function) -> None:
    """PyTorch refuses saved-tensor hooks, and so checkpoints, under torch.func."""
    wanted, found = (flat(TRANSFORMS[name](f)) for f in (plain, way))
    assert all(cugrad.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_dual_of_the_closure_is_noticed_when_its_level_is_over() -> None:
    x = X.clone().requires_grad_()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, V)
        y = checkpoint(lambda: plain(dual), use_reentrant=False)
        tangent = forward_ad.unpack_dual(y).tangent
    with pytest.raises(RuntimeError, match="A different number of tensors was saved"):
        tangent.sum().backward()


def test_random_numbers_of_a_batch() -> None:
    def f(x: Any) -> Any:
        return cugrad.nn.functional.dropout(x.exp(), 0.5) * x

    found = []
    for use in (False, True):
        cugrad.manual_seed(1)
        g = (lambda x: checkpoint(f, x, use_reentrant=False)) if use else f
        found.append(func.vmap(func.grad(total(g)), randomness="different")(X))
    assert cugrad.equal(*found)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_many_threads_share_a_graph(function: str) -> None:
    """Each pass runs the region for itself; what one has computed is not another's."""
    x, w = (values(4, 4, seed=k).requires_grad_() for k in range(2))
    found = kit(cugrad).checkpoint(FUNCTIONS[function], cugrad, x * 1, w * 1, use_reentrant=False)
    y = sum(t.square().sum() for t in (found if isinstance(found, tuple) else (found,)))
    results: list[Any] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                results.append(cugrad.autograd.grad(y, (x, w), retain_graph=True))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
    for g in results[1:]:
        assert all(cugrad.equal(a, b) for a, b in zip(g, results[0], strict=True))
