"""Derivatives as functions of functions: grad, vjp, jvp, and the Jacobians made of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..autograd import grad as autograd_grad
from ..autograd.dual import enter, leave, set_tangent, tangent_of
from ..autograd.engine import reachable
from ..autograd.forward_ad import primal_of
from ..autograd.mode import enable_grad
from ..autograd.node import Output, edge_of
from ..autograd.record import recorded
from ..backends.batched import GRAD, active, levels_of, running
from ..creation import eye, zeros_like
from ..tensor import Tensor
from .batching import vmap
from .trees import flatten, tree_map, unflatten

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]

Argnums = int | tuple[int, ...]


def _fresh(x: Any) -> Any:
    """A tensor to differentiate with respect to: with the history that it had, and its own edge.

    Inside vmap it is one per example, also where the value is the same for all: gradients are then
    those of each example.
    """
    if not isinstance(x, Tensor) or not (x.is_floating_point() or x.is_complex()):
        return x
    for level in running.levels:
        if level not in levels_of(x._array):
            x = recorded.vmap_lift(x, level)
    if x.requires_grad:
        return x.view_as(x)
    return _cut(x, lambda tangent: tangent).requires_grad_()


def _cut(x: Tensor, of_tangent: Callable[[Tensor], Tensor]) -> Tensor:
    """`x.detach()`, which keeps the tangents of forward mode."""
    out = x.detach()
    for level, tangent in ((x._rare.tangents if x._rare is not None else None) or {}).items():
        if tangent is not None:
            set_tangent(out, level, of_tangent(tangent))
    return out


def _settled(results: list[Any], inputs: list[Any]) -> list[Any]:
    """The results, cut from a graph that leads to nothing but the fresh inputs.

    A graph that leads further, to what an outer transform or the caller differentiates, stays.
    """
    own = {id(x) for x in inputs if isinstance(x, Tensor) and x.is_leaf}

    def cut(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.requires_grad:
            return x
        edge = edge_of(x)
        ends = reachable([edge.grad_fn if type(edge) is Output else edge])
        if any(isinstance(end, Tensor) and id(end) not in own for end in ends):
            return x
        return _cut(x, cut)

    return [cut(x) for x in results]


def _tensors(leaves: list[Any]) -> list[Tensor]:
    return [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]


def _arguments(args: tuple[Any, ...], argnums: Argnums, name: str) -> tuple[int, ...]:
    wanted = argnums if isinstance(argnums, tuple) else (argnums,)
    if not wanted:
        raise RuntimeError(f"{name}: argnums is empty: name at least one argument")
    if len({a % len(args) for a in wanted if -len(args) <= a < len(args)}) < len(wanted):
        raise RuntimeError(
            f"{name}: argnums={argnums} do not name different ones of {len(args)} positional inputs"
        )
    return tuple(a % len(args) for a in wanted)


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of `func`, and what `func` returned.

    `func` returns one scalar tensor, or with `has_aux` that and something to pass through:
    the result is then `(gradient, (value, aux))`. See `grad`.

    >>> import cugrad as torch
    >>> torch.func.grad_and_value(lambda x: x ** 2)(torch.tensor(3.))
    (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        where = _arguments(args, argnums, "grad")
        with enable_grad(), active(GRAD):
            inside = list(args)
            for i in where:
                inside[i] = tree_map(_fresh, args[i])
            output, aux = _split(func(*inside, **kwargs), has_aux, "grad")
            if not isinstance(output, Tensor):
                raise RuntimeError(
                    "Expected f given to grad(f)(*args) to return a Tensor, got "
                    f"{type(output).__name__}"
                )
            if output.ndim:
                raise RuntimeError(
                    "Expected f given to grad(f)(*args) to return a scalar tensor. Got tensor with "
                    f"{output.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            leaves, form = flatten([inside[i] for i in where])
            found = _pullback([output], _tensors(leaves), [None])
            results = _replaced(leaves, found)
            fresh = list(leaves)
            settled = _settled([*results, output, *flatten(aux)[0]], fresh)
        gradients = unflatten(form, settled[: len(results)])
        gradient = gradients[0] if isinstance(argnums, int) else tuple(gradients)
        value = settled[len(results)]
        if has_aux:
            return gradient, (value, unflatten(flatten(aux)[1], settled[len(results) + 1 :]))
        return gradient, value

    return wrapped


def _split(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{name}: with has_aux=True the function must return a tuple (output, aux), got "
            f"{type(result).__name__}"
        )
    return result


def _pullback(outputs: list[Any], leaves: list[Tensor], vectors: list[Any]) -> list[Any]:
    """The gradients of the leaves, zeros where an output does not depend on one."""
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs or not leaves:
        return [zeros_like(x) for x in leaves]
    return list(
        autograd_grad(
            [o for o, _ in pairs], leaves, [v for _, v in pairs],
            create_graph=True, allow_unused=True, materialize_grads=True,
        )
    )  # fmt: skip


def _replaced(leaves: list[Any], found: list[Any]) -> list[Any]:
    """The leaves with gradients where there are any; other leaves have none."""
    gradients = iter(found)
    return [next(gradients) if isinstance(x, Tensor) and x.requires_grad else None for x in leaves]


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of `func`, which returns one scalar tensor.

    Args:
        func: the function to differentiate.
        argnums: which positional argument, or a tuple of them; each may be nested tensors. The
            gradient has the form of the argument.
        has_aux: `func` returns `(output, aux)`, and the result is `(gradient, aux)`.

    Calls nest for higher derivatives, and compose with `vmap` for those of each example.

    >>> import cugrad as torch
    >>> torch.func.grad(torch.func.grad(torch.sin))(torch.tensor(0.5))
    tensor(-0.4794)
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`func(*primals)`, and a function from vectors like the outputs to vector-Jacobian products.

    Returns `(output, vjp_fn)`, or with `has_aux` `(output, vjp_fn, aux)`. `vjp_fn` returns one
    product per primal, as a tuple, or the product alone where there is one primal.

    >>> import cugrad as torch
    >>> output, pull = torch.func.vjp(torch.sin, torch.zeros(2))
    >>> pull(torch.ones(2))
    (tensor([1., 1.]),)
    """
    with enable_grad(), active(GRAD):
        inside = tree_map(_fresh, tuple(primals))
        output, aux = _split(func(*inside), has_aux, "vjp")
    leaves, form = flatten(inside)
    outputs, out_form = flatten(output)
    for o in outputs:
        if not isinstance(o, Tensor):
            raise RuntimeError(
                f"vjp(f, *primals): Expected f to return only tensors, got {type(o).__name__}"
            )

    def vjp_fn(*cotangents: Any) -> Any:
        given = cotangents[0] if len(cotangents) == 1 and not isinstance(output, tuple) else (
            cotangents if len(cotangents) != 1 else cotangents[0])  # fmt: skip
        vectors, given_form = flatten(given)
        if given_form != out_form and len(vectors) != len(outputs):
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function: got {len(vectors)} leaves, want {len(outputs)}"
            )
        with enable_grad():
            found = _pullback(outputs, _tensors(leaves), vectors)
            results = _settled(_replaced(leaves, found), leaves)
        return unflatten(form, results)

    settled = _settled([*outputs, *flatten(aux)[0]], leaves)
    result = unflatten(out_form, settled[: len(outputs)])
    if has_aux:
        return result, vjp_fn, unflatten(flatten(aux)[1], settled[len(outputs) :])
    return result, vjp_fn


