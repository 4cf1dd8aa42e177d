"""One recurrent layer in one direction, as one node of the graph where that is possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dtypes
from ...autograd.engine.differentiate import grad
from ...autograd.function import Function
from ...autograd.mode import state
from ...autograd.transforms import running
from ...backends import backend_of
from ...backends.batched.arrays import levels_of
from ...runtime.kept import kept as kept_state
from ...tensor import Tensor, make
from .scans import SCANS, Operands, Span
from .steps import by_steps

__all__ = ["recurrent_layer"]


def recurrent_layer(mode: str, a: Operands, spans: Sequence[Span]) -> tuple[Tensor, ...]:
    """The outputs of all steps, and the last states."""
    tensors = [t for t in a if t is not None]
    plain = a.x.dtype.is_floating_point and len({t.device for t in tensors}) == 1
    if not plain or state.levels or running.levels or running.transforms or state.autocast:
        return by_steps(mode, a, spans)
    if state.grad_enabled and any(t.requires_grad for t in tensors):
        results: tuple[Tensor, ...] = RecurrentLayer.apply(mode, spans, *a)
        return results
    return _forward(mode, a, spans)[0]


def _arrays(tensors: Sequence[Tensor | None]) -> list[Any]:
    """The arrays of tensors; half precision as float32: only results are rounded to it."""
    arrays: list[Any] = [None if t is None else t._array for t in tensors]
    if arrays[0].dtype.itemsize == 2:
        return [None if x is None else x.astype(dtypes.float32.numpy) for x in arrays]
    return arrays


def _forward(mode: str, a: Operands, spans: Sequence[Span]) -> tuple[Any, ...]:
    """The results, and the arrays that backward needs besides them, as tensors."""
    backend, kind = backend_of(a.x._array), a.x._array.dtype
    with backend.use_device(a.x.device.index), backend.quiet():
        out, states, kept = SCANS[mode].forward(backend.xp, Operands(*_arrays(a)), spans)
        results = [make(x.astype(kind, copy=False)) for x in (out, *states)]
    return tuple(results), [make(x) for x in kept]


class RecurrentLayer(Function):
    """A layer as one node: it keeps its operands, its outputs and the values of its gates."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        """The outputs and the last states."""
        ctx.mode, ctx.spans, *tensors = args
        results, kept = _forward(ctx.mode, Operands(*tensors), ctx.spans)
        ctx.operands = len(tensors)
        ctx.save_for_backward(*tensors, results[0], *kept)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """By the loops over arrays; by the graph of the steps under create_graph, and for gradients
        with tangents or examples.
        """
        if all(g is None for g in grads):  # as of each step's own node
            return (None,) * len(ctx.needs_input_grad)
        saved = ctx.saved_tensors
        operands, kept = Operands(*saved[: ctx.operands]), saved[ctx.operands :]
        again = state.grad_enabled
        if again or state.levels or any(g is not None and levels_of(g._array) for g in grads):
            return (None, None, *kept_state(lambda: _recorded(ctx, operands, grads, again)))
        backend = backend_of(operands.x._array)
        with backend.use_device(operands.x.device.index), backend.quiet():
            a = Operands(*_arrays(operands))
            like = (kept[0]._array, *[s for s in (a.h, a.c) if s is not None])
            output_grads = [
                backend.xp.zeros(x.shape, a.x.dtype) if g is None
                else g._array.astype(a.x.dtype, copy=False)
                for g, x in zip(grads, like, strict=True)
            ]  # fmt: skip
            values = tuple(_arrays(kept))
            operand_grads = SCANS[ctx.mode].backward(backend.xp, a, ctx.spans, values, output_grads)
            kind = operands.x._array.dtype
            return (None, None, *[
                None if x is None or not needed else make(x.astype(kind, copy=False))
                for x, needed in zip(operand_grads, ctx.needs_input_grad[2:], strict=True)
            ])  # fmt: skip


def _recorded(ctx: Any, operands: Operands, grads: Any, again: bool) -> list[Any]:
    """The gradients by the steps' own, which can be differentiated `again`; to be called so that
    what it switches is switched back.
    """
    state.switch(grad_mode=True, autocast=None)
    operands = Operands(*[None if t is None else t.view_as(t) for t in operands])
    results = by_steps(ctx.mode, operands, ctx.spans)  # of views: one tensor may be two operands
    needed = [t for t, asked in zip(operands, ctx.needs_input_grad[2:], strict=True) if asked]
    pairs = [(y, g) for y, g in zip(results, grads, strict=True) if g is not None]
    outputs, output_grads = zip(*pairs, strict=True)
    grads_of_needed = iter(
        grad(outputs, needed, output_grads, create_graph=again, allow_unused=True)
    )
    return [next(grads_of_needed) if asked else None for asked in ctx.needs_input_grad[2:]]
