"""Recipes: the op that made a value, and from what, so that it can run again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from ...autograd.recording.operands import run_forward
from ...backends import Backend, backend_of
from ...errors import InplaceError
from ...ops.table import Op
from ..constants import Constant
from ..geometry import array_at, root_of
from .values import Value, ValueView, fills, remember

__all__ = ["Recipe", "rebuilt"]


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
        return any(s.root() is root for s in self.inputs if type(s) is Constant)

    def run(self, roots: dict[Value, Any]) -> dict[Value, Any]:
        """Runs the op on the roots of its inputs; the roots of those outputs that are in use."""
        arrays = []
        for source in self.inputs:
            if type(source) is ValueView:
                source = source.of(roots[source.value])
            elif type(source) is Constant:
                if source.counter[0] != source.version and source.array.size:
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
    """The root of an op's output, in the layout that the value had in memory."""
    root = root_of(array)
    dtype, shape, strides = value.layout
    if root.dtype == dtype and root.shape == shape and root.strides == strides:
        return root
    if root.nbytes == value.nbytes and fills(array, value):  # in another shape
        return root
    home = backend.xp.empty(value.nbytes, "uint8")
    view = array_at(backend.xp, home, 0, dtype, shape, strides)
    view[...] = array
    return root_of(view)


def rebuilt(value: Value, running: Callable[[Recipe], AbstractContextManager[Any]]) -> Any:
    """The root of a value, which its recipe makes if it is nowhere.

    The chain of recipes makes other values on the way. One that backward will ask for stays until
    then. Any other goes as soon as the last op of the chain has read it. Each op runs within the
    context that `running` returns.
    """
    root = value.fetch()
    if root is not None:
        return root
    order, readers, roots = _chain(value)
    for recipe in order:
        for source in recipe.values():
            if source not in roots:
                roots[source] = source.fetch()
        with running(recipe):
            results = recipe.run(roots)
        for other, root in results.items():
            if other in readers or other is value:
                roots[other] = root
            if other.waiting > 0 and other.restored is None and other is not value:
                other.restored = root
                remember(other)
        del results
        for source in recipe.values():
            readers[source] -= 1
            if readers[source] == 0 and source is not value:
                roots.pop(source, None)
    return roots[value]


def _chain(value: Value) -> tuple[list[Recipe], dict[Value, int], dict[Value, Any]]:
    """What has to run to make a value.

    Returns the recipes in order, how often they read each value, and the roots on the device from
    which they begin.
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
            if source in roots or source.away is not None:
                continue
            root = source.resident()
            if root is None:
                stack.append(source)
            else:
                roots[source] = root
    return [recipes[i] for i in sorted(recipes)], readers, roots
