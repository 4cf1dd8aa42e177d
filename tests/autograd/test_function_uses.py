"""Uses of custom Functions that PyTorch's own suite thinks of, as one body on both libraries."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import OrderedDict
from typing import Any

import pytest

from tests.autograd.test_function import leaf, raises

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


def same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and a.tolist() == b.tolist()


def test_function_with_intermediate_and_once(lib: Any) -> None:
    class MyFunction(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor1: Any, pyscalar: Any, tensor2: Any) -> Any:
            ctx.pyscalar = pyscalar
            ctx.save_for_backward(tensor1, tensor2)
            return tensor1 + pyscalar * tensor2 + tensor1 * tensor2

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            var1, var2 = ctx.saved_tensors
            assert isinstance(var1, lib.Tensor) and isinstance(grad_output, lib.Tensor)
            grad = grad_output * ctx.pyscalar + grad_output * var1
            return grad_output + grad_output * var2, None, grad

    x, y = leaf(lib, 1, 2), leaf(lib, 3, 4)
    result = MyFunction.apply(x, 2, y)
    go = lib.ones(2, dtype=lib.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a reference cycle
        result.sum().backward(go.sum() / 2, create_graph=True)
    assert same(x.grad, y + 1) and same(y.grad, x + 2)
    assert x.grad.grad_fn is not None
    assert "MyFunctionBackward" in result.grad_fn.name()


def test_inputs_returned(lib: Any) -> None:
    class MyFunction(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    for shape in [(1,), ()]:
        v = lib.ones(shape, requires_grad=True)
        MyFunction.apply(v).backward()
        assert same(v.grad, lib.full(shape, 2.0))
        with lib.no_grad():
            v.grad.zero_()
        MyFunction.apply(v.clone()).backward()
        assert same(v.grad, lib.full(shape, 2.0))


def test_undefined_gradients_are_passed_over(lib: Any) -> None:
    class MyFunction(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None

    x = lib.ones(1, requires_grad=True)
    MyFunction.apply(x).backward()
    assert x.grad is None
    MyFunction.apply(x**2).backward()
    assert x.grad is None
    MyFunction.apply(x).sum().backward()
    assert x.grad is None
    assert lib.autograd.grad(MyFunction.apply(x), x, allow_unused=True)[0] is None


@pytest.mark.parametrize("materialize", [True, False])
def test_materialized_or_not(lib: Any, materialize: bool) -> None:
    class MyFunction(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(materialize)
            return x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            assert grad is None if not materialize else same(grad, lib.zeros(1))
            return grad

    class Undefined(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None

    x = lib.ones(1, requires_grad=True)
    Undefined.apply(MyFunction.apply(x)).backward()
    assert (x.grad is None) is (not materialize)


def test_mixed_non_differentiable(lib: Any) -> None:
    class MyFunction(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: Any) -> Any:
            a = input + 1
            b = input + 2
            ctx.mark_non_differentiable(a)
            return a, b

        @staticmethod
        def backward(ctx: Any, grad_a: Any, grad_b: Any) -> Any:
            assert (grad_a == 0).all() and (grad_b == 1).all()
            return grad_b

    x = lib.ones(5, requires_grad=True)
    a, b = MyFunction.apply(x)
    assert not a.requires_grad and b.requires_grad
    b.sum().backward()
    assert same(x.grad, lib.ones(5))


def test_non_differentiable_none(lib: Any) -> None:
    """A leaf behind a gradient of None stays without one."""

    class MyFunction(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: Any) -> Any:
            return input.clone()

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            return None

    x = lib.ones(5, requires_grad=True)
    (MyFunction.apply(x * x) + x).sum().backward()
    assert same(x.grad, lib.ones(5))


def test_the_same_output_twice(lib: Any) -> None:
    class DoubleDuplicate(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            output = x * 2
            return output, output

        @staticmethod
        def backward(ctx: Any, grad1: Any, grad2: Any) -> Any:
            return grad1 * 2 + grad2 * 2

    x = leaf(lib, 1, 2)
    a, b = DoubleDuplicate.apply(x)
    assert same(a, b)
    (a.sum() + b.sum()).backward()
    assert x.grad.tolist() == [4, 4]
    assert lib.autograd.gradcheck(lambda x: DoubleDuplicate.apply(x)[0], (leaf(lib, 1, 2),))


def test_the_same_output_twice_in_place(lib: Any) -> None:
    class DoubleInplace(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x, x

        @staticmethod
        def backward(ctx: Any, grad1: Any, grad2: Any) -> Any:
            return grad1 * 2 + grad2 * 2

    def inplace_fn(x: Any) -> Any:
        a, b = DoubleInplace.apply(x.clone())
        assert a is b
        return a + b

    x = leaf(lib, 1, 2)
    inplace_fn(x).sum().backward()
    assert x.grad.tolist() == [4, 4]
    with raises("leaf Variable that requires grad"):
        DoubleInplace.apply(leaf(lib, 1, 2))
    with raises("a view of a leaf Variable that requires grad|input that is a view of another"):
        DoubleInplace.apply(leaf(lib, 1, 2)[0:1])


def test_a_leaf_returned_with_other_outputs(lib: Any) -> None:
    class Identity(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a, a + b

        @staticmethod
        def backward(ctx: Any, grad_a: Any, grad_b: Any) -> Any:
            return grad_a + grad_b, grad_b

    hook_called = [False]
    x, y = lib.ones(5, requires_grad=True), lib.ones(5, requires_grad=True)
    q, p = Identity.apply(x, y)

    def hook(grad: Any) -> None:
        hook_called[0] = True
        assert same(grad, lib.ones(5))

    q.register_hook(hook)
    (q + p).sum().backward()
    assert hook_called[0] and same(x.grad, lib.ones(5) * 2) and same(y.grad, lib.ones(5))


def test_a_dirty_buffer_that_needs_no_gradient(lib: Any) -> None:
    class Inplace(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.mark_dirty(a)
            return a.add_(b), b + 2

        @staticmethod
        def backward(ctx: Any, grad_a: Any, grad_b: Any) -> Any:
            return grad_a, grad_a + grad_b

    x = lib.ones(5)
    y = lib.ones(5, requires_grad=True)
    fn_x, fn_y = Inplace.apply(x, y)
    assert fn_x is x and x.requires_grad and not x.is_leaf and x._version >= 1
    (fn_x + fn_y).sum().backward()
    assert same(y.grad, lib.ones(5) * 2)


def test_none_saved(lib: Any) -> None:
    calls = []

    class MyFn(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: Any) -> Any:
            ctx.save_for_backward(None, input, None)
            return input * input

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            n1, input, n2 = ctx.saved_tensors
            calls.append((n1, n2))
            return 2 * input * grad_output

    x = leaf(lib, 3)
    MyFn.apply(x).sum().backward()
    assert x.grad.tolist() == [6] and calls == [(None, None)]


def test_saved_outputs_remember_their_number(lib: Any) -> None:
    class MultiOutputFn(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x[:1], x[1:]

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return lib.cat([a, b])

    class TestFn(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            b, c = MultiOutputFn.apply(x)
            ctx.save_for_backward(b, c)
            return b + c.sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            assert [t.output_nr for t in ctx.saved_tensors] in ([0, 0], [0, 1])
            return lib.ones(3, dtype=grad.dtype)

    x = leaf(lib, 1, 2, 3)
    b, c = MultiOutputFn.apply(x * 1)
    assert (b.output_nr, c.output_nr) == (0, 1)
    TestFn.apply(x * 1).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_double_backward_by_hand(lib: Any) -> None:
    class Mul(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            return MulBackward.apply(x, y, g)

    class MulBackward(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, g: Any) -> Any:
            ctx.save_for_backward(x, y, g)
            return g * y, g * x

        @staticmethod
        def backward(ctx: Any, gx: Any, gy: Any) -> Any:
            x, y, g = ctx.saved_tensors
            return gy * g, gx * g, gx * y + gy * x

    x, y = leaf(lib, 1.5, 2), leaf(lib, 3, -4)
    assert lib.autograd.gradcheck(Mul.apply, (x, y))
    assert lib.autograd.gradgradcheck(Mul.apply, (x, y))


def test_reentrant_twice(lib: Any) -> None:
    class Reenter(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with lib.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.output_var = ctx.x * ctx.x * 3
            return ctx.output_var.detach()

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            with lib.enable_grad():
                ctx.output_var.sum().backward()
            return ctx.x.grad * grad_output

    x = leaf(lib, 2)
    Reenter.apply(Reenter.apply(x)).sum().backward()
    assert x.grad.tolist() == [864]  # 6 * 12 * 6 * 2


def test_nothing_is_freed_early(lib: Any) -> None:
    """Gradients of gradients through Functions that read ctx again and again."""

    class Double(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x**2
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            x, _ = ctx.saved_tensors
            return grad_output * 2 * x

    class Double2(Double):
        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            return DoubleBackward.apply(*ctx.saved_tensors, grad_output)

    class DoubleBackward(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, g: Any) -> Any:
            ctx.save_for_backward(x, g)
            return g * 2 * x

        @staticmethod
        def backward(ctx: Any, gg: Any) -> Any:
            x, g = ctx.saved_tensors
            return gg * 2 * g, None, gg * 2 * x

    for kind in (Double, Double2):
        x = leaf(lib, 2)
        (g,) = lib.autograd.grad(kind.apply(x).sum(), x, create_graph=True)
        (gg,) = lib.autograd.grad(g.sum(), x, create_graph=True)
        assert g.tolist() == [4] and gg.tolist() == [2]


def test_named_tuples_and_ordered_dicts_as_arguments(lib: Any) -> None:
    """Tensors within containers are no inputs."""

    class Sum(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, others: Any) -> Any:
            return x + sum(others.values())

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            assert ctx.needs_input_grad == (True, False)
            return g, None

    x, w = leaf(lib, 1), leaf(lib, 2)
    y = Sum.apply(x, OrderedDict(w=w))
    assert len(y.grad_fn.next_functions) == 1
    y.sum().backward()
    assert x.grad.tolist() == [1] and w.grad is None


def test_exceptions_leave_the_function_usable(lib: Any) -> None:
    fail = [True]

    class Fails(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            if fail[0]:
                raise ZeroDivisionError("forward")
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            if fail[0]:
                raise KeyError("backward")
            return g * 2

    x = leaf(lib, 1)
    with pytest.raises(ZeroDivisionError):
        Fails.apply(x)
    assert lib.is_grad_enabled()
    fail[0] = False
    y = Fails.apply(x)
    fail[0] = True
    with pytest.raises(KeyError):
        y.sum().backward(retain_graph=True)
    fail[0] = False
    y.sum().backward()
    assert x.grad.tolist() == [2]


def test_setup_context_with_several_outputs(lib: Any) -> None:
    class DuplicateCube(lib.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3, x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, outputs: Any) -> None:
            (x,) = inputs
            cube, double = outputs
            ctx.mark_non_differentiable(double)
            ctx.save_for_backward(x, cube)

        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            x, cube = ctx.saved_tensors
            assert same(cube, x**3)
            return g * 3 * x**2

    x = leaf(lib, 2)
    a, b = DuplicateCube.apply(x)
    assert a.requires_grad and not b.requires_grad
    a.sum().backward()
    assert x.grad.tolist() == [12]


def test_inputs_freed_with_the_graph(lib: Any) -> None:
    class Keep(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = leaf(lib, 1)
    middle = x * 3
    dead = weakref.ref(middle)
    y = Keep.apply(middle)
    del middle
    y.sum().backward()
    gc.collect()
    assert dead() is None


def test_a_view_through_a_function_in_no_grad(lib: Any) -> None:
    class Alias(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x[:]

        @staticmethod
        def backward(ctx: Any, gx: Any) -> Any:
            return gx

    inp = lib.ones(2, requires_grad=True)
    with lib.no_grad():
        Alias.apply(inp).zero_()
    assert inp.tolist() == [0, 0]
    grown = Alias.apply(inp * 1)
    with raises("This view was created inside a custom Function"):
        grown.add_(1)
    first = Alias.apply(inp)
    with raises("leaf Variable|created inside a custom Function"):
        first.zero_()


def test_views_of_integers_and_tensors_made_inside(lib: Any) -> None:
    class Pair(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            made = lib.zeros(2, 2)
            return made[0], x.argmax(), x * 1

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any) -> Any:
            assert a.shape == (2,) and b.shape == () and b.dtype == lib.int64
            return c

    x = leaf(lib, 1, 3)
    row, index, y = Pair.apply(x)
    assert row.requires_grad and not index.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_gradients_of_another_dtype_and_broadcast(lib: Any) -> None:
    class Odd(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.to(lib.float32).expand(3, 2)

    x = leaf(lib, 1, 2)
    Odd.apply(x).sum().backward()
    assert x.grad.dtype == lib.float64 and x.grad.tolist() == [3, 3]


def test_calls_of_apply_by_an_alias_and_in_classes(lib: Any) -> None:
    class Base(lib.autograd.Function):
        scale = 2

        @classmethod
        def forward(cls, ctx: Any, x: Any) -> Any:
            return x * cls.scale

        @classmethod
        def backward(cls, ctx: Any, g: Any) -> Any:
            return g * cls.scale

    class Triple(Base):
        scale = 3

    alias = Triple.apply
    x = leaf(lib, 1)
    y = alias(x)
    assert type(y.grad_fn).__name__ == "TripleBackward"
    y.sum().backward()
    assert y.tolist() == [3] and x.grad.tolist() == [3]


def test_an_input_that_is_handed_on_keeps_its_class(lib: Any) -> None:
    class Kept(lib.Tensor):
        pass

    class Passed(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x, y * 2

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 3, h * 2

    x, y = leaf(lib, 1), leaf(lib, 2)
    kept = x.as_subclass(Kept)
    assert [type(out) for out in Passed.apply(kept, y)] == [Kept, lib.Tensor]
    assert [type(out) for out in Passed.apply(y, kept)] == [lib.Tensor, Kept]
    assert type(Passed.apply(lib.nn.Parameter(y.detach()), y)[0]) is lib.Tensor
    sum(out.sum() for out in Passed.apply(kept, kept)).backward()
    assert x.grad.tolist() == [5]
