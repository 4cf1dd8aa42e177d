"""Saved tensors that are not kept: what made them runs again when backward asks for them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from ...autograd.graph import saved_tensors_hooks
from ...ops.table import CHEAP, TABLE
from ...tensor import Tensor, make
from ..geometry import root_of
from ..sizes import size
from .recipes import Recipe, rebuilt
from .recorder import RecipeRecorder
from .values import Value, ValueView, piece_of, remember

__all__ = ["Recomputed", "RecomputeStats", "recompute"]

_lock = threading.RLock()


def is_costly(name: str) -> bool:
    """Whether an op is costly: `recompute` does not run it again, unless the user says so.

    Its time grows faster than what it reads and writes: that once more is dear.
    """
    op = TABLE.get(name)
    return op is not None and op.cost != CHEAP


@dataclass
class RecomputeStats:
    """What `recompute` saw, in tensors and bytes; a storage counts once in what was dropped."""

    saved_tensors: int = 0
    saved_bytes: int = 0  # of all saved tensors, with those that share a storage
    dropped_bytes: int = 0  # of storages that nothing keeps for backward
    kept_bytes: int = 0  # of saved tensors that stay: made by a costly op, or without a recipe

    def __str__(self) -> str:
        return (
            f"{self.saved_tensors:,} tensors saved, {size(self.saved_bytes)}; "
            f"{size(self.dropped_bytes)} dropped, {size(self.kept_bytes)} kept"
        )


def unhindered(recipe: Recipe) -> AbstractContextManager[None]:
    """The context in which an op runs again, if no caller gives one."""
    return nullcontext()


class Recomputed:
    """What a node keeps in the place of a saved tensor: a piece of a value."""

    __slots__ = ("piece", "round", "__weakref__")

    def __init__(self, piece: ValueView) -> None:
        self.piece, self.round = piece, -1
        piece.value.views += 1
        piece.value.waiting += 1

    def array(self, running: Callable[[Recipe], Any] = unhindered) -> Any:
        """The saved array: from where it is, or made again; see `rebuilt`."""
        value = self.piece.value
        with _lock:
            if self.round == value.round:  # asked for a second time: another round begins
                value.round += 1
                value.waiting = value.views
            self.round = value.round
            value.waiting -= 1
            root = rebuilt(value, running)
            if not value.is_held and value.waiting <= 0:
                value.restored = None
                value.given = weakref.ref(root)  # another value may be made of it meanwhile
                remember(value)
            elif not value.is_held:
                value.restored = root
                remember(value)
            return self.piece.of(root)

    def tensor(self, running: Callable[[Recipe], Any] = unhindered) -> Tensor:
        """The saved tensor; who writes to it is seen by all that share its memory."""
        value, tensor = self.piece.value, make(self.array(running))
        root = root_of(tensor._array)
        if root is value.restored or root is value.was_given():
            tensor._counter = value.shown
        elif root is value.root() and value.counter[0] == value.version:
            tensor._counter = value.counter
        return tensor

    def __del__(self) -> None:
        try:
            value = self.piece.value
        except AttributeError:  # half made
            return
        value.views -= 1
        if self.round != value.round:
            value.waiting -= 1
        if value.waiting <= 0 and not value.is_held:
            value.restored = None


class recompute(saved_tensors_hooks):
    """Within it, saved tensors that are cheap to compute are dropped, and made again in backward.

    No function needs to be wrapped. Each op that runs leaves a recipe: the op and its inputs. When
    backward needs a tensor that is gone, the chain of ops that leads to it from tensors that are
    still there runs once more. Tensors on that way which backward will need next are kept. On
    devices whose ops are deterministic, gradients are bitwise those without it. Random numbers are
    not drawn again: a dropout's mask, one bit an element, is kept. Tensors that the program holds
    are not made again.

    Args:
        ops: the ops that may run again: None, all but products of matrices, convolutions,
            decompositions, transforms and sorts, whose time a second run would double; "all"; or
            names of rows of docs/ops.md, or functions of that name.
        chain: so many ops, at most, run again for one tensor. What would take more stays: without
            a bound, backward would begin by making all of forward again.
        filter: called with each saved Tensor; those for which it is false stay.

    A tensor is dropped if every op between it and what stays is among those. ValueError for an op
    that is not in the table.

    >>> import cugrad as torch
    >>> from cugrad import memory
    >>> x = torch.rand(1000, 100, requires_grad=True)
    >>> w = torch.rand(100, 100, requires_grad=True)
    >>> with memory.recompute() as dropping:
    ...     y = (x @ w).exp().tanh().sum()
    >>> y.backward()
    >>> dropping.stats.dropped_bytes, dropping.stats.saved_bytes
    (400000, 1240000)
    """

    is_placement = True

    def __init__(
        self, *, ops: Any = None, chain: int = 8, filter: Callable[[Tensor], bool] | None = None
    ) -> None:
        if not isinstance(chain, int) or chain < 1:
            raise ValueError(f"recompute: chain: got {chain!r}, want a number of ops, 1 or more")
        if filter is not None and not callable(filter):
            raise TypeError(f"recompute: filter: got {filter!r}, want a function of a Tensor")
        self.filter, self.chain, self._names = filter, chain, _names_of(ops)
        self.stats, self._recorder = RecomputeStats(), RecipeRecorder()

    def as_is(self) -> Any:
        return super().as_is(), self._recorder.as_is()

    def change(self, before: Any) -> recompute:
        hooks, depth = before
        super().change(hooks)
        self._recorder.change(depth)
        return self

    def put_back(self, before: Any) -> None:
        hooks, depth = before
        self._recorder.put_back(depth)
        super().put_back(hooks)

    def pack_hook(self, tensor: Tensor) -> Any:
        """A recipe; the tensor itself, if it stays."""
        stats, array = self.stats, tensor._array
        stats.saved_tensors += 1
        stats.saved_bytes += array.nbytes
        value = self._recorder.value_of(tensor)
        if value is not None and value.views == 0 and not value.is_held:
            if (self.filter is not None and not self.filter(tensor)) or not self._can_make(value):
                self._recorder.hold(value, root_of(array))
        if value is None or value.views == 0 and value.is_held:
            stats.kept_bytes += array.nbytes
            return tensor
        if value.views == 0:
            stats.dropped_bytes += value.nbytes
        return Recomputed(piece_of(value, array, root_of(array)))

    def unpack_hook(self, packed: Any) -> Tensor:
        """The tensor that was packed, in one storage with its aliases."""
        if self._recorder.grown:
            self._recorder.turn()
        return packed.tensor() if isinstance(packed, Recomputed) else packed

    def _can_make(self, value: Value) -> bool:
        """Whether few ops, that may all run again, are between what stays and a value."""
        stack, ops = [value], set[Recipe]()
        while stack:
            value = stack.pop()
            recipe = value.recipe
            if value.is_held or recipe in ops:
                continue
            if recipe is None or not self._may_run(recipe.op.name) or len(ops) == self.chain:
                return False
            ops.add(recipe)
            stack.extend(recipe.values())
        return True

    def _may_run(self, name: str) -> bool:
        return not is_costly(name) if self._names is None else name in self._names


def _names_of(ops: Any) -> frozenset[str] | None:
    """The rows that may run again; None: those that are not costly."""
    if ops is None:
        return None
    if ops == "all":
        return frozenset(TABLE)
    if isinstance(ops, str) or not isinstance(ops, Iterable):
        raise TypeError(
            f"recompute: ops: got {ops!r}, want None, 'all', or several names of ops, as ['exp']"
        )
    names = [op if isinstance(op, str) else getattr(op, "__name__", repr(op)) for op in ops]
    for name in names:
        if name not in TABLE:
            from difflib import get_close_matches

            near = get_close_matches(name.lower(), TABLE, 3)
            raise ValueError(
                f"recompute: ops: {name!r} is not among the ops of docs/ops.md"
                + (f"; did you mean {' or '.join(map(repr, near))}?" if near else "")
            )
    return frozenset(names)
