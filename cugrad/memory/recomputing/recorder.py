"""The observer of ops that learns how each value is made."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

from ...autograd.mode import pop_observer, push_observer, state
from ...backends.batched import arrays as batched
from ...runtime.kept import Switch
from ...tensor import Tensor
from ..constants import Constant
from ..geometry import root_of
from .recipes import Recipe
from .values import Value, ValueView, fills, piece_of

__all__ = ["RecipeRecorder", "unrecorded_here"]


class _ThreadCalls(threading.local):
    """The part of a recorder's state that is a thread's own."""

    def __init__(self) -> None:
        self.calls: list[Recipe | None] = []  # ops that run, the innermost last
        self.nodes = self.depth = 0


class RecipeRecorder(Switch):
    """An observer that learns how each value is made, from the ops of the threads that enter it."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}  # by the id of the root: a Value, or a reference to one
        self.grown = False  # whether a value has come since backward began
        self._next, self._here = itertools.count().__next__, _ThreadCalls()

    def as_is(self) -> int:
        return self._here.depth

    def change(self, before: int) -> None:
        if not before:
            push_observer(self)
        self._here.depth = before + 1

    def put_back(self, before: int) -> None:
        here = self._here
        here.depth = before
        if not before:
            pop_observer(self)
            here.calls.clear()
            here.nodes = 0

    def find(self, root: Any, version: int) -> Value | None:
        """The value that a storage holds at this version."""
        value = self.known.get(id(root))
        if type(value) is weakref.ref:
            value = value()
        if value is not None and value.version == version and value.root() is root:
            return value
        return None

    def value_of(self, tensor: Tensor) -> Value | None:
        """The value that a tensor, which is about to be saved, shows; None if no op made it. What
        is brought in when it is asked for may lie elsewhere each time, and no op has made it.
        """
        if tensor._may_be_away:
            return None
        root = root_of(tensor._array)
        value = self.find(root, tensor.counter[0])
        recipe = self._here.calls[-1] if self._here.calls else None
        if value is None and recipe is not None and not recipe.reads(root):
            if not recipe.in_place or id(root) in self.known:  # else it is a copy of the old value
                value = self._enter(root, tensor.counter, recipe)
                recipe.pending.append((value, root))
        return value

    def turn(self) -> None:
        """Backward begins: the recorder forgets values from which no saved value is made.

        Otherwise a loss that lives through backward would keep what it was computed from.
        """
        for key, value in self.known.copy().items():  # `list` makes tuples: the collector may run
            if type(value) is not weakref.ref:
                self.known[key] = weakref.ref(value)
            elif value() is None:
                self.known.pop(key, None)
        self.grown = False

    def hold(self, value: Value, root: Any) -> None:
        """Keeps a value. From now on only the recipes that read it refer to it."""
        value.hold(root)
        if self.known.get(id(root)) is value:
            self.known[id(root)] = weakref.ref(value)

    def op_begin(self, name: str, seq: int, args: tuple[Any, ...]) -> None:
        here = self._here
        if state.call is None or here.nodes or state.levels:
            here.calls.append(None)
            return
        op, args, params, in_place = state.call
        operands = args[0] if op.variadic else args
        if batched.HIDING and batched.any_batched(
            [x._array for x in operands if isinstance(x, Tensor)]
        ):
            here.calls.append(None)
            return
        inputs = [self._source(x, in_place and not n) for n, x in enumerate(operands)]
        recipe = Recipe(op, params, inputs, self._next())
        recipe.in_place = in_place
        here.calls.append(recipe)

    def op_end(self, name: str, seq: int, result: Any) -> None:
        calls = self._here.calls
        recipe = calls.pop() if calls else None
        if recipe is None or result is None:
            return
        if recipe.in_place:
            self._changed(recipe, result)
        else:
            for nr, out in enumerate(result if type(result) is tuple else (result,)):
                root = root_of(out._array)
                value = self.find(root, 0 if out._counter is None else out._counter[0])
                if value is None and not recipe.reads(root):
                    value = self._enter(root, out.counter, recipe)
                if value is not None and value.recipe is recipe:
                    recipe.outputs[nr] = weakref.ref(value)
        outputs = [ref() for ref in recipe.outputs.values()]
        for value, root in recipe.pending:  # hooks may have made another tensor of an output
            if value not in outputs and not value.is_held:
                self.hold(value, root)
        recipe.pending.clear()

    def node_begin(self, node: Any) -> None:
        self._here.nodes += 1

    def node_end(self, node: Any) -> None:
        self._here.nodes = max(self._here.nodes - 1, 0)

    def _source(self, x: Any, overwrites: bool) -> Any:
        if not isinstance(x, Tensor):
            return x
        array = x._array
        root = root_of(array)
        value = self.find(root, 0 if x._counter is None else x._counter[0])
        if value is None or value.recipe is None and not value.is_held:
            return Constant(x, root, overwrites)
        return piece_of(value, array, root)

    def _changed(self, recipe: Recipe, tensor: Tensor) -> None:
        """Notes the value that an in-place op left in a storage.

        It has a recipe only if the op wrote all of the storage.
        """
        array = tensor._array
        root = root_of(array)
        value = self.find(root, tensor.counter[0])
        old = recipe.inputs[0]
        if value is None and type(old) is ValueView:
            value = self._enter(root, tensor.counter, recipe)
        if value is None:
            return
        if type(old) is ValueView and fills(array, value):
            recipe.outputs[0] = weakref.ref(value)
        else:
            value.recipe = None

    def _enter(self, root: Any, counter: list[int], recipe: Recipe) -> Value:
        key = id(root)
        value = Value(root, counter, recipe)
        by_key = self.known

        def forget(ref: Any) -> None:
            entry = by_key.get(key)
            if type(entry) is weakref.ref:
                entry = entry()
            if entry is None or entry.root is ref:
                by_key.pop(key, None)

        value.root = weakref.ref(root, forget)
        by_key[key], self.grown = value, True
        return value


def unrecorded_here() -> None:
    """Takes all recorders of values away from this thread: what it does from here on, to its end,
    is no part of what is planned, or made again.
    """
    for observer in state.observers:
        if isinstance(observer, RecipeRecorder):
            pop_observer(observer)
