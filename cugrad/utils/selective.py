"""Checkpoints that keep the results of some ops, on the device or in host memory."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .. import memory
from ..autograd.mode import pop_observer, push_observer, state
from ..ops.table import TABLE
from ..runtime.kept import Switch
from ..tensor import Tensor, make

__all__ = [
    "SAC_IGNORED_OPS", "CheckpointPolicy", "SelectiveCheckpointContext",
    "create_selective_checkpoint_contexts",
]  # fmt: skip

SAC_IGNORED_OPS = frozenset({"detach", "alias"})
MISMATCH = (
    "This can happen if the function of the checkpoint does something else when it is run again: "
    "the same ops must run, in the same order, in forward and in recomputation."
)


class CheckpointPolicy(enum.Enum):
    """What becomes of an op's result in a checkpoint.

    SAVE keeps it where it is, CPU_OFFLOAD in host memory by the copies of `memory.offload`, and
    RECOMPUTE runs the op again. MUST and PREFER are one here: nothing overrides a policy.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
OFFLOAD = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """What a policy function is told beside the op and its arguments: the op's result."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _Kept:
    """A result that need not be computed again."""

    __slots__ = ("packed", "unpack", "counter", "version")

    def __init__(self, tensor: Tensor, moving: memory.offload | None) -> None:
        self.counter = tensor.counter
        self.version = self.counter[0]
        alone = make(tensor._array)
        alone._counter = self.counter
        self.packed: Any = alone if moving is None else moving.pack_hook(alone)
        self.unpack = None if moving is None else moving.unpack_hook

    def array(self, may_have_changed: bool) -> Any:
        if not may_have_changed and self.counter[0] != self.version:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated"
            )
        tensor = self.packed if self.unpack is None else self.unpack(self.packed)
        return tensor._array


class _Observing(Switch):
    """An observer of ops while it is entered."""

    of_one_run = True  # it does not see the ops of a second run within this one

    def as_is(self) -> None:
        """There is nothing to put back but the observer."""

    def change(self, before: None) -> None:
        push_observer(self)  # type: ignore[arg-type]

    def put_back(self, before: None) -> None:
        pop_observer(self)  # type: ignore[arg-type]

    def node_begin(self, node: Any) -> None: ...
    def node_end(self, node: Any) -> None: ...


class KeptResults(defaultdict[str, list[Any]]):
    """By op: of each call the results, or None."""

    is_complete = False  # forward has ended


class _Forward(_Observing):
    """Keeps what the policy says."""

    def __init__(
        self, policy: Callable[..., Any], store: KeptResults, moving: memory.offload
    ) -> None:
        self._policy, self._store, self._moving = policy, store, moving
        self._calls: list[tuple[Any, ...] | None] = []

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        self._calls.append(None if _is_no_op(name) else args)

    def __exit__(self, *exc: object) -> None:
        Switch.__exit__(self, *exc)  # `super()` is a call, at which a signal may come
        self._store.is_complete = True

    def op_end(self, name: str, seq: int, result: Any) -> None:
        args = self._calls.pop()
        if args is None:
            return
        if result is None:  # the op failed, and will fail the next time
            self._store[name].append(None)
            return
        observers = state.observers
        try:
            state.switch(observers=())  # the policy may compute
            context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
            policy = self._policy(context, name, *args)
        finally:
            state.switch(observers=observers)
        if isinstance(policy, bool):
            policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
        elif policy is not None and not isinstance(policy, CheckpointPolicy):
            raise TypeError(
                f"create_selective_checkpoint_contexts: the policy answered {policy!r} for {name}, "
                "want a CheckpointPolicy, or whether to keep the result"
            )
        outputs = result if type(result) is tuple else (result,)
        kept = None
        if policy in SAVE or policy in OFFLOAD:
            if not any(_is_of_others(out, args) for out in outputs):
                kept = [_Kept(out, self._moving if policy in OFFLOAD else None) for out in outputs]
        self._store[name].append(kept)


def _is_no_op(name: str) -> bool:
    """Whether this is a Function: it runs, since it alone knows what it saves; its ops count."""
    return state.call is None or name in SAC_IGNORED_OPS


def _is_of_others(out: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether an output is an input changed in place, or a view: it costs nothing to make again."""
    if any(out is arg for arg in args):
        return True
    return out._rare is not None and out._rare.view is not None


