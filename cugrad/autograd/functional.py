"""Products with Jacobians and Hessians, and these themselves, of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..backends import backend_of
from ..backends.several import there
from ..runtime.absent import explain
from ..tensor import Tensor, make
from .check.functional import (
    Tensors,
    check_depends,
    check_vector,
    fresh,
    gradients,
    nested,
    settled,
    tupled,
    with_zeros,
    zeros_like,
)
from .engine.batches import over_batch
from .forward_ad import dual_level, make_dual, unpack_dual
from .mode import enable_grad
from .recording.recorded import recorded

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Function = Callable[..., Any]
OUTPUTS = "outputs of the user-provided function"


def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, and the product of the vector `v` and its Jacobian there.

    Args:
        func: takes Tensors, returns a Tensor or a tuple of them.
        inputs: a Tensor or a tuple, the point.
        v: of the form and shapes of the outputs; None for an output of one element, for 1.
        create_graph: both results can be differentiated.
        strict: RuntimeError where an input or an output plays no part, instead of zeros.

    Returns the outputs, and the product, of the form and shapes of `inputs`.

    >>> import cugrad as torch
    >>> from cugrad.autograd.functional import vjp
    >>> vjp(lambda x: x.exp().sum(dim=1), torch.zeros(2, 3), torch.tensor([1., 2.]))
    (tensor([3., 3.]), tensor([[1., 1., 1.],
            [2., 2., 2.]]))
    >>> vjp(lambda x, y: 2 * x + 3 * y, (torch.ones(2), torch.ones(2)), torch.ones(2))
    (tensor([5., 5.]), (tensor([2., 2.]), tensor([3., 3.])))
    """
    with enable_grad():
        several, arguments = tupled(inputs, "inputs", "vjp")
        points = fresh(arguments, create_graph)
        many, outputs = tupled(func(*points), OUTPUTS, "vjp")
        check_depends(outputs, "outputs", strict)
        vectors = None
        if v is not None:
            vectors = fresh(tupled(v, "v", "vjp")[1], create_graph, need_graph=False)
            check_vector(vectors, outputs, many)
        elif len(outputs) != 1 or outputs[0].numel() != 1:
            raise RuntimeError(
                "The vector v can only be None if the user-provided function returns a single "
                "Tensor with a single element."
            )
    with enable_grad() if create_graph else nullcontext():
        pulled = gradients(outputs, points, vectors, create_graph)
        product = with_zeros(pulled, points, strict, create_graph, "back")
    return nested(settled(outputs, create_graph), many), nested(
        settled(product, create_graph), several
    )


