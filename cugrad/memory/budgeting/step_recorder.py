"""Numbers the values of a step as they are made, and tells a budget of each."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ...autograd.engine.backward_pass import task
from ...autograd.mode import state
from ..recomputing.recipes import Recipe
from ..recomputing.recorder import RecipeRecorder
from ..recomputing.values import Value

if TYPE_CHECKING:
    from .context import budget

__all__ = ["StepRecorder", "WaitsRecorder"]

STALL = "offload: stall"


class StepRecorder(RecipeRecorder):
    """Numbers the values of a step as they are made, and tells its budget of each."""

    def __init__(self, owner: budget) -> None:
        super().__init__()
        self.owner = owner
        self._counted: list[bool] = []  # whether each op that runs is an event of the step
        self._thread = threading.get_ident()

    def change(self, before: int) -> None:
        self._thread = threading.get_ident()
        super().change(before)

    def check_thread(self) -> None:
        """RuntimeError in another thread than the one that has entered it."""
        if self._thread != threading.get_ident():
            raise RuntimeError(
                "budget: ops of its step run in another thread, as those of a DataParallel over "
                "several devices do: their order differs each time, so no plan can be followed. "
                "Put the budget around a step of one thread: a DataParallel with one device id, or "
                "a process for each device"
            )

    def put_back(self, before: int) -> None:
        super().put_back(before)
        self._counted.clear()

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        here, owner = self._here, self.owner
        self.check_thread()
        counted = state.call is not None and not here.nodes
        if counted and not task.running:
            if state.grad_enabled:
                owner.op_will_begin(args)
                owner.op_may_train(args)
            elif owner.turned:
                counted = False
                owner.between_passes()
        elif counted and owner.turned:  # of a hook of a leaf, perhaps a library's: not in each step
            counted = False
            if owner._measuring is None:
                owner._limiter.event(-1)
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


class WaitsRecorder(StepRecorder):
    """Sees, too, where compute waits for weights that come, or for gradients that leave."""

    def node_begin(self, node: Any) -> None:
        if not self.owner.turned:
            self.owner._states.adding.turns()
        super().node_begin(node)

    def range_begin(self, name: str, scope: str, nbytes: int, stream: Any, owner: Any) -> None:
        if name == STALL and self.owner._measuring is not None:
            self.owner._measuring.wait_begins()

    def range_end(self, name: str) -> None:
        if name == STALL and self.owner._measuring is not None:
            self.owner._measuring.wait_ends()
