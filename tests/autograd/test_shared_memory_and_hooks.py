"""Cases in the manner of PyTorch's own autograd tests: cugrad and PyTorch give one answer."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

Library = Any
CASES: list[tuple[str, Callable[[Library], Any], Any]] = []


def case(expected: Any) -> Callable[[Callable[[Library], Any]], Callable[[Library], Any]]:
    """A function of the library whose answer is `expected`; errors within it by `said`."""

    def register(f: Callable[[Library], Any]) -> Callable[[Library], Any]:
        CASES.append((f.__name__, f, expected))
        return f

    return register


def plain(x: Any) -> Any:
    if hasattr(x, "tolist"):
        return x.detach().tolist()
    if isinstance(x, (list, tuple)):
        return [plain(y) for y in x]
    return x


def said(f: Callable[[], Any]) -> str:
    """The class of an error and the first words of its text; "nothing" where there is none."""
    try:
        f()
    except Exception as error:
        kind = "RuntimeError" if isinstance(error, RuntimeError) else type(error).__name__
        return f"{kind}: {re.split(r'[.!:(;,]', str(error))[0].strip()}"
    return "nothing"


def ones(t: Library, *shape: int, value: float = 1.0) -> Any:
    return t.full(shape, value, requires_grad=True)


def doubling(t: Library, backward: Callable[..., Any], forward: Any = None) -> Any:
    """A Function that doubles, with a backward of the caller's."""
    parts = {"forward": forward or (lambda ctx, x: x * 2), "backward": backward}
    return type("Doubling", (t.autograd.Function,), {k: staticmethod(f) for k, f in parts.items()})


# In-place changes whose operands share memory: an error in PyTorch, or the right gradient --------


def overlapping(name: str, operand: Callable[[Any], Any]) -> Callable[[Library], Any]:
    def run(t: Library) -> Any:
        x = ones(t, 3, value=2.0)
        a = x.clone()
        getattr(a, name)(operand(a))
        a.sum().backward()
        return x.grad

    return run


SHARING = [  # op, its operand, the gradient at 2
    ("add_", lambda a: a.view(3), [2, 2, 2]),
    ("mul_", lambda a: a, [4, 4, 4]),
    ("mul_", lambda a: a.view(3), [4, 4, 4]),
    ("mul_", lambda a: a.detach(), [2, 2, 2]),
    ("mul_", lambda a: a[0], [8, 2, 2]),
    ("div_", lambda a: a.view(3), [0, 0, 0]),
    ("div_", lambda a: a.detach(), [0.5, 0.5, 0.5]),
    ("sub_", lambda a: a.view(3) * 3, [-2, -2, -2]),
    ("pow_", lambda a: a.detach(), [4, 4, 4]),
    ("copy_", lambda a: a.flip(0), [1, 1, 1]),
]


@pytest.mark.parametrize("name,operand,expected", SHARING, ids=range(len(SHARING)))
def test_operands_that_share_memory(lib: Library, name: str, operand: Any, expected: Any) -> None:
    try:
        found = overlapping(name, operand)(lib)
    except RuntimeError as error:
        assert lib.__name__ == "torch"
        assert re.search("modified by an inplace operation|single memory location", str(error))
    else:
        assert found.tolist() == expected


@case([[2, 4, 3], [4, 4, 2]])
def shifted_onto_itself(t: Library) -> Any:
    if t.__name__ == "torch":  # refuses what overlaps in part
        return [[2, 4, 3], [4, 4, 2]]
    x = ones(t, 3, value=2.0)
    a = x.clone()
    a[:2].mul_(a[1:])
    a.sum().backward()
    return x.grad, a


@case(
    [
        [2, 6, 3],
        [[2, 1, 0], [0, 3, 2], [0, 0, 1]],
        [[2, 1, 0], [0, 3, 2], [0, 0, 1]],
        [[8, 8, 0], [8, 20, 24], [0, 24, 10]],
        [[8, 8, 0], [8, 20, 24], [0, 24, 10]],
    ]
)
def shifted_onto_itself_under_transforms(t: Library) -> Any:
    def f(x: Any) -> Any:
        a = x.clone()
        tail = a[1:].clone() if t.__name__ == "torch" else a[1:]
        a[:2].mul_(tail)
        return a

    def loss(x: Any) -> Any:
        return f(x).pow(2).sum()

    x, func = t.tensor([1.0, 2.0, 3.0]), t.func
    return (
        func.vmap(f)(x[None])[0],
        func.jacrev(f)(x),
        func.jacfwd(f)(x),
        func.hessian(loss)(x),
        func.jacrev(func.jacrev(loss))(x),
    )


@case([[2, 2, 2], [2, 2, 2]])
def operand_is_an_unrecorded_view(t: Library) -> Any:
    x = ones(t, 3)
    a = x.clone()
    with t.inference_mode():
        v = a.view(3)
    a.add_(v)
    (a * 2).sum().backward()
    return x.grad, a


# Complex parts ---------------------------------------------------------------------------------


