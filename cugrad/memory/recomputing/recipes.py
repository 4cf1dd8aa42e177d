"""Which op made a value, from what: so that it can be made again when it is gone."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ...autograd.engine.backward_pass import task
from ...autograd.mode import pop_observer, push_observer, state, watch_writes
from ...autograd.recording.operands import run_forward
from ...backends import Backend, backend_of
from ...backends.batched import arrays as batched
from ...errors import InplaceError
from ...kept import Switch
from ...ops.table import Op
from ...tensor import Tensor
from ..geometry import array_at, memory_of, root_of, span_of

__all__ = ["ValueView", "Recipe", "RecipeRecorder", "Value", "piece_of", "rebuilt",
           "remember", "returned"]  # fmt: skip


class Value:
    """A storage as it was at one version, there or not.

    `recipe` says how it is made; `held` is what is kept of it by decision: its root, or anything
    with `array()`, which answers the root, and `stays`, whether that is kept then. `waiting` counts
    the saved views of it that were not yet asked for in this round of backward.
    """

    __slots__ = ("root", "counter", "version", "nbytes", "layout", "recipe", "held", "_present",
                 "shown", "views", "waiting", "round", "number", "__weakref__")  # fmt: skip

    def __init__(self, root: Any, counter: list[int], recipe: Recipe | None) -> None:
        self.root: weakref.ref[Any] = weakref.ref(root)
        self.counter, self.version, self.recipe = counter, counter[0], recipe
        self.nbytes, self.layout = root.nbytes, (root.dtype, root.shape, root.strides)
        self.held: Any = None
        self._present: Any = None
        self.shown = [0]  # the version counter of tensors that show what is present
        self.views = self.waiting = self.round = 0
        self.number = -1  # for who counts values

    @property
    def present(self) -> Any:
        """The root as it came back, until all views have been asked for, or one is written to."""
        return None if self.shown[0] else self._present

    @present.setter
    def present(self, root: Any) -> None:
        if root is not self._present or self.shown[0]:
            self._present, self.shown = root, [0]

    def here(self) -> Any:
        """The root, if it is on the device."""
        root = self.root()
        if root is not None and self.counter[0] == self.version:
            return root
        held = self.held
        return held if self.present is None and hasattr(held, "dtype") else self.present

    def there(self) -> Any:
        """The root, if it can be had without running an op."""
        root, held = self.here(), self.held
        elsewhere = held is not None and not hasattr(held, "dtype")
        if elsewhere and self.present is None and (root is None or held.stays):
            root = held.array()  # asked for though it may be here yet: what is next comes back
            if held.stays:  # until the value is wanted no more
                self.present = root
                remember(self)
        return root

    def hold(self, root: Any) -> None:
        """Keeps the root, for what is made of it; it need not be made itself."""
        self.held, self.recipe = root, None
        _guard(root, self)

    def save(self, root: Any) -> None:
        """The storage is about to change."""
        if self.held is root and self.counter[0] == self.version:
            self.held = root.copy(order="K")


class ValueView(NamedTuple):
    """A view of a value."""

    value: Value
    offset: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None

    def of(self, root: Any) -> Any:
        xp = backend_of(root).xp
        flat = memory_of(xp, root)
        return array_at(xp, flat, self.offset, self.dtype, self.shape, self.strides)


class Constant:
    """An input that has no recipe: a parameter, a batch, noise. It is referenced, and copied when
    it is about to be changed in place, unless it is what its own op `overwrites`.
    """

    __slots__ = ("array", "counter", "version", "__weakref__")

    def __init__(self, tensor: Tensor, root: Any, overwrites: bool) -> None:
        self.array, self.counter = tensor._array, tensor.counter
        self.version = self.counter[0]
        if not overwrites:
            _guard(root, self)

    def save(self, root: Any) -> None:
        """The storage is about to change."""
        if self.counter[0] == self.version:
            self.array, self.counter = self.array.copy(), [self.version]


_guarded: dict[int, list[weakref.ref[Any]]] = {}  # by the id of a root: who needs it as it is
_sweep = [256]


def _guard(root: Any, holder: Any) -> None:
    """Asks a holder to save what it needs of a storage before the storage is changed in place."""
    if not _guarded:
        watch_writes(_before_write, True)
    refs = _guarded.setdefault(id(root), [])
    refs.append(weakref.ref(holder))
    if len(refs) % 64 == 0:  # of a parameter that never changes, for example
        refs[:] = [ref for ref in refs if ref() is not None]
    if len(_guarded) > _sweep[0]:
        for key, refs in _guarded.copy().items():  # what the collector frees may guard as well
            if all(ref() is None for ref in refs):
                _guarded.pop(key, None)
        _sweep[0] = max(256, 2 * len(_guarded))


def _before_write(tensor: Tensor) -> None:
    root = root_of(tensor._array)
    for ref in _guarded.pop(id(root), ()):
        holder = ref()
        if holder is not None:
            holder.save(root)
    if not _guarded:
        watch_writes(_before_write, False)


class Recipe:
    """An op, its parameters, and where each of its inputs comes from."""

    __slots__ = ("op", "params", "inputs", "outputs", "index", "in_place", "pending")

    def __init__(self, op: Op, params: dict[str, Any], inputs: list[Any], index: int) -> None:
        self.op, self.params, self.inputs, self.index = op, params, inputs, index
        self.outputs: dict[int, weakref.ref[Value]] = {}  # by output number
        self.in_place = False
        self.pending: list[tuple[Value, Any]] = []  # saved while the op runs: its outputs, perhaps

    def values(self) -> Iterator[Value]:
        """The inputs that other recipes make."""
        return (source.value for source in self.inputs if type(source) is ValueView)

    def reads(self, root: Any) -> bool:
        """Whether an input without a recipe lies in this storage."""
        return any(root_of(s.array) is root for s in self.inputs if type(s) is Constant)

    def run(self, roots: dict[Value, Any]) -> dict[Value, Any]:
        """The roots of the outputs that are still referred to, computed from the roots of the
        inputs.
        """
        arrays = []
        for source in self.inputs:
            if type(source) is ValueView:
                source = source.of(roots[source.value])
            elif type(source) is Constant:
                if source.counter[0] != source.version:
                    raise InplaceError(
                        f"recompute: {self.op.name} cannot be run again: one of its inputs, a "
                        f"tensor of shape {list(source.array.shape)}, is at version "
                        f"{source.counter[0]}; expected version {source.version} instead: it was "
                        "changed in place. Change a copy (x = x.clone()), or keep what the op "
                        "makes, by the argument `ops` or `filter`."
                    )
                source = source.array
            arrays.append(source)
        first = next(x for x in arrays if hasattr(x, "dtype"))
        backend = backend_of(first)
        with backend.use_device(backend.device_index(first)), backend.quiet():
            result = run_forward(self.op, arrays, self.params)[0]
            outputs = result if type(result) in (tuple, list) else (result,)
            roots = {}
            for nr, ref in self.outputs.items():
                value = ref()
                if value is not None:
                    roots[value] = _laid_out(backend, backend.wrap(outputs[nr]), value)
        return roots


def _laid_out(backend: Backend, array: Any, value: Value) -> Any:
    """The root of an op's output; and the value as it lay in memory, if that differs."""
    root = root_of(array)
    dtype, shape, strides = value.layout
    if root.dtype == dtype and root.shape == shape and root.strides == strides:
        return root
    home = backend.xp.empty(value.nbytes, "uint8")
    view = array_at(backend.xp, home, 0, dtype, shape, strides)
    view[...] = array
    return root_of(view)


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
        """The value of which a tensor about to be saved is a view; None if it is not known."""
        root = root_of(tensor._array)
        value = self.find(root, tensor.counter[0])
        recipe = self._here.calls[-1] if self._here.calls else None
        if value is None and recipe is not None and not recipe.reads(root):
            if not recipe.in_place or id(root) in self.known:  # else it is a copy of the old value
                value = self._enter(root, tensor.counter, recipe)
                recipe.pending.append((value, root))
        return value

    def turn(self) -> None:
        """Backward begins. Forgets values from which no saved value is made. Otherwise a loss that
        is alive through backward would keep what it was computed from.
        """
        for key, value in self.known.copy().items():  # `list` makes tuples: the collector may run
            if type(value) is not weakref.ref:
                self.known[key] = weakref.ref(value)
            elif value() is None:
                self.known.pop(key, None)
        self.grown = False

    def hold(self, value: Value, root: Any) -> None:
        """Keeps a value; who knows it from now on is who was told how to make something of it."""
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
            if value not in outputs and value.held is None:
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
        if value is None or value.recipe is None and value.held is None:
            return Constant(x, root, overwrites)
        return piece_of(value, array, root)

    def _changed(self, recipe: Recipe, tensor: Tensor) -> None:
        """Notes the value that an op in place has left in a storage. It has a recipe only if the op
        has written all of the storage.
        """
        array = tensor._array
        root = root_of(array)
        value = self.find(root, tensor.counter[0])
        old = recipe.inputs[0]
        if value is None and type(old) is ValueView:
            value = self._enter(root, tensor.counter, recipe)
        if value is None:
            return
        if (array.dtype, array.shape, array.strides) == value.layout and type(old) is ValueView:
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