def jvp(
    func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False,
    has_aux: bool = False,
) -> Any:  # fmt: skip
    """`func(*primals)` and its derivative along `tangents`, in forward mode.

    Args:
        primals: a tuple of the arguments of `func`, tensors or nested ones.
        tangents: of the same form and shapes.
        strict: an output that does not depend on the inputs is an error instead of zeros.
        has_aux: `func` returns `(output, aux)`; the result is `(output, jvp, aux)`.

    >>> import cugrad as torch
    >>> torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))
    (tensor([0.]), tensor([1.]))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError(
            f"jvp(f, primals, tangents): Expected primals and tangents to be tuples, got "
            f"{type(primals).__name__} and {type(tangents).__name__}"
        )
    points, form = flatten(primals)
    along, along_form = flatten(tangents)
    if form != along_form:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python "
            f"structure: got {len(points)} and {len(along)} leaves"
        )
    if not points:
        raise RuntimeError("jvp(f, primals, tangents): Expected at least one Tensor in primals")
    for x, t in zip(points, along, strict=True):
        if not isinstance(x, Tensor) or not isinstance(t, Tensor):
            raise RuntimeError(
                "jvp(f, primals, tangents): Expected primals and tangents to contain only Tensors"
            )
        if x.shape != t.shape:
            raise RuntimeError(
                "jvp(f, primals, tangents): Expected primal and tangent to have the same shape, "
                f"got {list(x.shape)} and {list(t.shape)}"
            )
    level = enter()
    try:
        duals = []
        for x, t in zip(points, along, strict=True):
            dual = x.view_as(x)
            set_tangent(dual, level, t)
            duals.append(dual)
        with active(level):
            output, aux = _split(func(*unflatten(form, duals)), has_aux, "jvp")
        outputs, out_form = flatten(output)
        results, found = [], []
        for o in outputs:
            if not isinstance(o, Tensor):
                raise RuntimeError(
                    "jvp(f, primals, tangents): Expected f to return only tensors, got "
                    f"{type(o).__name__}"
                )
            tangent = tangent_of(o, level)
            if tangent is None:
                if strict:
                    raise RuntimeError(
                        "jvp(f, primals, tangents, strict=True): The output of f is independent "
                        "of the inputs. This is not allowed with strict=True."
                    )
                tangent = zeros_like(o)
            results.append(primal_of(o, level))
            found.append(tangent)
        aux = tree_map(lambda x: primal_of(x, level) if isinstance(x, Tensor) else x, aux)
    finally:
        leave(level)
    pair = unflatten(out_form, results), unflatten(out_form, found)
    return (*pair, aux) if has_aux else pair


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`func(*primals)`, and its derivative there as a function of tangents.

    >>> import cugrad as torch
    >>> output, push = torch.func.linearize(torch.sin, torch.zeros(2))
    >>> push(torch.ones(2))
    tensor([1., 1.])
    """

    def push(*tangents: Any) -> Any:
        return jvp(func, primals, tangents)[1]

    return func(*primals), push


