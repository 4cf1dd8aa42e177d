"""What the engine takes for granted of a graph: each node is younger than all that it leads to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cugrad.autograd.recording.node import edge_of
from cugrad.tensor import Tensor


def assert_ordered(tensors: Iterable[Any]) -> int:
    """Fails for a node whose number is not above those its edges lead to; counts the nodes."""
    stack = [edge_of(t) for t in tensors if isinstance(t, Tensor) and t._requires_grad]
    seen: set[Any] = set()
    while stack:
        edge = stack.pop()
        node = None if edge is None or isinstance(edge, Tensor) else edge.grad_fn
        if node is None or node in seen:
            continue
        seen.add(node)
        for end in node.edges:
            if end is not None and not isinstance(end, Tensor):
                assert node.seq > end.grad_fn.seq, (
                    f"{node.name()} has number {node.seq}, and leads to {end.grad_fn.name()} with "
                    f"number {end.grad_fn.seq}"
                )
            stack.append(end)
    return len(seen)
