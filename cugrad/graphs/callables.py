"""Modules and functions as CUDA graphs of their forward and their backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..autograd import grad
from ..autograd.function import Function
from ..cuda.devices import synchronize
from ..cuda.streams import Stream, StreamContext, current_stream
from ..tensor import Tensor
from .capture import CUDAGraph, graph, graph_pool_handle

__all__ = ["make_graphed_callables"]


class _Graphed(NamedTuple):
    """Two graphs, and the tensors that they read and write."""

    forward: CUDAGraph
    backward: CUDAGraph
    inputs: tuple[Tensor, ...]  # arguments, then parameters
    arguments: int
    outputs: tuple[Tensor, ...]
    single: bool  # whether the callable returns one tensor, not a tuple
    slopes: tuple[Tensor | None, ...]  # of outputs
    gradients: tuple[Tensor | None, ...]  # of inputs


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:  # fmt: skip
    """Modules, or functions of tensors, whose forward and backward are a CUDA graph each.

    `sample_args` is a tuple of tensors, or one for each of a tuple of callables, of the shapes,
    dtypes and `requires_grad` of all later arguments. A module is changed in place: it runs as
    before where its mode (`train`, `eval`) is another than now. Callables must be called in the
    order in which they are given. Gradients of gradients are not there.
    """
    one = not isinstance(callables, tuple)
    functions = (callables,) if one else callables
    samples = (sample_args,) if one else sample_args
    if len(functions) != len(samples):
        raise ValueError(
            f"make_graphed_callables: got {len(functions)} callables and {len(samples)} tuples of "
            "sample arguments, want one each"
        )
    for args in samples:
        _check(args)
    inputs = [(*args, *_parameters(f)) for f, args in zip(functions, samples)]
    _warm_up(functions, samples, inputs, num_warmup_iters, allow_unused_input)
    handle = pool or graph_pool_handle()
    forwards = [_forward(f, args, handle) for f, args in zip(functions, samples)]
    parts = []
    for (captured, outputs, single), own, args in reversed(list(zip(forwards, inputs, samples))):
        backward, slopes, gradients = _backward(outputs, own, handle, allow_unused_input)
        parts.append(
            _Graphed(captured, backward, own, len(args), outputs, single, slopes, gradients)
        )
    graphed = [_wrapped(f, part) for f, part in zip(functions, reversed(parts))]
    return graphed[0] if one else tuple(graphed)


def _check(args: Any) -> None:
    for x in args:
        if not isinstance(x, Tensor) or x.device.type != "cuda":
            raise TypeError(
                "In the beta API, sample_args for each callable must contain only Tensors on the "
                f"GPU. Got {type(x).__name__}: other arguments go into the function"
            )


def _parameters(f: Any) -> tuple[Tensor, ...]:
    """A module's; RuntimeError where it has hooks or buffers that require gradients."""
    if not hasattr(f, "parameters"):
        return ()
    if f._forward_hooks or f._forward_pre_hooks or f._backward_hooks:
        raise RuntimeError(
            "Modules must not have hooks registered at the time they are passed. However, "
            "registering hooks on modules after passing them through make_graphed_callables is "
            "allowed."
        )
    if any(b.requires_grad for b in f.buffers()):
        raise RuntimeError(
            "In any module passed to make_graphed_callables, only parameters may be trainable. All "
            "buffers must have requires_grad=False."
        )
    return tuple(f.parameters())


def _listed(result: Any) -> tuple[tuple[Tensor, ...], bool]:
    """The tensors that a callable returned, and whether it was one alone."""
    outputs = (result,) if isinstance(result, Tensor) else tuple(result)
    if not all(isinstance(y, Tensor) for y in outputs):
        raise TypeError(
            "make_graphed_callables: want callables that return a Tensor or a tuple of Tensors"
        )
    return outputs, isinstance(result, Tensor)


def _warm_up(functions: Sequence[Any], samples: Any, inputs: Any, times: int, unused: bool) -> None:
    """Runs all of it on a stream of its own: kernels are compiled, and memory is there."""
    synchronize()
    side = Stream()
    side.wait_stream(current_stream())
    with StreamContext(side):
        for f, args, own in zip(functions, samples, inputs):
            for _ in range(times):
                outputs, _ = _listed(f(*args))
                _gradients(outputs, own, [y.detach().clone() for y in outputs], unused)
    current_stream().wait_stream(side)
    synchronize()


def _gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], slopes: Sequence[Any], unused: bool
) -> tuple[Tensor | None, ...]:
    """By input; None for those that require none."""
    roots = [(y, g) for y, g in zip(outputs, slopes) if y.requires_grad]
    leaves = [x for x in inputs if x.requires_grad]
    if not roots or not leaves:
        return (None,) * len(inputs)
    each = iter(grad([y for y, _ in roots], leaves, [g for _, g in roots], allow_unused=unused))
    return tuple([next(each) if x.requires_grad else None for x in inputs])


def _forward(f: Any, args: Any, handle: Any) -> tuple[CUDAGraph, tuple[Tensor, ...], bool]:
    captured = CUDAGraph()
    with graph(captured, pool=handle):
        outputs, single = _listed(f(*args))
    return captured, outputs, single


def _backward(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], handle: Any, unused: bool
) -> tuple[CUDAGraph, tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
    slopes = tuple([y.detach().clone() if y.requires_grad else None for y in outputs])
    captured = CUDAGraph()
    with graph(captured, pool=handle):
        gradients = _gradients(outputs, inputs, slopes, unused)
    return captured, slopes, gradients


def _wrapped(f: Any, part: _Graphed) -> Any:
    class Graphed(Function):
        """Copies what comes in to where the graphs read it, and replays them."""

        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
            for static, x in zip(part.inputs[: part.arguments], inputs):
                if static.data_ptr() != x.data_ptr():
                    static.detach().copy_(x)
            part.forward.replay()
            return tuple([y.detach() for y in part.outputs])

        @staticmethod
        def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
            for static, g in zip(part.slopes, slopes):
                if static is not None and g is not None:
                    static.copy_(g)
            part.backward.replay()
            return tuple([None if x is None else x.detach() for x in part.gradients])

    parameters = part.inputs[part.arguments :]

    def graphed(*args: Tensor) -> Any:
        outputs: Any = Graphed.apply(*args, *parameters)
        return outputs[0] if part.single else outputs

    if not hasattr(f, "parameters"):
        return graphed
    before, mode = f.forward, f.training

    def forward(*args: Any) -> Any:
        return graphed(*args) if f.training == mode else before(*args)

    f.forward = forward
    return f