def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, and the product of its Jacobian there and the vector `v`.

    Computed as the derivative of a vector-Jacobian product, which is linear in its vector: by two
    backward passes. `func.jvp` needs none. `v` has the form and shapes of `inputs`, and may be None
    where those have one element; the product has those of the outputs. All else is as for `vjp`.

    >>> import cugrad as torch
    >>> from cugrad.autograd.functional import jvp
    >>> jvp(lambda x: x.exp().sum(dim=1), torch.zeros(2, 3), torch.ones(2, 3))
    (tensor([3., 3.]), tensor([3., 3.]))
    >>> jvp(lambda x, y: 2 * x + 3 * y, (torch.ones(2),) * 2, (torch.ones(2),) * 2)
    (tensor([5., 5.]), tensor([5., 5.]))
    """
    with enable_grad():
        several, arguments = tupled(inputs, "inputs", "jvp")
        points = fresh(arguments, create_graph)
        vectors = _of_inputs(v, points, several, create_graph, "jvp")
        many, outputs = tupled(func(*points), OUTPUTS, "jvp")
        check_depends(outputs, "outputs", strict)
        along = tuple(zeros_like(o, requires_grad=True) for o in outputs)  # any values would do
        pulled = gradients(outputs, points, along, create_graph=True)
        check_depends(pulled, "grad_inputs", strict)
    with enable_grad() if create_graph else nullcontext():
        pushed = gradients(pulled, along, vectors, create_graph)
        product = with_zeros(pushed, outputs, strict, create_graph, "back_trick")
    return nested(settled(outputs, create_graph), many), nested(
        settled(product, create_graph), many
    )


def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, a Tensor of one element, and the product of `v` and its Hessian there.

    `v` and the product have the form and shapes of `inputs`. All else is as for `vjp`.

    >>> import cugrad as torch
    >>> from cugrad.autograd.functional import vhp
    >>> vhp(lambda x: (x ** 3).sum(), torch.tensor([1., 2.]), torch.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    with enable_grad():
        several, arguments = tupled(inputs, "inputs", "vhp")
        points = fresh(arguments, create_graph)
        vectors = _of_inputs(v, points, several, create_graph, "vhp")
        output = _scalar(func, points, strict, "vhp")
        first = gradients((output,), points, create_graph=True)
        check_depends(first, "jacobian", strict)
    with enable_grad() if create_graph else nullcontext():
        second = gradients(first, points, vectors, create_graph)
        product = with_zeros(second, points, strict, create_graph, "double_back")
    return settled((output,), create_graph)[0], nested(settled(product, create_graph), several)


def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, a Tensor of one element, and the product of its Hessian there and `v`.

    Slower than `vhp`, by one backward pass; the two are equal where the second derivatives are
    continuous. All else is as for `vhp`.

    >>> import cugrad as torch
    >>> from cugrad.autograd.functional import hvp
    >>> hvp(lambda x, y: (x * x * y).sum(), (torch.ones(1), torch.ones(1)),
    ...     (torch.ones(1), torch.zeros(1)))
    (tensor(1.), (tensor([2.]), tensor([2.])))
    """
    with enable_grad():
        several, arguments = tupled(inputs, "inputs", "hvp")
        points = fresh(arguments, create_graph)
        vectors = _of_inputs(v, points, several, create_graph, "hvp")
        output = _scalar(func, points, strict, "hvp")
        first = gradients((output,), points, create_graph=True)
        check_depends(first, "jacobian", strict)
        along = tuple(zeros_like(x, requires_grad=True) for x in points)
        pulled = gradients(first, points, along, create_graph=True)
        check_depends(first, "hessian", strict)
    with enable_grad() if create_graph else nullcontext():
        second = gradients(pulled, along, vectors, create_graph)
        product = with_zeros(second, points, strict, create_graph, "double_back_trick")
    return settled((output,), create_graph)[0], nested(settled(product, create_graph), several)


def _of_inputs(
    v: Any, points: Tensors, several: bool, create_graph: bool, name: str
) -> Tensors | None:
    """The vector of a product, of the shapes of the inputs."""
    if v is not None:
        vectors = fresh(tupled(v, "v", name)[1], create_graph, need_graph=False)
        check_vector(vectors, points, several)
        return vectors
    if len(points) != 1 or points[0].numel() != 1:
        raise RuntimeError(
            "The vector v can only be None if the input to the user-provided function is a single "
            "Tensor with a single element."
        )
    return None


def _scalar(func: Function, points: Tensors, strict: bool, name: str) -> Tensor:
    """The output of a function that returns a Tensor of one element."""
    many, outputs = tupled(func(*points), OUTPUTS, name)
    check_depends(outputs, "outputs", strict)
    if many:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )
    return outputs[0]


# Jacobians ----------------------------------------------------------------------------------------