@case(
    [
        [3, 1],
        [True, True],
        "SelectBackward0",
        True,
        [[5 + 2j], [5 + 7j]],
        "RuntimeError: imag is not implemented for tensors with non-complex dtypes",
    ]
)
def parts_are_views(t: Library) -> Any:
    z = t.ones(2, dtype=t.complex64, requires_grad=True)
    y = z * 1
    y.real[0].mul_(3)
    y.abs().sum().backward()
    w = t.tensor([1 + 2j])
    w.real += 4
    again = w.clone()
    again.imag = 7
    x = t.ones(2)
    return (
        z.grad.real,
        [y.real._is_view(), y.imag._base is y],
        y.real.grad_fn.name(),
        x.real is x,
        [w, again],
        said(lambda: x.imag),
    )


# What may be assigned, deleted and returned ----------------------------------------------------


def change(x: Any, name: str, value: Any) -> str:
    return said(lambda: setattr(x, name, value))


@case(
    [
        "RuntimeError: Deleting tensor data is not allowed",
        "RuntimeError: requires_grad must be a bool",
        "RuntimeError: Deletion of _grad_fn not allowed",
        "RuntimeError: Deletion of _backwards_hooks not allowed",
        "nothing",
    ]
)
def deletions(t: Library) -> Any:
    x = ones(t, 2)
    x.grad = t.ones(2)
    names = ("data", "requires_grad", "_grad_fn", "_backward_hooks", "grad")
    return [said(lambda name=name: delattr(x, name)) for name in names]  # type: ignore[misc]


@case(
    [
        "RuntimeError: requires_grad must be a bool",
        "TypeError: requires_grad_",
        "RuntimeError: only Tensors of floating point and complex dtype can require gradients",
        "RuntimeError: only Tensors of floating point dtype can require gradients",
        "RuntimeError: Only Tensors of floating point and complex dtype can require gradients",
        "RuntimeError: data set to a tensor that requires gradients must be floating point or "
        "complex dtype",
        "TypeError: Variable data has to be a tensor",
    ]
)
def assignments(t: Library) -> Any:
    x, whole = ones(t, 2), t.ones(2, dtype=t.int64)
    return [
        change(x, "requires_grad", 3),
        said(lambda: x.requires_grad_(3)),
        change(whole, "requires_grad", True),
        said(whole.requires_grad_),
        said(lambda: t.ones(2, dtype=t.int64, requires_grad=True)),
        change(x, "data", whole),
        change(x, "data", 3),
    ]


@case(["RuntimeError: Tensor post accumulate grad hooks should return None", [1, 1]])
def an_answer_of_a_post_hook(t: Library) -> Any:
    x = ones(t, 2)
    x.register_post_accumulate_grad_hook(lambda p: p.grad * 1)
    same = ones(t, 2)
    same.register_post_accumulate_grad_hook(lambda p: p)
    same.sum().backward()
    return said(x.sum().backward), x.grad


@case(
    [
        "RuntimeError: hook '<lambda>' has changed the type of value",
        "(was torch.FloatTensor got torch.DoubleTensor)",
    ]
)
def a_hook_changes_the_dtype(t: Library) -> Any:
    y = ones(t, 2) * 2
    y.register_hook(lambda g: g.double())
    with pytest.raises(RuntimeError) as error:
        y.sum().backward()
    text = str(error.value)
    types = re.sub(r"torch\.(cuda|simulated)\.", "torch.", text.partition("(")[2])
    return f"RuntimeError: {text.partition(' (')[0]}", "(" + types


@case(
    [
        "result type Float can't be cast to the desired output type Long",
        "result type ComplexFloat can't be cast to the desired output type Float",
    ]
)
def results_that_do_not_fit(t: Library) -> Any:
    def text(f: Callable[[], Any]) -> str:
        with pytest.raises(RuntimeError) as error:
            f()
        return str(error.value).partition(" (")[0]

    pair = t.ones(2, dtype=t.complex64)
    return text(lambda: t.ones(2, dtype=t.int64).add_(1.5)), text(lambda: t.ones(2).mul_(pair))


# The graph as users see it ---------------------------------------------------------------------


@case(
    [
        "MulBackward0",
        "PowBackward0",
        "SumBackward0",
        "CopySlices",
        "DoublingBackward",
        "AccumulateGrad",
        "torch::autograd::CopySlices",
        True,
        True,
    ]
)
def classes_of_nodes(t: Library) -> Any:
    x = ones(t, 3)
    changed = x * 1
    changed[0] = 2.0
    made = [x * x, x.pow(3), x.sum(), changed, doubling(t, lambda ctx, g: g).apply(x)]
    nodes = [y.grad_fn for y in made]
    nodes.append(nodes[1].next_functions[0][0])
    total = made[0].sum()
    return [
        *[type(n).__name__ for n in nodes],
        changed.grad_fn.name(),
        total.grad_fn.next_functions[0][0] is nodes[0],
        all(isinstance(n, t.autograd.graph.Node) for n in nodes),
    ]


