"""Gradients that lie in memory as their operands do: those of a tensor's pieces side by side, so
that the gradient of the tensor is there when theirs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import cupy

from ....owners import root_of
from ...launches.starting import made
from ...windows import as_strided
from ..registry import NodeCall, backward

__all__ = ["gradients_for", "split_backward", "unbind_backward"]

Array = Any  # cupy.ndarray
Steps = tuple[int, ...]
ndarray = cupy.ndarray


def gradients_for(operands: Sequence[Array]) -> Sequence[Array]:
    """Arrays for the gradients of operands, whose last dim is dense.

    Each has its dims in memory in the order of its operand's, as in PyTorch. Operands of one form
    that fill a piece of memory together, as queries, keys and values do that one layer computes,
    have gradients that do so.
    """
    first, second = operands[:2]
    step = second.data.ptr - first.data.ptr
    together = all(
        x.shape == first.shape and x.strides == first.strides and
        x.data.ptr - first.data.ptr == i * step
        for i, x in enumerate(operands)
    )  # fmt: skip
    if together and step > 0:
        shape, strides = (len(operands), *first.shape), (step, *first.strides)
        if _is_dense(shape, strides, first.itemsize):
            dtype = first.dtype
            return made(lambda: list(_lying(shape, strides, dtype)))
    return [_lying(x.shape, x.strides, x.dtype) for x in operands]


def _by_steps(strides: Steps) -> list[int]:
    return sorted(range(len(strides)), key=lambda d: -strides[d])


def _lying(shape: Steps, strides: Steps, dtype: Any) -> Array:
    """A dense array whose dims, all but the last, are in the order of these strides."""
    order = [*_by_steps(strides[:-1]), len(shape) - 1]
    block = ndarray(tuple([shape[d] for d in order]), dtype)
    return block.transpose([order.index(d) for d in range(len(shape))])


def _is_dense(shape: Steps, strides: Steps, size: int) -> bool:
    """Whether elements of so many bytes lie one after another, the last dim's as neighbours."""
    if strides[-1] != size:
        return False
    for d in reversed(_by_steps(strides)):
        if shape[d] > 1:
            if strides[d] != size:
                return False
            size *= shape[d]
    return True


def _whole(pieces: Sequence[Any], starts: Sequence[int], shape: Steps, strides: Steps) -> Any:
    """The array of this form that has the pieces at so many bytes behind the first; or None."""
    first = pieces[0]
    if not _is_dense(shape, strides, first.itemsize):
        return None
    owner, place, own = root_of(first), first.data.ptr, first.strides
    for x, start in zip(pieces, starts, strict=True):
        if x.data.ptr - place != start or x.strides != own or root_of(x) is not owner:
            return None
    return as_strided(first, shape, strides)


def _are_arrays(pieces: Any) -> bool:
    """Whether there are several, none of them empty; the gradient of a single one is no tuple."""
    if isinstance(pieces, ndarray):
        return False
    return all(type(x) is ndarray and x.size for x in pieces) and len(pieces) > 1


@backward("unbind")
def unbind_backward(call: NodeCall) -> tuple[Array | None, ...] | None:
    """The gradient of what was unbound, where those of its pieces lie as it would."""
    pieces, dim = call.g, call.params["dim"]
    if not _are_arrays(pieces):
        return None
    first, step = pieces[0], pieces[1].data.ptr - pieces[0].data.ptr
    shape, strides = call.shape("self"), (*first.strides[:dim], step, *first.strides[dim:])
    whole = _whole(pieces, [i * step for i in range(len(pieces))], shape, strides)
    return None if whole is None else call.answer(self=whole)


@backward("split_with_sizes")
def split_backward(call: NodeCall) -> tuple[Array | None, ...] | None:
    """The same of what was split."""
    pieces, dim = call.g, call.params["dim"]
    if not _are_arrays(pieces):
        return None
    strides = pieces[0].strides
    ends = accumulate([x.shape[dim] * strides[dim] for x in pieces[:-1]], initial=0)
    whole = _whole(pieces, list(ends), call.shape("self"), strides)
    return None if whole is None else call.answer(self=whole)