def jacobian(
    func: Function, inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian of `func` at `inputs`.

    Args:
        func: takes Tensors, returns a Tensor or a tuple of them.
        inputs: a Tensor or a tuple, the point.
        create_graph: the result can be differentiated; in reverse mode only.
        strict: RuntimeError where an output does not depend on an input, instead of zeros; not with
            `vectorize`.
        vectorize: one backward pass for all rows at once, instead of one each.
        strategy: "reverse-mode", or "forward-mode", all columns at once, with `vectorize` only.

    Returns one Tensor per output and input, of shape `(*output.shape, *input.shape)`: in a tuple
    by output, if there are several, of tuples by input, if there are several. In reverse mode it
    has the dtype of the input, in forward mode that of the output.

    >>> import cugrad as torch
    >>> from cugrad.autograd.functional import jacobian
    >>> jacobian(lambda x: x.exp().sum(dim=1), torch.zeros(2, 2))
    tensor([[[1., 1.],
             [0., 0.]],
            [[0., 0.],
             [1., 1.]]])
    >>> jacobian(lambda x, y: 2 * x.exp() + 3 * y, (torch.zeros(2), torch.zeros(2)))
    (tensor([[2., 0.],
            [0., 2.]]), tensor([[3., 0.],
            [0., 3.]]))
    >>> jacobian(lambda x: x @ x, torch.ones(3), vectorize=True, strategy="forward-mode")
    tensor([2., 2., 2.])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                "torch.autograd.functional.jacobian: `create_graph=True` and "
                '`strategy="forward-mode"` are not supported together (yet). Please either set '
                '`create_graph=False` or `strategy="reverse-mode"`.'
            )
        return _by_columns(func, inputs, strict, vectorize)
    with enable_grad():
        several, arguments = tupled(inputs, "inputs", "jacobian")
        points = fresh(arguments, create_graph)
        many, outputs = tupled(func(*points), OUTPUTS, "jacobian")
        check_depends(outputs, "outputs", strict)
        if not vectorize:
            rows = tuple(_rows(o, i, points, create_graph, strict) for i, o in enumerate(outputs))
            return nested(settled(rows, create_graph), many, several)
        if strict:
            raise RuntimeError(
                "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
                "supported together. Please either set `strict=False` or `vectorize=False`."
            )
        rows = _all_rows(outputs, points, create_graph)
    return nested(settled(rows, create_graph), many, several)


def _rows(output: Tensor, nr: int, points: Tensors, create_graph: bool, strict: bool) -> Tensors:
    """The Jacobians of one output, by one backward pass for each of its elements."""
    rows: list[list[Tensor]] = [[] for _ in points]
    root = output.reshape(-1)[0] if output.is_complex() and output.numel() else output
    for k in range(output.numel()):
        row = gradients((root,), points, (_unit(output, k),), create_graph, retain_graph=True)
        for i, (g, x) in enumerate(zip(row, points, strict=True)):
            if strict and g is None:
                raise RuntimeError(
                    f"Output {nr} of the user-provided function is independent of input {i}. This "
                    "is not allowed in strict mode."
                )
            if strict and create_graph and g is not None and not g.requires_grad:
                raise RuntimeError(
                    "The jacobian of the user-provided function is independent of input "
                    f"{nr}. This is not allowed in strict mode when create_graph=True."
                )
            rows[i].append(zeros_like(x) if g is None else g)
    if not output.numel():
        raise RuntimeError("stack expects a non-empty TensorList")
    return tuple(
        recorded.stack(row, 0).view(*output.shape, *x.shape)
        for row, x in zip(rows, points, strict=True)
    )


def _unit(x: Tensor, k: int) -> Tensor | None:
    """The gradient of element `k`: zeros like a tensor, and a 1. None of a complex one, whose own
    gradient is an error.
    """
    return None if x.is_complex() else make(there(_unit_like, x._array, k))


def _unit_like(array: Any, k: int) -> Any:
    unit = backend_of(array).xp.zeros(array.size, array.dtype)
    unit[k] = 1
    return unit.reshape(array.shape)


def _unit_vectors(tensors: Tensors) -> Tensors:
    """The identity matrix over the elements of all tensors, cut into their columns."""
    total, start, parts = sum(x.numel() for x in tensors), 0, []
    for x in tensors:
        part = x.detach().new_zeros((total, x.numel()))
        part.diagonal(-start).fill_(1)
        start += x.numel()
        parts.append(part)
    return tuple(parts)


