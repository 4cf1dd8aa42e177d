"""The layout of `.grad`, beside PyTorch's by stride, and what may be assigned to it.

"Default gradient layouts" of PyTorch's page of torch.autograd has four rules, for a leaf without a
`.grad` (its strides if it is dense, else row by row) and with one (in place, or a new sum).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import cugrad

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

Library = Any


def values(t: Library, *shape: int) -> Any:
    n = 1
    for extent in shape:
        n *= extent
    return t.arange(n, dtype=t.float64).reshape(shape) * 0.1 + 0.5


LAYOUTS: dict[str, Callable[[Library], Any]] = {
    "contiguous": lambda t: values(t, 2, 3),
    "0-d": lambda t: values(t)[()],
    "1-d": lambda t: values(t, 4),
    "every second": lambda t: values(t, 8)[::2],
    "transposed": lambda t: values(t, 2, 3).t(),
    "permuted": lambda t: values(t, 2, 3, 4).permute(2, 0, 1),
    "channels last": lambda t: values(t, 2, 3, 4, 5).contiguous(memory_format=t.channels_last),
    "columns of a matrix": lambda t: values(t, 3, 6)[:, ::2],
    "part of the columns": lambda t: values(t, 3, 6)[:, 1:4],
    "part of the rows": lambda t: values(t, 6, 3)[1:4],
    "part of a transposed one": lambda t: values(t, 4, 6).t()[1:4],
    "expanded": lambda t: values(t, 3, 1).expand(3, 4),
    "expanded from one": lambda t: values(t, 1).expand(3),
    "overlapping": lambda t: values(t, 8).as_strided((3, 4), (2, 1)),
    "dims of one": lambda t: values(t, 3, 1, 4).permute(2, 1, 0),
    "dims of one, transposed": lambda t: values(t, 1, 4).t(),
    "strange strides in dims of one": lambda t: values(t, 12).as_strided((1, 3), (7, 1)),
    "empty": lambda t: values(t, 0, 3).t(),
    "empty, permuted": lambda t: values(t, 2, 0, 3).permute(2, 0, 1),
    "row of a matrix": lambda t: values(t, 3, 4)[1],
    "column of a matrix": lambda t: values(t, 3, 4)[:, 1],
}

# From a leaf to what backward starts at: the gradient that arrives has many layouts.
USES: dict[str, Callable[[Library, Any], Any]] = {
    "square": lambda t, x: (x * x).sum(),
    "sum": lambda t, x: x.sum(),
    "of another layout": lambda t, x: (x.reshape(-1) * values(t, x.numel())).sum(),
    "reversed dims": lambda t, x: (reverse(x) * values(t, *reversed(x.shape))).sum(),
    "contiguous": lambda t, x: (x.contiguous() ** 2).sum(),
    "clone": lambda t, x: (x.clone() * 2).sum(),
    "twice": lambda t, x: (x * 2).sum() + (reverse(x) ** 2).sum(),
    "itself": lambda t, x: x,
}


def reverse(x: Any) -> Any:
    return x.permute(*range(x.ndim)[::-1]) if x.ndim else x


def strides(x: Any) -> Any:
    """The steps that lead to another element."""
    if x is None or not x.numel():
        return x if x is None else tuple(x.shape)
    return [(n, step if n > 1 else None) for n, step in zip(x.shape, x.stride(), strict=True)]


def run(root: Any, t: Library, create_graph: bool, **options: Any) -> None:
    gradient = None if root.ndim == 0 else reverse(values(t, *reversed(root.shape)))
    root.backward(gradient, create_graph=create_graph, **options)


def compare(call: Callable[[Library], Any]) -> None:
    ours, theirs = call(cugrad), call(torch)
    assert ours == theirs


create_graph = pytest.mark.parametrize("create_graph", [False, True], ids=["", "create_graph"])
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
every_use = pytest.mark.parametrize("use", USES.values(), ids=USES)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@create_graph
@every_use
@every_layout
def test_the_first_gradient(layout: Any, use: Any, create_graph: bool) -> None:
    """Rules 1 and 2."""

    def call(t: Library) -> Any:
        x = layout(t).detach().requires_grad_()
        run(use(t, x), t, create_graph)
        return strides(x.grad), x.grad.tolist()

    compare(call)


@create_graph
@every_use
@every_layout
def test_the_second_gradient(layout: Any, use: Any, create_graph: bool) -> None:
    """Rules 3 and 4: the same tensor without `create_graph`, and another with it."""

    def call(t: Library) -> Any:
        x = layout(t).detach().requires_grad_()
        (x * 3).sum().backward()
        first, before = x.grad, x.grad.tolist()
        run(use(t, x), t, create_graph)
        return strides(x.grad), x.grad.tolist(), x.grad is first, first.tolist() == before

    compare(call)


@create_graph
@pytest.mark.parametrize("manual", ["reversed", "contiguous", "gaps"])
@every_layout
def test_a_layout_of_the_users_own(layout: Any, manual: str, create_graph: bool) -> None:
    """A `.grad` assigned before the first backward keeps its strides."""

    def call(t: Library) -> Any:
        x = layout(t).detach().requires_grad_()
        if manual == "reversed":
            x.grad = reverse(t.zeros(tuple(x.shape)[::-1], dtype=t.float64))
        elif manual == "gaps":
            x.grad = t.zeros(*x.shape, 2, dtype=t.float64)[..., 0]
        else:
            x.grad = t.zeros(tuple(x.shape), dtype=t.float64)
        given, found = x.grad, []
        for _ in range(2):
            run((x * x).sum(), t, create_graph)
            found.append((strides(x.grad), x.grad.tolist(), x.grad is given))
        return found

    compare(call)


@every_use
@every_layout
def test_after_create_graph_without(layout: Any, use: Any) -> None:
    """A gradient with a history is added to in place too; its history stays."""

    def call(t: Library) -> Any:
        x = layout(t).detach().requires_grad_()
        (x**3).sum().backward(create_graph=True)
        first = x.grad
        run(use(t, x), t, create_graph=False)
        return strides(x.grad), x.grad.tolist(), x.grad is first, x.grad.requires_grad

    compare(call)


@create_graph
@every_layout
def test_of_inputs_that_are_no_leaves(layout: Any, create_graph: bool) -> None:
    """`backward(inputs=...)` and `retain_grad`."""

    def call(t: Library) -> Any:
        x = layout(t).detach().requires_grad_()
        y = x * 2
        run((y * y).sum(), t, create_graph, inputs=[y], retain_graph=True)
        found = [strides(y.grad), x.grad, y.retains_grad]
        z = x * 2
        z.retain_grad()
        run((z * z).sum(), t, create_graph)
        return [*found, strides(z.grad), strides(x.grad)]

    compare(call)


@create_graph
def test_a_gradient_that_a_hook_made(create_graph: bool) -> None:
    def call(t: Library) -> Any:
        x = values(t, 2, 3).requires_grad_()
        x.register_hook(lambda g: reverse(values(t, 3, 2)))
        run((x * x).sum(), t, create_graph)
        return strides(x.grad), x.grad.tolist()

    compare(call)


@create_graph
def test_a_gradient_shares_no_memory_with_the_callers(create_graph: bool) -> None:
    """Neither the root's gradient, nor what a hook holds, nor another leaf's gradient."""

    def call(t: Library) -> Any:
        x, y = values(t, 3).requires_grad_(), values(t, 3).requires_grad_()
        kept: list[Any] = []
        given = t.ones(3, dtype=t.float64)
        x.register_hook(kept.append)
        (x + y).backward(given, create_graph=create_graph)
        for grad in (x.grad, y.grad):
            grad.detach().mul_(5)
        return given.tolist(), kept[0].tolist(), x.grad.tolist(), y.grad.tolist()

    compare(call)


@create_graph
def test_a_leaf_as_root_has_a_gradient_of_its_own(create_graph: bool) -> None:
    def call(t: Library) -> Any:
        x, given = values(t, 3).requires_grad_(), t.ones(3, dtype=t.float64)
        x.backward(given, create_graph=create_graph)
        x.grad.detach().mul_(5)
        return given.tolist(), x.grad.tolist(), x.grad.requires_grad

    compare(call)


# Assignment --------------------------------------------------------------------------------------

ASSIGNED: dict[str, Callable[[Library, Any], Any]] = {
    "none": lambda t, x: None,
    "a number": lambda t, x: 1.0,
    "a list": lambda t, x: [1.0],
    "itself": lambda t, x: x,
    "a view of itself": lambda t, x: x.view_as(x),
    "another shape": lambda t, x: t.zeros(3, 2),
    "a shape that broadcasts": lambda t, x: t.zeros(3),
    "another dtype": lambda t, x: t.zeros(2, 3, dtype=t.float64),
    "integers": lambda t, x: t.zeros(2, 3, dtype=t.int64),
    "complex": lambda t, x: t.zeros(2, 3, dtype=t.complex64),
    "another layout": lambda t, x: t.zeros(3, 2).t(),
    "expanded": lambda t, x: t.zeros(3).expand(2, 3),
    "one that requires grad": lambda t, x: t.zeros(2, 3, requires_grad=True),
    "one with a history": lambda t, x: x * 2,
    "an ndarray": lambda t, x: x.detach().numpy(),
}


@pytest.mark.parametrize("requires_grad", [False, True], ids=["constant", "leaf"])
@pytest.mark.parametrize("value", ASSIGNED.values(), ids=ASSIGNED)
def test_what_may_be_assigned(value: Any, requires_grad: bool) -> None:
    def call(t: Library) -> Any:
        x = t.zeros(2, 3, requires_grad=requires_grad)
        given = value(t, x)
        try:
            x.grad = given
        except Exception as error:
            text = str(error).replace("numpy.ndarray", "ndarray")
            if "dtype" in text:  # each names it in its own way
                text = text.partition(" '")[0]
            return type(error).__name__, text
        return x.grad is given, strides(x.grad)

    compare(call)


def test_deleting_is_assigning_none() -> None:
    def call(t: Library) -> Any:
        x = t.zeros(2, requires_grad=True)
        (x * 2).sum().backward()
        del x.grad
        found = x.grad
        (x * 2).sum().backward()
        x.grad = None
        return found, x.grad

    compare(call)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_a_gradient_has_the_dtype_of_its_leaf(dtype: str) -> None:
    def call(t: Library) -> Any:
        x = t.ones(2, 3, dtype=getattr(t, dtype)).t().requires_grad_()
        (x.to(t.complex128).abs() ** 2).sum().backward()
        return str(x.grad.dtype), strides(x.grad)

    compare(call)
