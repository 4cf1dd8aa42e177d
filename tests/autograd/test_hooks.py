"""Hooks on tensors, leaves and nodes: when they run, in which order, and what they may change."""

from __future__ import annotations

from typing import Any

import pytest

import cugrad


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=True)


def raises(text: str, error: Any = RuntimeError) -> Any:
    return pytest.raises(error, match=text)


# Tensors ------------------------------------------------------------------------------------------


def test_a_hook_of_a_leaf_changes_its_grad(lib: Any) -> None:
    v = leaf(lib, 0, 0)
    handle = v.register_hook(lambda grad: grad * 2)
    v.backward(lib.tensor([1.0, 2.0], dtype=lib.float64))
    assert v.grad.tolist() == [2, 4]
    handle.remove()
    v.backward(lib.tensor([1.0, 2.0], dtype=lib.float64))
    assert v.grad.tolist() == [3, 6]
    handle.remove()


def test_a_hook_of_a_non_leaf_changes_what_flows_on(lib: Any) -> None:
    x, seen = leaf(lib, 1, 2), []
    y = x * 3
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    (y * 2 + y).sum().backward()
    assert seen == [[3, 3]]  # the sum over all uses, once
    assert x.grad.tolist() == [90, 90]


def test_hooks_run_in_order_each_on_the_result_of_the_last(lib: Any) -> None:
    x, seen = leaf(lib, 1), []
    for k in range(3):
        x.register_hook(lambda g, k=k: (seen.append((k, g.item())), g + 1)[1])
    (x * 5).sum().backward()
    assert seen == [(0, 5), (1, 6), (2, 7)] and x.grad.tolist() == [8]


def test_a_hook_may_remove_itself_and_others_while_running(lib: Any) -> None:
    x, seen, handles = leaf(lib, 1), [], []
    handles.append(x.register_hook(lambda g: (seen.append("first"), handles[0].remove())[1]))
    handles.append(x.register_hook(lambda g: seen.append("second")))
    for _ in range(2):
        (x * 1).sum().backward()
    assert seen == ["first", "second", "second"]


def test_hooks_run_for_grad_too(lib: Any) -> None:
    x, seen = leaf(lib, 2), []
    y = x * x
    x.register_hook(lambda g: seen.append(("x", g.item())))
    y.register_hook(lambda g: seen.append(("y", g.item())))
    lib.autograd.grad((y * 3).sum(), [y, x])
    assert seen == [("y", 3), ("x", 12)]


def test_grad_gives_what_hooks_made_of_it(lib: Any) -> None:
    x = leaf(lib, 2)
    y = x * x
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    (gy,) = lib.autograd.grad(y.sum(), y, retain_graph=True)
    (gx,) = lib.autograd.grad(y.sum(), x)
    assert (gy.tolist(), gx.tolist()) == ([10], [41])


def test_hooks_see_recorded_gradients_under_create_graph(lib: Any) -> None:
    x, seen = leaf(lib, 2), []
    x.register_hook(lambda g: (seen.append(g.requires_grad), g * x)[1])
    (g,) = lib.autograd.grad((x * x).sum(), x, create_graph=True)
    assert seen == [True] and g.tolist() == [8]
    assert lib.autograd.grad(g.sum(), x)[0].tolist() == [16]  # (4x + the hook's own) * x


def test_a_hook_may_not_change_shape_or_kind(lib: Any) -> None:
    for answer, error in ((lambda g: g.sum(), RuntimeError), (lambda g: "no", TypeError)):
        x = leaf(lib, 1, 2)
        x.register_hook(answer)
        with raises("hook", error):
            (x * 2).sum().backward()
        assert x.grad is None and lib.is_grad_enabled()


def test_a_hook_that_raises_leaves_no_trace(lib: Any) -> None:
    x = leaf(lib, 1)
    handle = (x * 1).register_hook(lambda g: g)
    y = x * 2
    bad = y.register_hook(lambda g: 1 / 0)
    with raises("division", ZeroDivisionError):
        y.sum().backward()
    assert x.grad is None and lib.is_grad_enabled()
    bad.remove()
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [2]


def test_hooks_need_a_gradient(lib: Any) -> None:
    with raises("cannot register a hook on a tensor that doesn't require gradient"):
        lib.ones(2).register_hook(lambda g: None)
    with raises("can't retain_grad on Tensor that has requires_grad=False"):
        lib.ones(2).retain_grad()


