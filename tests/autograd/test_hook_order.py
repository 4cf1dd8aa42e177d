"""What hooks see, and when: the same log as PyTorch's on drawn graphs, hooks and passes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import cugrad
from tests.autograd.hook_cases import Program


@pytest.mark.parametrize("block", range(20))
def test_events_are_pytorchs(block: int) -> None:
    """Order, gradients, grad mode, removal during a pass, what is retained and accumulated."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of the .grad of non-leaves
        for seed in range(20 * block, 20 * block + 20):
            try:
                theirs = Program(torch, seed).run()
            except RuntimeError as error:
                assert "INTERNAL ASSERT" in str(error)
                continue
            ours = Program(cugrad, seed).run()
            wrong = [(i, *pair) for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]]
            assert not wrong, f"seed {seed}, event {wrong[0]}"
            assert len(ours) == len(theirs), seed


def ones(lib: Any) -> Any:
    return lib.ones(2, dtype=lib.float64, requires_grad=True)


def test_a_leaf_with_hooks_is_visited_once_its_gradient_is_whole(lib: Any) -> None:
    """So that an optimizer in its hook frees the gradient while backward goes on."""
    log: list[str] = []
    weights = [ones(lib) for _ in range(3)]
    x = ones(lib)
    for i, w in enumerate(weights):
        x = x * w * w
        x.register_hook(lambda g, i=i: log.append(f"layer {i}"))
        w.register_post_accumulate_grad_hook(lambda w, i=i: log.append(f"step {i}"))
    x.sum().backward()
    assert log == ["layer 2", "step 2", "layer 1", "step 1", "layer 0", "step 0"]


def test_at_most_one_gradient_lives_when_hooks_free_them() -> None:
    import cugrad as lib

    weights = [ones(lib) for _ in range(5)]
    most = 0

    def step(w: Any) -> None:
        nonlocal most
        most = max(most, sum(other.grad is not None for other in weights))
        w.grad = None

    for w in weights:
        w.register_post_accumulate_grad_hook(step)
    x = lib.ones(2, dtype=lib.float64)
    for w in weights:
        x = (x * w).sin()
    x.sum().backward()
    assert most == 1 and all(w.grad is None for w in weights)


