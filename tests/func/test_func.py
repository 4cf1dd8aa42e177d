"""torch.func beside PyTorch: values, nesting, structure of inputs and outputs, and refusals."""

from __future__ import annotations

import importlib
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import cugrad

# PyTorch's own forward mode uses its deprecated script compiler, and sets a variable for another
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


X = np.array([0.3, 1.2, -0.7])
M = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def t(lib: Any, array: Any) -> Any:
    return lib.tensor(np.asarray(array).tolist(), dtype=lib.float64)


def func_of(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.func")


def plain(tree: Any) -> Any:
    """Nested results as nested lists, whichever library made them."""
    if isinstance(tree, (tuple, list)):
        return [plain(x) for x in tree]
    if isinstance(tree, dict):
        return {k: plain(v) for k, v in tree.items()}
    return np.asarray(tree.detach().tolist()).round(9).tolist()


def scalar(lib: Any, x: Any) -> Any:
    return (x.sin() * x.exp()).sum() * x.prod()


def vector(lib: Any, x: Any) -> Any:
    return lib.stack([(x**2).sum(), x.prod(), (x.sin() * x).sum(), x[0]])


def nested(lib: Any, x: Any) -> Any:
    return {"a": x * 2, "b": (x.sum(), [x[1:] ** 3])}


CASES: dict[str, Any] = {
    "grad": lambda lib, F: F.grad(lambda x: scalar(lib, x))(t(lib, X)),
    "grad_of_grad": lambda lib, F: F.grad(F.grad(lambda x: (x**4)))(t(lib, 2.0)),
    "grad_argnums": lambda lib, F: F.grad(lambda x, y: (x * y.sin()).sum(), (0, 1))(
        t(lib, X), t(lib, X)),
    "grad_negative_argnum": lambda lib, F: F.grad(lambda x, y: (x * y * y).sum(), -1)(
        t(lib, X), t(lib, X)),
    "grad_and_value_aux": lambda lib, F: F.grad_and_value(
        lambda x: (x.sum() ** 2, {"twice": x * 2}), has_aux=True)(t(lib, X)),
    "grad_tree": lambda lib, F: F.grad(lambda p: (p["w"] * p["b"][0]).sum())(
        {"w": t(lib, X), "b": (t(lib, X),)}),
    "grad_unused": lambda lib, F: F.grad(lambda x, y: y.sum())(t(lib, X), t(lib, X)),
    "vjp": lambda lib, F: (lambda o, f: (o, f(t(lib, [1.0, 2.0, 3.0, 4.0]))))(
        *F.vjp(lambda x: vector(lib, x), t(lib, X))),
    "vjp_two": lambda lib, F: (lambda o, f: (o, f((t(lib, X), t(lib, 2.0)))))(
        *F.vjp(lambda x, y: (x * y, (x * x).sum()), t(lib, X), t(lib, X))),
    "jvp": lambda lib, F: F.jvp(lambda x: vector(lib, x), (t(lib, X),), (t(lib, X[::-1]),)),
    "jvp_tree": lambda lib, F: F.jvp(lambda x: nested(lib, x), (t(lib, X),), (t(lib, X),)),
    "jvp_aux": lambda lib, F: F.jvp(lambda x: (x.exp(), x * 2), (t(lib, X),), (t(lib, X),),
                                    has_aux=True),
    "jacrev": lambda lib, F: F.jacrev(lambda x: vector(lib, x))(t(lib, X)),
    "jacfwd": lambda lib, F: F.jacfwd(lambda x: vector(lib, x))(t(lib, X)),
    "jacrev_tree": lambda lib, F: F.jacrev(lambda x: nested(lib, x))(t(lib, X)),
    "jacfwd_tree": lambda lib, F: F.jacfwd(lambda x: nested(lib, x))(t(lib, X)),
    "jacrev_argnums": lambda lib, F: F.jacrev(lambda x, y: x.outer(y), (0, 1))(
        t(lib, X), t(lib, X[:2])),
    "jacfwd_argnums": lambda lib, F: F.jacfwd(lambda x, y: x.outer(y), (1, 0))(
        t(lib, X), t(lib, X[:2])),
    "jacrev_chunks": lambda lib, F: F.jacrev(lambda x: x.outer(x), chunk_size=2)(t(lib, X)),
    "jacrev_aux": lambda lib, F: F.jacrev(lambda x: (x * x, x.sum()), has_aux=True)(t(lib, X)),
    "hessian": lambda lib, F: F.hessian(lambda x: scalar(lib, x))(t(lib, X)),
    "third_derivative": lambda lib, F: F.jacfwd(F.jacrev(F.jacfwd(
        lambda x: (x**4).sum() * x[0])))(t(lib, X)),
    "per_example_gradients": lambda lib, F: F.vmap(
        F.grad(lambda w, x: ((w * x).sum().tanh())), (None, 0))(t(lib, X), t(lib, M)),
    "per_example_hessians": lambda lib, F: F.vmap(F.hessian(lambda x: scalar(lib, x)))(t(lib, M)),
    "gradient_through_vmap": lambda lib, F: F.grad(
        lambda w: F.vmap(lambda x: (w * x).sum().tanh())(t(lib, M)).sum())(t(lib, X)),
    "jvp_of_vmap": lambda lib, F: F.jvp(F.vmap(lambda x: x.softmax(0)), (t(lib, M),),
                                        (t(lib, M * M),)),
    "vmap_of_jvp": lambda lib, F: F.vmap(
        lambda x, v: F.jvp(lambda x: x.cumsum(0).sin(), (x,), (v,)))(t(lib, M), t(lib, M)),
    "vmap_dims": lambda lib, F: F.vmap(lambda x, y: x * y, (1, None), 1)(
        t(lib, M), t(lib, [1.0, 2.0])),
    "vmap_nested": lambda lib, F: F.vmap(F.vmap(lambda a, b: a * b, (None, 0)), (0, None))(
        t(lib, X), t(lib, X)),
    "vmap_tree": lambda lib, F: F.vmap(lambda d: {"s": d["x"].sum(), "m": d["x"] @ d["y"][0]},
                                       ({"x": 0, "y": (None,)},))(
        {"x": t(lib, M), "y": (t(lib, X),)}),
    "vmap_out_none": lambda lib, F: F.vmap(lambda x: (x, t(lib, X)), out_dims=(0, None))(t(lib, M)),
    "vmap_unmapped_output": lambda lib, F: F.vmap(lambda x: t(lib, X))(t(lib, M)),
    "vmap_kwargs": lambda lib, F: F.vmap(lambda x, y: x + y)(t(lib, M), y=t(lib, M)),
    "vmap_chunks": lambda lib, F: F.vmap(lambda x: x.sort().values, chunk_size=1)(t(lib, M)),
    "vmap_inplace": lambda lib, F: F.vmap(lambda x: x.clone().mul_(x).add_(1))(t(lib, M)),
    "vmap_index": lambda lib, F: F.vmap(lambda x, i: x[i])(t(lib, M), lib.tensor([2, 0])),
    "vmap_where": lambda lib, F: F.vmap(lambda x: lib.where(x > 0, x, -x))(t(lib, M)),
    "vmap_linalg": lambda lib, F: F.vmap(
        lambda a: lib.linalg.inv(a @ a.mT + lib.eye(2, dtype=a.dtype)))(
        t(lib, np.stack([M, M * 2]))),
    "vmap_setitem": lambda lib, F: F.vmap(lambda x: set_first(x.clone()))(t(lib, M)),
}  # fmt: skip


def set_first(x: Any) -> Any:
    x[0] = x[1] * 5
    return x


@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")
    mine = plain(CASES[name](cugrad, func_of(cugrad)))
    theirs = plain(CASES[name](torch, func_of(torch)))
    leaves = lambda tree: np.asarray(
        list(itertools.chain.from_iterable(map(leaves, tree.values() if isinstance(tree, dict)
                                               else tree)))
        if isinstance(tree, (list, dict)) else [tree]
    )  # fmt: skip
    assert str(mine).count("[") == str(theirs).count("[")
    np.testing.assert_allclose(leaves(mine), leaves(theirs), rtol=1e-7, atol=1e-9)


def test_results_have_no_history_of_their_own(lib: Any) -> None:
    """What a transform made only for itself is not seen from outside; the caller's graph is."""
    F = func_of(lib)
    x, w = t(lib, X), t(lib, X).requires_grad_()
    for made in (F.grad, F.jacrev, F.jacfwd, F.hessian):
        assert not made(lambda x: scalar(lib, x))(x).requires_grad
    g = F.grad(lambda x: (x * w * x).sum())(x)
    assert g.requires_grad
    g.sum().backward()
    assert plain(w.grad) == plain(2 * x)
    w.grad = None
    F.jvp(lambda x: x * w, (x,), (x,))[1].sum().backward()
    assert plain(w.grad) == plain(x)


REFUSED: list[tuple[Any, type, str]] = [
    (lambda lib, F: F.jacfwd(lambda x: lib.ones(()))({}), AssertionError, "at least one element"),
    (lambda lib, F: F.hessian(lambda x: lib.ones(()))([]), AssertionError, "at least one element"),
    (lambda lib, F: F.grad(lambda x: x)(lib.ones(2)), RuntimeError, "scalar [tT]ensor"),
    (lambda lib, F: F.vmap(lambda x: x)(lib.tensor(1.0)), ValueError, "in_dim"),
    (lambda lib, F: F.vmap(lambda x, y: x)(lib.ones(2), lib.ones(3)), ValueError, "same size"),
    (lambda lib, F: F.vmap(lambda x: x, in_dims=3)(lib.ones(2)), ValueError, "in_dim"),
    (lambda lib, F: F.vmap(lambda x: x, in_dims="a")(lib.ones(2)), ValueError, "in_dims"),
    (lambda lib, F: F.vmap(lambda x: x, in_dims=None)(lib.ones(2)), ValueError, "in_dims"),
    (lambda lib, F: F.vmap(lambda x: x)(), ValueError, "no inputs"),
    (lambda lib, F: F.vmap(lambda x: 1.0)(lib.ones(2)), ValueError, "must only return Tensors"),
    (lambda lib, F: F.vmap(lambda x: x, out_dims=None)(lib.ones(2)), ValueError, "BatchedTensor"),
    (lambda lib, F: F.vmap(lambda x: x if x > 0 else -x)(lib.ones(2)), RuntimeError,
     "control flow"),
    (lambda lib, F: F.vmap(lambda x: x.item())(lib.ones(2)), RuntimeError, "item"),
    (lambda lib, F: F.vmap(lambda x: x[x > 0])(lib.tensor([[1.0, 2.0], [1.0, -1.0]])),
     RuntimeError, "vmap"),
    (lambda lib, F: F.vmap(lambda x: lib.rand(2))(lib.ones(2)), RuntimeError, "randomness"),
    (lambda lib, F: F.vmap(lambda x: x, randomness="no")(lib.ones(2)), RuntimeError, "randomness"),
    (lambda lib, F: F.vmap(lambda x: x, chunk_size=0)(lib.ones(2)), ValueError, "chunk_size"),
    (lambda lib, F: F.vmap(lambda x: lib.zeros(3).add_(x))(lib.ones(2, 3)), RuntimeError,
     "vmap|broadcast"),
    (lambda lib, F: F.jvp(lambda x: x, lib.ones(2), lib.ones(2)), RuntimeError, "tuple"),
    (lambda lib, F: F.jvp(lambda x: x, (lib.ones(2),), (lib.ones(3),)), RuntimeError, "shape|size"),
    (lambda lib, F: F.jvp(lambda x: lib.ones(2), (lib.ones(2),), (lib.ones(2),), strict=True),
     RuntimeError, "independent"),
]  # fmt: skip


@pytest.mark.parametrize("call, kind, said", REFUSED)
def test_refusals(lib: Any, call: Any, kind: type, said: str) -> None:
    with pytest.raises(kind, match=said), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        call(lib, func_of(lib))


def test_randomness(lib: Any) -> None:
    """ "different" draws for each example, "same" once for all, also through dropout."""
    F = func_of(lib)
    x = lib.zeros(3, 50)
    same = F.vmap(lambda x: x + lib.rand(50), randomness="same")(x)
    each = F.vmap(lambda x: x + lib.rand(50), randomness="different")(x)
    assert (same[0] == same[1]).all() and not (each[0] == each[1]).all()
    nested = F.vmap(F.vmap(lambda x: x + lib.randn(4), randomness="different"),
                    randomness="same")(lib.zeros(2, 3, 4))  # fmt: skip
    assert (nested[0] == nested[1]).all() and not (nested[0, 0] == nested[0, 1]).all()
    dropped = F.vmap(lambda x: lib.nn.functional.dropout(x, 0.5), randomness="different")(x + 1)
    assert not (dropped[0] == dropped[1]).all()


def test_a_rule_that_loops_says_so() -> None:
    with pytest.warns(UserWarning, match="performance drop"):
        found = cugrad.vmap(cugrad.isin)(cugrad.zeros(2, 3), cugrad.zeros(2, 1))
    assert found.shape == (2, 3) and found.all()


def test_batched_vectors_cost_one_pass(lib: Any) -> None:
    """`is_grads_batched` gives what one call per vector gives, under create_graph too."""
    x = t(lib, X).requires_grad_()
    y = x.exp() * x.sum()
    v = t(lib, np.eye(3))
    batched = lib.autograd.grad(y, x, v, is_grads_batched=True, create_graph=True)[0]
    single = [lib.autograd.grad(y, x, row, retain_graph=True)[0] for row in v]
    assert plain(batched) == plain(lib.stack(single))
    again = lib.autograd.grad(batched.sum(), x)[0]
    assert again.shape == x.shape


def test_functional_call_and_ensembles(lib: Any) -> None:
    """A module with other parameters, restored afterwards; several at once under vmap."""
    F = func_of(lib)
    layer = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 1))
    before = [p.detach().clone() for p in layer.parameters()]
    x = t(lib, M).float()
    state = {name: p.detach() * 2 for name, p in layer.named_parameters()}
    doubled = F.functional_call(layer, state, x)
    with lib.no_grad():
        for p in layer.parameters():
            p.mul_(2)
    assert plain(layer(x)) == plain(doubled)
    with lib.no_grad():
        for p, b in zip(layer.parameters(), before, strict=True):
            p.copy_(b)
    grads = F.grad(lambda s: F.functional_call(layer, s, (x,)).sum())(state)
    assert set(grads) == set(state) and grads["0.weight"].shape == (4, 3)
    models = [lib.nn.Linear(3, 2) for _ in range(4)]
    params, buffers = F.stack_module_state(models)
    run = F.vmap(lambda p, b: F.functional_call(models[0], (p, b), (x,)))
    np.testing.assert_allclose(
        run(params, buffers).detach().tolist(), [m(x).tolist() for m in models], rtol=1e-5
    )
    with pytest.raises(ValueError, match="multiple dictionaries"):
        F.functional_call(layer, [state, state], x)
    with pytest.raises(RuntimeError, match="at least one model"):
        F.stack_module_state([])


