"""`backward` and `grad`: what callers ask for, checked, and run by the engine."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, overload

from ...backends import BY_ARRAY_TYPE, backend_of
from ...backends.lending.queues import StreamsInOrder, hooked, stretches, usual_again
from ...backends.several import several, there, zeros_like
from ...runtime.frames import warn_user
from ...runtime.kept import NOTHING
from ...tensor import Tensor, make
from ..graph import GradientEdge, Origin
from ..mode import passing, state, switch_grad
from ..recording.node import AccumulateGrad, Output, edge_of, end_of
from ..recording.recorded import recorded
from ..threads import is_deep, run_in_thread
from ..transforms import running
from .backward_pass import BackwardPass, task
from .batches import over_batch
from .logs import is_logged, logged
from .reach import needed_for, numbers_from, reachable

__all__ = ["backward", "grad"]

TensorOrTensors = Any
Edges = list[Any]

CYCLE_TEXT = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter "
    "and its gradient which can cause a memory leak. We recommend using autograd.grad when "
    "creating the graph to avoid this. If you have to use this function, make sure to reset the "
    ".grad fields of your parameters to None after use to break the cycle and avoid the leak."
)


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
        tensors: a Tensor or gradient edge, or several, to differentiate; each of any shape.
        grad_tensors: the vectors of the vector-Jacobian product, of the shapes of `tensors`; None
            for one-element tensors, which stand for 1.
        retain_graph: keep what the graph saved, so that it can run again; default `create_graph`.
        create_graph: record the backward pass itself, for higher derivatives.
        inputs: the tensors whose `.grad` is filled, or a dict of them; default all leaves that took
            part. Those that are no leaves retain their gradient from then on.

    Raises RuntimeError for a tensor that does not require gradients, for a missing gradient of a
    tensor with several elements, for a wrong shape or device, and for a graph whose saved tensors
    are freed.

    >>> import cugrad as torch
    >>> x = torch.tensor([1., 2.], requires_grad=True)
    >>> torch.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    transforms = running.transforms
    if transforms and any(getattr(t, "asks_functions", True) for t in transforms):
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use "
            "functorch.grad or functorch.vjp instead or call backward() outside of functorch "
            "transforms."
        )
    if grad_variables is not None:
        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning,
            stacklevel=2,
        )  # fmt: skip
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    input_tuple = None if inputs is None else _wanted(inputs, "backward")
    roots = _roots(_several(tensors, "tensors"), grad_tensors, create_graph)
    for x in input_tuple or ():
        if isinstance(x, Tensor):
            x.retain_grad()  # a leaf does anyway
    targets = None if input_tuple is None else [_end(x) for x in input_tuple]
    keep = create_graph if retain_graph is None else retain_graph
    if roots and create_graph:
        warn_user(CYCLE_TEXT)
    if roots:
        run_backward(
            roots, keep_graph=keep, create_graph=create_graph, targets=targets, accumulating=True
        )


@overload
def grad(
    outputs: TensorOrTensors,
    inputs: dict[Any, Tensor],
    grad_outputs: Any = ...,
    retain_graph: bool | None = ...,
    create_graph: bool = ...,
    only_inputs: bool = ...,
    allow_unused: bool | None = ...,
    is_grads_batched: bool = ...,
    materialize_grads: bool = ...,
) -> dict[Any, Tensor]: ...
@overload
def grad(
    outputs: TensorOrTensors,
    inputs: TensorOrTensors,
    grad_outputs: Any = ...,
    retain_graph: bool | None = ...,
    create_graph: bool = ...,
    only_inputs: bool = ...,
    allow_unused: bool | None = ...,
    is_grads_batched: bool = ...,
    materialize_grads: bool = ...,
) -> tuple[Tensor, ...]: ...
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
) -> Any:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; no `.grad` is touched.

    Args:
        outputs: a Tensor or gradient edge, or several, to differentiate.
        inputs: a Tensor (leaf or not) or gradient edge, or several, or a dict of Tensors; then the
            result is a dict with its keys.
        grad_outputs: the vectors of the vector-Jacobian product, as `backward` takes them.
        retain_graph, create_graph: as for `backward`.
        allow_unused: None for inputs that played no part, instead of an error; default
            `materialize_grads`.
        is_grads_batched: each of `grad_outputs` carries a further first dimension, over which the
            products are computed at once, as `vmap` does; the results carry it too.
        materialize_grads: zeros instead of None.

    `only_inputs` is deprecated and has no effect.

    >>> import cugrad as torch
    >>> x = torch.tensor(3., requires_grad=True)
    >>> g, = torch.autograd.grad(x ** 3, x, create_graph=True)
    >>> g.item(), torch.autograd.grad(g, x)[0].item()
    (27.0, 18.0)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    output_tuple, input_tuple = _several(outputs, "outputs"), _wanted(inputs, "grad")
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use torch.autograd.backward.",
            FutureWarning, stacklevel=2,
        )  # fmt: skip
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        vectors = _vectors(output_tuple, grad_outputs, is_batched=True)
        results = over_batch(
            lambda *v: _results(output_tuple, input_tuple, v, keep, create_graph), vectors
        )
    else:
        results = _results(output_tuple, input_tuple, grad_outputs, keep, create_graph)
    unused = [i for i, g in enumerate(results) if g is None]
    if unused and not (materialize_grads if allow_unused is None else allow_unused):
        raise RuntimeError(
            f"The differentiated Tensor at index {unused[0]} appears to not have been used in the "
            "graph. Set allow_unused=True if this is the desired behavior."
        )
    for i in unused if materialize_grads else ():
        x = input_tuple[i]
        if not isinstance(x, Tensor):
            raise RuntimeError(
                "materialize_grads cannot be used when the given input is a GradientEdge"
            )
        results[i] = make(zeros_like(x._array), create_graph)
    if type(inputs) is dict:
        return dict(zip(inputs, results, strict=True))
    return tuple(results)


def _results(
    outputs: Any, inputs: Any, vectors: Any, keep: bool, create_graph: bool
) -> list[Tensor | None]:
    """One gradient, or None, for each of the inputs."""
    roots = _roots(outputs, vectors, create_graph)
    targets = [_end(x) for x in inputs]
    if not roots:
        return [None] * len(targets)
    captured = run_backward(
        roots, keep_graph=keep, create_graph=create_graph, targets=targets, accumulating=False
    )
    results = [g if g is None or isinstance(g, Tensor) else make(g) for g in captured]
    for i, x in enumerate(inputs):
        if getattr(x, "is_sparse", False) and results[i] is not None:
            results[i] = x.gradient(results[i])
    return results


def run_backward(
    roots: list[tuple[Any, Any]],
    *,
    keep_graph: bool,
    create_graph: bool,
    targets: list[Any] | None,
    accumulating: bool,
) -> list[Any]:
    """Sends gradients from `roots`, pairs of edge and gradient, through the graph.

    With `targets`, a list of edges, only what leads to them runs. Their gradients are accumulated
    into leaves when `accumulating`, else returned in order, None where none arrived.
    """
    if task.running and is_deep():  # nested backward: a new thread has an empty stack
        again = partial(
            run_backward, roots, keep_graph=keep_graph, create_graph=create_graph,
            targets=targets, accumulating=accumulating,
        )  # fmt: skip
        return run_in_thread(again)
    if task.running and accumulating:
        task.running[-1].visit_whole()
    captures: dict[Any, list[int]] | None = None
    needed: set[Any] | None = None
    starts = [end_of(edge) for edge, _ in roots]
    if targets is not None:
        keys = [(e.grad_fn, e.output_nr) if type(e) is Output else (e, 0) for e in targets]
        needed = needed_for(starts, {node for node, _ in keys})
        captures = {}
        for index, key in enumerate(() if accumulating else keys):
            captures.setdefault(key, []).append(index)
    run = BackwardPass(starts, keep_graph, create_graph, captures, needed, accumulating)
    first = roots[0][1]
    if isinstance(first, Tensor):
        first = first._array
    elif not run.recording:
        run.kind = type(first)
    backend = backend_of(first)
    watching = logged(reachable(starts)) if is_logged() else NOTHING
    in_order = StreamsInOrder(lambda: numbers_from(starts)) if stretches else NOTHING

    def pass_through() -> None:
        switch_grad(create_graph)
        task.running, hooked.switches = (*task.running, run), run.streams
        with backend.quiet(), watching, in_order:
            try:
                for edge, g in roots:
                    run.send(edge, g)
                run.run()
            finally:
                if run.streams:
                    usual_again(run.streams)
        for callback in run.callbacks:
            callback()

    try:
        passing(pass_through)  # what hooks have switched on and not off again ends with the pass
    finally:
        if run.streams:  # of callbacks
            usual_again(run.streams)
        run.callbacks.clear()  # they know the pass: a cycle
    if targets is None:
        return []
    return [run.captured.get(i) for i in range(len(targets))]


# Arguments ----------------------------------------------------------------------------------------


def _several(value: Any, what: str) -> tuple[Any, ...]:
    if isinstance(value, (Tensor, GradientEdge)):
        return (value,)
    if type(value) is tuple:
        return value
    if not isinstance(value, Iterable):
        raise TypeError(
            f"{what}: want a Tensor or GradientEdge, or several, got {type(value).__name__}; it is "
            "not iterable"
        )
    return tuple(value)


def _wanted(inputs: Any, caller: str) -> tuple[Any, ...]:
    """What gradients are asked for: at least one Tensor or gradient edge."""
    if isinstance(inputs, Tensor):
        return (inputs,)
    if type(inputs) not in (list, tuple, dict) and isinstance(inputs, Mapping):
        raise TypeError(
            f"`inputs` argument to `{caller}()` must be a dict, not {type(inputs).__name__}. Other "
            "Mapping types are not supported."
        )
    input_tuple = _several(inputs.values() if type(inputs) is dict else inputs, "inputs")
    if not input_tuple:
        raise RuntimeError(f"`inputs` argument to `{caller}()` cannot be empty.")
    return input_tuple


def _end(x: Any) -> Any:
    """The edge of a tensor whose gradient is asked for. One without an edge stands for itself."""
    edge = _target(x)
    return x if edge is None else edge


def _target(x: Any) -> Any:
    """The edge of a tensor, or gradient edge, whose gradient is asked for."""
    if isinstance(x, Tensor) and x._requires_grad:
        return edge_of(x)
    if isinstance(x, GradientEdge):
        node = x.node
        if isinstance(node, AccumulateGrad):
            return node.variable
        return node if node.output_count == 1 else Output(node, x.output_nr)
    if not isinstance(x, Tensor):
        raise RuntimeError(
            f"all inputs have to be Tensors or GradientEdges, but got {type(x).__name__}"
        )
    if x.is_sparse and x.requires_grad:
        return _target(x._values())
    raise RuntimeError("One of the differentiated Tensors does not require grad")


def _roots(outputs: tuple[Any, ...], gradients: Any, create_graph: bool) -> Edges:
    """Pairs of edge and gradient, which backward starts with."""
    if len(outputs) == 1 and isinstance(gradients, Tensor):
        vectors = [_vector(outputs[0], gradients, 0)]
    else:
        vectors = _vectors(outputs, gradients)
    recording = create_graph or bool(state.levels)
    roots = []
    for i, (out, v) in enumerate(zip(outputs, vectors, strict=True)):
        edge = _target(out) if isinstance(out, GradientEdge) or out._requires_grad else None
        if edge is None:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        assert v is not None
        roots.append((edge, v if recording else v._array))
    return roots


def _vectors(
    outputs: tuple[Any, ...], gradients: Any, is_batched: bool = False
) -> list[Tensor | None]:
    """A vector for each output: the given one, or 1. Checks shape, dtype and device.

    None where an output does not require gradients and none was given.
    """
    several = (None,) * len(outputs) if gradients is None else _several(gradients, "gradients")
    vectors = [
        _vector(out, g, i, is_batched)
        for i, (out, g) in enumerate(zip(outputs, several, strict=False))
    ]
    if len(several) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(several)} gradients")
    return vectors


def _vector(out: Any, g: Any, i: int, is_batched: bool = False) -> Tensor | None:
    if type(out) is Tensor is type(g) and not is_batched and _is_alike(out._array, g._array):
        return g  # the common case, without what an error would name
    if isinstance(out, GradientEdge):
        origin = _origin(out)
    elif isinstance(out, Tensor):
        if g is None:
            return _one_of(out) if out._requires_grad else None
        origin = Origin(out.shape, out.dtype, backend_of(out._array))
    else:
        raise TypeError(f"element {i} of tensors must be a Tensor, got {type(out).__name__}")
    if g is None:
        return _one_of_edge(origin)
    if not isinstance(g, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if origin is None:  # a user made this edge: its tensor is not known
        return g
    shape = g.shape[1:] if is_batched else g.shape
    if is_batched and shape != origin.shape:
        if isinstance(out, GradientEdge):
            raise RuntimeError("Batched grads are not supported with GradientEdge")
        raise RuntimeError(
            "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as "
            "the batch dimension. The sizes of the remaining dimensions are expected to match the "
            f"shape of corresponding output, but a mismatch was detected: grad_output[{i}] has a "
            f"shape of {g.shape} and output[{i}] has a shape of {origin.shape}. If you only want "
            "some tensors in `grad_output` to be considered batched, consider using vmap."
        )
    if shape != origin.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a "
            f"shape of {origin.shape}."
        )
    if g.dtype.is_complex != origin.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same "
            f"dtype. Mismatch in dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] "
            f"has a dtype of {origin.dtype}."
        )
    if isinstance(out, Tensor) and g.device != out.device:
        raise RuntimeError(
            f"invalid gradient at index {i} - expected device {out.device} but got {g.device}"
        )
    if g.dtype is not origin.dtype:
        g = recorded.to_dtype(g, origin.dtype.numpy)
    return g


def _is_alike(a: Any, b: Any) -> bool:
    """Whether two arrays have the same shape and dtype, and are in the same place."""
    if type(a) is not type(b) or a.shape != b.shape or a.dtype is not b.dtype:
        return False
    if not several.devices and type(a) in BY_ARRAY_TYPE:
        return True
    backend = backend_of(a)
    return backend is backend_of(b) and backend.device_index(a) == backend.device_index(b)


def _one_of(out: Tensor) -> Tensor:
    """The gradient of a scalar with respect to itself."""
    array = out._array
    if array.size == 1 and out.dtype.is_floating_point:
        return make(there(lambda array: backend_of(array).xp.ones_like(array), array))
    raise _no_one(array.size, out.dtype)


def _one_of_edge(origin: Origin | None) -> Tensor:
    if origin is None:
        raise _no_one(0, None)
    size, dtype = math.prod(origin.shape), origin.dtype
    if size == 1 and dtype.is_floating_point:
        return make(origin.backend.xp.ones(origin.shape, dtype.numpy))
    raise _no_one(size, dtype)


def _no_one(size: int, dtype: Any) -> RuntimeError:
    text = "grad can be implicitly created only for "
    return RuntimeError(
        text + ("scalar outputs" if size != 1 else f"real scalar outputs but got {dtype}")
    )


def _origin(edge: GradientEdge) -> Origin | None:
    if edge.ownership_token is not None:
        return edge.ownership_token
    if isinstance(edge.node, AccumulateGrad):
        leaf = edge.node.variable
        return Origin(leaf.shape, leaf.dtype, backend_of(leaf._array))
    return None
