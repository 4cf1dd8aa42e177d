"""Jacobians and Hessians: products of one transform with all unit vectors, batched by vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..functions.calls.arguments import as_own
from ..functions.creation.factories import eye, zeros_like
from ..tensor import Tensor
from .batching import vmap
from .transforms import Argnums, chosen, demand_tensor, jvp, vjp
from .trees import flatten, tree_map, unflatten

__all__ = ["hessian", "jacfwd", "jacrev"]


def _basis(x: Tensor) -> Tensor:
    """Every unit vector of the shape of `x`, as a first dimension."""
    unit = eye(x.numel(), dtype=x.dtype, device=x.device)
    return unit.reshape(x.numel(), *x.shape)


def _demand_real(what: str, tensors: list[Any]) -> None:
    for i, x in enumerate(tensors):
        if x.is_complex():
            raise RuntimeError(
                f"{what} to be real but received complex tensor at flattened input idx: {i}"
            )


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian of `func`, row by row in reverse mode, all rows of a chunk at once.

    The result has the form of the output, and in it that of the argument, each of shape
    `(*output.shape, *input.shape)`. `chunk_size` rows are computed at once, all by default.
    RuntimeError for complex inputs and outputs.

    >>> import cugrad as torch
    >>> torch.func.jacrev(lambda x: x ** 2)(torch.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        where = chosen(args, argnums)
        call = _partial(func, args, kwargs, where)
        primals = [args[i] for i in where]
        output, pull, *aux = vjp(call, *primals, has_aux=has_aux)
        outputs, form = flatten(output)
        _demand_real("jacrev: Expected all inputs", flatten(primals)[0])
        _demand_real("jacrev: Expected all outputs", outputs)
        columns = []
        for k, o in enumerate(outputs):

            def row(v: Tensor, k: int = k) -> Any:
                vectors = [v if j == k else zeros_like(x) for j, x in enumerate(outputs)]
                return pull(unflatten(form, vectors))

            if o.numel() == 0:
                rows = tree_map(lambda x: x.new_zeros((0, *x.shape)),
                                 tuple(args[i] for i in where))  # fmt: skip
            else:
                rows = vmap(row, randomness="same", chunk_size=chunk_size)(_basis(o))
            shape = o.shape
            each = tree_map(functools.partial(_split_first, shape), rows)
            columns.append(each[0] if isinstance(argnums, int) else tuple(each))
        result = unflatten(form, columns)
        return (result, aux[0]) if has_aux else result

    return wrapped


def _split_first(shape: Any, x: Tensor) -> Tensor:
    return as_own(x.reshape(*shape, *x.shape[1:]), ())  # zeros may be one, expanded


def _partial(func: Any, args: Any, kwargs: Any, where: tuple[int, ...]) -> Callable[..., Any]:
    """`func` of the arguments at `where` alone."""

    def call(*values: Any) -> Any:
        full = list(args)
        for i, x in zip(where, values, strict=True):
            full[i] = x
        return func(*full, **kwargs)

    return call


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian of `func`, column by column in forward mode, all columns of a chunk at once.

    Cheaper than `jacrev` where there are fewer inputs than outputs. RuntimeError for complex ones.

    >>> import cugrad as torch
    >>> torch.func.jacfwd(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        where = chosen(args, argnums)
        call = _partial(func, args, kwargs, where)
        primals = tuple(args[i] for i in where)
        points, form = flatten(primals)
        if not points:
            raise AssertionError(
                "jacfwd: got no tensor to differentiate by: tensors must have at least one element"
            )
        for x in points:
            demand_tensor(x)
        _demand_real("jacfwd: Expected all inputs", points)
        aux: list[Any] = []

        def column(k: int) -> Any:
            def push(v: Tensor) -> Any:
                along = [v if j == k else zeros_like(x) for j, x in enumerate(points)]
                result = jvp(call, primals, unflatten(form, along), has_aux=has_aux)
                aux[:] = result[2:]
                _demand_real("jacfwd: Expected all outputs", flatten(result[0])[0])
                return result[1]

            jacobian = vmap(push, out_dims=-1, randomness=randomness, chunk_size=chunk_size)(
                _basis(points[k])
            )
            leaves, out_form = flatten(jacobian)
            shape = points[k].shape
            return [as_own(y.reshape(*y.shape[:-1], *shape), ()) for y in leaves], out_form

        columns = [column(k) for k in range(len(points))]
        out_form = columns[0][1]
        results = []
        for nr in range(len(columns[0][0])):
            each = unflatten(form, [leaves[nr] for leaves, _ in columns])
            results.append(each[0] if isinstance(argnums, int) else tuple(each))
        result = unflatten(out_form, results)
        return (result, aux[0]) if has_aux else result

    return wrapped


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The Hessian of `func`: forward mode over reverse mode.

    >>> import cugrad as torch
    >>> torch.func.hessian(lambda x: (x ** 3).sum())(torch.tensor([1., 2.]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)