@case([[4, 4], [8, 8], "RuntimeError: Trying to backward through the graph a second time"])
def backward_of_nodes_that_were_looked_at(t: Library) -> Any:
    x = ones(t, 2, value=2.0)
    y = (x * x).sum()
    assert y.grad_fn.next_functions[0][0].next_functions[0][0].variable is x
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    return first, x.grad, said(y.backward)


@case(
    [
        "TypeError: expected 1 arguments",
        "TypeError: argument 0 is not a Variable",
        "TypeError: expected 1 arguments",
        [2, 2],
    ]
)
def calls_of_a_node(t: Library) -> Any:
    node, g = (ones(t, 2) * 2).grad_fn, t.ones(2)
    return said(node), said(lambda: node(3)), said(lambda: node(g, g)), node(g)[0]


@case([None, 2, None])
def hooks_of_a_tensor(t: Library) -> Any:
    x = ones(t, 2)
    before = x._backward_hooks
    for _ in range(2):
        x.register_hook(lambda g: None)
    return before, len(x._backward_hooks), (x * 2)._backward_hooks


@case([[1, 1], [], [2.0]])
def empty_tensors_are_joined(t: Library) -> Any:
    x, none, one = ones(t, 2), ones(t, 0), ones(t, 1)
    t.cat([x, none, one * 2]).sum().backward()
    return x.grad, none.grad, one.grad


@case([[True, True, False], [2, 2]])
def a_view_from_a_function_under_no_grad(t: Library) -> Any:
    x = ones(t, 2)
    a = x * 2
    with t.no_grad():
        v = doubling(t, lambda ctx, g: g, lambda ctx, x: x.view(2, 1)).apply(a)
    return [v.requires_grad, v._base is a, v.grad_fn is not None], v.flatten()


# Passes ------------------------------------------------------------------------------------------


@case(
    [
        ["inner", "inner", "end"],
        "RuntimeError: Final callbacks can only be installed during backward pass",
        [1],
    ]
)
def callbacks(t: Library) -> Any:
    order: list[str] = []
    queue = t.autograd.Variable._execution_engine.queue_callback
    x = ones(t, 1)
    y = x * 1

    def hook(g: Any) -> None:
        queue(lambda: (order.append("inner"), queue(lambda: order.append("end"))))
        order.append("inner")

    y.register_hook(hook)
    y.backward()
    return order, said(lambda: queue(list)), x.grad


@case(["Exception: Simulate error", [2, 2]])
def an_error_in_a_pass_in_a_pass(t: Library) -> Any:
    def fail(ctx: Any, g: Any) -> None:
        raise Exception("Simulate error")

    x = ones(t, 2)
    inner = doubling(t, fail).apply(x * x).sum()
    outer = doubling(t, lambda ctx, g: (inner.backward(), g)[1]).apply(x * x).sum()
    found = said(outer.backward)
    (x * x).sum().backward()
    return found, x.grad


@case([[[1, None, 4], [None, 6, None]], [[2.0]]])
def hooks_of_several_tensors(t: Library) -> Any:
    every: list[Any] = []
    first: list[Any] = []
    a, b, c = (ones(t) for _ in range(3))
    register = t.autograd.graph.register_multi_grad_hook
    register([a, b, c], lambda gs: every.append(plain(list(gs))))
    d = ones(t, 1)
    register([d], lambda g: first.append(g.tolist()), mode="any")
    (a + c * 4).backward()
    (b * 6).backward()
    (d * 2).backward()
    return every, first


@case([[False, True], [False, True], [False, True, False]])
def modes_of_threads_and_generators(t: Library) -> Any:
    seen: list[Any] = []
    for mode in (t.no_grad, t.inference_mode):
        with mode():
            found = [t.is_grad_enabled()]
            thread = threading.Thread(target=lambda: found.append(t.is_grad_enabled()))  # noqa: B023
            thread.start()
            thread.join()
        seen.append(found)

    @t.no_grad()
    def generate() -> Any:
        yield t.is_grad_enabled()
        yield t.is_grad_enabled()

    steps = generate()
    return *seen, [next(steps), t.is_grad_enabled(), next(steps)]


@case([[[3, 3], [27, 27]], "RuntimeError: msg", [2, 2]])
def saved_tensor_hooks(t: Library) -> Any:
    graph = t.autograd.graph
    x = ones(t, 2, value=3.0)
    with graph.saved_tensors_hooks(lambda s: s.detach().clone(), lambda s: s):
        y = x * x * x
    (g,) = t.autograd.grad(y.sum(), x, retain_graph=True)

    def enter() -> None:
        with graph.disable_saved_tensors_hooks("msg"), graph.save_on_cpu():
            pass

    with graph.allow_mutation_on_saved_tensors():
        a = ones(t, 2)
        b = a.clone()
        c = b**2
        b.sin_()
        c.sum().backward()
    return [y.grad_fn._saved_other, g], said(enter), a.grad


@pytest.mark.parametrize("name,run,expected", CASES, ids=[name for name, _, _ in CASES])
def test_case(lib: Library, name: str, run: Callable[[Library], Any], expected: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert plain(run(lib)) == plain(expected)
