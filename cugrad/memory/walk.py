"""Numbers the values of a step as they are made, and tells a budget of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.engine import task
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
        self._counted: list[bool] = []  # whether each op that runs is an event of the step

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self._counted.clear()

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        here, owner = self._here, self.owner
        owner.check_thread()
        counted = state.call is not None and not here.nodes
        if counted and owner.turned and not task.running:
            counted = state.grad_enabled
            if counted:
                owner.op_will_begin(args)
        if owner.turned:
            here.calls.append(None)
        else:
            super().op_begin(name, seq, args)
        self._counted.append(counted)
        if counted:
            owner.op_begins(name, here.calls[-1])

    def op_end(self, name: str, seq: int, result: Any) -> None:
        calls = self._here.calls
        recipe = calls[-1] if calls else None
        super().op_end(name, seq, result)
        if self._counted and self._counted.pop():
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
