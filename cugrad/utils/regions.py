"""A region that forgets what its ops save, and runs again when backward asks for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any
from weakref import ref

from ..autograd.engine.backward_pass import task
from ..autograd.forward.dual import carried, reopened
from ..autograd.graph import saved_tensors_hooks
from ..autograd.mode import enable_grad, no_grad, state
from ..autograd.ranges import ranged
from ..autograd.recording.node import edge_of
from ..autograd.recording.saved import INFERENCE_TEXT, Packed, spelled
from ..autograd.recording.views import linked
from ..errors import InplaceError
from ..runtime.kept import Switch
from ..tensor import Tensor, flags_set
from .comparison import (
    TIP,
    CheckpointError,
    Saved,
    Traits,
    by,
    described,
    op_name,
    saved_name,
)
from .rerun import Enough, Rerun, Values

__all__ = ["GraphExecGroup", "CheckpointedRegion"]

TWICE = (
    "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked "
    "once. Performing two backward calls that overlap (i.e. require the same saved activation in "
    "order to compute gradients) is not allowed while under the "
    "torch.utils.checkpoint.GraphExecGroup context."
)
NO_NODE = 0, -1, None


class Slot:
    """What a node keeps in the place of a saved tensor: the region, and its number there."""

    __slots__ = ("region", "number", "__weakref__")

    def __init__(self, region: CheckpointedRegion, number: int) -> None:
        self.region, self.number = region, number

    @property
    def may_differ(self) -> bool:
        """Whether the values of the second run are not compared (`determinism_check="none"`)."""
        return self.region._traits is None


class GraphExecGroup(Switch):
    """Several backward passes for which a checkpoint runs again once, not once for each.

    No two of them may need the same saved tensor, even with `retain_graph=True`: that is a
    CheckpointError. It has no effect on reentrant checkpoints.

    >>> import cugrad as torch
    >>> from cugrad.utils.checkpoint import GraphExecGroup, checkpoint
    >>> def f(x):
    ...     print("runs")
    ...     return x.exp().sin(), x.cos()
    >>> x = torch.ones(2, requires_grad=True)
    >>> a, b = checkpoint(f, x, use_reentrant=False)
    runs
    >>> with GraphExecGroup():
    ...     a.sum().backward()
    ...     b.sum().backward()
    runs
    """

    def as_is(self) -> None:
        if task.group is not None:
            raise RuntimeError(
                f"GraphExecGroup contexts cannot be nested. Already inside group {task.group}"
            )

    def change(self, before: None) -> GraphExecGroup:
        task.group = self
        return self

    def put_back(self, before: None) -> None:
        task.group = None


class CheckpointedRegion:
    """One call of a checkpointed function.

    Its arguments are saved through the hooks outside. Each tensor that its ops save becomes an
    empty slot. The first slot that a backward pass opens runs the function again, by
    `again(*args)`, and the tensors that its ops save then fill the slots in the same order. A value
    is freed with the slot that asked for it. If it is asked for once more in the same pass, the
    function runs once more. Tensors that are saved in threads of the function are kept as they are.
    """

    def __init__(
        self,
        again: Callable[..., Any],
        args: tuple[Any, ...],
        traits: Traits | None,
        early_stop: bool,
        explain: Callable[[CheckpointError], CheckpointError] | None = None,
    ) -> None:
        self._again, self._traits, self._explain = again, traits, explain
        self._early_stop, self._thread = early_stop, get_ident()
        self._args = tuple([_Input(arg) if isinstance(arg, Tensor) else arg for arg in args])
        self._levels = state.levels  # of forward mode; below, tangents of the arguments
        self._tangents = [
            (k, carried(arg, self._levels))
            for k, arg in enumerate(args) if self._levels and isinstance(arg, Tensor)
        ]  # fmt: skip
        self._slots: list[weakref.ref[Slot]] = []
        self._seen: list[Saved] = []  # of each slot
        self._values: weakref.WeakKeyDictionary[Any, Values] | None = None
        self._last: tuple[int, int, Any] = NO_NODE  # the last node's first slot, number, plan
        self.is_complete = False  # forward has ended
        self._flags_set = flags_set[0]

    def saving(self) -> saved_tensors_hooks:
        """The context in which the function runs forward."""
        return saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> Any:
        if get_ident() != self._thread:  # threads save in any order
            return tensor
        slots = self._slots
        slot = Slot(self, len(slots))
        node = state.saving
        if node is None:  # an argument of a checkpoint in here
            self._last = NO_NODE
        elif node.seq != self._last[1]:
            self._last = len(slots), node.seq, node.plan
        slots.append(ref(slot))
        op, is_first = op_name(node), node is None or self._last[0] == slot.number
        traits = None if self._traits is None else self._traits(tensor, op)
        self._seen.append(Saved(op, traits, saved_name(node), is_first))
        return slot

    def _unpack(self, slot: Any) -> Tensor:
        if type(slot) is not Slot:
            return slot
        passes = task.running
        group = task.group if self.is_complete and len(passes) < 2 else None  # none within another
        asking = group or (passes[-1] if passes else None)
        values = None
        if asking is not None and self._values is not None:
            values = self._values.get(asking)
        if values is None or slot.number not in values:
            if values is not None and group is not None and slot.number < values.count:
                raise CheckpointError(TWICE)
            values = self._recompute()
            if asking is not None:
                if self._values is None:
                    self._values = weakref.WeakKeyDictionary()
                self._values[asking] = values
        tensor, version = values.pop(slot.number)
        if tensor.counter[0] != version:  # by the function itself, which saved it before
            _changed("a tensor", tensor.shape, tensor.counter[0], version)
        return tensor

    def _recompute(self) -> Values:
        """The values of all slots that are still wanted."""
        run = Rerun(
            self._slots, self._traits, self._early_stop, self.is_complete, self._last, self._seen
        )
        try:
            args: list[Any] = [
                arg.restore_input() if type(arg) is _Input else arg for arg in self._args
            ]
            try:
                hooks = saved_tensors_hooks(run.pack, _as_it_is)
                with ranged("checkpoint: recompute", "recompute"), hooks, enable_grad(), run:
                    if self._levels or state.levels:
                        tangents = [(args[k], entries) for k, entries in self._tangents]
                        with reopened(self._levels, tangents):
                            self._again(*args)
                    else:
                        self._again(*args)
            except Enough:
                pass
            if not run.more:
                self._compare(run.found, run.wanted)
        except CheckpointError as error:
            if self._explain is None:
                raise
            raise self._explain(error) from error
        run.values.count = len(run.found)
        return run.values

    def _compare(self, entries: list[Saved], count: int) -> None:
        """CheckpointError where what was saved now is not what was saved in forward."""
        if len(entries) < count:
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                f"original forward and recomputation.\nNumber of tensors saved during forward: "
                f"{len(self._slots)}\nNumber of tensors saved during recomputation: "
                f"{len(entries)}.\n"
                f"{self._first_difference(entries) if self._traits else ''}{TIP}"
            )
        if self._traits is None or entries == self._seen:
            return
        different = [
            f"tensor at position {k}:\nsaved metadata: {described(was.traits)}\n"
            f"recomputed metadata: {described(now.traits)}\n{by(was.op, now.op)}"
            f"{as_what(was, now)}"
            for k, (was, now) in enumerate(zip(self._seen, entries))
            if self._slots[k]() is not None and self._differ(was, now)
        ]
        if different:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                f"different metadata than during the forward pass.\n{''.join(different)}.\n{TIP}"
            )

    def _differ(self, was: Saved, now: Saved) -> bool:
        """Whether a value cannot stand for what was saved.

        Another op may have computed it, with the same shape and dtype. But not one that ran
        unrecorded before, since what it was given did not require gradients.
        """
        if was.traits != now.traits or as_what(was, now):
            return True
        return was.op != now.op and flags_set[0] != self._flags_set

    def _first_difference(self, entries: list[Saved]) -> str:
        for k, (was, now) in enumerate(zip(self._seen, entries)):
            if was.op != now.op:
                return f"The first op that differs saved tensor {k}: {was.op}, then {now.op}.\n"
        k = min(len(self._seen), len(entries))
        if k < len(self._seen):
            return f"Recomputation ended before what {self._seen[k].op} had saved, tensor {k}.\n"
        return f"Recomputation saved what forward had not: {entries[k].op}, tensor {k}.\n"


def as_what(was: Saved, now: Saved) -> str:
    """The line that says which operand an op saved, where it is another one now."""
    if was.op != now.op or was.name == now.name:
        return ""
    return f"as {was.name!r}, then as {now.name!r}: do other operands require gradients now?\n"


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


class _Input:
    """An argument of a region, as the hooks outside keep it."""

    __slots__ = ("_tensor", "_version", "_packed")

    def __init__(self, tensor: Tensor) -> None:
        if tensor.is_inference():  # it has no version, so a change of it would go unseen
            raise RuntimeError(INFERENCE_TEXT)
        self._tensor: Tensor | None = None
        self._packed: Packed | None = None
        self._version = 0 if tensor._counter is None else tensor._counter[0]
        edge = edge_of(tensor) if tensor._requires_grad else None  # a view gets its new node now
        if state.hooks and not tensor.is_sparse:
            with no_grad():
                self._packed = Packed(state.hooks[-1], tensor, edge, -1)
        else:
            self._tensor = tensor

    def restore_input(self) -> Tensor:
        """The argument, connected as it was; RuntimeError if it was changed in place since."""
        packed = self._packed
        if packed is None:
            tensor = self._tensor
            assert tensor is not None
            version = 0 if tensor._counter is None else tensor._counter[0]
            if version != self._version:
                _changed("an argument", tensor.shape, version, self._version)
            return tensor
        restored = packed.restore()
        if not packed.fits(restored):
            raise RuntimeError(
                "the unpack hook of an argument of a checkpointed function returned "
                f"{spelled(restored._array)}, want {spelled(packed)} as the pack hook was given"
            )
        if packed.shows_change(restored):
            assert packed.version is not None
            _changed("an argument", packed.shape, packed.counter[0], packed.version)
        result = linked(restored._array, *packed.end())
        result._counter = restored.counter
        if packed.tangents is not None:
            packed.tangents.give(result)
        return result


def _changed(what: str, shape: tuple[int, ...], version: int, expected: int) -> None:
    raise InplaceError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {what} of a checkpointed function, of shape {list(shape)}, is at version "
        f"{version}; expected version {expected} instead. Hint: change a copy (x = x.clone())."
    )
