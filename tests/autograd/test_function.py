"""Custom Functions: what ctx gives, what backward may return, and how they join the graph."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import cugrad


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=True)


def function(lib: Any, forward: Any, backward: Any, **more: Any) -> Any:
    """A Function of either library."""
    body = {"forward": forward, "backward": backward, **more}
    methods = {name: staticmethod(method) for name, method in body.items()}
    return type("Custom", (lib.autograd.Function,), methods)


def raises(text: str, error: Any = RuntimeError) -> Any:
    return pytest.raises(error, match=text)


# The context --------------------------------------------------------------------------------------


def test_save_for_backward(lib: Any) -> None:
    def forward(ctx: Any, x: Any, w: Any, power: int) -> Any:
        result = x**power * w
        ctx.save_for_backward(x, w, result)
        ctx.power = power
        return result

    def backward(ctx: Any, g: Any) -> Any:
        x, w, result = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1) * w, g * result / w, None

    Power = function(lib, forward, backward)
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = Power.apply(x, w, 3)
    assert y.tolist() == [3, 32] and y.requires_grad
    assert y.grad_fn.name() == "CustomBackward" and type(y.grad_fn).__name__ == "CustomBackward"
    y.sum().backward()
    assert x.grad.tolist() == [9, 48] and w.grad.tolist() == [1, 8]
    with raises("second time"):
        y.sum().backward()


def test_saved_inputs_come_back_as_they_were(lib: Any) -> None:
    seen: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, None)
        return x * 2

    def backward(ctx: Any, g: Any) -> Any:
        seen.extend(ctx.saved_tensors)
        return g * 2

    x = leaf(lib, 1)
    y = function(lib, forward, backward).apply(x)
    assert y.grad_fn.saved_tensors[0] is x
    y.sum().backward()
    assert seen[0] is x and seen[1] is None


def test_needs_input_grad(lib: Any) -> None:
    seen = []

    def forward(ctx: Any, a: Any, n: int, b: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return a * n * b

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return g, None, None

    x, c = leaf(lib, 1), lib.ones(1, dtype=lib.float64)
    function(lib, forward, backward).apply(x, 3, c).sum().backward()
    assert seen == [(True, False, False)] * 2
    assert x.grad.tolist() == [1]


def test_forward_is_not_recorded_and_backward_is_only_when_asked(lib: Any) -> None:
    modes = []

    def forward(ctx: Any, x: Any) -> Any:
        modes.append(lib.is_grad_enabled())
        return x * x

    def backward(ctx: Any, g: Any) -> Any:
        modes.append(lib.is_grad_enabled())
        return g * 2

    x = leaf(lib, 1)
    apply = function(lib, forward, backward).apply
    apply(x).sum().backward()
    lib.autograd.grad(apply(x).sum(), x, create_graph=True)
    assert modes == [False, False, False, True]


def test_nothing_is_recorded_without_need(lib: Any) -> None:
    Double = function(lib, lambda ctx, x: x * 2, lambda ctx, g: g * 2)
    assert not Double.apply(lib.ones(2)).requires_grad
    with lib.no_grad():
        assert not Double.apply(leaf(lib, 1)).requires_grad


def test_setup_context(lib: Any) -> None:
    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(x: Any, scale: float) -> Any:
            return x**3 * scale

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, ctx.scale = inputs
            assert output.tolist() == (x**3 * ctx.scale).tolist()
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x * ctx.scale, None

    x = leaf(lib, 2)
    y = Cube.apply(x, 0.5)
    assert y.tolist() == [4]
    (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    assert g.tolist() == [6]
    assert lib.autograd.grad(g.sum(), x)[0].tolist() == [6]


def test_materialized_gradients(lib: Any) -> None:
    seen: list[Any] = []

    def custom(materialize: bool) -> Any:
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append(b if b is None else b.tolist())
            return a * 2

        return function(lib, forward, backward)

    for materialize in (True, False):
        x = leaf(lib, 1, 2)
        custom(materialize).apply(x)[0].sum().backward()
        assert x.grad.tolist() == [2, 2]
    assert seen == [[0, 0], None]


def test_non_differentiable_outputs(lib: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        rounded = x.round()
        ctx.mark_non_differentiable(rounded)
        return x * 2, rounded, x > 0

    seen = []

    def backward(ctx: Any, *grads: Any) -> Any:
        seen.append(len(grads))
        return grads[0] * 2

    x = leaf(lib, 1, 2)
    y, rounded, positive = function(lib, forward, backward).apply(x)
    assert y.requires_grad and not rounded.requires_grad and not positive.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2, 2] and seen == [3]


def test_mark_dirty(lib: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    Triple = function(lib, forward, lambda ctx, g: g * 3)
    x = leaf(lib, 1, 2)
    y = x * 1
    z = Triple.apply(y)
    assert z is y and y.tolist() == [3, 6] and y._version >= 1
    assert y.grad_fn.name() == "CustomBackward"
    z.sum().backward()
    assert x.grad.tolist() == [3, 3]
    with raises("a leaf Variable that requires grad"):
        Triple.apply(leaf(lib, 1))


def test_mark_dirty_of_a_view(lib: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    Triple = function(lib, forward, lambda ctx, g: g * 3)
    x = leaf(lib, 1, 2)
    y = x * 1
    Triple.apply(y[:1])
    y.sum().backward()
    assert x.grad.tolist() == [3, 1]


def test_dirty_and_saved(lib: Any) -> None:
    """The result of an in-place function, saved, is the changed one."""

    def forward(ctx: Any, x: Any) -> Any:
        x.exp_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    Exp = function(lib, forward, lambda ctx, g: g * ctx.saved_tensors[0])
    x = leaf(lib, 0, 1)
    y = x * 1
    y = Exp.apply(y)
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([1, 2.718281828459045])


# What backward returns ----------------------------------------------------------------------------


def test_gradients_are_fitted_to_their_inputs(lib: Any) -> None:
    """Un-broadcast and cast, as those of every op."""
    Add = function(lib, lambda ctx, a, b: a + b, lambda ctx, g: (g, g))
    a, b = leaf(lib, 1, 2), lib.ones(3, 2, dtype=lib.float32, requires_grad=True)
    Add.apply(a, b).sum().backward()
    assert a.grad.tolist() == [3, 3] and a.grad.dtype is lib.float64
    assert b.grad.tolist() == [[1, 1]] * 3 and b.grad.dtype is lib.float32


def test_none_stops_a_gradient(lib: Any) -> None:
    Stop = function(lib, lambda ctx, x: x * 1, lambda ctx, g: None)
    x = leaf(lib, 1)
    y = x * 2
    (Stop.apply(y) + y).sum().backward()
    assert x.grad.tolist() == [2]


def test_extra_nones_are_fine(lib: Any) -> None:
    Double = function(lib, lambda ctx, x: x * 2, lambda ctx, g: (g * 2, None, None))
    x = leaf(lib, 1)
    Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2]


ONE = lambda ctx, *args: args[0] * 1
BAD = {
    "too few": (lambda t: lambda ctx, g: g, RuntimeError,
                "incorrect number of gradients \\(expected 2, got 1\\)"),
    "too many": (lambda t: lambda ctx, g: (g, g, g), RuntimeError,
                 "incorrect number of gradients \\(expected 2, got 3\\)"),
    "for a number": (lambda t: lambda ctx, g: (g, g), RuntimeError,
                     "gradient different than None at position 2"),
    "no tensor": (lambda t: lambda ctx, g: (1.0, None), (TypeError, RuntimeError),
                  "(?i)expected (a )?Variable"),
    "wrong shape": (lambda t: lambda ctx, g: (t.ones(3), None), RuntimeError,
                    "invalid gradient at index 0 - got \\[3\\] but expected shape compatible with "
                    "\\[2\\]"),
    "raises": (lambda t: lambda ctx, g: 1 / 0, ZeroDivisionError, "division"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_errors_of_backward(lib: Any, name: str) -> None:
    backward, error, text = BAD[name]
    x = leaf(lib, 1, 2)
    y = function(lib, ONE, backward(lib)).apply(x, 5)
    with raises(text, error):
        y.sum().backward()
    assert x.grad is None and lib.is_grad_enabled()


@pytest.mark.filterwarnings("error")
def test_errors_of_use(lib: Any) -> None:
    x = leaf(lib, 1)
    with raises("should not be instantiated", (RuntimeError, DeprecationWarning)):
        lib.autograd.Function()
    with raises("You must implement the forward", NotImplementedError):
        type("Empty", (lib.autograd.Function,), {}).apply(x)
    with raises("You must implement either the backward or vjp", NotImplementedError):
        OnlyForward = type("F", (lib.autograd.Function,), {"forward": staticmethod(ONE)})
        OnlyForward.apply(x).sum().backward()
    save = function(lib, lambda ctx, x: ctx.save_for_backward(3), ONE)
    with raises("save_for_backward can only save variables, but argument 0 is of type int",
                TypeError):  # fmt: skip
        save.apply(x)


def test_vjp_is_another_name_for_backward(lib: Any) -> None:
    body = {"forward": staticmethod(ONE), "vjp": staticmethod(lambda ctx, g: g * 7)}
    x = leaf(lib, 1)
    type("F", (lib.autograd.Function,), body).apply(x).sum().backward()
    assert x.grad.tolist() == [7]


# The graph ----------------------------------------------------------------------------------------


def test_double_backward(lib: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    Exp = function(lib, forward, lambda ctx, g: g * ctx.saved_tensors[0])
    x = leaf(lib, 0.5)
    y = Exp.apply(x)
    for _ in range(3):
        assert y.item() == pytest.approx(1.6487212707)
        (y,) = lib.autograd.grad(y, x, create_graph=True)


def test_once_differentiable(lib: Any) -> None:
    once = lib.autograd.function.once_differentiable
    Square = function(lib, lambda ctx, x: x * x, once(lambda ctx, g: g * 2))
    x = leaf(lib, 3)
    (g,) = lib.autograd.grad((Square.apply(x) * x).sum(), x, create_graph=True)
    assert g.tolist() == [9 + 2 * 3]
    with raises("differentiate twice a function that was marked with @once_differentiable"):
        g.sum().backward()
    Square.apply(x).sum().backward()
    assert x.grad.tolist() == [2]


def test_an_input_returned_as_it_is(lib: Any) -> None:
    Same = function(lib, lambda ctx, x: x, lambda ctx, g: g * 5)
    x = leaf(lib, 1, 2)
    y = Same.apply(x)
    assert y is not x and y.data_ptr() == x.data_ptr()
    assert x.is_leaf and y.grad_fn.name() == "CustomBackward"
    y.sum().backward()
    assert x.grad.tolist() == [5, 5]
    mid = x * 1
    z = Same.apply(mid)
    with raises("is a view and is being modified inplace. This view was created inside a custom"):
        z.add_(1)
    assert z._base is mid
    mid.add_(1)
    with raises("its base or another view of its base has been modified inplace. This view was"):
        z.sum()


def test_a_view_returned_from_forward(lib: Any) -> None:
    Head = function(lib, lambda ctx, x: x[:1], lambda ctx, g: lib.cat([g * 5, g * 0]))
    x = leaf(lib, 1, 2)
    y = Head.apply(x * 1)
    y.sum().backward()
    assert x.grad.tolist() == [5, 0]


def test_an_output_that_is_not_a_tensor(lib: Any) -> None:
    Pair = function(lib, lambda ctx, x: (x * 2, "text", 3), lambda ctx, g, *rest: g * 2)
    x = leaf(lib, 1)
    y, text, n = Pair.apply(x)
    assert (text, n) == ("text", 3)
    y.sum().backward()
    assert x.grad.tolist() == [2]


def test_a_tuple_of_one_output(lib: Any) -> None:
    One = function(lib, lambda ctx, x: (x * 2,), lambda ctx, g: g * 2)
    x = leaf(lib, 1)
    (y,) = One.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [2]


def test_integer_inputs_take_no_part(lib: Any) -> None:
    Pick = function(lib, lambda ctx, x, i: x[i], lambda ctx, g: (g.expand(2) * 1, None))
    x = leaf(lib, 1, 2)
    Pick.apply(x, lib.tensor(1)).backward()
    assert x.grad.tolist() == [1, 1]


def test_functions_within_functions(lib: Any) -> None:
    Double = function(lib, lambda ctx, x: x * 2, lambda ctx, g: g * 2)
    Four = function(
        lib, lambda ctx, x: Double.apply(Double.apply(x)), lambda ctx, g: Double.apply(g) * 2
    )
    x = leaf(lib, 1)
    y = Four.apply(x)
    (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    assert y.tolist() == g.tolist() == [4]


def test_a_backward_that_runs_backward(lib: Any) -> None:
    """Re-entrance, as checkpointing needs it."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return (x**3).detach()

    def backward(ctx: Any, g: Any) -> Any:
        with lib.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            (x**3).backward(g)
        return x.grad

    Cube = function(lib, forward, backward)
    x = leaf(lib, 2)
    Cube.apply(Cube.apply(x) * 1).sum().backward()
    assert x.grad.tolist() == [9 * 2**8]


