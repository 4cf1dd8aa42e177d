"""Attention as devices have it in few kernels: which operands these take, and what they compute."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from .wanted import wanted

__all__ = ["KERNELS", "Definition", "defined", "ways_in_order", "width_taken"]

Array = Any  # an array of some backend
Sizes = tuple[int, ...]

KERNELS = ("flash", "mem_efficient")  # the ways that are tried unless a user chooses
FLOATS = ("float32", "float16", "bfloat16", "float64")
# widths of heads that kernels are made for
ON_CORES, ELSEWHERE = range(16, 129, 16), (32, 64, 128, 192, 256)
LIMIT = 2**31 - 2**20  # queries, and keys


class Definition:
    """What the kernels compute, of arrays of the host: `forward(query, key, value, mask, bits,
    how)` is the attention, `backward(g, query, key, value, mask, bits, how)` the gradients of the
    first three, and `of_mask`, of the same, that of the mask. Whoever has the functions enters
    them.
    """

    forward: Callable[..., Array]
    backward: Callable[..., tuple[Array, Array, Array]]
    of_mask: Callable[..., Array]


defined = Definition()


def ways_in_order() -> tuple[str, ...]:
    """The ways that are enabled, as they are to be tried: "math" takes all, and ends the list."""
    ways = [way for way, is_enabled in wanted.attention.items() if is_enabled]
    return tuple(ways[: ways.index("math")] if "math" in ways else ways)


def width_taken(
    query: Array, key: Array, value: Array, mask: Array | None, bits: Array | None, how: Any,
    has_cores: bool,
) -> tuple[int, bool] | None:  # fmt: skip
    """The width of heads that a kernel is made for, and whether it is one of tensor cores, which
    the device may have; None where none takes the operands. `how` are an `AttentionSettings`.

    Half precision is on tensor cores the way "flash", and float32 "mem_efficient", as in PyTorch.
    """
    arrays = [x for x in (query, key, value, mask, bits) if x is not None]
    if not wanted.fused or any(type(x) is not type(query) or not x.size for x in arrays):
        return None
    name = query.dtype.name
    if name not in FLOATS or key.dtype != query.dtype or value.dtype != query.dtype:
        return None
    if mask is not None and (mask.dtype.name not in (name, "float32", "bool") or mask.ndim > 4):
        return None
    lead, groups = query.shape[:-2], how.groups
    other = lead if groups == 1 else (*lead[:-1], lead[-1] // groups)
    if key.shape[:-2] != other or value.shape[:-2] != other or query.ndim < 2:
        return None
    widest = max(query.shape[-1], value.shape[-1])
    has_cores, is_half = has_cores and widest <= ON_CORES[-1], query.dtype.itemsize == 2
    is_flash = has_cores and is_half
    ways = [way for way in how.ways if way == "mem_efficient" or way == "flash" and is_flash]
    if not ways:
        return None
    on_cores = has_cores and name == "float32" or ways[0] == "flash"
    width = next((d for d in (ON_CORES if on_cores else ELSEWHERE) if d >= widest), 0)
    rows = query.shape[-2], key.shape[-2]
    if not width or max(rows) >= LIMIT or how.start < 0:
        return None
    whole = (*lead, *rows)
    if mask is not None and (query.ndim > 4 or not _broadcasts(mask.shape, whole)):
        return None
    if bits is not None and bits.size != -(-prod(whole) // 8):
        return None
    return width, on_cores


def _broadcasts(shape: Sizes, whole: Sizes) -> bool:
    ends = whole[len(whole) - len(shape) :]
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in zip(shape, ends))