def test_a_leaf_that_waits_in_vain_is_visited_at_the_end(lib: Any) -> None:
    """A node that answers None, or never runs, sends nothing."""

    class Half(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None, g

    x, log = ones(lib), []
    x.register_hook(lambda g: log.append(g.tolist()))
    y = Half.apply((x * 2) * 3, x) + Half.apply(x, x)
    y.sum().backward()
    assert log == [[2, 2]] and x.grad.tolist() == [2, 2]


def test_hooks_added_and_removed_in_the_middle_of_a_pass(lib: Any) -> None:
    x, w, log = ones(lib), ones(lib), []
    handle = w.register_hook(lambda g: log.append("removed too late"))
    y = x * w

    def hook(g: Any) -> None:
        handle.remove()
        x.register_hook(lambda g: log.append("x"))

    y.register_hook(hook)
    (y * 1).sum().backward()
    assert log == ["x"] and w.grad.tolist() == x.grad.tolist() == [1, 1]


# The end of a pass --------------------------------------------------------------------------------


def queue(lib: Any, callback: Any) -> None:
    lib.autograd.Variable._execution_engine.queue_callback(callback)


def test_queue_callback(lib: Any) -> None:
    """Callbacks run when all gradients are there, in order, those that callbacks queue too."""
    x, log = ones(lib), []

    def last() -> None:
        log.append(("last", x.grad.tolist(), lib.is_grad_enabled()))

    def first() -> None:
        log.append("first")
        queue(lib, last)

    y = x * 2
    y.register_hook(lambda g: queue(lib, first))
    y.register_hook(lambda g: queue(lib, lambda: log.append("second")))
    y.sum().backward(retain_graph=True)
    assert log == ["first", "second", ("last", [2, 2], False)]
    with pytest.raises(RuntimeError, match="only be installed during backward pass"):
        queue(lib, first)


def test_callbacks_belong_to_the_innermost_pass(lib: Any) -> None:
    x, log = ones(lib), []

    def inner(g: Any) -> None:
        with lib.enable_grad():
            z = ones(lib) * 2
            z.register_hook(lambda g: queue(lib, lambda: log.append("inner")))
            z.sum().backward()
        log.append("hook done")
        queue(lib, lambda: log.append("outer"))

    y = x * 2
    y.register_hook(inner)
    y.sum().backward()
    assert log == ["inner", "hook done", "outer"]


@pytest.mark.parametrize("where", ["hook", "callback"])
def test_a_pass_that_fails_runs_no_more_callbacks(lib: Any, where: str) -> None:
    x, log = ones(lib), []
    y = x * 2

    def fail(*args: Any) -> None:
        raise ZeroDivisionError

    if where == "hook":
        y.register_hook(lambda g: queue(lib, lambda: log.append("never")))
        y.register_hook(fail)
    else:
        y.register_hook(lambda g: queue(lib, fail))
        y.register_hook(lambda g: queue(lib, lambda: log.append("never")))
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert log == []
    x.grad = None
    (x * 2).sum().backward()
    assert log == [] and x.grad.tolist() == [2, 2]


# Answers ------------------------------------------------------------------------------------------

BAD: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "tensor hook: size": ("tensor", lambda g: g[:1], RuntimeError, "has changed the size of value"),
    "tensor hook: type": ("tensor", lambda g: g.float(), RuntimeError, "changed the type of value"),
    "tensor hook: int": ("leaf", lambda g: g.long(), RuntimeError, "has changed the type of value"),
    "tensor hook: str": ("tensor", lambda g: "a", TypeError, "expected Variable.*'str'"),
    "leaf hook: float": ("leaf", lambda g: 1.0, TypeError, "expected Variable, .* 'float'"),
    "leaf hook: size": ("leaf", lambda g: g.sum(), RuntimeError, "hook '<lambda>' has changed"),
    "prehook: count": ("pre", lambda g: g + g, RuntimeError, "got 2, but expected 1"),
    "prehook: tensor": ("pre", lambda g: g[0], TypeError, "expected tuple, .* returned 'Tensor'"),
    "prehook: size": ("pre", lambda g: (g[0][:1],), RuntimeError, "has changed the size of value"),
    "prehook: str": ("pre", lambda g: ("a",), TypeError, "expected Variable, .* returned 'str'"),
    "post hook: count": ("post", lambda gi, go: gi * 2, RuntimeError, "got 4, but expected 2"),
    "post hook: list": ("post", lambda gi, go: list(gi), TypeError, "expected tuple, .* 'list'"),
    "post hook: size": ("post", lambda gi, go: (gi[0][:1], None), RuntimeError, "the size"),
    "post hook: undefined": (
        "post", lambda gi, go: (gi[0], gi[0]), RuntimeError,
        "can't replace a None gradient with a non-None value",
    ),
    "after accumulation": ("done", lambda x: 3, TypeError, "expected Variable, .* returned 'int'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_answer(lib: Any, case: str) -> None:
    """Is an error of PyTorch's words, after which the graph and the engine are as good as new."""
    kind, hook, error, text = BAD[case]
    x = ones(lib)
    y = x * 2
    register = {
        "tensor": y.register_hook, "leaf": x.register_hook, "pre": y.grad_fn.register_prehook,
        "post": y.grad_fn.register_hook, "done": x.register_post_accumulate_grad_hook,
    }[kind]  # fmt: skip
    handle = register(hook)
    with pytest.raises(error, match=text):
        y.sum().backward(retain_graph=True)
    handle.remove()
    x.grad = None
    y.sum().backward()
    assert x.grad.tolist() == [2, 2] and lib.is_grad_enabled()


def test_backward_for_inputs_that_are_no_leaves(lib: Any) -> None:
    """They retain their gradient from then on, and their node's hooks run; it sends nothing on."""
    x, log = ones(lib), []
    y = x * 2
    y.grad_fn.register_prehook(lambda go: log.append("pre"))
    y.grad_fn.register_hook(lambda gi, go: log.append(gi))
    (y * 3).sum().backward(inputs=[y], retain_graph=True)
    assert y.retains_grad and y.grad.tolist() == [3, 3] and x.grad is None
    assert log == ["pre", (None, None)]
    (y * 3).sum().backward(retain_graph=True)
    assert y.grad.tolist() == [6, 6] and x.grad.tolist() == [6, 6]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("kinds", [("tensor",), ("accumulated",), ("tensor", "accumulated")])
def test_hooks_of_a_leaf_to_which_no_gradient_comes(
    lib: Any, kinds: tuple[str, ...], create_graph: bool
) -> None:
    """They are called with None, also where ops lie between it and who has no gradient for it."""

    class Nothing(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            return tensors[0] * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return (None,) * len(ctx.needs_input_grad)

    def logs_of(function: Any) -> list[Any]:
        log: list[Any] = []
        x = ones(lib)
        if "tensor" in kinds:
            x.register_hook(lambda g: log.append(None if g is None else g.tolist()))
        if "accumulated" in kinds:
            x.register_post_accumulate_grad_hook(lambda x: log.append("accumulated"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of create_graph
            function(x).sum().backward(create_graph=create_graph)
        return log

    nothing = [None for kind in kinds if kind == "tensor"]
    something = [[3, 3] for kind in kinds if kind == "tensor"]
    later = [kind for kind in kinds if kind == "accumulated"]
    for function, of_tensor in (
        (lambda x: Nothing.apply(x, x), nothing),
        (lambda x: Nothing.apply(x * 2, x.sin().exp()), nothing),
        (lambda x: Nothing.apply(x, x.unbind(0)[1]), nothing),
        (lambda x: Nothing.apply(x * 2, x.unbind(0)[1]) + x * 3, something),
        (lambda x: (lambda y: Nothing.apply(y, y) + y)(x * 3), something),
    ):
        assert logs_of(function) == of_tensor + later
