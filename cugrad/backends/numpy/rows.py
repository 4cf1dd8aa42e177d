"""How the host runs a row: by code written for it, by blocks, or as its forward and formulas do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .blocks import LEAST, forward_by_blocks, gradients_by_blocks
from .written import registry

__all__ = ["forward_of", "gradients_of"]


def forward_of(op: Any, xp: Any) -> Callable[..., Any]:
    """A row's forward; its `wide` is the one for operands of which none is in half precision."""
    function = partial(op.forward, xp) if op.ufunc is None else getattr(xp, op.ufunc)
    if op.kind != "elementwise":
        return registry.forward_of(op, function)
    by_blocks = forward_by_blocks(op, function)
    forward = registry.forward_of(op, by_blocks)
    if op.name not in registry.OF_HALVES:
        forward.wide = registry.forward_of(op, by_blocks.wide)  # type: ignore[attr-defined]
    return forward


def gradients_of(op: Any, mask: int, raw: Any) -> Callable[..., Any] | None:
    """`gradients(g, saved, meta)` of a node, or None; its `least` says of how many elements."""
    written = registry.backward_of(op, mask)
    by_blocks = gradients_by_blocks(op, mask, raw) if op.kind == "elementwise" else None
    if written is None:
        return by_blocks

    def gradients(g: Any, saved: Any, meta: Any) -> Any:
        grads = written(g, saved, meta)
        if grads is None and by_blocks is not None and (g.size >= LEAST or g.itemsize == 2):
            grads = by_blocks(g, saved, meta)
        return grads

    gradients.least = written.least  # type: ignore[attr-defined]
    return gradients
