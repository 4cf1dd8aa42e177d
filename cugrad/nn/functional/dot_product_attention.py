"""Attention of queries to keys: backward keeps the operands, and computes the weights again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...autograd.function import Function
from ...autograd.mode import state, unseen
from ...autograd.recording.record import recorded
from ...autograd.recording.saved import arrays
from ...autograd.transforms import running
from ...backends import backend_of
from ...backends.attending import KERNELS, defined, ways_in_order
from ...functions.creation.ranges import arange
from ...ops import random as draw
from ...tensor import Tensor, make
from .dropout import check_probability

__all__ = [
    "AttentionSettings", "by_kernel", "dot_product_attention", "is_recorded", "is_transformed",
]  # fmt: skip


class AttentionSettings(NamedTuple):
    """What is no tensor: `start` is the number of the first query, for `causal`.

    `groups` is the number of heads of queries for each of keys and values. `ways` are those of
    `attending.ways_in_order` when attention is computed; its gradients follow it.
    """

    p: float
    causal: bool
    scale: float
    groups: int = 1
    start: int = 0
    ways: tuple[str, ...] = KERNELS


def dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, how: AttentionSettings
) -> Tensor:
    """softmax(query @ key.mT * scale + mask) @ value with weights dropped, of checked operands.

    The weights, (..., L, S), are the largest thing in attention. In an ordinary backward they are
    computed again from what is smaller and kept: the operands, and one bit for each weight where
    some are dropped.
    """
    check_probability(how.p)
    how = how._replace(ways=ways_in_order())
    bits = None if how.p == 0.0 else _draw(query, key, mask, how)
    tensors = (query, key, value, mask)
    if not is_transformed():
        if is_recorded(query, key, value, mask):
            return DotProductAttention.apply(*tensors, bits, how)
        result = _by_kernel(*tensors, bits, how)
        if result is not None:
            return result[0]
    return _forward(query, key, value, mask, bits, how)


def by_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, how: AttentionSettings
) -> Tensor | None:
    """The same, of which no gradient will be asked, by a kernel that holds no scores; or None."""
    check_probability(how.p)
    if backend_of(query._array).attention is None or is_transformed():
        return None
    how = how._replace(ways=ways_in_order())
    bits = None if how.p == 0.0 else _draw(query, key, mask, how)
    result = _by_kernel(query, key, value, mask, bits, how)
    return None if result is None else result[0]


def is_recorded(*tensors: Tensor | None) -> bool:
    """Whether a gradient may be asked for."""
    if state.grad_enabled:
        for t in tensors:
            if t is not None and t._requires_grad:
                return True
    return False


def is_transformed() -> bool:
    """Whether a vmap or forward mode is on, which see tensor functions alone."""
    return bool(state.levels or running.transforms)


def _by_kernel(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bits: Tensor | None,
    how: AttentionSettings,
) -> tuple[Tensor, Tensor] | None:  # fmt: skip
    """`_forward`, and what backward needs beside it, where the device has a kernel for that."""
    array = query._array
    kernel = backend_of(array).attention
    if kernel is None:
        return None
    masks = None if mask is None else mask._array, None if bits is None else bits._array
    results = kernel(array, key._array, value._array, *masks, how)
    return None if results is None else (make(results[0]), make(results[1]))


def _draw(query: Tensor, key: Tensor, mask: Tensor | None, how: AttentionSettings) -> Tensor:
    """A bit for each weight: 1 where it stays."""
    lead = tuple(query.shape[:-2])
    if how.groups == 1:
        lead = np.broadcast_shapes(lead, tuple(key.shape[:-2]))
    shape = (*lead, query.shape[-2], key.shape[-2])
    shape = shape if mask is None else np.broadcast_shapes(shape, tuple(mask.shape))
    return make(draw.bernoulli_bits(None, 1.0 - how.p, shape, query.device))


def _wide(x: Tensor) -> Tensor:
    """Half precision as float32: only the result is rounded to it."""
    return x.float() if x.dtype in (dtypes.float16, dtypes.bfloat16) else x


def _per_head(x: Tensor, groups: int) -> Tensor:
    """Keys or values of fewer heads, dim -3, as many times as there are heads of queries."""
    return _wide(x) if groups == 1 else _wide(x).repeat_interleave(groups, -3)


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, how: AttentionSettings) -> Tensor:
    """softmax(query @ key.mT * scale + mask), with 0 for a query that sees no key."""
    scores = recorded.matmul(query * how.scale, recorded.mT(key))
    last, blind = scores.dim() - 1, None
    if how.causal:
        row = arange(how.start, how.start + query.shape[-2], device=query.device).unsqueeze(1)
        seen = row >= arange(key.shape[-2], device=query.device)
        scores = recorded.masked_fill(scores, ~seen, float("-inf"))
    elif mask is not None and mask.dtype is dtypes.bool_:
        scores = recorded.masked_fill(scores, ~mask, float("-inf"))
        blind = ~mask.any(-1, keepdim=True)
    elif mask is not None:
        blind = (mask == float("-inf")).all(-1, keepdim=True)
        scores = scores + recorded.masked_fill(mask, blind, 0.0).to(scores.dtype)
    weights = recorded.softmax(scores, last)
    return weights if blind is None else recorded.masked_fill(weights, blind, 0.0)


def _dropped(weights: Tensor, bits: Tensor | None, p: float) -> Tensor:
    if bits is None:
        return weights
    return recorded.native_dropout(weights, bits, tuple(weights.shape), p)


def _forward(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bits: Tensor | None,
    how: AttentionSettings,
) -> Tensor:  # fmt: skip
    kind, query, key = query.dtype, _wide(query), _per_head(key, how.groups)
    weights = _dropped(_weights(query, key, mask, how), bits, how.p)
    return recorded.matmul(weights, _per_head(value, how.groups)).to(kind)


class DotProductAttention(Function):
    """`_forward` as one node."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        """The attention; keeps what it is given."""
        *tensors, ctx.how = args
        results = _by_kernel(*args)
        ctx.by_kernel = results is not None
        if results is None:
            ctx.save_for_backward(*tensors, None, None)
            return _forward(*args)
        ctx.save_for_backward(*tensors, *results)
        return results[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """By tensor functions, so that it can be differentiated in turn, or by kernels."""
        how, needed = ctx.how, ctx.needs_input_grad
        if ctx.by_kernel and not state.grad_enabled:
            g, saved = grads[0]._array, arrays(ctx)
            slopes = _by_kernels(g, saved, how, needed)
            if slopes is not None:
                each = [make(x) if wants else None for x, wants in zip(slopes, needed)]
                return (*each, None, None)
            tensors: Any = [None if x is None else make(x) for x in saved]
        else:
            tensors = ctx.saved_tensors
        query, key, value, mask, bits, _, _ = tensors
        gradients = _backward(grads[0], query, key, value, mask, bits, how, needed)
        return (*gradients, None, None)


def _by_kernels(g: Any, saved: Any, how: AttentionSettings, needed: Any) -> list[Any] | None:
    """The arrays of the gradients of query, key, value and mask, None for those that are not
    needed; None where there are no kernels for them.
    """
    backend, of_mask = backend_of(g), None
    slopes: Any = (None, None, None)
    if needed[3]:
        of_mask = backend.attention_of_mask(g, *saved, how)
        if of_mask is None:
            return None
    if any(needed[:3]):
        slopes = backend.attention_backward(g, *saved, how)
        if slopes is None:
            return None
    return [*slopes, of_mask]


def _backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
    bits: Tensor | None, how: AttentionSettings, needed: Any = (True, True, True, False),
) -> list[Any]:  # fmt: skip
    """The gradients of query, key, value and mask, where they are needed."""
    q, g = _wide(query), _wide(grad)
    k, v = _per_head(key, how.groups), _per_head(value, how.groups)
    weights = _weights(q, k, mask, how)
    gradients: list[Any] = [None] * 4
    if needed[2]:
        dropped = _dropped(weights, bits, how.p)
        gradients[2] = _like(recorded.matmul(recorded.mT(dropped), g), value, how.groups)
    if needed[0] or needed[1] or needed[3]:
        slope = _dropped(recorded.matmul(g, recorded.mT(v)), bits, how.p)
        slope = recorded.softmax_backward(slope, weights, weights.dim() - 1)
    if needed[0]:
        gradients[0] = _like(recorded.matmul(slope, k) * how.scale, query)
    if needed[1]:
        across = recorded.mT(slope)
        gradients[1] = _like(recorded.matmul(across, q * how.scale), key, how.groups)
    if mask is not None and needed[3]:
        gradients[3] = _like(slope, mask)
    return gradients


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors as one of arrays, which leaves nothing in the thread's state."""

    def run(*args: Any) -> Any:
        def plain() -> Any:
            *arrays, how = args
            results = function(*[None if x is None else make(x) for x in arrays], how)
            several = results[:3] if type(results) is list else [results]
            answers = [x._array for x in several]
            return tuple(answers) if type(results) is list else answers[0]

        return unseen(plain)

    return run


def _of_mask(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, bits: Tensor | None,
    how: AttentionSettings,
) -> Tensor:  # fmt: skip
    needed = (False, False, False, True)
    slope: Tensor = _backward(grad, query, key, value, mask, bits, how, needed)[3]
    return slope


defined.forward, defined.backward = _of_arrays(_forward), _of_arrays(_backward)
defined.of_mask = _of_arrays(_of_mask)


def _like(grad: Tensor, operand: Tensor, groups: int = 1) -> Tensor:
    """A gradient in the shape of an operand that was broadcast, or repeated, and in its dtype."""
    if groups > 1:
        grad = grad.unflatten(-3, (-1, groups)).sum(-3)
    if grad.shape != operand.shape:
        grad = recorded.sum_to_shape(grad, tuple(operand.shape))
    return grad.to(operand.dtype)
