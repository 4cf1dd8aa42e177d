"""Rows that put a border around a tensor: constant, reflected, repeated or wrapped around.

`pad` is a pair (before, after) for each dim of the tensor, from the first one on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...dtypes import is_half
from ..table import AS_INPUT, LINEAR, NONE, row

Pad = tuple[tuple[int, int], ...]


def _inside(pad: Pad, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where the tensor lies in the padded one, and the part of it that does; pads may be < 0."""
    there, here = [], []
    for (before, after), n in zip(pad, shape):
        start, stop = max(-before, 0), n - max(-after, 0)
        here.append(slice(start, stop))
        there.append(slice(start + before, stop + before))
    return tuple(there), tuple(here)


def _constant_pad(xp: Any, self: Any, pad: Pad, value: Any = 0) -> Any:
    shape = tuple([a + n + b for (a, b), n in zip(pad, self.shape)])
    if value == 0 and value.__class__ is not complex:
        out = xp.zeros(shape, self.dtype)
    else:
        out = xp.full(shape, value, self.dtype)
    there, here = _inside(pad, self.shape)
    out[(*there, ...)] = self[(*here, ...)]
    return out


row(
    "constant_pad_nd", "self", _constant_pad, NONE, dense=AS_INPUT,
    self=lambda m, g, pad: m.constant_pad_nd(g, tuple([(-a, -b) for a, b in pad])),
    jvp=lambda m, self_t, pad: m.constant_pad_nd(self_t, pad),
)  # fmt: skip


def _edges(pad: Pad, shape: tuple[int, ...], mode: str) -> Iterator[tuple[Any, Any]]:
    """Pairs of indices of the padded array: a border, and where it comes from; dim by dim."""
    for dim, ((before, after), n) in enumerate(zip(pad, shape)):
        end, at = before + n, (slice(None),) * dim
        if mode == "replicate":
            sources = (slice(before, before + 1), slice(end - 1, end))
        elif mode == "circular":
            sources = (slice(end - before, end), slice(before, before + after))
        else:
            stop = end - 2 - after
            sources = (
                slice(2 * before, before, -1),
                slice(end - 2, stop if stop >= 0 else None, -1),
            )
        if before:
            yield (*at, slice(0, before)), (*at, sources[0])
        if after:
            yield (*at, slice(end, end + after)), (*at, sources[1])


def _pad_edges(xp: Any, self: Any, pad: Pad, mode: str) -> Any:
    out = xp.empty(tuple([a + n + b for (a, b), n in zip(pad, self.shape)]), self.dtype)
    there, _ = _inside(pad, self.shape)
    # The border of a dim is copied from rows whose other borders are made later, and so copied too
    out[there] = self
    for border, source in _edges(pad, self.shape, mode):
        out[border] = out[source]
    return out


def _pad_edges_backward(xp: Any, grad: Any, pad: Pad, mode: str) -> Any:
    shape = tuple([n - a - b for (a, b), n in zip(pad, grad.shape)])
    half = is_half(grad.dtype)
    wide = grad.astype("float32") if half else grad.copy()
    for border, source in reversed(list(_edges(pad, shape, mode))):
        part = wide[border]
        if mode == "replicate":
            part = part.sum(len(border) - 1, keepdims=True)
        wide[source] += part
    there, _ = _inside(pad, shape)
    return wide[there].astype(grad.dtype)


_NODES = {"reflect": "ReflectionPad", "replicate": "ReplicationPad", "circular": "CircularPad"}


def _node_name(params: dict[str, Any]) -> str:
    padded = sum(p != (0, 0) for p in params["pad"])
    return f"{_NODES[params['mode']]}{max(padded, 1)}DBackward0"


row(
    "pad_edges", "self", _pad_edges, LINEAR, node=_node_name, dense=AS_INPUT,
    self=lambda m, g, pad, mode: m.pad_edges_backward(g, pad, mode), kernels=(1, 0),
    doc="borders made of the tensor itself; mode is reflect, replicate or circular",
)  # fmt: skip

row(
    "pad_edges_backward", "grad", _pad_edges_backward, LINEAR,
    grad=lambda m, g, pad, mode: m.pad_edges(g, pad, mode), kernels=(1, 0),
    doc="the adjoint of pad_edges: borders are added to where they came from",
)  # fmt: skip
