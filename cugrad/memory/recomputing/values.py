"""Values: what a storage holds at one version, whether it is there or not."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ...autograd.engine.backward_pass import task
from ...autograd.mode import watch_writes
from ...autograd.recording.mirrors import written_with
from ...backends import backend_of
from ...backends.several import copy_of
from ...tensor import Tensor
from ..geometry import array_at, memory_of, root_of, span_of

if TYPE_CHECKING:
    from .recipes import Recipe

__all__ = ["Constant", "Value", "ValueView", "fills", "piece_of", "remember", "returned"]


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
        _guard(root, self)

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


class Constant:
    """An input that has no recipe: a parameter, a batch, noise.

    The constant refers to the tensor, and copies it just before an op changes it in place. It does
    not copy what the recipe's own op overwrites. Of a tensor whose bytes may be elsewhere it does
    not hold the array, or that would have to stay.
    """

    __slots__ = ("held", "tensor", "root", "counter", "version", "__weakref__")

    def __init__(self, tensor: Tensor, root: Any, overwrites: bool) -> None:
        self.held = None if tensor._may_be_away else tensor._array
        self.tensor, self.root = tensor if self.held is None else None, weakref.ref(root)
        self.counter = tensor.counter
        self.version = self.counter[0]
        if not overwrites:
            _guard(root, self)

    @property
    def array(self) -> Any:
        """The elements, which come if they are elsewhere."""
        return self.held if self.tensor is None else self.tensor._array

    def save(self, root: Any) -> None:
        """A storage is about to change."""
        if self.root() is root and self.counter[0] == self.version:
            self.held, self.tensor = copy_of(self.array, "K"), None
            self.root, self.counter = weakref.ref(root_of(self.held)), [self.version]


# By the id of a root: what needs it as it is. Another one may have the id of one that is gone.
_guarded: dict[int, list[weakref.ref[Any]]] = {}
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
        for (
            key,
            refs,
        ) in _guarded.copy().items():  # a copy: the collector may run
            if all(ref() is None for ref in refs):
                _guarded.pop(key, None)
        _sweep[0] = max(256, 2 * len(_guarded))


def _before_write(tensor: Tensor) -> None:
    for array in written_with(tensor):
        root = root_of(array)
        for ref in _guarded.pop(id(root), ()):
            holder = ref()
            if holder is not None:
                holder.save(root)
    if not _guarded:
        watch_writes(_before_write, False)


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
