"""The second run of a checkpointed function, which ends when all values in demand exist."""

from __future__ import annotations

import weakref
from itertools import takewhile
from threading import get_ident
from typing import Any

from ..autograd.mode import state, watch_writes
from ..autograd.recording.op_node import OpPlan
from ..autograd.recording.operands import read_inputs
from ..autograd.transforms import running
from ..backends.several import copy_of
from ..ops.table import Op
from ..runtime.kept import Switch
from ..tensor import Tensor, make
from .comparison import TIP, CheckpointError, Saved, Traits, by, op_name, saved_name

__all__ = ["Rerun", "Enough", "Values"]


class Enough(BaseException):
    """All saved values exist again, so the rest of the function need not run."""


class Values(dict[int, tuple[Tensor, int]]):
    """Values that were computed again for the first `count` slots, until they are asked for.

    By number: the tensor, and its version.
    """

    count = 0


class Rerun(Switch):
    """The second run of a function, until all values in demand exist. If the last op saves only its
    inputs, it does not run: `before_op` takes the inputs and ends the run.
    """

    def __init__(
        self,
        slots: list[weakref.ref[Any]],
        traits: Traits | None,
        early_stop: bool,
        is_complete: bool,
        last: tuple[int, int, Any],
        seen: list[Saved],
    ) -> None:
        self._slots, self._traits, self._is_complete = slots, traits, is_complete
        self._seen, self._node = seen, -1  # in forward; the number of the node that saved last
        self.wanted = len(slots)
        while early_stop and slots[self.wanted - 1]() is None:
            self.wanted -= 1
        self._early_stop, self._before_last, self._thread = early_stop, -1, get_ident()
        self._plan: OpPlan | None = None
        if early_stop and self.wanted == len(slots) and is_complete:
            first, _, plan = last
            if isinstance(plan, OpPlan) and set(plan.saves) <= set(plan.op.inputs):
                self._plan, self._before_last = plan, first
        self.values, self.found = Values(), list[Saved]()
        self.more = False  # the function runs backward itself: it must run further

    def pack(self, tensor: Tensor) -> Tensor:
        """The hook of the second run. Returns the tensor: the function may run backward itself."""
        if get_ident() != self._thread:
            return tensor
        k, node = len(self.found), state.saving
        op, name = op_name(node), saved_name(node)
        is_first = node is None or node.seq != self._node
        if self._is_new(k, op, name, is_first):
            return tensor
        if k >= len(self._slots):
            if self._is_complete:
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation "
                    f"than during the original forward pass.\n{by(op)}{TIP}"
                )
            self.more = True
            return tensor
        self._node = -1 if node is None else node.seq
        self.keep(tensor, op, name, is_first)
        if k + 1 == self._before_last:
            state.switch(before_op=self.before_op)
        return tensor

    def _is_new(self, k: int, op: str, name: str, is_first: bool) -> bool:
        """Whether a node saves what it has not saved in forward, where slot `k` is next.

        So it does for an operand that is no argument, and requires gradients since.
        """
        seen = self._seen
        if k == len(seen) or seen[k].is_first:  # the last node has all that it saved in forward
            if not is_first:
                return True
            if k == len(seen):
                return False
        if op != seen[k].op or name == seen[k].name:
            return False
        rest = takewhile(lambda entry: not entry.is_first, seen[k + 1 :])
        return all(name != entry.name for entry in rest)

    def keep(self, tensor: Tensor, op: str, name: str, is_first: bool) -> None:
        """Takes the value of the next slot."""
        k, traits = len(self.found), self._traits
        self.found.append(Saved(op, None if traits is None else traits(tensor, op), name, is_first))
        if self._slots[k]() is not None:
            alone = tensor
            if tensor._requires_grad:  # else the user gets the same object back
                alone = make(tensor._array)
                alone._counter = tensor.counter
            self.values[k] = alone, alone.counter[0]
        if self._early_stop and k + 1 == self.wanted:
            raise Enough

    def _before_write(self, t: Tensor) -> None:
        """Copies the values that were taken of `t`, which the function is about to change."""
        counter = t.counter
        for k, (kept, version) in self.values.items():
            if kept._counter is counter and kept.counter[0] == version:
                copy = make(copy_of(kept._array, "K"))
                self.values[k] = copy, copy.counter[0]

    def as_is(self) -> Any:
        return state.observers, state.before_op, state.stand_in

    def change(self, before: Any) -> None:
        watch_writes(self._before_write, True)
        state.switch(
            observers=tuple([o for o in state.observers if not hasattr(o, "of_one_run")]),
            before_op=self.before_op if self._before_last == 0 else None, stand_in=None,
        )  # fmt: skip

    def put_back(self, before: Any) -> None:
        watch_writes(self._before_write, False)
        observers, before_op, stand_in = before
        state.switch(observers=observers, before_op=before_op, stand_in=stand_in)

    def before_op(self, op: Op, inputs: Any, params: dict[str, Any]) -> None:
        """Takes what the last op would save, and ends the run."""
        plan = self._plan
        if plan is None or op is not plan.op or len(self.found) != self._before_last:
            return
        if not state.grad_enabled or not state.hooks or state.hooks[-1][0] != self.pack:
            return  # another pair of hooks packs what this op saves
        if state.levels or running.transforms:
            return
        inputs = inputs[0] if op.variadic else inputs
        mask = read_inputs(op, inputs)[1]
        if not mask or not (op.variadic or mask == plan.mask):
            return
        names = plan.saves * len(inputs) if op.variadic else plan.saves
        chosen = inputs if op.variadic else [inputs[op.inputs.index(n)] for n in names]
        pairs = [(x, name) for x, name in zip(chosen, names) if isinstance(x, Tensor)]
        if len(pairs) == self.wanted - self._before_last:
            for k, (tensor, name) in enumerate(pairs):
                self.keep(tensor, op.name_of_node(params), name, k == 0)
