"""Every argument of `backward` and `grad`, right and wrong, beside PyTorch's: values and texts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

import cugrad
from tests.support.pinned_torch import cases

torch = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

Library = Any
Case = Callable[[Library], Any]


def leaf(t: Library, *shape: int, dtype: str = "float64") -> Any:
    n = 1
    for extent in shape:
        n *= extent
    found = (t.arange(n, dtype=t.float64) * 0.3 + 0.5).reshape(shape)
    return found.to(getattr(t, dtype)).requires_grad_()


def ones(t: Library, *shape: int, dtype: str = "float64") -> Any:
    return t.ones(shape, dtype=getattr(t, dtype))


def edge(t: Library, x: Any) -> Any:
    return t.autograd.graph.get_gradient_edge(x)


def plain(x: Any) -> Any:
    if isinstance(x, (cugrad.Tensor, torch.Tensor)):
        kind = str(x.dtype).rpartition(".")[2]
        return kind, x.requires_grad, x.detach().tolist()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x).__name__, [plain(y) for y in x]
    return x


def outcome(call: Case, t: Library) -> Any:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = plain(call(t))
        except Exception as error:
            return type(error).__name__, same_text(str(error))
    kinds = (FutureWarning, DeprecationWarning)
    return found, [str(w.message) for w in told if issubclass(w.category, kinds)]


def same_text(text: str) -> str:
    """What is PyTorch's own, and what depends on the machine, left out."""
    text = text.replace("cugrad.", "torch.").split("\n")[0]
    text = re.sub(r".*is not iterable$", "not iterable", text)
    text = text.replace("Tensor.backward()", "backward()")
    return text.partition("was detected: ")[0]  # PyTorch shows a wrong shape there


def compare(call: Case) -> None:
    ours, theirs = outcome(call, cugrad), outcome(call, torch)
    assert ours == theirs


# backward: what is differentiated, its gradients, and what becomes of the leaves ------------------


def backward(root: Callable[[Library, Any], Any], *args: Any, **options: Any) -> Case:
    """Calls `autograd.backward(root(x), *args)`; arguments that are functions are given t, x, y."""

    def call(t: Library) -> Any:
        x = leaf(t, 3)
        y = root(t, x)
        given = [a(t, x, y) if callable(a) else a for a in args]
        named = {k: v(t, x, y) if callable(v) else v for k, v in options.items()}
        return [t.autograd.backward(y, *given, **named), x.grad]

    return call


total = lambda t, x: (x * x).sum()
square = lambda t, x: x * x

