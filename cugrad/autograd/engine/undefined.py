"""Gradients that do not come, and the nodes that must be told so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...backends.several import copy_of
from ...tensor import Tensor
from ..recording.node import end_of
from ..recording.op_node import OpNode

__all__ = ["NOTHING", "listeners"]


class _NotReached:
    """Stands for the gradient at a node that none has reached. The first gradient replaces it."""

    def __add__(self, g: Any) -> Any:
        return g if isinstance(g, Tensor) else copy_of(g)  # arrays may be added to in place


NOTHING = _NotReached()


def listeners(edge: Any, passed: set[Any]) -> Iterator[Any]:
    """The nodes behind an edge that run without a gradient too: custom Functions, and hooks.

    Ops give no gradient when they get none, so the search goes on behind them; `passed` has them.
    """
    stack = [edge]
    while stack:
        edge = stack.pop()
        node = end_of(edge)
        if node is None or isinstance(node, Tensor) or node in passed:
            continue
        if isinstance(node, OpNode) and not (node.rare and node.rare.is_heard()):
            passed.add(node)
            stack.extend(node.edges)
        else:
            yield node
