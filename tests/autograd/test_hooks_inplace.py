"""Hooks and retained gradients of tensors that are changed in place, of views, and of parts of
a pass.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest


def leaf(lib: Any, *values: float) -> Any:
    return lib.tensor(list(values) or [1.0], dtype=lib.float64, requires_grad=True)


def noting(log: list[Any], label: str, factor: float | None = None) -> Any:
    def hook(g: Any) -> Any:
        log.append((label, None if g is None else g.tolist()))
        return None if factor is None else g * factor

    return hook


# Changed in place ---------------------------------------------------------------------------------


def test_a_hook_stays_with_the_value_it_was_registered_on(lib: Any) -> None:
    x, log = leaf(lib), []  # type: Any, list[Any]
    y = x.clone()
    y.register_hook(noting(log, "before", 2))
    y.mul_(2)
    y.register_hook(noting(log, "after", 2))
    y.sum().backward()
    assert log == [("after", [1]), ("before", [4])] and x.grad.tolist() == [8]


def test_a_retained_gradient_is_that_of_the_last_value(lib: Any) -> None:
    for again in (False, True):
        y = leaf(lib).clone()
        y.retain_grad()
        for _ in range(2):
            y.mul_(2)
            if again:
                y.retain_grad()
        y.sum().backward()
        assert y.grad.tolist() == [1]


def test_views_retain_the_gradient_of_their_last_value(lib: Any) -> None:
    base = leaf(lib).clone()
    view, other = base[:], base[:]
    view.retain_grad()
    other.retain_grad()
    assert view.retains_grad and other.retains_grad
    view.mul_(2)
    assert view.retains_grad and other.retains_grad
    (view + other).sum().backward()
    assert view.grad.tolist() == other.grad.tolist() == [1]


def test_hooks_of_views_are_gone_when_a_view_is_changed(lib: Any) -> None:
    """Those of its fellow views too: what is registered afterwards counts."""
    base, log = leaf(lib).clone(), []  # type: Any, list[Any]
    view, other = base[:], base[:]
    view.register_hook(noting(log, "view"))
    other.register_hook(noting(log, "other"))
    view.mul_(2)
    assert other.grad_fn is not None  # PyTorch would register the hook on the node of before
    other.register_hook(noting(log, "after"))
    (view + other).sum().backward()
    assert log == [("after", [1])]


def test_one_of_several_outputs(lib: Any) -> None:
    class Two(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 2 + h * 3

    x, log = leaf(lib), []  # type: Any, list[Any]
    a, b = Two.apply(x)
    a.register_hook(noting(log, "a"))
    b.register_hook(noting(log, "b"))
    a.mul_(2)
    a.register_hook(noting(log, "a after"))
    (a + b * 3).sum().backward()
    assert log == [("a after", [1]), ("a", [2]), ("b", [3])] and x.grad.tolist() == [13]


def test_a_change_of_shape_in_place(lib: Any) -> None:
    """Under no_grad too the gradient finds its way back."""
    for mode in (lib.enable_grad, lib.no_grad):
        x = leaf(lib, 1, 2)
        y = x * 2
        with mode():
            y.unsqueeze_(0)
        assert y.shape == (1, 2)
        y.retain_grad()
        (y * y).sum().backward()
        assert x.grad.tolist() == [8, 16] and y.grad.reshape(-1).tolist() == [4, 8]


# Parts of a pass ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how, targets, expected",
    [
        ("grad", "b", (2, 1, 1)),
        ("grad", "ab", (3, 2, 2)),
        ("grad", "a", (3, 2, 2)),
        ("backward", "a", (3, 3, 3)),
        ("backward", "b", (2, 2, 2)),
        ("backward", "", (3, 3, 3)),
    ],
)
def test_which_hooks_run(lib: Any, how: str, targets: str, expected: tuple[int, ...]) -> None:
    """Those of a tensor that is asked for, always; those of its node where the node itself runs."""
    a = leaf(lib)
    b = a * 2
    c = b * 2
    count = {"tensor": 0, "pre": 0, "post": 0}

    def counting(kind: str) -> Any:
        return lambda *args: count.update({kind: count[kind] + 1})

    accumulator = b.grad_fn.next_functions[0][0]
    for t in (a, b, c):
        t.register_hook(counting("tensor"))
    for node in (accumulator, b.grad_fn, c.grad_fn):
        node.register_prehook(counting("pre"))
        node.register_hook(counting("post"))
    wanted = [{"a": a, "b": b}[name] for name in targets]
    if how == "grad":
        lib.autograd.grad(c, wanted)
    else:
        c.backward(inputs=wanted or None)
    assert tuple(count.values()) == expected


def test_the_hooks_of_a_leaf_that_gets_none(lib: Any) -> None:
    """They run where its gradients would have been whole, before what is older."""

    class Product(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            return x * w

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, None

    x, w, log = leaf(lib), leaf(lib), []  # type: Any, Any, list[Any]
    y = x * 1
    y.register_hook(noting(log, "y"))
    w.register_hook(noting(log, "w"))
    w.register_post_accumulate_grad_hook(lambda w: log.append(("done", w.grad)))
    Product.apply(y, w).sum().backward()
    assert log == [("w", None), ("done", None), ("y", [1])] and w.grad is None


def test_hooks_die_with_their_tensor(lib: Any) -> None:
    """Without the garbage collector, in spite of what they close over."""

    class Thing:
        pass

    def made(register: str) -> Any:
        thing, x = Thing(), leaf(lib)
        if register == "register_multi_grad_hook":
            lib.autograd.graph.register_multi_grad_hook([x, x * 2], lambda gs, thing=thing: None)
        else:
            getattr(x, register)(lambda g, thing=thing: None)
        (x * 2).sum().backward()
        return weakref.ref(thing)

    names = ["register_hook", "register_post_accumulate_grad_hook"]
    if lib.__name__ == "cugrad":  # in PyTorch a cycle
        names.append("register_multi_grad_hook")
    gc.disable()
    try:
        assert [name for name in names if made(name)() is not None] == []
    finally:
        gc.enable()