CHANGES: dict[str, Any] = {
    "in place": lambda w: w.mul_(2),
    "by detach": lambda w: w.detach().mul_(2),
    "by a view": lambda w: w[1:].mul_(2),
    "by copy": lambda w: w.copy_(w.detach().flip(0)),
    "not": lambda w: None,
}
POINTS: dict[str, Any] = {
    "data": lambda lib: t(lib, M),
    "leaf": lambda lib: t(lib, M).requires_grad_(),
    "result": lambda lib: t(lib, M).requires_grad_() * 1,
    "view": lambda lib: (t(lib, M).requires_grad_() * 1)[:, 1:],
    "view of a leaf": lambda lib: t(lib, M).requires_grad_()[0],
}
WITHIN: dict[str, Any] = {
    "nothing": lambda p: None,
    "a change by detach": lambda p: p.detach().mul_(2),
    "changes of a view": lambda p: p.detach()[:1].add_(1).mul_(3),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("within", WITHIN)
def test_a_pullback_outlives_changes_of_its_point(
    lib: Any, change: str, point: str, within: str
) -> None:
    """It is that of the point as it was: what it needs of the values says that they have changed,
    which PyTorch does not see, and what needs none goes on.
    """
    F, w = func_of(lib), POINTS[point](lib)
    factors = lib.arange(1.0, w.numel() + 1, dtype=lib.float64).reshape(w.shape)

    def linear(p: Any) -> Any:
        before = p * 1
        WITHIN[within](p)
        return ((before + p) * factors).sum()

    _, pull = F.vjp(linear, w)
    _, pull_square = F.vjp(lambda p: (p * p).sum(), w)
    with lib.no_grad():
        CHANGES[change](w)
    one = lib.ones((), dtype=lib.float64)
    assert plain(pull(one)[0]) == plain(2 * factors)
    if change == "not":
        assert plain(pull_square(one)[0]) == plain(2 * w)
    elif lib is cugrad:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            pull_square(one)


@pytest.mark.parametrize("point", POINTS)
def test_an_argument_is_a_leaf_to_the_function(lib: Any, point: str) -> None:
    F, w = func_of(lib), POINTS[point](lib)
    for change in (lambda p: p.mul_(2), lambda p: p[:1].mul_(2), lambda p: p[..., 0].add_(1)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            F.grad(lambda p, change=change: (change(p) * p[:1]).sum())(w)
    assert plain(w) == plain(POINTS[point](lib))


def test_linearize_wants_its_point_as_it_was() -> None:
    """PyTorch has its values as constants; here the function runs anew."""
    w = cugrad.ones(3)
    _, push = cugrad.func.linearize(lambda p: (p**3).sum(), w)
    assert push(w).item() == 9 == push(w).item()
    w.mul_(2)
    with pytest.raises(RuntimeError, match="primal:0 of shape .3. was changed in place"):
        push(w)
    table = cugrad.ones(3, 2) * 4
    _, push = cugrad.func.linearize(  # which changes its point itself
        lambda p: cugrad.nn.functional.embedding(cugrad.arange(2), p, max_norm=1.0).sum(), table
    )
    assert push(table).item() == push(table).item()
