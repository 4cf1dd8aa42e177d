"""Lets tensors that were saved for backward be changed: the saved one becomes a copy in time."""

from __future__ import annotations

import weakref
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from ...runtime.contexts import Context
from ...runtime.kept import Switch
from ...tensor import Tensor
from ..mode import Hooks, no_grad, pop_hooks, push_hooks, state

__all__ = ["allow_mutation_on_saved_tensors"]

OUTSIDE = (
    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the "
    "graph was originally recorded."
)


class PreservedTensor:
    """One saved tensor: itself, until its storage is about to change, then a copy."""

    __slots__ = ("tensor", "key", "__weakref__")

    def __init__(self, tensor: Tensor, key: tuple[Any, ...]) -> None:
        self.tensor: Tensor | None = tensor
        self.key = key  # the same elements of the same storage at the same version


class MutationContext:
    """What one `allow_mutation_on_saved_tensors` holds; `copies` counts what had to be copied.

    `cloned` has the copies that are still saved, and `tid_to_weakhandle` what is saved as it is.
    """

    def __init__(self) -> None:
        self.copies = 0
        self.cloned: WeakKeyDictionary[PreservedTensor, Tensor] = WeakKeyDictionary()
        self.tid_to_weakhandle = WeakValueDictionary[tuple[Any, ...], PreservedTensor]()
        self._storages: dict[int, list[weakref.ref[PreservedTensor]]] = {}
        self._counters: dict[int, list[int]] = {}  # keeps the ids above from being reused
        self._open = True

    def pack(self, tensor: Tensor) -> PreservedTensor:
        counter, array = tensor.counter, tensor._array
        key = (id(counter), counter[0], id(array), array.shape, array.strides)
        preserved = self.tid_to_weakhandle.get(key)
        if preserved is None:
            preserved = PreservedTensor(tensor, key)
            self._counters[id(counter)] = counter
            self._storages.setdefault(id(counter), []).append(weakref.ref(preserved))
            self.tid_to_weakhandle[key] = preserved  # last: then all the rest is there
        return preserved

    def unpack(self, kept: PreservedTensor) -> Tensor:
        if not self._open or kept.tensor is None:
            raise AssertionError(OUTSIDE)
        return kept.tensor

    def before_write(self, tensor: Tensor) -> None:
        """Copies the saved tensors of a storage that is about to change."""
        for ref in self._storages.get(id(tensor.counter), ()):
            kept = ref()
            if kept is None:
                continue
            if kept.tensor is not None and kept not in self.cloned:
                with no_grad():
                    self.cloned[kept] = kept.tensor = kept.tensor.clone()
                self.copies += 1
            self.tid_to_weakhandle.pop(kept.key, None)
        self._storages.pop(id(tensor.counter), None)

    def clear(self) -> None:
        self._open = False
        for kept in (*self.tid_to_weakhandle.values(), *self.cloned):
            kept.tensor = None
        self.tid_to_weakhandle.clear()
        self.cloned.clear()
        self._storages.clear()
        self._counters.clear()


class _unsafe_preserve_version_counter(Context):
    """Within it changes in place are not counted: for code that knows that they do not matter.

    >>> import cugrad as torch
    >>> x = torch.ones(2)
    >>> with torch.autograd._unsafe_preserve_version_counter(x):
    ...     _ = x.add_(1)
    >>> x._version
    0
    """

    def __init__(self, tensors: Tensor | tuple[Tensor, ...]) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self._versions = [t._version for t in self.tensors]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        for t, version in zip(self.tensors, self._versions, strict=True):
            t.counter[0] = version

    def clone(self) -> _unsafe_preserve_version_counter:
        return type(self)(self.tensors)


class allow_mutation_on_saved_tensors(Switch, Context):
    """Within it, tensors that were saved for backward may be changed in place.

    Where the storage of a saved tensor is about to change, the saved one is copied first, once, so
    that backward sees the values of then. Forward and backward must run in the same context.

    Raises RuntimeError when nested, and AssertionError for backward outside.

    >>> import cugrad as torch
    >>> with torch.autograd.graph.allow_mutation_on_saved_tensors():
    ...     a = torch.ones(2, requires_grad=True)
    ...     b = a.clone()
    ...     out = (b ** 2).sum()
    ...     b = b.sin_()
    ...     out.backward()
    >>> a.grad
    tensor([2., 2.])
    """

    def as_is(self) -> tuple[MutationContext, Hooks]:
        if state.before_write is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        context = MutationContext()
        return context, (context.pack, context.unpack)

    def change(self, before: tuple[MutationContext, Hooks]) -> MutationContext:
        context, pair = before
        push_hooks(pair)
        state.before_write = context.before_write
        return context

    def put_back(self, before: tuple[MutationContext, Hooks]) -> None:
        context, pair = before
        state.before_write = None
        pop_hooks(pair)
        context.clear()