BACKWARD: dict[str, Case] = {
    "scalar": backward(total),
    "a list of one": backward(lambda t, x: [total(t, x)]),
    "a tuple of two": backward(lambda t, x: (total(t, x), x.sum())),
    "a generator": backward(lambda t, x: (y for y in (total(t, x), x.sum()))),
    "an empty tuple": backward(lambda t, x: ()),
    "a leaf": backward(lambda t, x: x, lambda t, x, y: ones(t, 3)),
    "a leaf without gradient": backward(lambda t, x: x),
    "one element, 1-d": backward(lambda t, x: x[:1] * 2),
    "one element, 2-d": backward(lambda t, x: x[:1].reshape(1, 1) * 2),
    "no elements": backward(lambda t, x: x[:0] * 2),
    "several elements": backward(square),
    "several of two": backward(lambda t, x: (total(t, x), x * 2)),
    "with a gradient": backward(square, lambda t, x, y: ones(t, 3)),
    "with a list": backward(square, lambda t, x, y: [ones(t, 3)]),
    "with a gradient for a scalar": backward(total, lambda t, x, y: ones(t) * 3),
    "a wrong shape": backward(square, lambda t, x, y: ones(t, 4)),
    "a shape that broadcasts": backward(square, lambda t, x, y: ones(t, 1)),
    "a scalar for several": backward(square, lambda t, x, y: ones(t)),
    "1-d for a scalar": backward(total, lambda t, x, y: ones(t, 1)),
    "None for several of two": backward(
        lambda t, x: (total(t, x), x * 2), lambda t, x, y: (ones(t), None)
    ),
    "None among gradients": backward(
        lambda t, x: (total(t, x), x * 2), lambda t, x, y: (None, ones(t, 3))
    ),
    "too few gradients": backward(lambda t, x: (total(t, x), x.sum()), lambda t, x, y: (ones(t),)),
    "a gradient for two": backward(lambda t, x: (total(t, x), x.sum()), lambda t, x, y: ones(t)),
    "a number": backward(total, 2.0),
    "a number in a list": backward(total, [2.0]),
    "a list of numbers": backward(square, [1.0, 2.0, 3.0]),
    "a string": backward(total, "gradient"),
    "float32": backward(square, lambda t, x, y: ones(t, 3, dtype="float32")),
    "integers": backward(square, lambda t, x, y: ones(t, 3, dtype="int64")),
    "booleans": backward(square, lambda t, x, y: ones(t, 3, dtype="bool")),
    "complex for real": backward(square, lambda t, x, y: ones(t, 3, dtype="complex128")),
    "real for complex": backward(lambda t, x: x.to(t.complex128) * 1j, lambda t, x, y: ones(t, 3)),
    "complex for complex": backward(
        lambda t, x: x.to(t.complex128) * 1j, lambda t, x, y: ones(t, 3, dtype="complex128") * 1j
    ),
    "complex64 for complex128": backward(
        lambda t, x: x.to(t.complex128) * 1j, lambda t, x, y: ones(t, 3, dtype="complex64")
    ),
    "a complex scalar": backward(lambda t, x: x.to(t.complex128).sum()),
    "a gradient that requires grad": backward(
        square, lambda t, x, y: ones(t, 3).requires_grad_(), create_graph=True
    ),
    "a gradient that is the root": backward(square, lambda t, x, y: y),
    "a gradient that is the leaf": backward(square, lambda t, x, y: x),
    "an expanded gradient": backward(square, lambda t, x, y: ones(t, 1).expand(3)),
    "no grad": backward(lambda t, x: x.detach().sum()),
    "no grad of two": backward(lambda t, x: (total(t, x), x.detach().sum())),
    "no grad of two, with gradients": backward(
        lambda t, x: (total(t, x), x.detach().sum()), lambda t, x, y: (ones(t), ones(t))
    ),
    "an integer root": backward(lambda t, x: x.argmax()),
    "not a tensor": backward(lambda t, x: 3.0),
    "None as root": backward(lambda t, x: None),
    "the same root twice": backward(lambda t, x: (lambda y: (y, y))(total(t, x))),
    "grad_variables": backward(square, grad_variables=lambda t, x, y: ones(t, 3)),
    "grad_variables too": backward(
        square, lambda t, x, y: ones(t, 3), grad_variables=lambda t, x, y: ones(t, 3)
    ),
    "create_graph": backward(total, create_graph=True),
    "retain_graph": backward(total, retain_graph=True),
    "create_graph without retain_graph": backward(total, retain_graph=False, create_graph=True),
    "an unknown argument": backward(total, keep=True),
    "inputs": backward(total, inputs=lambda t, x, y: [x]),
    "inputs, one tensor": backward(total, inputs=lambda t, x, y: x),
    "inputs, a dict": backward(total, inputs=lambda t, x, y: {"x": x}),
    "inputs, an empty list": backward(total, inputs=[]),
    "inputs, an empty dict": backward(total, inputs={}),
    "inputs, a mapping": backward(total, inputs=lambda t, x, y: MappingProxyType({"x": x})),
    "inputs, a generator": backward(total, inputs=lambda t, x, y: (z for z in [x])),
    "inputs, an edge": backward(total, inputs=lambda t, x, y: edge(t, x)),
    "inputs, edges": backward(total, inputs=lambda t, x, y: [edge(t, x)]),
    "inputs, the root": backward(total, inputs=lambda t, x, y: [y]),
    "inputs, twice the same": backward(total, inputs=lambda t, x, y: [x, x]),
    "inputs, no grad": backward(total, inputs=lambda t, x, y: [ones(t, 3)]),
    "inputs, unrelated": backward(total, inputs=lambda t, x, y: [leaf(t, 3)]),
    "inputs, a number": backward(total, inputs=[3.0]),
    "inputs, a number alone": backward(total, inputs=3.0),
    "inputs, None in it": backward(total, inputs=[None]),
    "an edge as root": backward(lambda t, x: edge(t, total(t, x))),
    "an edge as root with a gradient": backward(
        lambda t, x: edge(t, square(t, x)), lambda t, x, y: ones(t, 3)
    ),
    "edges as roots": backward(lambda t, x: [edge(t, total(t, x)), edge(t, x.sum())]),
    "an edge of several elements": backward(lambda t, x: edge(t, square(t, x))),
    "an edge with a wrong shape": backward(
        lambda t, x: edge(t, square(t, x)), lambda t, x, y: ones(t, 4)
    ),
    "an edge with another dtype": backward(
        lambda t, x: edge(t, square(t, x)), lambda t, x, y: ones(t, 3, dtype="float32")
    ),
    "an edge with a complex gradient": backward(
        lambda t, x: edge(t, square(t, x)), lambda t, x, y: ones(t, 3, dtype="complex128")
    ),
    "the edge of a leaf": backward(lambda t, x: edge(t, x), lambda t, x, y: ones(t, 3)),
    "an edge and a tensor": backward(lambda t, x: [edge(t, total(t, x)), x.sum()]),
}


