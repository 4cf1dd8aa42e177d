"""Derivatives as functions of functions: grad, vjp, jvp and linearize."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..autograd import grad as autograd_grad
from ..autograd.engine.reach import reachable
from ..autograd.forward.dual import enter, laid_out, leave, set_tangent, tangent_of
from ..autograd.forward_ad import check_dual, primal_of
from ..autograd.function import Error
from ..autograd.inference import out_of_inference
from ..autograd.mode import is_grad_enabled, state
from ..autograd.recording.node import edge_of, end_of
from ..autograd.recording.record import recorded
from ..autograd.transforms import GRAD, active, running
from ..backends.batched.arrays import levels_of
from ..functions.creation.factories import zeros_like
from ..runtime.kept import kept
from ..tensor import Tensor
from .trees import flatten, spelled, structure, tree_map, unflatten

__all__ = ["grad", "grad_and_value", "jvp", "linearize", "vjp"]

Argnums = int | tuple[int, ...]
GRADIENT, VJP, JVP = "grad_and_value(f)(*args)", "vjp(f, *primals)", "jvp(f, primals, tangents)"


def demand_tensor(x: Any) -> None:
    """ValueError for what is no tensor."""
    if not isinstance(x, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")


def _fresh(x: Any) -> Any:
    """A tensor to differentiate with respect to: with the history that it had, and its own edge.

    Inside vmap it is one per example, also where the value is the same for all: gradients are then
    those of each example.
    """
    demand_tensor(x)
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(
            f"only Tensors of floating point dtype can require gradients, got {x.dtype}"
        )
    for level in running.levels:
        if level not in levels_of(x._array):
            x = recorded.vmap_lift(x, level)
    if x.requires_grad:
        return _lifted(x)
    return _cut(x, lambda tangent: tangent).requires_grad_()


def _lifted(x: Tensor) -> Tensor:
    """The same elements, with a node that leads to `x`, for a function to which it is a leaf.

    It is no view: one gets another node when its elements are changed, by an optimizer for one, and
    gradients that are asked for behind that would not come to the one it had.
    """
    lifted = x.view_as(x)
    view = None if lifted._rare is None else lifted._rare.view
    if view is not None:
        view.release(lifted)
    lifted.rare.lifted = True
    return lifted


def _counted(argument: Any) -> Any:
    """An argument with tensors that backward may save in the place of inference tensors."""
    if isinstance(argument, Tensor):
        return _alias(argument)
    made_so = any(_is_uncounted(x) for x in flatten(argument)[0])
    return tree_map(_alias, argument) if made_so else argument


def _tangents(x: Tensor) -> dict[Any, Tensor | None]:
    """The tangents of forward mode, by level, as they are now."""
    return dict((x._rare.tangents if x._rare is not None else None) or {})


def _is_uncounted(x: Any) -> bool:
    """Of an inference tensor, and of one whose tangent is one."""
    if not isinstance(x, Tensor):
        return False
    tangents = _tangents(x)
    return x.is_inference() or bool(tangents) and any(map(_is_uncounted, tangents.values()))


def _alias(x: Any) -> Any:
    if not _is_uncounted(x):
        return x
    alias = x.detach() if x.is_inference() else x.view_as(x)
    if x.is_inference():
        alias._counter = None
    for level, tangent in _tangents(x).items():
        if tangent is not None:
            set_tangent(alias, level, _alias(tangent))
    return alias


def _cut(x: Tensor, of_tangent: Callable[[Tensor], Tensor]) -> Tensor:
    """`x.detach()`, which keeps the tangents of forward mode."""
    out = x.detach()
    for level, tangent in _tangents(x).items():
        if tangent is not None:
            set_tangent(out, level, of_tangent(tangent))
    return out


def _settled(results: list[Any], inputs: list[Any], recording: bool = True) -> list[Any]:
    """The results, cut from a graph that leads to nothing but the fresh inputs.

    A graph that leads further, to what an outer transform or the caller differentiates, stays,
    unless the caller is not `recording`. It may end in a node: at a view that has no history. What
    may be differentiated once ends at leaves of its own, which are no one else's.
    """
    own = {id(end_of(edge_of(x))) for x in inputs if isinstance(x, Tensor) and x.requires_grad}

    def cut(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.requires_grad:
            return x
        if not recording:
            return _cut(x, cut)
        edge = edge_of(x)
        if edge is None:
            return _cut(x, cut)
        there = reachable([end_of(edge)])
        others = [end for end in there if _is_end(end) and id(end) not in own]
        if others:
            sealed = {
                id(end_of(e)) for node in there if isinstance(node, Error) for e in node.edges
            }
            if any(id(end) not in sealed for end in others):
                return x
        return _cut(x, cut)

    return [cut(x) for x in results]


def _is_end(node: Any) -> bool:
    return isinstance(node, Tensor) or all(edge is None for edge in node.edges)


def _tensors(leaves: list[Any]) -> list[Tensor]:
    return [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]


def chosen(args: tuple[Any, ...], argnums: Argnums) -> tuple[int, ...]:
    """Which positional arguments `argnums` means; RuntimeError for what names none."""
    positions = argnums if isinstance(argnums, tuple) else (argnums,)
    if not all(isinstance(a, int) for a in positions):
        got = argnums if isinstance(argnums, tuple) else type(argnums)
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {got}")
    if not positions:
        raise RuntimeError("argnums must be non-empty")
    for a in positions:
        if not -len(args) <= a < len(args):
            raise RuntimeError(f"Got argnum={a}, but only {len(args)} positional inputs")
    indices = tuple([a % len(args) for a in positions])
    if len(set(indices)) < len(indices):
        raise RuntimeError(f"argnums elements must be unique, got {indices}")
    return indices


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
        where, recording = chosen(args, argnums), is_grad_enabled()
        with out_of_inference(), active(GRAD):
            inside = [_counted(arg) for arg in args]
            for i in where:
                inside[i] = tree_map(_fresh, inside[i])
            named = {name: _counted(arg) for name, arg in kwargs.items()}
            output, aux = _split(func(*inside, **named), has_aux, GRADIENT)
            if not isinstance(output, Tensor):
                raise RuntimeError(
                    f"{GRADIENT}: Expected f(*args) to return a Tensor, got {type(output)}"
                )
            if output.ndim:
                raise RuntimeError(
                    f"{GRADIENT}: Expected f(*args) to return a scalar Tensor, got tensor with "
                    f"{output.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            leaves, form = flatten([inside[i] for i in where])
            grads = _pullback([output], _tensors(leaves), [None])
            results = _replaced(leaves, grads)
            fresh = list(leaves)
            settled = _settled([*results, output, *flatten(aux)[0]], fresh, recording)
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
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return result


def _only_tensors(outputs: list[Any], name: str, returned: str) -> None:
    """RuntimeError where a function returned nothing, or something else than tensors."""
    if not outputs or len(outputs) == 1 and outputs[0] is None:
        raise RuntimeError(
            f"{name}: Expected f to be a function that has non-empty output (got output = "
            f"{outputs})"
        )
    for o in outputs:
        if not isinstance(o, Tensor):
            raise RuntimeError(
                f"{name}: expected {returned} to return only tensors, got unsupported type "
                f"{type(o)}"
            )


def _pullback(
    outputs: list[Any], leaves: list[Tensor], vectors: list[Any], **options: bool
) -> list[Any]:
    """The gradients of the leaves, zeros where an output does not depend on one."""
    pairs = [(o, v) for o, v in zip(outputs, vectors, strict=True) if o.requires_grad]
    if not pairs or not leaves:
        return [zeros_like(x) for x in leaves]
    grads = autograd_grad(
        [o for o, _ in pairs], leaves, [v for _, v in pairs],
        allow_unused=True, **{"create_graph": True, **options},
    )  # fmt: skip
    return [zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True)]


def _replaced(leaves: list[Any], grads: list[Any]) -> list[Any]:
    """The leaves with gradients where there are any; other leaves have none."""
    gradients = iter(grads)
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
    recording = is_grad_enabled()
    with out_of_inference(), active(GRAD):
        inside = tree_map(_fresh, tuple([_counted(primal) for primal in primals]))
        output, aux = _split(func(*inside), has_aux, VJP)
    leaves, form = flatten(inside)
    outputs, out_form = flatten(output)
    _only_tensors(outputs, VJP, "f(*primals)")
    for o in outputs:
        if not (o.is_floating_point() or o.is_complex()):
            raise RuntimeError(
                "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got "
                f"Tensor with dtype {o.dtype}"
            )

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        vectors, given_form = flatten(cotangents)
        if given_form != out_form:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {spelled(given_form)}, primal output: "
                f"{spelled(out_form)}"
            )
        recording = is_grad_enabled() if create_graph is None else create_graph
        with out_of_inference():
            grads = _pullback(
                outputs, _tensors(leaves), vectors,
                retain_graph=retain_graph, create_graph=recording,
            )  # fmt: skip
            results = _settled(_replaced(leaves, grads), leaves)
        return unflatten(form, results)

    settled = _settled([*outputs, *flatten(aux)[0]], leaves, recording)
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
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    points, form = flatten(primals)
    along, along_form = flatten(tangents)
    if form != along_form:
        raise RuntimeError(
            f"{JVP}: Expected primals and tangents to have the same python structure. For example, "
            "if primals is a tuple of 3 tensors, tangents also must be. Got primals with structure "
            f"{structure(form)} and tangents with structure {structure(along_form)}"
        )
    if not points:
        raise RuntimeError(f"{JVP}: Expected primals to contain at least one Tensor.")
    for name, leaves in (("primals", points), ("tangents", along)):
        for x in leaves:
            if not isinstance(x, Tensor):
                raise RuntimeError(f"{JVP}: Expected {name} to only contain Tensors, got {type(x)}")
    for x, t in zip(points, along, strict=True):
        check_dual(x, t)
    pair, aux = kept(lambda: _pushed(func, points, along, form, has_aux, strict), state, running)
    return (*pair, aux) if has_aux else pair


def _pushed(
    func: Callable[..., Any], points: Any, along: Any, form: Any, has_aux: bool, strict: bool,
    asks_functions: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """The output of a function and its tangent, as a pair, and what is passed through."""
    level = enter()
    level.asks_functions = asks_functions
    try:
        duals = []
        for x, t in zip(points, along, strict=True):
            dual = x.view_as(x)
            set_tangent(dual, level, laid_out(t, x))
            duals.append(dual)
        with active(level):
            output, aux = _split(func(*unflatten(form, duals)), has_aux, JVP)
        outputs, out_form = flatten(output)
        _only_tensors(outputs, JVP, "f(*primals)")
        results, out_tangents = [], []
        for o in outputs:
            tangent = tangent_of(o, level)
            if tangent is None:
                if strict:
                    raise RuntimeError(
                        "jvp(f, primals, tangents, strict=True): The output of f is independent "
                        "of the inputs. This is not allowed with strict=True."
                    )
                tangent = zeros_like(o)
            results.append(primal_of(o, level))
            out_tangents.append(tangent)
        aux = tree_map(lambda x: primal_of(x, level) if isinstance(x, Tensor) else x, aux)
    finally:
        leave(level)
    return (unflatten(out_form, results), unflatten(out_form, out_tangents)), aux


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`func(*primals)`, and its derivative there as a function of tangents.

    Each call of the derivative runs `func` again, in forward mode. RuntimeError where a primal was
    changed in place meanwhile: the derivative where it was is not known any more.

    >>> import cugrad as torch
    >>> output, push = torch.func.linearize(torch.sin, torch.zeros(2))
    >>> push(torch.ones(2))
    tensor([1., 1.])
    """

    points, form = flatten(primals)
    versions: list[int] = []

    def note() -> None:
        versions[:] = [0 if x.is_inference() else x._version for x in points]

    def jvp_fn(*tangents: Any) -> Any:
        for i, (x, version) in enumerate(zip(points, versions, strict=True)):
            if not x.is_inference() and x._version != version:
                raise RuntimeError(
                    f"linearize: primal:{i} of shape {list(x.shape)} was changed in place: it is "
                    f"at version {x._version}, expected {version}. Call linearize again, or "
                    "give it a copy (x.clone())"
                )
        along, tangent_form = flatten(tangents)
        if tangent_form != form:
            raise RuntimeError(
                f"Expected the tangents {structure(tangent_form)} to have the same argspec as the "
                f"primals {structure(form)}"
            )
        for i, (x, t) in enumerate(zip(points, along, strict=True)):
            for name in ("shape", "dtype"):
                if isinstance(t, Tensor) and getattr(t, name) != getattr(x, name):
                    raise RuntimeError(
                        f"tangent:{i} with {name} {getattr(t, name)!r} in flattened pytree doesn't "
                        f"match the {name} {getattr(x, name)!r} of the corresponding primal."
                    )
        for x, t in zip(points, along, strict=True):
            demand_tensor(t)
            check_dual(x, t)
        # as in PyTorch, no transform: a custom Function may be of any form
        how = False, False, False
        pushed = kept(lambda: _pushed(func, points, along, form, *how), state, running)[0][1]
        note()  # what the function itself changes, such as rows that are too long
        return pushed

    for x in points:
        demand_tensor(x)
    output = func(*primals)
    note()
    return output, jvp_fn
