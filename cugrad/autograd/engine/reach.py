"""Which nodes a gradient can come to, and which lead to something that was asked for."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from ...tensor import Tensor
from ..recording.node import Output

__all__ = ["leads_to", "needed_for", "numbers_from", "reachable"]


def reachable(roots: list[Any]) -> dict[Any, None]:
    """All nodes and leaves that gradients sent to `roots` can come to."""
    seen: dict[Any, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        if not isinstance(node, Tensor):
            for edge in node.edges:
                if edge is not None:  # `end_of`, written out: benchmarks/training.py, hvp
                    stack.append(edge.grad_fn if type(edge) is Output else edge)
    return seen


def numbers_from(roots: list[Any]) -> list[int]:
    """The sequence numbers of all nodes that gradients sent to `roots` can come to."""
    return [node.seq for node in reachable(roots) if not isinstance(node, Tensor)]


def needed_for(roots: list[Any], targets: set[Any]) -> set[Any]:
    """All nodes from which a target can be reached, and the targets."""
    seen = reachable(roots)
    needed = targets.intersection(seen)
    inner = [node for node in seen if not isinstance(node, Tensor)]
    inner.sort(key=attrgetter("seq"))
    for node in inner:
        if leads_to(node, needed):
            needed.add(node)
    return needed


def leads_to(node: Any, needed: set[Any]) -> bool:
    """Whether an edge of a node ends at one of these."""
    for edge in node.edges:
        if edge is not None and (edge.grad_fn if type(edge) is Output else edge) in needed:
            return True
    return False