def _all_rows(outputs: Tensors, points: Tensors, create_graph: bool) -> tuple[Tensors, ...]:
    """The Jacobians of all outputs, by one backward pass over a batch of unit vectors."""
    sizes = [o.numel() for o in outputs]
    flat = tuple(o.reshape(-1) for o in outputs)
    jacobians = gradients(flat, points, _unit_vectors(outputs), create_graph, is_grads_batched=True)
    columns = []
    for g, x in zip(jacobians, points, strict=True):
        if g is None:
            g = zeros_like(x).expand(sum(sizes), *x.shape)
        parts = g.split(sizes, 0)
        columns.append([
            part.reshape(*o.shape, *x.shape) for part, o in zip(parts, outputs, strict=True)
        ])  # fmt: skip
    return tuple(zip(*columns, strict=True))


def _by_columns(func: Function, inputs: Any, strict: bool, vectorize: bool) -> Any:
    """The Jacobian in forward mode, over a batch of unit vectors."""
    if strict:
        raise RuntimeError(
            'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are '
            "not supported together (yet). Please either set `strict=False` or "
            '`strategy="reverse-mode"`.'
        )
    several, points = tupled(inputs, "inputs", "jacobian")
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is"  # as PyTorch
            "only implemented for `vectorize=True`."
        )
    shapes: list[Any] = []
    many = False

    def push(*tangents: Tensor) -> Tensors:
        nonlocal many
        with dual_level():
            duals = [
                make_dual(x, t.reshape(x.shape)) for x, t in zip(points, tangents, strict=True)
            ]
            many, outputs = tupled(func(*duals), OUTPUTS, "jacobian")
            pairs = [unpack_dual(o) for o in outputs]
            shapes[:] = [o.primal.shape for o in pairs]
            return tuple(zeros_like(p) if t is None else t for p, t in pairs)

    pushed = over_batch(push, _unit_vectors(points))
    sizes = [x.numel() for x in points]
    rows = []
    for column, shape in zip(pushed, shapes, strict=True):
        assert column is not None
        parts = column.split(sizes, 0)
        rows.append(tuple([
            part.movedim(0, -1).reshape(*shape, *x.shape)
            for part, x in zip(parts, points, strict=True)
        ]))  # fmt: skip
    return nested(tuple(rows), many, several)


def hessian(
    func: Function, inputs: Any, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Hessian of `func`, which returns a Tensor of one element, at `inputs`.

    The Jacobian of the Jacobian; the outer one is computed as `outer_jacobian_strategy`,
    `vectorize`, `strict` and `create_graph` say, see `jacobian`.

    Returns a Tensor of shape `(*input.shape, *input.shape)`, or for a tuple of inputs a tuple of
    tuples, where `[i][j]` is that of input i and input j.

    >>> import cugrad as torch
    >>> from cugrad.autograd.functional import hessian
    >>> hessian(lambda x: (x ** 3).sum(), torch.tensor([1., 2.]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    >>> hessian(lambda x, y: (x * x * y).sum(), (torch.ones(1), torch.ones(1)))
    ((tensor([[2.]]), tensor([[2.]])), (tensor([[2.]]), tensor([[0.]])))
    """
    several, arguments = tupled(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def scalar(*points: Tensor) -> Tensor:
        return _scalar(lambda: func(*points), (), strict, "hessian").squeeze()

    def first(*points: Tensor) -> Tensors:
        if outer_jacobian_strategy == "forward-mode":
            points = tuple(x.requires_grad_(True) for x in points)  # or `fresh` would detach them
        jacobians: Tensors = jacobian(scalar, points, create_graph=True)
        check_depends(jacobians, "jacobian", strict)
        return jacobians

    rows = jacobian(
        first, arguments, create_graph=create_graph, strict=strict, vectorize=vectorize,
        strategy=outer_jacobian_strategy,
    )  # fmt: skip
    return nested(rows, several, several)


explain(__name__)