def piece_of(value: Value, array: Any, root: Any) -> ValueView:
    """Where an array lies in a value."""
    first = span_of(array, root)[2]
    plain = array.flags.c_contiguous and 1 not in array.shape
    return ValueView(value, first, array.dtype, array.shape, None if plain else array.strides)


_back: WeakKeyDictionary[Any, list[weakref.ref[Value]]] = WeakKeyDictionary()  # by backward pass


def remember(value: Value) -> None:
    """Notes a value that is there again. It goes at the end of the backward pass, at the latest."""
    if task.running:
        run = task.running[-1]
        back = _back.get(run)
        if back is None:
            back = _back[run] = []
            run.callbacks.append(lambda: _forget(back))
        back.append(weakref.ref(value))


def returned() -> Iterator[Value]:
    """The values that are there again in the backward pass that runs."""
    for ref in _back.get(task.running[-1], ()) if task.running else ():
        value = ref()
        if value is not None and value.present is not None:
            yield value


def _forget(back: list[weakref.ref[Value]]) -> None:
    for ref in back:
        value = ref()
        if value is not None:
            value.present = None
    back.clear()


def rebuilt(value: Value, running: Callable[[Recipe], AbstractContextManager[Any]]) -> Any:
    """The root of a value: where it is, if it is there; else made by its recipe.

    A value that is made on the way and will be asked for itself stays until then. Any other is let
    go of as soon as the last op of the chain has read it. Each op runs within the context that
    `running` returns.
    """
    present = value.there()
    if present is not None:
        return present
    order, readers, roots = _chain(value)
    for recipe in order:
        for source in recipe.values():
            if source not in roots:
                roots[source] = source.there()
        with running(recipe):
            results = recipe.run(roots)
        for other, root in results.items():
            if other in readers or other is value:
                roots[other] = root
            if other.waiting > 0 and other.present is None and other is not value:
                other.present = root
                remember(other)
        del results
        for source in recipe.values():
            readers[source] -= 1
            if readers[source] == 0 and source is not value:
                roots.pop(source, None)
    return roots[value]


def _chain(value: Value) -> tuple[list[Recipe], dict[Value, int], dict[Value, Any]]:
    """The recipes that lead to a value from what is there, in order; how often each is read; and
    the roots that are on the device.
    """
    recipes: dict[int, Recipe] = {}
    readers: dict[Value, int] = {}
    roots: dict[Value, Any] = {}
    stack = [value]
    while stack:
        recipe = stack.pop().recipe
        if recipe is None:
            raise RuntimeError("recompute: a value that cannot be made again was let go of")
        if recipe.index in recipes:
            continue
        recipes[recipe.index] = recipe
        for source in recipe.values():
            readers[source] = readers.get(source, 0) + 1
            if source in roots or source.held is not None and not hasattr(source.held, "dtype"):
                continue
            root = source.here()
            if root is None:
                stack.append(source)
            else:
                roots[source] = root
    return [recipes[i] for i in sorted(recipes)], readers, roots
