"""backward() and grad(): every parameter, what they leave in .grad, and their errors."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import cugrad


def leaf(lib: Any, *values: float, dtype: Any = None) -> Any:
    return lib.tensor(list(values), dtype=dtype or lib.float64, requires_grad=True)


def raises(error: type[BaseException], text: str) -> Any:
    return pytest.raises(error, match=text)


# backward -----------------------------------------------------------------------------------------


def test_backward_fills_the_leaves(lib: Any) -> None:
    x, w, c = leaf(lib, 1, 2), leaf(lib, 3, 4), lib.tensor([5.0, 6.0], dtype=lib.float64)
    (x * w + c).sum().backward()
    assert x.grad.tolist() == [3, 4]
    assert w.grad.tolist() == [1, 2]
    assert c.grad is None
    assert x.grad.requires_grad is False


def test_gradient_weighs_the_outputs(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    (x * x).backward(lib.tensor([1.0, 10.0], dtype=lib.float64))
    assert x.grad.tolist() == [2, 40]


def test_gradient_in_another_dtype_is_cast(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    (x * x).backward(gradient=lib.ones(2, dtype=lib.float32))
    assert x.grad.dtype is lib.float64
    x.grad = None
    x.backward(gradient=lib.ones(2, dtype=lib.float32))
    assert x.grad.dtype is lib.float64


def test_gradients_add_up_over_calls(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    for times in (1, 2, 3):
        (x * 3).sum().backward()
        assert x.grad.tolist() == [3 * times] * 2


def test_several_roots(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    y = x * 2
    lib.autograd.backward([y.sum(), x * x], [None, lib.ones(2, dtype=lib.float64)])
    assert x.grad.tolist() == [4, 6]


def test_a_root_given_twice_counts_twice(lib: Any) -> None:
    x = leaf(lib, 2)
    y = (x * x).sum()
    lib.autograd.backward([y, y])
    assert x.grad.tolist() == [8]


def test_a_root_that_leads_to_another(lib: Any) -> None:
    x = leaf(lib, 2)
    y = x * x
    z = y * y
    lib.autograd.backward([y.sum(), z.sum()])
    assert x.grad.tolist() == [4 + 4 * 8]


def test_a_leaf_is_its_own_root(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    x.backward()
    assert x.grad.tolist() == 1
    x.backward(lib.tensor(3.0))
    assert x.grad.tolist() == 4


def test_retain_graph(lib: Any) -> None:
    x = leaf(lib, 2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8]
    with raises(RuntimeError, "backward through the graph a second time"):
        y.backward()
    assert x.grad.tolist() == [8]


def test_a_graph_that_saved_nothing_runs_again(lib: Any) -> None:
    x = leaf(lib, 2)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2]


def test_create_graph_keeps_the_graph(lib: Any) -> None:
    x = leaf(lib, 2)
    y = (x**3).sum()
    (g,) = lib.autograd.grad(y, x, create_graph=True)
    assert g.tolist() == [12] and g.requires_grad
    (h,) = lib.autograd.grad(g.sum(), x, create_graph=True)
    assert h.tolist() == [12]
    (k,) = lib.autograd.grad(h.sum(), x)
    assert k.tolist() == [6] and not k.requires_grad
    assert lib.autograd.grad(y, x)[0].tolist() == [12]


def test_create_graph_without_retaining(lib: Any) -> None:
    x = leaf(lib, 2)
    y = (x**3).sum()
    (g,) = lib.autograd.grad(y, x, create_graph=True, retain_graph=False)
    with raises(RuntimeError, "second time"):
        lib.autograd.grad(y, x)
    assert g.tolist() == [12]


@pytest.mark.filterwarnings("ignore:Using backward")
def test_backward_with_create_graph_leaves_a_differentiable_grad(lib: Any) -> None:
    x = leaf(lib, 2)
    (x**3).sum().backward(create_graph=True)
    g, x.grad = x.grad, None
    assert g.tolist() == [12] and g.requires_grad
    g.sum().backward()
    assert x.grad.tolist() == [12]


def test_inputs_restrict_backward(lib: Any) -> None:
    x, w = leaf(lib, 1), leaf(lib, 3)
    (x * w).sum().backward(inputs=[x])
    assert x.grad.tolist() == [3]
    assert w.grad is None
    (x * w).sum().backward(inputs=w)
    assert x.grad.tolist() == [3] and w.grad.tolist() == [1]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_inputs_may_be_inside_the_graph(lib: Any) -> None:
    x = leaf(lib, 2)
    y = x * x
    z = (y * y).sum()
    z.backward(inputs=[y], retain_graph=True)
    assert y.grad.tolist() == [8]
    assert x.grad is None
    z.backward(inputs=[y, x])
    assert y.grad.tolist() == [16]
    assert x.grad.tolist() == [32]


def test_inputs_that_took_no_part_are_left_alone(lib: Any) -> None:
    x, other = leaf(lib, 2), leaf(lib, 3)
    (x * x).sum().backward(inputs=[x, other])
    assert x.grad.tolist() == [4]
    assert other.grad is None


def test_an_input_given_twice_is_filled_once(lib: Any) -> None:
    x = leaf(lib, 2)
    (x * x).sum().backward(inputs=[x, x])
    assert x.grad.tolist() == [4]


def test_backward_under_no_grad(lib: Any) -> None:
    x = leaf(lib, 2)
    y = (x * x).sum()
    with lib.no_grad():
        y.backward()
    assert x.grad.tolist() == [4]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda t, x: (x * x).backward(),
         RuntimeError, "grad can be implicitly created only for scalar outputs"),
        (lambda t, x: t.ones(()).backward(),
         RuntimeError, "element 0 of tensors does not require grad and does not have a grad_fn"),
        (lambda t, x: t.autograd.backward([x.sum(), t.ones(())]),
         RuntimeError, "element 1 of tensors does not require grad"),
        (lambda t, x: (x * x).backward(t.ones(3)),
         RuntimeError, r"Mismatch in shape: grad_output\[0\] has a shape of torch.Size\(\[3\]\) "
                       r"and output\[0\] has a shape of torch.Size\(\[2\]\)"),
        (lambda t, x: (x * x).backward(t.ones(())), RuntimeError, "Mismatch in shape"),
        (lambda t, x: (x * x).backward(1.0), TypeError, "either Tensors or None|not iterable"),
        (lambda t, x: (x * (1 + 2j)).sum().backward(),
         RuntimeError, "grad can be implicitly created only for real scalar outputs but got "
                       "torch.complex128"),
        (lambda t, x: (x * (1 + 2j)).backward(t.ones(2)),
         RuntimeError, "For complex Tensors, both grad_output and output are required to have the "
                       "same dtype"),
        (lambda t, x: x.sum().backward(inputs=[]),
         RuntimeError, "argument to `?backward\\(\\)`? cannot be empty"),
        (lambda t, x: x.sum().backward(inputs=[t.ones(2)]),
         RuntimeError, "does not require grad|has requires_grad=False"),
        (lambda t, x: t.autograd.grad(x.sum(), t.ones(2)),
         RuntimeError, "One of the differentiated Tensors does not require grad"),
        (lambda t, x: t.autograd.grad(x.sum(), [x, t.ones(2, requires_grad=True)]),
         RuntimeError, "The differentiated Tensor at index 1 appears to not have been used in "
                       "the graph. Set allow_unused=True"),
        (lambda t, x: t.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True),
         ValueError, "Expected allow_unused to be True or not passed when materialize_grads=True"),
        (lambda t, x: t.autograd.grad(x * x, x, t.ones(2, 2), is_grads_batched=False),
         RuntimeError, "Mismatch in shape"),
        (lambda t, x: t.autograd.backward([x.sum(), x.sum()], [None]),
         RuntimeError, "got 2 tensors and 1 gradients"),
        (lambda t, x: (x * 2).backward(np.ones(2)),
         TypeError, "gradients can be either Tensors or None, but got"),
        (lambda t, x: t.autograd.backward(x.sum(), t.ones(()), grad_variables=t.ones(())),
         (RuntimeError, FutureWarning), "`grad_tensors`"),
        (lambda t, x: t.autograd.grad(x.sum(), x, only_inputs=False),
         (RuntimeError, FutureWarning), "only_inputs"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_errors(lib: Any, call: Any, error: Any, text: str) -> None:
    x = leaf(lib, 1, 2)
    with raises(error, text):
        call(lib, x)
    assert x.grad is None
    (x * x).sum().backward()  # and nothing is left behind
    assert x.grad.tolist() == [2, 4]


# grad ---------------------------------------------------------------------------------------------


def test_grad_returns_and_leaves_grad_alone(lib: Any) -> None:
    x, w = leaf(lib, 2), leaf(lib, 3)
    y = x * x
    z = (y * w).sum()
    gx, gy, gw = lib.autograd.grad(z, [x, y, w])
    assert (gx.tolist(), gy.tolist(), gw.tolist()) == ([12], [3], [4])
    assert x.grad is None and w.grad is None


def test_grad_of_the_output_itself(lib: Any) -> None:
    x = leaf(lib, 2)
    y = (x * x).sum()
    assert lib.autograd.grad(y, y)[0].tolist() == 1
    assert lib.autograd.grad(x, x, lib.ones(1, dtype=lib.float64))[0].tolist() == [1]


def test_grad_inputs_twice(lib: Any) -> None:
    x = leaf(lib, 2)
    a, b = lib.autograd.grad((x * x).sum(), [x, x])
    assert a.tolist() == b.tolist() == [4]


def test_grad_leaves_out_what_leads_nowhere(lib: Any) -> None:
    """The part of the graph that leads to no input is not run, hence not freed either."""
    x, w = leaf(lib, 2), leaf(lib, 3)
    side = (w * w).sum()
    z = (x * x).sum() + side
    assert lib.autograd.grad(z, x)[0].tolist() == [4]
    assert lib.autograd.grad(side, w)[0].tolist() == [6]


def test_grad_stops_at_an_input_inside(lib: Any) -> None:
    x = leaf(lib, 2)
    y = x * x
    z = (y * y).sum()
    assert lib.autograd.grad(z, y)[0].tolist() == [8]
    assert lib.autograd.grad(y, x)[0].tolist() == [4]  # its part was not freed


def test_allow_unused_and_materialize(lib: Any) -> None:
    x, other = leaf(lib, 2), leaf(lib, 3, 4)
    z = (x * x).sum()
    a, b = lib.autograd.grad(z, [x, other], allow_unused=True, retain_graph=True)
    assert a.tolist() == [4] and b is None
    a, b = lib.autograd.grad(z, [x, other], materialize_grads=True)
    assert b.tolist() == [0, 0] and b.dtype is lib.float64


def test_batched_gradients(lib: Any) -> None:
    x = leaf(lib, 1, 2, 3)
    y = x * x
    (rows,) = lib.autograd.grad(y, x, lib.eye(3, dtype=lib.float64), is_grads_batched=True)
    assert rows.tolist() == [[2, 0, 0], [0, 4, 0], [0, 0, 6]]


def test_batched_gradients_of_unused_inputs(lib: Any) -> None:
    x, other = leaf(lib, 1, 2), leaf(lib, 1)
    rows, none = lib.autograd.grad(
        x * x, [x, other], lib.eye(2, dtype=lib.float64), is_grads_batched=True, allow_unused=True
    )
    assert rows.tolist() == [[2, 0], [0, 4]] and none is None


def test_batched_gradients_can_be_differentiated(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    (rows,) = lib.autograd.grad(
        x**3, x, lib.eye(2, dtype=lib.float64), is_grads_batched=True, create_graph=True
    )
    assert lib.autograd.grad(rows.sum(), x)[0].tolist() == [6, 12]


def test_gradient_edges(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    y = x * x
    edge, of_leaf = map(lib.autograd.graph.get_gradient_edge, (y, x))
    assert edge.node is y.grad_fn and edge.output_nr == 0
    assert of_leaf.node.variable is x
    z = (y * y).sum()
    del y
    gy, gx = lib.autograd.grad(z, [edge, of_leaf], retain_graph=True)
    assert gy.tolist() == [2, 8] and gx.tolist() == [4, 32]
    z.backward(inputs=[of_leaf])
    assert x.grad.tolist() == [4, 32]


def test_gradient_edges_of_a_function_with_several_outputs(lib: Any) -> None:
    class Twin(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1, x * 2

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return a + 2 * b

    x = leaf(lib, 1, 2)
    outputs = Twin.apply(x)
    edges = [lib.autograd.graph.get_gradient_edge(t) for t in outputs]
    assert [e.output_nr for e in edges] == [0, 1]
    assert [t.output_nr for t in outputs] == [0, 1]
    z = (outputs[0] * 3 + outputs[1] * 4).sum()
    gradients = lib.autograd.grad(z, [*edges, x])
    assert [g.tolist() for g in gradients] == [[3, 3], [4, 4], [11, 11]]


def test_a_gradient_edge_as_root(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    y = x * x
    edge = lib.autograd.graph.get_gradient_edge(y)
    lib.autograd.backward([edge], [lib.ones(2, dtype=lib.float64)])
    assert x.grad.tolist() == [2, 4]


def test_no_gradient_edge_without_requires_grad(lib: Any) -> None:
    with raises(RuntimeError, "not possible to get the gradient edge"):
        lib.autograd.graph.get_gradient_edge(lib.ones(2))


# What .grad holds ---------------------------------------------------------------------------------


def memory(t: Any) -> int:
    return t.data_ptr()


def test_grad_never_aliases_the_callers_gradient(lib: Any) -> None:
    x, g = leaf(lib, 1, 2), lib.ones(2, dtype=lib.float64)
    x.backward(g)
    x.grad.mul_(5)
    assert g.tolist() == [1, 1]
    y = leaf(lib, 1, 2)
    (y + 0).backward(g)  # a gradient that passes through unchanged
    (y + 0).backward(g)
    assert g.tolist() == [1, 1]
    assert y.grad.tolist() == [2, 2]


def test_two_leaves_do_not_share_a_grad(lib: Any) -> None:
    x, y = leaf(lib, 1, 2), leaf(lib, 3, 4)
    (x + y).backward(lib.ones(2, dtype=lib.float64))
    assert memory(x.grad) != memory(y.grad)
    x.grad.mul_(5)
    assert y.grad.tolist() == [1, 1]


def test_grad_does_not_alias_saved_arrays(lib: Any) -> None:
    x, w = leaf(lib, 1, 2), leaf(lib, 3, 4)
    y = (x * w).sum()  # the gradient of x is w, up to a product with ones
    y.backward(retain_graph=True)
    x.grad.mul_(0)
    w.grad.mul_(0)
    y.backward()
    assert x.grad.tolist() == [3, 4] and w.grad.tolist() == [1, 2]
    assert x.tolist() == [1, 2] and w.tolist() == [3, 4]


def test_fan_out_of_a_gradient_that_passes_through(lib: Any) -> None:
    x, g = leaf(lib, 1, 2), lib.ones(2, dtype=lib.float64)
    y = x * 1
    z = y.view(2) + y.view(2) + y.reshape(1, 2).reshape(2)
    z.backward(g)
    assert x.grad.tolist() == [3, 3]
    assert g.tolist() == [1, 1]


def test_grads_of_grad_are_independent(lib: Any) -> None:
    x, y = leaf(lib, 1, 2), leaf(lib, 3, 4)
    g = lib.ones(2, dtype=lib.float64)
    z = x + y
    lib.autograd.grad(z, [x, y], g)
    assert g.tolist() == [1, 1]


def test_a_gradient_that_nobody_else_sees_becomes_grad(lib: Any) -> None:
    """It is borrowed, not copied; one that is kept is copied."""
    for keep in (False, True):
        places: list[int] = []
        kept: list[Any] = []

        class Double(lib.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                result = g * 2
                places.append(result.data_ptr())  # noqa: B023
                kept.extend([result] * keep)  # noqa: B023
                return result

        x = leaf(lib, 1, 2)
        Double.apply(x).sum().backward()
        assert (x.grad.data_ptr() == places[0]) == (not keep)
        x.grad.mul_(0)
        assert not keep or kept[0].tolist() == [2, 2]


def test_accumulation_is_in_place(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    (x * 2).sum().backward()
    first, place = x.grad, memory(x.grad)
    (x * 3).sum().backward()
    assert x.grad is first and memory(first) == place
    assert first.tolist() == [5, 5]
    assert first._version >= 1


@pytest.mark.filterwarnings("ignore:Using backward")
def test_accumulation_under_create_graph_is_not_in_place(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    (x * 2).sum().backward()
    first = x.grad
    (x * x).sum().backward(create_graph=True)
    assert x.grad is not first
    assert first.tolist() == [2, 2] and x.grad.tolist() == [4, 6]
    x.grad = None


def test_a_grad_that_the_user_set_is_added_to(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    own = x.grad = lib.ones(2, dtype=lib.float64)
    (x * 2).sum().backward()
    assert x.grad is own and own.tolist() == [3, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.zeros(2, 3),
        lambda t: t.zeros(3, 2).t(),
        lambda t: t.zeros(4, 2, 3).permute(1, 2, 0),
        lambda t: t.zeros(2, 1, 3),
        lambda t: t.zeros(()),
        lambda t: t.zeros(0, 3),
    ],
)
def test_grad_has_the_strides_of_a_dense_leaf(lib: Any, make: Any) -> None:
    x = make(lib).detach().requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.stride() == x.stride()
    x.grad = None
    (x.transpose(0, -1) * 2 if x.ndim else x * 2).sum().backward()
    assert x.grad.stride() == x.stride()


def test_grad_of_a_leaf_with_gaps_is_row_major(lib: Any) -> None:
    for x in (lib.zeros(4, 6)[:, ::2], lib.zeros(3, 1).expand(3, 4)):
        x = x.detach().requires_grad_()
        (x * 2).sum().backward()
        assert x.grad.is_contiguous() and x.grad.tolist() == (lib.ones(x.shape) * 2).tolist()


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
def test_accumulation_keeps_the_strides_of_grad(lib: Any) -> None:
    x = lib.zeros(2, 3).requires_grad_()
    x.grad = lib.zeros(3, 2).t()
    (x * 2).sum().backward()
    assert x.grad.stride() == (1, 2)
    assert x.grad.tolist() == [[2, 2, 2]] * 2


def test_an_expanded_gradient_is_written_out(lib: Any) -> None:
    x = leaf(lib, 1, 2, 3)
    x.sum().backward()  # the gradient of sum is an expanded scalar
    x.grad.add_(lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64))
    assert x.grad.tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    "value, error, text",
    [
        (lambda t, x: t.ones(2, dtype=t.float32), RuntimeError, "assign a gradient with dtype"),
        (lambda t, x: t.ones(3, dtype=t.float64), RuntimeError, "assign a gradient of size '.3.'"),
        (lambda t, x: [1.0, 1.0], TypeError, "assigned grad expected to be a Tensor or None"),
        (lambda t, x: x, RuntimeError, "own grad"),
    ],
)
def test_grad_refuses_what_does_not_fit(lib: Any, value: Any, error: Any, text: str) -> None:
    x = leaf(lib, 1, 2)
    with raises(error, text):
        x.grad = value(lib, x)
    assert x.grad is None


def test_grad_can_be_deleted(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    x.sum().backward()
    del x.grad
    assert x.grad is None


# requires_grad and leaves -------------------------------------------------------------------------


def test_leaves(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    assert x.is_leaf and not y.is_leaf and lib.ones(2).is_leaf
    assert y.detach().is_leaf and y.requires_grad and not y.detach().requires_grad
    with lib.no_grad():
        assert (x * 2).is_leaf
    assert x.grad_fn is None and y.grad_fn is not None


def test_requires_grad_of_a_non_leaf_stays(lib: Any) -> None:
    y = lib.ones(2, requires_grad=True) * 2
    with raises(RuntimeError, "you can only change requires_grad flags of leaf variables"):
        y.requires_grad = False
    with raises(RuntimeError, "you can only change requires_grad flags of leaf variables"):
        y.requires_grad_(False)
    assert y.requires_grad_() is y and y.requires_grad


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_integers_have_no_gradient(lib: Any, dtype: str) -> None:
    x = lib.ones(2).to(getattr(lib, dtype))
    with raises(RuntimeError, "(?i)only Tensors of floating point"):
        x.requires_grad_()
    with raises(RuntimeError, "(?i)only Tensors of floating point"):
        lib.ones(2, dtype=getattr(lib, dtype), requires_grad=True)


def test_a_comparison_has_no_history(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    assert not (x > 1).requires_grad
    assert not x.argmax().requires_grad
    assert not x.to(lib.int64).requires_grad


# Values -------------------------------------------------------------------------------------------


def test_diamonds_and_fan_out(lib: Any) -> None:
    x = leaf(lib, 1.1)
    y = x
    for _ in range(10):
        y = y * 0.5 + y * 0.5
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([1])
    z = sum((x * k for k in range(20)), start=x)
    x.grad = None
    z.sum().backward()
    assert x.grad.tolist() == pytest.approx([191])


def test_a_deep_chain(lib: Any) -> None:
    x = leaf(lib, 1)
    y = x
    for _ in range(10_000):  # tests/autograd/test_deep_graph.py has longer ones
        y = y * 1.0
    y.sum().backward()
    assert x.grad.tolist() == [1]


def test_outputs_that_are_not_used(lib: Any) -> None:
    x = leaf(lib, 1, 2, 3)
    a, _, c = x.unbind()
    (a * 2 + c * 5).backward()
    assert x.grad.tolist() == [2, 0, 5]
    x.grad = None
    (head, _) = x.split([1, 2])
    head.sum().backward()
    assert x.grad.tolist() == [1, 0, 0]


def test_the_same_output_used_twice(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    a, b = x.unbind()
    (a * a + a * b + b).backward()
    assert x.grad.tolist() == [4, 2]


def test_values_and_indices(lib: Any) -> None:
    x = lib.tensor([[1.0, 3.0], [4.0, 2.0]], requires_grad=True)
    values, indices = x.max(dim=1)
    assert indices.tolist() == [1, 0] and not indices.requires_grad
    values.sum().backward()
    assert x.grad.tolist() == [[0, 1], [1, 0]]
    assert values.grad_fn.name() == "MaxBackward0"


def test_gradients_have_the_dtype_and_shape_of_their_inputs(lib: Any) -> None:
    x = lib.ones(3, 1, dtype=lib.float16, requires_grad=True)
    w = lib.ones(4, dtype=lib.float64, requires_grad=True)
    y = x * w
    assert y.dtype is lib.float64 and tuple(y.shape) == (3, 4)
    y.sum().backward()
    assert x.grad.dtype is lib.float16 and x.grad.tolist() == [[4]] * 3
    assert w.grad.dtype is lib.float64 and w.grad.tolist() == [3] * 4


def test_gradient_of_a_0d_operand(lib: Any) -> None:
    x, w = lib.tensor(2.0, requires_grad=True), lib.ones(3, dtype=lib.float64, requires_grad=True)
    y = x * w
    assert y.dtype is lib.float64
    y.sum().backward()
    assert x.grad.dtype is lib.float32 and x.grad.tolist() == 3


def test_empty_tensors(lib: Any) -> None:
    x = lib.zeros(0, 3, requires_grad=True)
    ((x * 2).sum() + (x @ lib.ones(3, 2)).sum()).backward()
    assert tuple(x.grad.shape) == (0, 3)
    y = lib.ones(3, requires_grad=True)
    (x + y).sum().backward()
    assert y.grad.tolist() == [0, 0, 0]


COMPLEX = {
    "square": lambda t, z: (z * z).real.sum(),
    "imag": lambda t, z: z.imag.sum(),
    "abs": lambda t, z: z.abs().sum(),
    "conj": lambda t, z: (z.conj() * z).real.sum() + (z.conj() * 3).imag.sum(),
    "mixed": lambda t, z: (z * t.tensor([1.0, 2.0], dtype=t.float64)).exp().real.sum(),
    "weighted": lambda t, z: (z * (2 - 3j)).sin().imag.sum(),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients_are_conjugate_wirtinger(lib: Any, name: str) -> None:
    """z.grad = dL/dRe z + i dL/dIm z, so that descent goes along -grad."""
    values = [0.5 + 1.5j, -1.0 + 0.25j]

    def loss(points: list[complex]) -> Any:
        z = lib.tensor(points, dtype=lib.complex128, requires_grad=True)
        return z, COMPLEX[name](lib, z)

    z, value = loss(values)
    value.backward()
    eps = 1e-6
    for k in range(2):
        slope = 0
        for step in (1, 1j):
            up, down = ([v + s * step * eps * (i == k) for i, v in enumerate(values)]
                        for s in (1, -1))  # fmt: skip
            slope += step * (loss(up)[1].item() - loss(down)[1].item()) / (2 * eps)
        assert z.grad.tolist()[k] == pytest.approx(slope, abs=1e-6)


def test_a_real_leaf_of_a_complex_result_has_a_real_gradient(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    (x * (2 + 3j)).backward(lib.tensor([1 + 1j, 1 - 1j], dtype=lib.complex128))
    assert x.grad.dtype is lib.float64
    assert x.grad.tolist() == [5, -1]


# Memory -------------------------------------------------------------------------------------------


@pytest.fixture
def no_gc() -> Any:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


GRAPHS = {
    "mul": lambda x: (x * x).sum(),
    "result": lambda x: x.exp().tanh().sum(),
    "view": lambda x: (x * 2)[0:1].view(1).sum(),
    "unbind": lambda x: x.unbind()[0] * x.unbind()[1],
    "max": lambda x: x.max(dim=0)[0],
    "inplace": lambda x: (x * 2).mul_(3).exp_().sum(),
    "setitem": lambda x: assigned(x).sum(),
    "hooked": lambda x: hooked(x).sum(),
}


def assigned(x: Any) -> Any:
    y = x * 2
    y[0] = y[1] * 3
    return y


def hooked(x: Any) -> Any:
    y = x.exp()
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    return y


@pytest.mark.parametrize("name", GRAPHS)
def test_no_cycles(name: str, no_gc: None) -> None:
    """A graph dies with its last tensor, whether or not backward ran."""
    x = cugrad.tensor([0.1, 0.2], requires_grad=True)
    y = GRAPHS[name](x)
    refs = [weakref.ref(y), weakref.ref(y.grad_fn)]
    refs += [weakref.ref(node) for node, _ in y.grad_fn.next_functions if node is not None]
    del y
    assert [ref() for ref in refs] == [None] * len(refs)
    y = GRAPHS[name](x)
    y.backward()
    refs = [weakref.ref(y), weakref.ref(y.grad_fn)]
    del y
    assert [ref() for ref in refs] == [None, None]
    ref = weakref.ref(x)
    del x
    assert ref() is None


def test_backward_frees_what_was_saved(no_gc: None) -> None:
    x = cugrad.ones(3, requires_grad=True)
    inner = x * 2
    y = (inner * inner).sum()
    ref = weakref.ref(inner)
    del inner
    assert ref() is not None
    y.backward()
    assert ref() is None


def test_saved_tensors_are_freed_node_by_node(no_gc: None) -> None:
    """While backward is at the bottom, what the top saved is gone already."""
    x = cugrad.ones(3, requires_grad=True)
    low = x * x
    high = low * 3
    y = (high * high).sum()
    ref, seen = weakref.ref(high), []
    del high
    x.register_hook(lambda g: seen.append(ref()))
    y.backward()
    assert seen == [None]


def test_an_error_in_backward_leaves_grad_as_it_was(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    y = x * 2
    z = y * y
    with lib.no_grad():
        y.add_(1)
    with raises(RuntimeError, "modified by an inplace operation"):
        z.sum().backward()
    assert x.grad is None and lib.is_grad_enabled()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_numpy_scalars_as_operands(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    y = x * np.float64(2.5)
    assert y.dtype is lib.float32
    y.sum().backward()
    assert x.grad.tolist() == [2.5, 2.5] and x.grad.dtype is lib.float32


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("use_twice", [False, True])
def test_what_is_whole_is_added_before_a_pass_within(
    lib: Any, hooked: bool, use_twice: bool
) -> None:
    """A sum's bits depend on its order: PyTorch's, whether a leaf has hooks or not."""
    much = 2.0**53
    x = leaf(lib, 1)
    if hooked:
        x.register_post_accumulate_grad_hook(lambda t: None)
    x.backward(x.detach())
    within = lib.utils.checkpoint.checkpoint(
        lambda start: x * -much, leaf(lib, 0), use_reentrant=True
    )
    late = x + 0 if use_twice else None
    (within + x * much + (0 if late is None else late)).sum().backward()
    assert x.grad.tolist() == [(1 + (much + use_twice)) - much]
