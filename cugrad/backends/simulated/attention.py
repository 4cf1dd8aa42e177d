"""Attention at the cost of the kernels that CUDA has for it: no scores are in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..attending import defined, width_taken
from .array import run

__all__ = ["attention", "attention_backward", "attention_of_mask"]

Array = Any  # of the device


def _name(name: str, how: Any) -> str:
    return f"causal {name}" if how.causal else name


def _side_by_side(x: Any) -> Any:
    """A copy that lies as the kernels' results, with heads side by side: to put them together, as
    layers do, is a view of it.
    """
    if x.ndim < 4:
        return np.array(x)
    return np.ascontiguousarray(np.swapaxes(x, -2, -3)).swapaxes(-2, -3)


def _lying_as(x: Any, operand: Any) -> Any:
    """A copy whose dims are in memory in the order of an operand's."""
    axes = sorted(range(x.ndim - 1), key=lambda d: -operand.strides[d])
    back = [*[axes.index(d) for d in range(x.ndim - 1)], x.ndim - 1]
    return np.array(x.transpose(*axes, x.ndim - 1), order="C").transpose(back)


def attention(
    query: Array, key: Array, value: Array, mask: Array | None, bits: Array | None, how: Any
) -> tuple[Array, Array] | None:
    """See `written.attention`, which declines the same: the attention, and a number a query."""
    if width_taken(query, key, value, mask, bits, how, True) is None:
        return None

    def function(*hosts: Any) -> Any:
        wide = np.float64 if hosts[0].dtype == np.float64 else np.float32
        result = _side_by_side(defined.forward(*hosts, how))
        return result, np.zeros(hosts[0].shape[:-1], wide)

    operands = query, key, value, mask, bits
    results: Any = run(type(query), _name("attention", how), function, operands, {})
    return results


def attention_backward(
    g: Array, query: Array, key: Array, value: Array, mask: Array | None, bits: Array | None,
    result: Array, logs: Array, how: Any,
) -> tuple[Array, Array, Array] | None:  # fmt: skip
    """The gradients of query, key and value: a kernel for the first, which leaves a number a query
    for the one of the others.
    """
    if width_taken(query, key, value, mask, bits, how, True) is None or g.dtype != query.dtype:
        return None
    kind, gradients = type(query), list[Any]()

    def of_queries(*hosts: Any) -> Any:
        *operands, slope, _, logs = hosts
        slopes = defined.backward(slope, *operands, how)
        gradients.extend(map(_lying_as, slopes, operands))
        return gradients[0], np.zeros_like(logs)

    operands = query, key, value, mask, bits
    name = _name("attention_queries", how)
    dq, deltas = run(kind, name, of_queries, (*operands, g, result, logs), {})
    name = _name("attention_keys", how)
    arguments = *operands, g, logs, deltas
    dk, dv = run(kind, name, lambda *_: (gradients[1], gradients[2]), arguments, {})
    return dq, dk, dv


def attention_of_mask(
    g: Array, query: Array, key: Array, value: Array, mask: Array, bits: Array | None,
    result: Array, logs: Array, how: Any,
) -> Array | None:  # fmt: skip
    """The gradient of a mask that was added, in one kernel."""
    if width_taken(query, key, value, mask, bits, how, True) is None or g.dtype != query.dtype:
        return None

    def function(*hosts: Any) -> Any:
        *operands, slope, _, _ = hosts
        return np.array(defined.of_mask(slope, *operands, how), hosts[3].dtype)

    operands = query, key, value, mask, bits, g, result, logs
    slope: Array = run(type(query), _name("attention_mask", how), function, operands, {})
    return slope