class _SecondRun(_Observing):
    """Puts what was kept in the place of the ops' results."""

    def __init__(self, store: KeptResults, may_have_changed: bool) -> None:
        self._store, self._may_have_changed = store, may_have_changed
        self._counts: defaultdict[str, int] = defaultdict(int)

    def change(self, before: None) -> None:
        self._counts.clear()
        super().change(before)

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        if _is_no_op(name):
            return
        index, calls = self._counts[name], self._store.get(name)
        self._counts[name] += 1
        if not self._store.is_complete and (calls is None or index >= len(calls)):
            return  # further than forward has come
        if calls is None:
            raise RuntimeError(
                f"{name} encountered during backward but not found in storage. {MISMATCH}"
            )
        if index >= len(calls):
            raise RuntimeError(
                f"{name} invocation index {index} encountered during backward but not found in "
                f"storage. {MISMATCH}"
            )
        kept = calls[index]
        if kept is not None:
            arrays = tuple([k.array(self._may_have_changed) for k in kept])
            state.switch(stand_in=arrays[0] if len(arrays) == 1 else arrays)

    def op_end(self, name: str, seq: int, result: Any) -> None:
        state.switch(stand_in=None)  # if an error kept it from being used


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False,
    *, offload: Any = None,
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:  # fmt: skip
    """Contexts for `context_fn` of a checkpoint, which keep the results of some ops.

    Args:
        policy_fn_or_list: a function of a SelectiveCheckpointContext, the op's name as docs/ops.md
            has it, and its arguments, which answers a CheckpointPolicy (or a bool: save it); or a
            list of ops, as names or as functions of that name, whose results are saved; "matmul"
            is there for products of every number of dims.
        allow_cache_entry_mutation: a kept result that was changed in place is no error.
        offload: the `memory.offload` that moves what is to wait in host memory, for its bounds and
            its report; None: one that leaves nothing behind.

    Results that are views, or inputs changed in place, are always made again; of a custom Function
    the ops in it count. Backward may run
    as often as the graph allows: what is kept stays until the graph is gone.

    >>> import functools
    >>> import cugrad as torch
    >>> from cugrad.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> x = torch.rand(4, 4, requires_grad=True)
    >>> keep_products = functools.partial(create_selective_checkpoint_contexts, [torch.matmul])
    >>> y = checkpoint(lambda x: torch.sigmoid(x @ x) * x, x, use_reentrant=False,
    ...                context_fn=keep_products)
    >>> y.sum().backward()
    """
    if isinstance(policy_fn_or_list, list):
        names = {name for op in policy_fn_or_list for name in _names_of(op)}

        def policy(context: Any, op: str, *args: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in names else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    store = KeptResults(list)
    moving = memory.offload(min_bytes=0, keep_last=0, timing=False) if offload is None else offload
    if not isinstance(moving, memory.offload):
        raise TypeError(f"offload: got {offload!r}, want None or a memory.offload")
    return _Forward(policy, store, moving), _SecondRun(store, allow_cache_entry_mutation)


def _names_of(op: Any) -> tuple[str, ...]:
    name = op if isinstance(op, str) else getattr(op, "__name__", None)
    names = tuple([row for row, op in TABLE.items() if name == row or name in op.also])
    if not names:
        raise ValueError(
            f"Expected op in `op_list` to be the name of an op, as docs/ops.md has it, or a "
            f"function of that name, but got: {op} of type {type(op)}."
        )
    return names