@pytest.mark.parametrize("name", cases(BACKWARD, ["inputs, a dict", "inputs, a mapping"]))
def test_backward(name: str) -> None:
    compare(BACKWARD[name])


def test_what_pytorch_answers_by_accident() -> None:
    """With an AssertionError, or by comparing tensors."""
    for roots in ([3.0], "y", (cugrad.ones((), requires_grad=True), None)):
        with pytest.raises(TypeError, match=r"element \d of tensors must be a Tensor, got"):
            cugrad.autograd.backward(roots)
    x = leaf(cugrad, 3)
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[1\] has a shape of"):
        cugrad.autograd.backward((x.sum(), x * 2), (None, ones(cugrad, 2)))


# Tensor.backward ----------------------------------------------------------------------------------


def method(root: Callable[[Library, Any], Any], *args: Any, **options: Any) -> Case:
    def call(t: Library) -> Any:
        x = leaf(t, 3)
        y = root(t, x)
        given = [a(t, x, y) if callable(a) else a for a in args]
        named = {k: v(t, x, y) if callable(v) else v for k, v in options.items()}
        return [y.backward(*given, **named), x.grad]

    return call


METHOD: dict[str, Case] = {
    "scalar": method(total),
    "several": method(square),
    "a gradient": method(square, lambda t, x, y: ones(t, 3)),
    "by name": method(square, gradient=lambda t, x, y: ones(t, 3)),
    "a wrong shape": method(square, lambda t, x, y: ones(t, 2)),
    "a list": method(square, lambda t, x, y: [ones(t, 3)]),
    "inputs": method(total, inputs=lambda t, x, y: x),
    "inputs, none": method(total, inputs=[]),
    "retain_graph": method(total, None, True),
    "create_graph": method(total, None, None, True),
    "no grad": method(lambda t, x: x.detach().sum()),
    "an unknown argument": method(total, keep=True),
}


@pytest.mark.parametrize("call", METHOD.values(), ids=METHOD)
def test_tensor_backward(call: Case) -> None:
    compare(call)


# grad ---------------------------------------------------------------------------------------------


def grad(
    root: Callable[[Library, Any, Any], Any], inputs: Any = None, *args: Any, **options: Any
) -> Case:
    """Calls `autograd.grad(root(x, z), inputs or x, ...)` of two leaves x, z; .grad stays None."""

    def call(t: Library) -> Any:
        x, z = leaf(t, 3), leaf(t, 3)
        y = root(t, x, z)
        fill = lambda a: a(t, x, z, y) if callable(a) else a
        wanted = x if inputs is None else fill(inputs)
        found = t.autograd.grad(
            y, wanted, *[fill(a) for a in args], **{k: fill(v) for k, v in options.items()}
        )
        return [found, x.grad, z.grad]

    return call


product = lambda t, x, z: (x * x * z).sum()
alone = lambda t, x, z: (x * x).sum()
both = lambda t, x, z, y: (x, z)
vector = lambda t, x, z: x * x * z

