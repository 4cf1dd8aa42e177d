"""`backward` and `grad`: what callers ask for, checked, and run by the engine."""

from __future__ import annotations

from typing import Any

from ..backends import backend_of
from ..tensor import Tensor, make
from .batches import over_batch
from .engine import run_backward
from .graph import GradientEdge
from .mode import state
from .node import AccumulateGrad, Output, edge_of

__all__ = ["backward", "grad"]

TensorOrTensors = Any


def backward(
    tensors: TensorOrTensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Adds the gradients of `tensors` with respect to the leaves of their graph to `.grad`.

    Args:
        tensors: a Tensor, or several, to differentiate; each of any shape.
        grad_tensors: the vectors of the vector-Jacobian product, of the shapes of `tensors`; None
            for one-element tensors, which stand for 1.
        retain_graph: keep what the graph saved, so that it can run again; default `create_graph`.
        create_graph: record the backward pass itself, for higher derivatives.
        inputs: the tensors whose `.grad` is filled; default all leaves that took part.

    Raises RuntimeError for a tensor that does not require gradients, for a missing gradient of a
    tensor with several elements, for a wrong shape, and for a graph whose saved tensors are freed.

    >>> import cugrad as torch
    >>> x = torch.tensor([1., 2.], requires_grad=True)
    >>> torch.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    targets = None
    if inputs is not None:
        if isinstance(inputs, (Tensor, GradientEdge)):
            inputs = (inputs,)
        if len(inputs) == 0:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
        targets = [_target(x) for x in inputs]
        for x in inputs:
            if isinstance(x, Tensor):  # one that is no leaf fills its `.grad` from now on
                x.retain_grad()
    roots = _roots(_several(tensors), grad_tensors, create_graph, "backward")
    keep = create_graph if retain_graph is None else retain_graph
    run_backward(
        roots, keep_graph=keep, create_graph=create_graph, targets=targets, accumulating=True
    )


def grad(
    outputs: TensorOrTensors,
    inputs: TensorOrTensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; no `.grad` is touched.

    Args:
        outputs: a Tensor, or several, to differentiate.
        inputs: a Tensor (leaf or not) or gradient edge, or several.
        grad_outputs: the vectors of the vector-Jacobian product, as `backward` takes them.
        retain_graph, create_graph: as for `backward`.
        allow_unused: None for inputs that played no part, instead of an error; default
            `materialize_grads`.
        is_grads_batched: each of `grad_outputs` carries a further first dimension, over which the
            products are computed at once, as `vmap` does; the results carry it too.
        materialize_grads: zeros instead of None.

    >>> import cugrad as torch
    >>> x = torch.tensor(3., requires_grad=True)
    >>> g, = torch.autograd.grad(x ** 3, x, create_graph=True)
    >>> g.item(), torch.autograd.grad(g, x)[0].item()
    (27.0, 18.0)
    """
    if not only_inputs:
        raise RuntimeError(
            "only_inputs=False is no longer supported: use torch.autograd.backward to accumulate "
            "gradients into other tensors"
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    wanted = _several(inputs)
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        results = _batched(outputs, wanted, grad_outputs, keep, create_graph)
    else:
        targets = [_target(x) for x in wanted]
        roots = _roots(_several(outputs), grad_outputs, create_graph, "grad")
        captured = run_backward(
            roots, keep_graph=keep, create_graph=create_graph, targets=targets, accumulating=False
        )
        results = [
            g if g is None or isinstance(g, Tensor) else make(backend_of(g).wrap(g))
            for g in captured
        ]
    unused = [i for i, g in enumerate(results) if g is None]
    if unused and not allow_unused:
        raise RuntimeError(
            f"The differentiated Tensor at index {unused[0]} appears to not have been used in the "
            "graph. Set allow_unused=True if this is the desired behavior."
        )
    if materialize_grads:
        for i, (g, x) in enumerate(zip(results, wanted, strict=True)):
            if g is None:
                if not isinstance(x, Tensor):
                    raise RuntimeError(
                        "materialize_grads cannot be used when the given input is a GradientEdge"
                    )
                results[i] = make(backend_of(x._array).xp.zeros_like(x._array))
    return tuple(results)


def _batched(
    outputs: Any, wanted: Any, grad_outputs: Any, keep: bool, create_graph: bool
) -> list[Any]:
    """One backward pass for all entries of the first dimension of `grad_outputs`."""
    return over_batch(
        lambda *given: grad(
            outputs, wanted, given, retain_graph=keep, create_graph=create_graph,
            allow_unused=True,
        ),
        _several(grad_outputs),
    )  # fmt: skip


def _several(value: Any) -> tuple[Any, ...]:
    if isinstance(value, GradientEdge) or not hasattr(value, "__iter__"):
        return (value,)
    if hasattr(value, "__array__"):  # a Tensor, or an array that should have been one
        return (value,)
    return tuple(value)


def _target(x: Any) -> Any:
    """The edge of a tensor, or gradient edge, whose gradient is asked for."""
    if isinstance(x, GradientEdge):
        node = x.node
        if isinstance(node, AccumulateGrad):
            return node.variable
        return node if node.output_count == 1 else Output(node, x.output_nr)
    if not isinstance(x, Tensor):
        raise TypeError(f"inputs must be Tensors or GradientEdges, got {type(x).__name__}")
    if not x._requires_grad:
        raise RuntimeError("One of the differentiated Tensors does not require grad")
    return edge_of(x)


def _roots(
    outputs: tuple[Any, ...], gradients: Any, create_graph: bool, caller: str
) -> list[tuple[Any, Any]]:
    given = _several(gradients) if gradients is not None else (None,) * len(outputs)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    if not outputs:
        raise RuntimeError(f"{caller}: got no tensors, want at least one")
    roots = []
    for i, (out, g) in enumerate(zip(outputs, given, strict=True)):
        edge = _root_edge(out, i)
        g = _root_gradient(out, g, i)
        roots.append((edge, g if create_graph or state.levels else g._array))
    return roots


def _root_edge(out: Any, i: int) -> Any:
    if isinstance(out, GradientEdge):
        return _target(out)
    if not isinstance(out, Tensor):
        raise TypeError(f"element {i} of tensors must be a Tensor, got {type(out).__name__}")
    if not out._requires_grad:
        raise RuntimeError(
            f"element {i} of tensors does not require grad and does not have a grad_fn"
        )
    return edge_of(out)


def _root_gradient(out: Any, g: Any, i: int) -> Tensor:
    if isinstance(out, GradientEdge):
        if g is None:
            raise RuntimeError("grad can be implicitly created only for Tensors, got GradientEdge")
        return g
    if g is None:
        if out._array.size != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if out._array.dtype.kind == "c":
            raise RuntimeError(
                "grad can be implicitly created only for real scalar outputs but got "
                f"{out.dtype}"
            )
        return make(backend_of(out._array).xp.ones_like(out._array))
    if not isinstance(g, Tensor):
        raise TypeError(
            f"gradients can be either Tensors or None, but got {type(g).__name__}"
        )
    if g._array.shape != out._array.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a "
            f"shape of {out.shape}."
        )
    if (g._array.dtype.kind == "c") != (out._array.dtype.kind == "c"):
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same "
            f"dtype. Mismatch in dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] "
            f"has a dtype of {out.dtype}."
        )
    return g