def test_changed_saved_tensors_are_noticed(lib: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        result = x * 2
        ctx.save_for_backward(x, result)
        return result

    Double = function(lib, forward, lambda ctx, g: g + 0 * sum(ctx.saved_tensors))
    x = leaf(lib, 1)
    for change in (lambda mid, out: mid.add_(1), lambda mid, out: out.detach().add_(1)):
        mid = x * 1
        out = Double.apply(mid)
        change(mid, out)
        with raises("modified by an inplace operation"):
            out.sum().backward()


def test_saved_tensors_go_through_hooks(lib: Any) -> None:
    packed: list[Any] = []

    def pack(t: Any) -> int:
        packed.append(t.detach().clone())
        return len(packed) - 1

    def forward(ctx: Any, x: Any) -> Any:
        result = x.exp()
        ctx.save_for_backward(x, result)
        return result

    Exp = function(lib, forward, lambda ctx, g: g * ctx.saved_tensors[1])
    x = leaf(lib, 0)
    with lib.autograd.graph.saved_tensors_hooks(pack, lambda i: packed[i]):
        y = Exp.apply(x)
    assert len(packed) == 2
    packed[1] *= 10
    y.sum().backward()
    assert x.grad.tolist() == [10]


def test_a_saved_output_makes_no_cycle() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        result = x.exp()
        ctx.save_for_backward(x, result)
        return result

    Exp = function(cugrad, forward, lambda ctx, g: g * ctx.saved_tensors[1])
    gc.collect()
    gc.disable()
    try:
        for run in (False, True):
            x = leaf(cugrad, 0)
            y = Exp.apply(x)
            refs = [weakref.ref(y), weakref.ref(y.grad_fn)]
            if run:
                y.sum().backward()
            del y
            assert [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()


def test_the_documented_example(lib: Any) -> None:
    class Exp(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, i: Any) -> Any:
            result = i.exp()
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            (result,) = ctx.saved_tensors
            return grad_output * result

    x = leaf(lib, 0.0)
    output = Exp.apply(x)
    output.backward(lib.ones(1, dtype=lib.float64))
    assert x.grad.tolist() == [1]


def test_many_outputs(lib: Any) -> None:
    Fan = function(lib, lambda ctx, x: tuple(x * k for k in range(5)),
                   lambda ctx, *g: sum(k * v for k, v in enumerate(g)))  # fmt: skip
    x = leaf(lib, 1)
    outputs = Fan.apply(x)
    sum(o * 10**i for i, o in enumerate(outputs)).sum().backward()
    assert x.grad.tolist() == [43210]
