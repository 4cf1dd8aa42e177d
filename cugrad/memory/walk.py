"""Numbers the values of a step as they are made, and tells a budget of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.mode import state
from .recipes import Recipe, Recorder, Value

if TYPE_CHECKING:
    from .budgeting import budget

__all__ = ["Walk"]


class Walk(Recorder):
    """Numbers the values of a step as they are made, and tells its budget of each."""

    def __init__(self, owner: budget) -> None:
        super().__init__()
        self.owner = owner

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        calls = self._here.calls
        if state.call is not None and not self._here.nodes and state.grad_enabled:
            self.owner.op_will_begin()
        if self.owner.turned:
            calls.append(None)
            return
        super().op_begin(name, seq, args)
        recipe = calls[-1]
        if recipe is not None:
            self.owner.op_begins(name, recipe)

    def op_end(self, name: str, seq: int, result: Any) -> None:
        calls = self._here.calls
        recipe = calls[-1] if calls else None
        super().op_end(name, seq, result)
        if recipe is not None:
            self.owner.op_ends(recipe)

    def node_begin(self, node: Any) -> None:
        super().node_begin(node)
        if self._here.nodes == 1:
            self.owner.node_begins(node)

    def node_end(self, node: Any) -> None:
        if self._here.nodes == 1:
            self.owner.node_ends()
        super().node_end(node)

    def _enter(self, root: Any, counter: list[int], recipe: Recipe) -> Value:
        value = super()._enter(root, counter, recipe)
        self.owner.made(value, recipe)
        return value