def test_a_hook_may_keep_its_gradient(lib: Any) -> None:
    """What it keeps is not changed by what backward does later."""
    x, kept = leaf(lib, 1, 2), []
    y = x * 1
    y.register_hook(kept.append)
    x.register_hook(kept.append)
    for _ in range(2):
        (y + y * y).sum().backward(retain_graph=True)
    assert [g.tolist() for g in kept] == [[3, 5]] * 4
    assert x.grad.tolist() == [6, 10]


def test_a_hook_runs_once_per_backward_for_a_leaf_used_often(lib: Any) -> None:
    x, seen = leaf(lib, 1), []
    x.register_hook(lambda g: seen.append(g.item()))
    sum((x * k for k in range(4)), start=x).sum().backward()
    assert seen == [7]


def test_a_handle_is_a_context(lib: Any) -> None:
    x = leaf(lib, 1)
    with x.register_hook(lambda g: g * 3):
        x.sum().backward()
    x.sum().backward()
    assert x.grad.tolist() == [4]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_retain_grad(lib: Any) -> None:
    x = leaf(lib, 1, 2)
    y = x * 2
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad
    (y * y).sum().backward(retain_graph=True)
    assert y.grad.tolist() == [4, 8] and x.grad.tolist() == [8, 16]
    (y * 1).sum().backward()
    assert y.grad.tolist() == [5, 9]
    x.retain_grad()  # nothing to do


def test_retained_gradients_are_what_hooks_left(lib: Any) -> None:
    x = leaf(lib, 1)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    assert y.grad.tolist() == [11] and x.grad.tolist() == [22]


def test_retain_grad_follows_an_inplace_change(lib: Any) -> None:
    x = leaf(lib, 1)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    y[0] = y[0] * 2
    assert y.retains_grad
    (y * 5).sum().backward()
    assert y.grad.tolist() == [5] and x.grad.tolist() == [60]


