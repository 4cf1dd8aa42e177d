"""Custom Functions: what each mistake is answered with, and what `ctx` and `grad_fn` offer."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

import cugrad
from tests.autograd.test_function import function, leaf, raises

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # PyTorch's jvp


def clone(ctx: Any, x: Any) -> Any:
    return x.clone()


def doubled(ctx: Any, x: Any) -> Any:
    ctx.mark_dirty(x)
    return x.mul_(2)


def same(ctx: Any, g: Any) -> Any:
    return g


def dual(lib: Any, F: Any) -> list[Any]:
    """Primal and tangent of each output of `F` on a dual tensor."""
    fw = lib.autograd.forward_ad
    with fw.dual_level():
        x = fw.make_dual(lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0]))
        out = F.apply(x)
        pairs = [fw.unpack_dual(o) for o in (out if isinstance(out, tuple) else (out,))]
        return [(p.tolist(), t if t is None else t.tolist()) for p, t in pairs]


BAD_TANGENTS = {
    "too many": (clone, lambda ctx, t: (t, t), r"invalid number of forward gradients \(expected 1"),
    "too few": (
        lambda ctx, x: (x.clone(), x.clone()), lambda ctx, t: t,
        r"invalid number of forward gradients \(expected 2 but got 1\)",
    ),
    "no tensor": (clone, lambda ctx, t: 3, r"expected Variable or None \(got int\) for grad outp"),
    "another shape": (clone, lambda ctx, t: t.sum(), "forward gradient that has a different size"),
    "of an integer": (
        lambda ctx, x: (x.clone(), x.long()), lambda ctx, t: (t, t),
        "returned a gradient at position 1, but  the corresponding forward output is not a diff",
    ),
    "not in place": (doubled, lambda ctx, t: t * 2, "is not modifying the forward mode gradients"),
    "of a view, no view": (
        lambda ctx, x: x.view_as(x), lambda ctx, t: t.clone(), "but the jvp is not returning a view"
    ),
    "of an input, no view": (lambda ctx, x: x, same, "but the jvp is not returning a view"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BAD_TANGENTS))
def test_bad_tangents(lib: Any, name: str) -> None:
    forward, jvp, text = BAD_TANGENTS[name]
    with raises(text):
        dual(lib, function(lib, forward, same, jvp=jvp))


@pytest.mark.parametrize("base", [False, True])
def test_tangents_of_views_are_views_of_the_tangent(lib: Any, base: bool) -> None:
    def through(flag: str) -> Any:
        def jvp(ctx: Any, t: Any, _: Any) -> Any:
            part = t.narrow(0, 0, 1)
            return part if flag == "ok" else part.clone().view_as(part)

        F = function(lib, lambda ctx, x, flag: x.narrow(0, 0, 1), same, jvp=jvp)
        fw = lib.autograd.forward_ad
        with fw.dual_level():
            x = fw.make_dual(lib.tensor([1.0, 2.0]), lib.tensor([3.0, 4.0]))
            return fw.unpack_dual(F.apply(x.view_as(x) if base else x, flag)).tangent.tolist()

    assert through("ok") == [3]
    text = "not returning a view of the same base as" if base else "not returning a view of the giv"
    with raises(text):
        through("another")


def test_good_tangents(lib: Any) -> None:
    in_place = function(lib, doubled, same, jvp=lambda ctx, t: t.mul_(2))
    assert dual(lib, in_place) == [([2, 4], [6, 8])]
    view = function(lib, lambda ctx, x: x.view_as(x), same, jvp=lambda ctx, t: t.view_as(t))
    assert dual(lib, view) == [([1, 2], [3, 4])]
    pair = function(
        lib, lambda ctx, x: (x.clone(), x.long()), same, jvp=lambda ctx, t: (t * 3, None)
    )
    assert dual(lib, pair) == [([1, 2], [9, 12]), ([1, 2], None)]


def test_save_for_forward(lib: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x, x * 2)
        return x * x

    def jvp(ctx: Any, t: Any) -> Any:
        x, twice = ctx.saved_tensors
        return twice * t

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 * x

    F = function(lib, forward, backward, jvp=jvp)
    assert dual(lib, F) == [([1, 4], [6, 16])]
    x = leaf(lib, 3)
    y = F.apply(x)
    assert y.grad_fn.saved_for_forward is None
    assert lib.autograd.grad(y.sum(), x)[0].tolist() == [6]
    with raises("save_for_forward expects all arguments to be tensors", AssertionError):
        function(lib, lambda ctx, x: ctx.save_for_forward(3), same).apply(x)


def test_jvp_under_two_levels(lib: Any) -> None:
    """Forward mode over forward mode uses the user's jvp at both."""
    calls = []

    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            calls.append(1)
            (x,) = ctx.saved_tensors
            return 3 * x * x * t

    x = lib.tensor(2.0)
    jvp = lib.func.jvp
    if lib is cugrad:  # PyTorch loses the outer tangent of what jvp reads from ctx
        found = jvp(lambda x: jvp(Cube.apply, (x,), (lib.tensor(1.0),))[1], (x,), (x,))
        assert [v.item() for v in found] == [12, 24] and len(calls) == 2


