"""A whole training step as one CUDA graph: forward, backward and optimizer, by one launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from ..autograd.mode import no_grad
from ..cuda.streams import Stream, StreamContext, current_stream
from ..tensor import Tensor
from .capture import CUDAGraph, graph, graph_pool_handle

__all__ = ["capture_step"]


class _Captured(NamedTuple):
    """A graph with the tensors that it reads, and what the step returned."""

    graph: CUDAGraph
    inputs: list[Tensor]
    result: Any


def capture_step(step: Callable[..., Any], *, warmup: int = 3) -> Callable[..., Any]:
    """`step` as a function that runs it `warmup` times, then captures it, then replays it.

    Each call is one step, with the values that the plain step would give. Tensors among the
    arguments are copied to where the graph reads them; what it returns are the same tensors in each
    call, so copy what shall be kept. Another graph is captured for arguments of other shapes or
    dtypes, and for other numbers. Random numbers go on from replay to replay.

    The optimizer must keep its numbers on the device (`capturable=True`, where it has that), and
    the step must not wait for the device: no `item()`, no `nonzero()`, no offload. RuntimeError,
    with the name of the function, for what cannot be captured.

        def step(x, target):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss

        step = torch.cuda.capture_step(step)
        for x, target in batches:
            loss = step(x, target)
    """
    if warmup < 1:
        raise ValueError(f"capture_step: got warmup={warmup}, want 1 or more: kernels are compiled "
                         "and states made in a step that is not captured")  # fmt: skip
    graphs: dict[Any, _Captured] = {}
    side: list[Stream] = []
    calls: dict[Any, int] = {}
    pool = graph_pool_handle()

    @wraps(step)
    def run(*args: Any) -> Any:
        form = tuple([_form_of(x) for x in args])
        captured = graphs.get(form)
        if captured is None:
            if not side:
                side.append(Stream())
            if calls.setdefault(form, 0) < warmup:
                calls[form] += 1
                return _beside(side[0], step, args)
            captured = graphs[form] = _captured(step, args, pool, side[0])
        with no_grad():
            tensors = [x for x in args if isinstance(x, Tensor)]
            for static, x in zip(captured.inputs, tensors):
                static.detach().copy_(x)
        captured.graph.replay()
        return captured.result

    run.graphs = graphs  # type: ignore[attr-defined]
    return run


def _form_of(x: Any) -> Any:
    """What must be the same for a graph to be replayed."""
    if not isinstance(x, Tensor):
        return type(x), x
    if x.device.type != "cuda":
        raise ValueError(
            f"capture_step: got a tensor on {x.device}, want all tensors among the arguments on "
            "the GPU: a graph cannot copy from pageable memory; call it with x.cuda()"
        )
    return x.device, x.dtype, tuple(x.shape), x.requires_grad


def _beside(side: Stream, step: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """A plain step on the stream on which it will be captured."""
    now = current_stream()
    side.wait_stream(now)
    with StreamContext(side):
        result = step(*args)
    now.wait_stream(side)
    return result


def _captured(
    step: Callable[..., Any], args: tuple[Any, ...], pool: Any, side: Stream
) -> _Captured:
    statics = []
    for x in args:
        if isinstance(x, Tensor):
            with no_grad():
                copy = x.detach().clone()
            statics.append(copy.requires_grad_() if x.requires_grad else copy)
        else:
            statics.append(x)
    captured = CUDAGraph()
    with graph(captured, pool=pool, stream=side):
        result = step(*statics)
    return _Captured(captured, [x for x in statics if isinstance(x, Tensor)], result)