# Jacobians ----------------------------------------------------------------------------------------


def _basis(x: Tensor) -> Tensor:
    """Every unit vector of the shape of `x`, as a first dimension."""
    unit = eye(x.numel(), dtype=x.dtype, device=x.device)
    return unit.reshape(x.numel(), *x.shape)


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

    >>> import cugrad as torch
    >>> torch.func.jacrev(lambda x: x ** 2)(torch.tensor([1., 2.]))
    tensor([[2., 0.],
            [0., 4.]])
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        where = _arguments(args, argnums, "jacrev")
        call = _partial(func, args, kwargs, where)
        output, pull, *aux = vjp(call, *[args[i] for i in where], has_aux=has_aux)
        outputs, form = flatten(output)
        columns = []
        for k, o in enumerate(outputs):

            def row(v: Tensor, k: int = k) -> Any:
                given = [v if j == k else zeros_like(x) for j, x in enumerate(outputs)]
                return pull(unflatten(form, given))

            if o.numel() == 0:
                found = tree_map(lambda x: x.new_zeros((0, *x.shape)),
                                 tuple(args[i] for i in where))  # fmt: skip
            else:
                found = vmap(row, randomness="same", chunk_size=chunk_size)(_basis(o))
            shape = o.shape
            each = tree_map(functools.partial(_split_first, shape), found)
            columns.append(each[0] if isinstance(argnums, int) else tuple(each))
        result = unflatten(form, columns)
        return (result, aux[0]) if has_aux else result

    return wrapped


def _split_first(shape: Any, x: Tensor) -> Tensor:
    return x.reshape(*shape, *x.shape[1:])


def _partial(func: Any, args: Any, kwargs: Any, where: tuple[int, ...]) -> Callable[..., Any]:
    """`func` of the arguments at `where` alone."""

    def call(*given: Any) -> Any:
        full = list(args)
        for i, x in zip(where, given, strict=True):
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

    Cheaper than `jacrev` where there are fewer inputs than outputs.

    >>> import cugrad as torch
    >>> torch.func.jacfwd(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        where = _arguments(args, argnums, "jacfwd")
        call = _partial(func, args, kwargs, where)
        primals = tuple(args[i] for i in where)
        points, form = flatten(primals)
        aux: list[Any] = []

        def column(k: int) -> Any:
            def push(v: Tensor) -> Any:
                along = [v if j == k else zeros_like(x) for j, x in enumerate(points)]
                result = jvp(call, primals, unflatten(form, along), has_aux=has_aux)
                aux[:] = result[2:]
                return result[1]

            found = vmap(push, out_dims=-1, randomness=randomness, chunk_size=chunk_size)(
                _basis(points[k])
            )
            leaves, out_form = flatten(found)
            shape = points[k].shape
            return [y.reshape(*y.shape[:-1], *shape) for y in leaves], out_form

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