MARKS = {
    "dirty, no tensor": (lambda ctx, x: ctx.mark_dirty(3), "mark_dirty can only accept variables"),
    "dirty, not returned": (
        lambda ctx, x: ctx.mark_dirty(x), "Some elements marked as dirty during the forward method"
    ),
    "dirty, no tuple": (
        lambda ctx, x: setattr(ctx, "dirty_tensors", x), "dirty_tensors attribute is expected to be"
    ),
    "hidden, no tensor": (
        lambda ctx, x: ctx.mark_non_differentiable(3), "only accepts variable arguments, but got"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(MARKS))
def test_bad_marks(lib: Any, name: str) -> None:
    mark, text = MARKS[name]
    F = function(lib, lambda ctx, x: (mark(ctx, x), x.clone())[1], same)
    with raises(text):
        F.apply(leaf(lib, 1) * 1)


def test_a_dirty_leaf(lib: Any) -> None:
    with raises("a leaf Variable that requires grad has been used in an in-place operation"):
        function(lib, doubled, same).apply(leaf(lib, 1))


@pytest.mark.parametrize("result", [3, [1]])
def test_backward_that_returns_no_tensor(lib: Any, result: Any) -> None:
    with raises(r"expected Variable or None \(got (int|list)\)"):
        function(lib, clone, lambda ctx, g: result).apply(leaf(lib, 1)).sum().backward()


def test_only_a_tuple_is_several_outputs(lib: Any) -> None:
    out = function(lib, lambda ctx, x: [x * 1, 3], same).apply(leaf(lib, 1))
    assert type(out) is list and not out[0].requires_grad
    nested = function(lib, lambda ctx, x: (x * 1, (x * 1,)), same).apply(leaf(lib, 1))
    assert nested[0].requires_grad and not nested[1][0].requires_grad


def test_non_differentiable_gradients_without_zeros(lib: Any) -> None:
    seen: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        hidden = x * 2
        ctx.mark_non_differentiable(hidden)
        ctx._materialize_non_diff_grads = False
        return x * 3, hidden, x * 4

    def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
        seen.extend([a.tolist(), b, c.tolist()])
        return a * 3

    function(lib, forward, backward).apply(leaf(lib, 1))[0].sum().backward()
    assert seen == [[1], None, [0]]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_instances_are_legacy(lib: Any) -> None:
    class Id(lib.autograd.Function):
        def forward(self, x: Any) -> Any:
            return x

    with pytest.warns(DeprecationWarning, match="should not be instantiated. Methods on autograd"):
        made = Id()
    assert isinstance(made, Id) and isinstance(Id, lib.autograd.function.FunctionMeta)
    with raises("Legacy autograd function with non-static forward method is deprecated"):
        made(lib.ones(1))
    assert lib.autograd.function.InplaceFunction(True).inplace
    with pytest.warns(FutureWarning, match="`mark_shared_storage` is deprecated"):
        lib.autograd.function.FunctionCtx().mark_shared_storage()


def test_what_a_node_offers(lib: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.note = "kept"
        return x * 2

    x = leaf(lib, 1)
    y = function(lib, forward, lambda ctx, g: g * 2).apply(x)
    node = y.grad_fn
    assert isinstance(node, lib.autograd.graph.Node)
    assert isinstance(node, (lib.autograd.function.FunctionCtx,))
    assert isinstance(node, lib.autograd.function.BackwardCFunction)
    assert node.note == "kept" and node.needs_input_grad == (True,)
    assert node.saved_tensors[0] is x and node._forward_cls._backward_cls is type(node)
    assert (node.to_save, node.dirty_tensors, node.non_differentiable) == (None, None, None)
    assert node.next_functions[0][0].variable is x
    assert node.apply(lib.ones(1)).tolist() == [2]
    with pytest.warns(DeprecationWarning, match="'saved_variables' is deprecated"):
        assert node.saved_variables[0] is x
    node.metadata["a"] = 1
    assert node.metadata == {"a": 1}
    node._raw_saved_tensors[0].register_hooks(lambda t: t * 3, lambda t: t)
    assert node.saved_tensors[0].tolist() == [3]
    y.sum().backward()
    for name in ("saved_tensors", "_raw_saved_tensors"):
        with raises("after they have already been freed"):
            getattr(node, name)


class Twice(cugrad.autograd.Function):
    """A Function that pickle finds by its name."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


def test_classes_are_pickled_by_name() -> None:
    assert copy.deepcopy(Twice) is Twice and Twice.__name__ == "Twice"
    if __name__ in __import__("sys").modules:
        assert pickle.loads(pickle.dumps(Twice)) is Twice


def test_a_cycle_through_ctx_is_collected() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.out = y = x * 2
        return y

    gc.collect()
    x = leaf(cugrad, 1)
    y = function(cugrad, forward, same).apply(x)
    dead = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert dead() is None


def test_a_class_goes_when_nobody_needs_it() -> None:
    F = function(cugrad, clone, same)
    dead = weakref.ref(F)
    F.apply(leaf(cugrad, 1)).sum().backward()
    del F
    gc.collect()
    assert dead() is None


def test_twice_differentiated_by_once_differentiable(lib: Any) -> None:
    once = lib.autograd.function.once_differentiable
    F = function(lib, lambda ctx, x: x * x, once(lambda ctx, g: g * 2))
    x, g = leaf(lib, 1), leaf(lib, 1)
    (found,) = lib.autograd.grad(F.apply(x), x, g, create_graph=True)
    with raises("trying to differentiate twice a function that was marked with @once_diff"):
        found.sum().backward()