GRAD: dict[str, Case] = {
    "one": grad(product),
    "two": grad(product, both),
    "a list": grad(product, lambda t, x, z, y: [x, z]),
    "a generator": grad(product, lambda t, x, z, y: (v for v in (x, z))),
    "a dict": grad(product, lambda t, x, z, y: {"x": x, "z": z}),
    "a dict, unused": grad(alone, lambda t, x, z, y: {"x": x, "z": z}),
    "a dict, materialized": grad(
        alone, lambda t, x, z, y: {"x": x, "z": z}, materialize_grads=True
    ),
    "a mapping": grad(product, lambda t, x, z, y: MappingProxyType({"x": x})),
    "an empty list": grad(product, lambda t, x, z, y: []),
    "an empty dict": grad(product, lambda t, x, z, y: {}),
    "a number": grad(product, lambda t, x, z, y: 3.0),
    "a number in a list": grad(product, lambda t, x, z, y: [x, 3.0]),
    "None in a list": grad(product, lambda t, x, z, y: [x, None]),
    "the same twice": grad(product, lambda t, x, z, y: [x, x]),
    "the root": grad(product, lambda t, x, z, y: y),
    "the root and a leaf": grad(product, lambda t, x, z, y: [y, x]),
    "an edge": grad(product, lambda t, x, z, y: edge(t, x)),
    "edges and tensors": grad(product, lambda t, x, z, y: [edge(t, x), z]),
    "the edge of the root": grad(product, lambda t, x, z, y: edge(t, y)),
    "no grad": grad(product, lambda t, x, z, y: x.detach()),
    "no grad of two": grad(product, lambda t, x, z, y: [x, x.detach()]),
    "no grad, unused allowed": grad(product, lambda t, x, z, y: x.detach(), allow_unused=True),
    "unused": grad(alone, both),
    "unused, the first": grad(alone, lambda t, x, z, y: (z, x)),
    "unused allowed": grad(alone, both, allow_unused=True),
    "unused forbidden": grad(alone, both, allow_unused=False),
    "unused, an edge": grad(alone, lambda t, x, z, y: [x, edge(t, z)]),
    "a descendant of the root": grad(alone, lambda t, x, z, y: y * 2),
    "a sibling": grad(alone, lambda t, x, z, y: x * 2),
    "materialized": grad(alone, both, materialize_grads=True),
    "materialized, create_graph": grad(alone, both, materialize_grads=True, create_graph=True),
    "materialized, unused allowed": grad(alone, both, materialize_grads=True, allow_unused=True),
    "materialized, unused forbidden": grad(
        alone, both, materialize_grads=True, allow_unused=False
    ),
    "materialized, an edge": grad(
        alone, lambda t, x, z, y: [x, edge(t, z)], materialize_grads=True
    ),
    "materialized, an edge that is used": grad(
        alone, lambda t, x, z, y: [edge(t, x), z], materialize_grads=True
    ),
    "not only inputs": grad(product, only_inputs=False),
    "create_graph": grad(product, create_graph=True),
    "retain_graph": grad(product, retain_graph=True),
    "several elements": grad(vector),
    "grad_outputs": grad(vector, None, lambda t, x, z, y: ones(t, 3)),
    "grad_outputs, a list": grad(vector, None, lambda t, x, z, y: [ones(t, 3)]),
    "grad_outputs, a wrong shape": grad(vector, None, lambda t, x, z, y: ones(t, 2)),
    "grad_outputs, float32": grad(vector, None, lambda t, x, z, y: ones(t, 3, dtype="float32")),
    "grad_outputs, complex": grad(vector, None, lambda t, x, z, y: ones(t, 3, dtype="complex64")),
    "grad_outputs, a number": grad(vector, None, 1.0),
    "grad_outputs, a number in a list": grad(vector, None, [1.0]),
    "grad_outputs, too few": grad(
        lambda t, x, z: (x.sum(), z.sum()), both, lambda t, x, z, y: [ones(t)]
    ),
    "grad_outputs, with a history": grad(
        vector, None, lambda t, x, z, y: ones(t, 3) * z, create_graph=True
    ),
    "no outputs": grad(lambda t, x, z: ()),
    "an output without grad": grad(lambda t, x, z: x.detach().sum()),
    "two outputs, one without grad": grad(lambda t, x, z: (x.sum(), x.detach().sum())),
    "an output that is a number": grad(lambda t, x, z: 3.0),
    "an output that is None": grad(lambda t, x, z: None),
    "an output that is an edge": grad(lambda t, x, z: edge(t, product(t, x, z))),
    "an output that is an edge, with a gradient": grad(
        lambda t, x, z: edge(t, vector(t, x, z)), None, lambda t, x, z, y: ones(t, 3)
    ),
    "an output that is the input": grad(lambda t, x, z: x, None, lambda t, x, z, y: ones(t, 3)),
    "batched": grad(vector, None, lambda t, x, z, y: t.eye(3).double(), is_grads_batched=True),
    "batched, two inputs": grad(
        vector, both, lambda t, x, z, y: t.eye(3).double(), is_grads_batched=True
    ),
    "batched, create_graph": grad(
        vector, both, lambda t, x, z, y: t.eye(3).double(), is_grads_batched=True,
        create_graph=True,
    ),
    "batched, unused": grad(
        lambda t, x, z: x * x, both, lambda t, x, z, y: t.eye(3).double(), is_grads_batched=True
    ),
    "batched, unused allowed": grad(
        lambda t, x, z: x * x, both, lambda t, x, z, y: t.eye(3).double(), is_grads_batched=True,
        allow_unused=True,
    ),
    "batched, materialized": grad(
        lambda t, x, z: x * x, both, lambda t, x, z, y: t.eye(3).double(), is_grads_batched=True,
        materialize_grads=True,
    ),
    "batched, a wrong shape": grad(
        vector, None, lambda t, x, z, y: ones(t, 2, 4), is_grads_batched=True
    ),
    "batched, no batch": grad(vector, None, lambda t, x, z, y: ones(t, 3), is_grads_batched=True),
    "batched, a scalar": grad(product, None, lambda t, x, z, y: ones(t, 4), is_grads_batched=True),
    "batched, two outputs": grad(
        lambda t, x, z: (x * x, z.sum()), both,
        lambda t, x, z, y: (ones(t, 2, 3), ones(t, 2)), is_grads_batched=True,
    ),
    "batched, of two sizes": grad(
        lambda t, x, z: (x * x, z.sum()), both,
        lambda t, x, z, y: (ones(t, 2, 3), ones(t, 4)), is_grads_batched=True,
    ),
    "batched, an edge": grad(
        lambda t, x, z: edge(t, vector(t, x, z)), None, lambda t, x, z, y: ones(t, 2, 3),
        is_grads_batched=True,
    ),
    "batched, with another dtype": grad(
        vector, None, lambda t, x, z, y: t.eye(3), is_grads_batched=True
    ),
    "batched, None": grad(product, None, None, is_grads_batched=True),
}  # fmt: skip