def test_a_gradient_of_another_shape_replaces_the_one_before() -> None:
    """Where the tensor got its shape in place between two passes; see the page."""
    x = cugrad.ones(2, 3, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    y.t_()
    (y * cugrad.arange(6.0).reshape(3, 2)).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [[0, 1], [2, 3], [4, 5]]


# Leaves -------------------------------------------------------------------------------------------


def test_post_accumulate_hooks(lib: Any) -> None:
    x, seen = leaf(lib, 1, 2), []

    def hook(t: Any) -> None:
        seen.append(t.grad.tolist())
        with lib.no_grad():
            t.sub_(t.grad)
        t.grad = None

    handle = x.register_post_accumulate_grad_hook(hook)
    for _ in range(2):
        (x * 3).sum().backward()
    assert seen == [[3, 3]] * 2 and x.grad is None and x.tolist() == [-5, -4]
    handle.remove()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    with raises("post accumulate grad hooks cannot be registered on non-leaf tensors"):
        (x * 1).register_post_accumulate_grad_hook(hook)


# Nodes --------------------------------------------------------------------------------------------


def test_node_hooks(lib: Any) -> None:
    a, seen = leaf(lib, 1, 2), []
    b = a * 3

    def hook(grad_inputs: Any, grad_outputs: Any) -> Any:
        seen.append((len(grad_inputs), grad_inputs[0].tolist(), grad_outputs[0].tolist()))
        return (grad_inputs[0] * 2, *grad_inputs[1:])

    handle = b.grad_fn.register_hook(hook)
    b.sum().backward(retain_graph=True)
    assert seen == [(2, [3, 3], [1, 1])] and a.grad.tolist() == [6, 6]
    handle.remove()
    b.sum().backward()
    assert a.grad.tolist() == [9, 9]


def test_node_prehooks(lib: Any) -> None:
    a = leaf(lib, 0, 0)
    b = a.clone()
    handle = b.grad_fn.register_prehook(lambda gO: (gO[0] * 3,))
    b.sum().backward(retain_graph=True)
    assert a.grad.tolist() == [3, 3]
    handle.remove()
    b.sum().backward()
    assert a.grad.tolist() == [4, 4]


def test_the_order_of_all_hooks(lib: Any) -> None:
    x, log = leaf(lib, 1), []
    y = x * 2
    y.grad_fn.register_hook(lambda gi, go: log.append("node"))
    y.grad_fn.register_prehook(lambda go: log.append("pre"))
    y.register_hook(lambda g: log.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda t: log.append("accumulated"))
    x.register_hook(lambda g: log.append("leaf"))
    y.sum().backward()
    assert log == ["tensor", "pre", "node", "leaf", "accumulated"]


def test_hooks_of_wrong_length(lib: Any) -> None:
    x = leaf(lib, 1)
    y = x * 2
    y.grad_fn.register_hook(lambda gi, go: (gi[0],) * 7)
    with raises("incorrect number|has returned"):
        y.sum().backward()


def test_hooks_of_the_accumulator(lib: Any) -> None:
    x, log = leaf(lib, 1), []
    y = x * 2
    accumulator = y.grad_fn.next_functions[0][0]
    assert accumulator.variable is x and "AccumulateGrad" in accumulator.name()
    accumulator.register_prehook(lambda go: log.append(("pre", go[0].item())))
    accumulator.register_hook(lambda gi, go: log.append(("post", x.grad.item())))
    y.sum().backward()
    assert log == [("pre", 2), ("post", 2)]


def test_next_functions_and_metadata(lib: Any) -> None:
    x, w, c = leaf(lib, 1), leaf(lib, 2), lib.ones(1, dtype=lib.float64)
    y = x * w
    assert [node.variable for node, _ in y.grad_fn.next_functions] == [x, w]
    assert [node for node, _ in (y * c).grad_fn.next_functions] == [y.grad_fn, None]
    y.grad_fn.metadata["note"] = 3
    assert y.grad_fn.metadata == {"note": 3}
    assert y.grad_fn.name() == "MulBackward0"
    assert y.grad_fn.next_functions[0][0] is (x * 3).grad_fn.next_functions[0][0]


# Several tensors ----------------------------------------------------------------------------------


def test_multi_grad_hook_as_documented(lib: Any) -> None:
    calls = []
    a, b = lib.rand(2, 3, requires_grad=True), lib.rand(2, 3, requires_grad=True)
    c, d = a * b, a * b
    handle = lib.autograd.graph.register_multi_grad_hook(
        (a, b, c, d), lambda grads: calls.append([g is not None for g in grads])
    )
    c.sum().backward(retain_graph=True)
    c.sum().backward(inputs=(a,), retain_graph=True)
    assert calls == [[True, True, True, False], [True, False, True, False]]
    handle.remove()
    c.sum().backward()
    assert len(calls) == 2


def test_multi_grad_hook_on_any(lib: Any) -> None:
    calls = []
    a, b = leaf(lib, 1), leaf(lib, 2)
    lib.autograd.graph.register_multi_grad_hook(
        (a, b), lambda g: calls.append(g.item()), mode="any"
    )
    for _ in range(2):
        (a * 3 + b * 3).sum().backward()
    assert calls == [3, 3]
    with raises("Expects mode to be one of", ValueError):
        lib.autograd.graph.register_multi_grad_hook((a,), print, mode="some")


def test_multi_grad_hook_after_an_exception(lib: Any) -> None:
    calls = []
    a, b = leaf(lib, 1), leaf(lib, 2)
    lib.autograd.graph.register_multi_grad_hook((a, b), lambda grads: calls.append(len(grads)))
    bad = b.register_hook(lambda g: 1 / 0)
    with raises("division", ZeroDivisionError):
        (a * b).sum().backward()
    bad.remove()
    (a * b).sum().backward()
    assert calls[-1:] == [2] and len(calls) in (1, 2)


def test_backward_within_a_hook(lib: Any) -> None:
    x, other = leaf(lib, 2), leaf(lib, 3)

    def hook(g: Any) -> Any:
        with lib.enable_grad():
            (other * other).sum().backward()
        return g + other.grad

    x.register_hook(hook)
    (x * x).sum().backward()
    assert x.grad.tolist() == [10] and other.grad.tolist() == [6]


def test_a_node_hook_may_take_a_gradient_away_but_not_make_one(lib: Any) -> None:
    a, b = leaf(lib, 2), leaf(lib, 2)
    c = a * b
    c.grad_fn.register_hook(lambda inputs, outputs: (None, inputs[1] * 2))
    c.sum().backward()
    assert a.grad is None
    assert b.grad.tolist() == (a * 2).tolist()
    c = a * a.detach()
    c.grad_fn.register_hook(lambda inputs, outputs: (inputs[0], inputs[0]))
    with raises("can't replace a None gradient with a non-None value"):
        c.sum().backward()


def test_a_pre_hook_may_take_the_gradient_away(lib: Any) -> None:
    a = leaf(lib, 2)
    c = a * a
    c.grad_fn.register_prehook(lambda outputs: (None,))
    c.sum().backward()
    assert a.grad is None
