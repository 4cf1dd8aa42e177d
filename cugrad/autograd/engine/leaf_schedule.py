"""When backward visits a leaf: once it has all its gradients, or after all nodes."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from ..recording.node import end_of
from .hooks import has_hooks
from .reach import reachable

__all__ = ["LeafSchedule"]

LAST = 1 << 62  # LAST is after all nodes, whose place is -seq; -LAST is before them
LARGE = 1 << 16  # bytes of a leaf that is visited early if it has a gradient


class LeafSchedule:
    """The leaves of a pass. Those that are *eager* are visited when their last gradient is there.

    Leaves with hooks are, as in PyTorch: an optimizer in such a hook frees the gradient while
    backward runs. A large leaf that has a gradient is eager, too: the new gradient is added to the
    old one.
    """

    __slots__ = ("_accumulating", "awaited", "_counted", "_early", "_grads", "_hooked", "_late",
                 "_nodes", "_starts")  # fmt: skip

    def __init__(
        self, starts: list[Any], needed: set[Any] | None, grads: dict[Any, Any], accumulating: bool
    ) -> None:
        self._starts, self._nodes = starts, needed  # not the pass, which would be a cycle
        self._grads, self._accumulating = grads, accumulating
        self.awaited: dict[Tensor, int] = {}  # eager leaves: the gradients still to come
        self._counted = self._hooked = False
        self._early, self._late = -LAST, LAST

    def place(self, leaf: Tensor) -> int | None:
        """The place in the order of a leaf that has its first gradient; None if it waits."""
        if (leaf._rare is not None or leaf._grad is not None) and self.awaits(leaf):
            return None
        self._late += 1
        return self._late

    def awaits(self, leaf: Tensor) -> bool:
        """Whether gradients are still to come to an eager leaf; they are counted if it is one."""
        if not self._counted and self._is_eager(leaf):
            self._count()
        return leaf in self.awaited

    def all_are_told(self) -> bool:
        """Whether nodes to which no gradient comes run, too, for a leaf with hooks is behind some:
        these are called with None there.
        """
        if not self._counted:
            self._count()
        return self._hooked

    def _count(self) -> None:
        self._counted = True
        ends = list(self._starts)
        for node in self._nodes or reachable(self._starts):
            if not isinstance(node, Tensor):
                ends += [end_of(edge) for edge in node.edges]
        for end in ends:
            if isinstance(end, Tensor) and self._is_eager(end) and end not in self._grads:
                self.awaited[end] = self.awaited.get(end, 0) + 1
                self._hooked = self._hooked or has_hooks(end)

    def _is_eager(self, leaf: Tensor) -> bool:
        if leaf._rare is not None and has_hooks(leaf):
            return True
        large = leaf._grad is not None and leaf._array.nbytes >= LARGE
        return large and self._accumulating

    def arrived(self, leaf: Tensor) -> int | None:
        """A gradient of an eager leaf has come, or will not: its place, if that was the last."""
        if leaf not in self.awaited:
            return None
        self.awaited[leaf] -= 1
        if self.awaited[leaf]:
            return None
        del self.awaited[leaf]
        self._early += 1
        return self._early

    def left_over(self) -> Tensor | None:
        """A leaf that still waits for a gradient, which did not come because a node never ran."""
        for leaf in self.awaited:
            if leaf in self._grads:
                del self.awaited[leaf]
                return leaf
        return None