NEWER = ["a dict", "a dict, unused", "a dict, materialized", "a mapping", "an empty list",
         "an empty dict", "unused", "unused, the first", "unused forbidden", "unused, an edge",
         "a descendant of the root", "a sibling", "no outputs", "batched, unused"]  # fmt: skip


@pytest.mark.parametrize("name", cases(GRAD, NEWER))
def test_grad(name: str) -> None:
    compare(GRAD[name])


# Devices and transforms ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["backward", "grad", "Tensor.backward"])
def test_a_gradient_on_another_device(name: str) -> None:
    def call(t: Library, device: str) -> Any:
        x = leaf(t, 3)
        y, g = x * x, t.ones(3, dtype=t.float64, device=device)
        if name == "grad":
            return t.autograd.grad(y, x, g)
        return t.autograd.backward(y, g) if name == "backward" else y.backward(g)

    ours, theirs = (
        outcome(lambda t: call(t, "simulated"), cugrad),
        outcome(lambda t: call(t, "meta"), torch),
    )
    assert (ours[0], ours[1].replace("simulated:0", "meta")) == theirs


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp", "vmap", "jacrev"])
def test_backward_inside_a_transform(transform: str) -> None:
    w = {t: t.ones(3, requires_grad=True) for t in (cugrad, torch)}

    def call(t: Library) -> Any:
        def f(v: Any) -> Any:
            (v * w[t]).sum().backward()
            return v.sum()

        x = t.ones(3)
        if transform in ("vjp", "jvp"):
            given = ((x,), (x,)) if transform == "jvp" else (x,)
            return getattr(t.func, transform)(f, *given)
        return getattr(t.func, transform)(f)(t.ones(2, 3) if transform == "vmap" else x)

    compare(call)


# Twice --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [{}, {"retain_graph": True}, {"create_graph": True},
                                   {"create_graph": True, "retain_graph": False}])  # fmt: skip
@pytest.mark.parametrize("name", ["square", "exp", "sum", "mul by a number", "view", "mixed"])
def test_a_second_backward(name: str, first: dict[str, bool]) -> None:
    """Only what saved something is freed."""
    functions: dict[str, Callable[[Any], Any]] = {
        "square": lambda x: (x * x).sum(), "exp": lambda x: x.exp().sum(),
        "sum": lambda x: x.sum(), "mul by a number": lambda x: (x * 3).sum(),
        "view": lambda x: x.reshape(3, 1).t().sum(), "mixed": lambda x: (x.exp() + x).sum(),
    }  # fmt: skip

    def call(t: Library) -> Any:
        x = leaf(t, 3)
        y = functions[name](x)
        y.backward(**first)
        y.backward()
        return x.grad

    compare(call)


