"""Values: what a storage holds at one version, whether it is there or not."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ...autograd.engine.backward_pass import task
from ...backends import backend_of
from ...backends.several import copy_of
from ..constants import guard
from ..geometry import array_at, memory_of, span_of

if TYPE_CHECKING:
    from .recipes import Recipe

__all__ = ["Value", "ValueView", "fills", "piece_of", "remember", "returned"]


class Value:
    """A storage as it was at one version, whether its memory is there or not.

    `recipe` says how to make it. The policy holds it in one of two ways: `kept` is the array that
    owns its memory (the root), `away` an object that stands for it elsewhere. Such an object has
    `array()`, which returns the root, and `stays`: whether the value keeps the root afterwards.
    `waiting` counts the saved views that this round of backward has not yet asked for.
    """

    __slots__ = ("root", "counter", "version", "nbytes", "layout", "recipe", "kept", "away",
                 "_restored", "given", "shown", "views", "waiting", "round", "number",
                 "__weakref__")  # fmt: skip

    def __init__(self, root: Any, counter: list[int], recipe: Recipe | None) -> None:
        self.root: weakref.ref[Any] = weakref.ref(root)
        self.counter, self.version, self.recipe = counter, counter[0], recipe
        self.nbytes, self.layout = root.nbytes, (root.dtype, root.shape, root.strides)
        self.kept: Any = None
        self.away: Any = None
        self._restored: Any = None
        self.given: weakref.ref[Any] | None = None  # the root that the last view was given
        self.shown = [0]  # the version counter of tensors that show what came back
        self.views = self.waiting = self.round = 0
        self.number = -1  # by which a recorder of steps counts values

    @property
    def restored(self) -> Any:
        """The root that came back; it goes when backward has all views, or one is written to."""
        return None if self.shown[0] else self._restored

    @restored.setter
    def restored(self, root: Any) -> None:
        self.given = None
        if root is not self._restored or self.shown[0]:
            self._restored, self.shown = root, [0]

    def was_given(self) -> Any:
        """The root that backward has got with the last view, as long as it has it."""
        return None if self.given is None or self.shown[0] else self.given()

    @property
    def is_held(self) -> bool:
        """Whether the value is kept, or away: no op has to make it again."""
        return self.kept is not None or self.away is not None

    def resident(self) -> Any:
        """The root, if it is on the device."""
        root = self.root()
        if root is not None and self.counter[0] == self.version:
            return root
        restored = self.was_given() if self.restored is None else self.restored
        return self.kept if restored is None else restored

    def fetch(self) -> Any:
        """The root, brought back from elsewhere if need be; None if an op has to run for it."""
        root, away = self.resident(), self.away
        if away is not None and self.restored is None and (root is None or away.stays):
            # also where the root is on the device yet: `array` begins to bring the next ones back
            root = away.array()
            if away.stays:  # until no view needs the value
                self.restored = root
                remember(self)
        return root

    def hold(self, root: Any) -> None:
        """Keeps the root, from which other values are made. No op has to make it again."""
        self.kept, self.away, self.recipe = root, None, None
        guard(root, self)

    def leave(self, away: Any) -> None:
        """Holds what stands for the root elsewhere; the root is kept no more."""
        self.kept, self.away = None, away

    def save(self, root: Any) -> None:
        """A storage is about to change."""
        if self.kept is root and self.counter[0] == self.version:
            self.kept = copy_of(root, "K")


def fills(array: Any, value: Value) -> bool:
    """Whether an array is all that a value is, in the same order, if perhaps in another shape."""
    dtype, shape, strides = value.layout
    if array.dtype != dtype or array.nbytes != value.nbytes:
        return False
    if array.shape == shape and array.strides == strides:
        return True
    steps, step = [], dtype.itemsize
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return bool(array.flags.c_contiguous) and strides == tuple(reversed(steps))


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


def piece_of(value: Value, array: Any, root: Any) -> ValueView:
    """Where an array lies in a value."""
    first = span_of(array, root)[2]
    plain = array.flags.c_contiguous and 1 not in array.shape
    return ValueView(value, first, array.dtype, array.shape, None if plain else array.strides)


_back: WeakKeyDictionary[Any, list[weakref.ref[Value]]] = WeakKeyDictionary()  # by backward pass


def remember(value: Value) -> None:
    """Notes a value that came back. The end of the backward pass lets go of it, if nothing did."""
    if task.running:
        run = task.running[-1]
        back = _back.get(run)
        if back is None:
            back = _back[run] = []
            run.callbacks.append(lambda: _forget(back))
        back.append(weakref.ref(value))


def returned() -> Iterator[Value]:
    """The values that came back in the backward pass that runs."""
    for ref in _back.get(task.running[-1], ()) if task.running else ():
        value = ref()
        if value is not None and value.restored is not None:
            yield value


def _forget(back: list[weakref.ref[Value]]) -> None:
    for ref in back:
        value = ref()
        if value is not None:
            value.restored = None
    back.clear()