@pytest.mark.parametrize("wanted", ["x", "y", "both"])
def test_a_second_grad(wanted: str) -> None:
    def call(t: Library) -> Any:
        x = leaf(t, 3)
        y = x.exp()
        z = (y * y).sum()
        given = {"x": [x], "y": [y], "both": [x, y]}[wanted]
        t.autograd.grad(z, given)
        return t.autograd.grad(z, given)

    compare(call)


def test_saved_tensors_after_backward() -> None:
    def call(t: Library) -> Any:
        y = leaf(t, 3).exp()
        y.sum().backward()
        return y.grad_fn._saved_result

    compare(call)


# Gradient edges -----------------------------------------------------------------------------------


def test_a_gradient_edge_put_together_by_hand() -> None:
    def call(t: Library) -> Any:
        x = leaf(t, 3)
        y = x * x
        known = t.autograd.graph.GradientEdge(y.grad_fn, 0)
        found = t.autograd.grad(known, x, ones(t, 3), retain_graph=True)
        of_leaf = t.autograd.graph.GradientEdge(y.grad_fn.next_functions[0][0], 0)
        return found, t.autograd.grad(y.sum(), [of_leaf, known]), known == edge(t, y)[:2]

    compare(call)


def test_the_edge_of_one_output_of_several() -> None:
    def call(t: Library) -> Any:
        x = leaf(t, 4)
        a, b = x.split(2)
        loss = (a * a).sum() + b.sum() * 3
        edges = [edge(t, b), edge(t, a)]
        return t.autograd.grad(loss, edges), [e.output_nr for e in edges]

    compare(call)


# Gradients that do not come -----------------------------------------------------------------------


def absent(t: Library) -> Any:
    """The identity, whose backward returns None."""

    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    made: Any = type("Absent", (t.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(lambda ctx, g: None),
    })  # fmt: skip
    return made.apply


def seen(t: Library, log: list[Any], materialize: bool) -> Any:
    """Twice the identity, which logs what its backward is given."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(materialize)
        return x * 2, x * 3

    def backward(ctx: Any, *gradients: Any) -> Any:
        log.append([None if g is None else g.tolist() for g in gradients])
        return None if gradients[0] is None else gradients[0] * 2

    made: Any = type("Seen", (t.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward),
    })  # fmt: skip
    return made.apply


ABSENT: dict[str, Callable[[Library, Any, Any], Any]] = {
    "straight": lambda t, none, f: none(f[0]),
    "through ops": lambda t, none, f: none((f[0] * 3).exp().reshape(3, 1)),
    "through both": lambda t, none, f: none(f[0] * f[1]),
    "and a gradient": lambda t, none, f: none(f[0]) + f[0] * 2,
    "and a gradient for the other": lambda t, none, f: none(f[0]) + f[1],
    "through a hook": lambda t, none, f: none(f[0].clone()),
}


@pytest.mark.parametrize("create_graph", [False, True], ids=["", "create_graph"])
@pytest.mark.parametrize("materialize", [True, False], ids=["zeros", "None"])
@pytest.mark.parametrize("way", ABSENT.values(), ids=ABSENT)
def test_a_function_is_told_of_absent_gradients(
    way: Any, materialize: bool, create_graph: bool
) -> None:
    def call(t: Library) -> Any:
        x, log = leaf(t, 3), []  # type: ignore[var-annotated]
        y = way(t, absent(t), seen(t, log, materialize)(x))
        y.sum().backward(create_graph=create_graph)
        other = leaf(t, 3)
        y = way(t, absent(t), seen(t, log, materialize)(other))
        found = t.autograd.grad(y.sum(), other, allow_unused=True, create_graph=create_graph)
        return log, x.grad, found

    compare(call)


def test_ops_make_nothing_of_nothing() -> None:
    def call(t: Library) -> Any:
        x, z = leaf(t, 3), leaf(t, 3)
        y = x * z
        hooks: list[Any] = []
        y.register_hook(lambda g: hooks.append(g is None))
        absent(t)(y).sum().backward()
        return x.grad, z.grad, hooks

    compare(call)
