"""Arrays with a hidden first dimension, of any other backend's arrays, and the backend of these."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..numpy.blocks import rounded_once
from ..numpy.half import is_half

Array = Any

# A row computes with a namespace `xp` and arrays. Given this namespace and these arrays it computes
# a whole batch, and its formulas do too: no row has a batching rule of its own. The rules are those
# of the array functions that rows use, in rules.py and functions.py; a function without one is
# looped over.
#
# Levels nest: the values of an array of one level may be arrays of an outer one. All array inputs
# of a row are brought to the same levels first (`unify`), so that a rule meets arrays of its own
# level, or arrays made on the way that are the same for the whole batch.

_serial = itertools.count(1)
HIDING: set[type] = set()  # array types that hide a dimension; none before the first vmap


class BatchLevel:
    """One call of vmap: how many examples there are, and what to do about random numbers."""

    def __init__(self, size: int, randomness: str = "error") -> None:
        HIDING.add(BatchedArray)
        self.size, self.randomness, self.number = size, randomness, next(_serial)
        self.mapped: list[tuple[Any, int]] = []  # weak references to inputs, and their dimension
        self.asks_functions = True  # how to batch a custom Function; else it sees batched tensors
        self._backends: dict[Any, BatchedBackend] = {}

    def backend(self, parent: Any) -> BatchedBackend:
        """The backend of this level's arrays whose values are of `parent`."""
        backend = self._backends.get(parent)
        if backend is None:
            backend = self._backends[parent] = BatchedBackend(self, parent)
        return backend

    def wrap(self, array: Array, axis: int = 0) -> Array:
        """An array whose dimension `axis` becomes the hidden one."""
        if isinstance(array, BatchedArray) and array.level.number > self.number:
            return array.backend.made(self.wrap(array.values, axis + 1 if axis >= 0 else axis))
        backend = owner(array)
        if axis != 0:
            array = backend.xp.moveaxis(array, axis, 0)
        return self.backend(backend).made(array)

    def lift(self, array: Array) -> Array:
        """An array that is the same for every example, as one of this level.

        One that is of this level already stays: the tangent of a value that is the same for all
        may differ by example.
        """
        if self in levels_of(array):
            return array
        if isinstance(array, BatchedArray) and array.level.number > self.number:
            values = self.lift(array.values)  # this level's dimension stands inside the other's
            return array.level.backend(owner(values)).made(values)
        backend = owner(array)
        return self.backend(backend).made(backend.xp.broadcast_to(array, (self.size, *array.shape)))

    def unwrap(self, array: Array, axis: int = 0) -> Array:
        """The array with the hidden dimension in sight again, as dimension `axis`."""
        if not isinstance(array, BatchedArray) or self not in levels_of(array):
            backend = owner(array)
            array, at = backend.xp.broadcast_to(array, (self.size, *array.shape)), 0
            return array if axis == 0 else backend.xp.moveaxis(array, at, axis)
        if array.level is self:
            values = array.values
            return values if axis == 0 else owner(values).xp.moveaxis(values, 0, axis)
        values = self.unwrap(array.values, axis + 1 if axis >= 0 else axis)
        return array.level.backend(owner(values)).made(values)

    def total(self, array: Array) -> Array:
        """The sum over the examples: the gradient of `lift`."""
        if not isinstance(array, BatchedArray) or self not in levels_of(array):
            return array * self.size
        if array.level is self:
            return owner(array.values).wrap(owner(array.values).xp.sum(array.values, 0))
        values = self.total(array.values)
        return array.level.backend(owner(values)).made(values)


def owner(array: Array) -> Any:
    """The backend of an array, batched or not."""
    from .. import backend_of

    return backend_of(array)


def levels_of(array: Array) -> list[BatchLevel]:
    """The levels at which an array has a hidden dimension, the innermost first."""
    levels = []
    while isinstance(array, BatchedArray):
        levels.append(array.level)
        array = array.values
    return levels


def plain(array: Array) -> Array:
    """An array, inside vmap with its hidden dimensions in sight: for checks of all examples."""
    while isinstance(array, BatchedArray):
        array = array.values
    return array


def hidden(array: Array, backend: Any) -> Array:
    """A plain array as one of this backend: of a vmap's, with its first dimensions hidden again."""
    if type(backend) is BatchedBackend:
        return backend.made(hidden(array, backend.parent))
    return array


def per_example(array: Array, like: Array) -> Array:
    """A new array; inside vmap one for each example that `like` has, which may be written to."""
    for level in reversed(levels_of(like)):
        array = level.lift(array).copy()
    return array


def lifted_to(array: Array, levels: Any) -> Array:
    """An array that differs by example at these levels, if only by name."""
    for level in sorted(levels, key=lambda level: level.number):
        array = level.lift(array)
    return array


def is_number(value: Any) -> bool:
    """Whether this is no array: a Python number, None, or a number of NumPy's, as those are that
    stand for Python's beside bfloat16. What is lifted lies on a device; these lie on none.
    """
    return not hasattr(value, "dtype") or isinstance(value, np.generic)


def missing_levels(arrays: Any) -> list[list[BatchLevel]] | None:
    """For each array the levels that others have and it lacks; None where nothing is missing."""
    of = [levels_of(a) for a in arrays]
    union = {level for levels in of for level in levels}
    if all(len(levels) == len(union) or is_number(a)
           for a, levels in zip(arrays, of, strict=True)):  # fmt: skip
        return None
    ordered = sorted(union, key=lambda level: level.number)
    return [[] if is_number(a) else [x for x in ordered if x not in levels]
            for a, levels in zip(arrays, of, strict=True)]  # fmt: skip


def unify(arrays: Any) -> list[Any]:
    """The arrays, all lifted to the same levels; numbers and None stay."""
    missing = missing_levels(arrays)
    if missing is None:
        return list(arrays)
    lifted = []
    for array, levels in zip(arrays, missing, strict=True):
        for level in levels:
            array = level.lift(array)
        lifted.append(array)
    return lifted


def any_batched(values: Any) -> bool:
    """Whether one of these values is an array of a vmap."""
    return any(type(value) is BatchedArray for value in values)


class BatchedArray:
    """An array whose first dimension is hidden: `shape`, `ndim` and indices do not know of it."""

    __slots__ = ("values", "backend", "__weakref__")
    __array_ufunc__ = None  # NumPy leaves `array * batched` to us

    def __init__(self, values: Array, backend: BatchedBackend) -> None:
        self.values, self.backend = values, backend

    @property
    def level(self) -> BatchLevel:
        return self.backend.level

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape[1:]

    @property
    def ndim(self) -> int:
        return self.values.ndim - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def itemsize(self) -> int:
        return self.values.dtype.itemsize

    @property
    def size(self) -> int:
        n = 1
        for extent in self.values.shape[1:]:
            n *= extent
        return n

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        return self.values.strides[1:]

    @property
    def flags(self) -> Any:
        return self.values.flags

    @property
    def base(self) -> Any:
        return self.values.base

    @property
    def device(self) -> Any:
        return self.values.device

    @property
    def T(self) -> Array:
        return self.backend.xp.transpose(self, None)

    @property
    def real(self) -> Array:
        return self.backend.made(self.values.real)

    @property
    def imag(self) -> Array:
        return self.backend.made(self.values.imag)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"BatchedArray(shape={self.shape}, of {self.level.size}, dtype={self.dtype})"

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        return self.backend.made(self.values.astype(dtype, copy=copy))

    def copy(self, order: str = "C") -> Array:
        return self.backend.made(self.values.copy(order))

    def view(self, dtype: Any) -> Array:
        return self.backend.made(self.values.view(dtype))

    def conj(self) -> Array:
        return self.backend.made(self.values.conj())

    def reshape(self, *shape: Any) -> Array:
        return self.backend.xp.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Array:
        order: Any = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self.backend.xp.transpose(self, order or None)

    def ravel(self) -> Array:
        return self.reshape(-1)

    def fill(self, value: Any) -> None:
        self[...] = value

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            function = getattr(self.backend.xp, METHODS[name])
            return lambda *args, **kwargs: function(self, *args, **kwargs)
        if name in ("item", "tolist", "data", "__array_interface__", "ctypes"):
            raise_if_read(name)
        raise AttributeError(f"an array inside vmap has no {name!r}")

    def __getitem__(self, index: Any) -> Array:
        from .index import getitem

        return getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        from .index import setitem

        setitem(self, index, value)

    def __bool__(self) -> bool:
        raise_if_read("bool")
        raise AssertionError

    def __index__(self) -> int:
        raise_if_read("a Python number")
        raise AssertionError

    __int__ = __index__
    __float__: Any = __index__
    __complex__: Any = __index__

    def __iadd__(self, other: Any) -> Array:
        return _inplace(self, other, "add", operator.iadd)

    def __isub__(self, other: Any) -> Array:
        return _inplace(self, other, "subtract", operator.isub)

    def __imul__(self, other: Any) -> Array:
        return _inplace(self, other, "multiply", operator.imul)

    def __itruediv__(self, other: Any) -> Array:
        return _inplace(self, other, "divide", operator.itruediv)


METHODS = {
    name: name
    for name in ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin", "cumsum",
                 "cumprod", "swapaxes", "squeeze", "take", "repeat", "round", "clip", "argsort",
                 "diagonal", "nonzero", "std", "var")
}  # fmt: skip


class ValueDependent(RuntimeError):
    """Code wants one value where there is one per example; a row that does is looped over."""


def raise_if_read(what: str) -> None:
    """The error for code that wants one value where there is one per example."""
    if what == "bool":
        raise ValueDependent(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control "
            "flow. We don't support that yet: there is one value per example, so use torch.where, "
            "or take this part out of the vmap."
        )
    raise ValueDependent(
        "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
        "calling .item() on a Tensor, please try to rewrite what you're doing with other "
        f"operations: there is one value per example ({what})."
    )


def _inplace(self: BatchedArray, other: Any, name: str, change: Callable[..., Any]) -> Array:
    if isinstance(other, BatchedArray) and other.backend is self.backend:
        if other.shape == self.shape:
            values = self.values
            self.values = change(values, other.values)
            return self
    elif is_number(other):
        self.values = change(self.values, other)
        return self
    self[...] = getattr(self.backend.xp, name)(self, other)
    return self


def _operator(name: str, swapped: bool) -> Callable[..., Any]:
    def method(self: BatchedArray, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        return apply(name, pair)

    return method


def apply(name: str, args: tuple[Any, ...]) -> Any:
    """An array function on arrays of which one, at least, is batched."""
    unified = unify(args)
    first = next(a for a in unified if type(a) is BatchedArray)
    return getattr(first.backend.xp, name)(*unified)


for _method, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power",
    "matmul": "matmul", "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}.items():  # fmt: skip
    setattr(BatchedArray, f"__{_method}__", _operator(_name, False))
    setattr(BatchedArray, f"__r{_method}__", _operator(_name, True))
for _method, _name in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}.items():  # fmt: skip
    setattr(BatchedArray, f"__{_method}__", _operator(_name, False))
BatchedArray.__hash__ = object.__hash__  # type: ignore[method-assign]
for _method, _name in {"neg": "negative", "invert": "invert", "abs": "absolute"}.items():
    setattr(BatchedArray, f"__{_method}__",
            lambda self, _name=_name: getattr(self.backend.xp, _name)(self))  # fmt: skip


class BatchedBackend:
    """What arrays of one level answer to `backend_of`: the device is that of their values."""

    name = "batched"
    readable, runs_rows, makes_kernels, keeps_launches = False, True, False, False
    attention: Any = None  # by rows
    array_types: tuple[type, ...] = (BatchedArray,)

    def __init__(self, level: BatchLevel, parent: Any) -> None:
        from . import functions as batching_functions  # noqa: F401  (declares rules)
        from .rules import BatchedNamespace

        self.level, self.parent = level, parent
        self.xp: Any = BatchedNamespace(self)
        self.widens = getattr(parent, "widens", False)

    def run_row(
        self, op: Any, operands: Any, params: dict[str, Any], home: Array | None = None
    ) -> Any:
        """The forward of a row, once per example where it reads values on the host."""
        forward: Any = functools.partial(op.forward, self.xp, **params)
        try:
            if self.widens and op.kind == "elementwise" and op.widens:
                dtypes = [x.dtype for x in operands if isinstance(x, BatchedArray)]
                half = next(filter(is_half, dtypes), None)
                if half is not None:
                    return rounded_once(forward, operands, half)
            return forward(*operands)
        except ValueDependent:
            from .rules import looped_row

            return looped_row(op, self, operands, params)

    def made(self, values: Array) -> Array:
        """An array of this level with these values, whose first dimension is the hidden one."""
        if owner(values) is not self.parent:
            return BatchedArray(values, self.level.backend(owner(values)))
        return BatchedArray(values, self)

    def wrap(self, value: Any) -> Array:
        return value if isinstance(value, BatchedArray) else self.parent.wrap(value)

    def asarray(self, value: Any, dtype: np.dtype[Any] | None = None) -> Array:
        if isinstance(value, BatchedArray):
            return value if dtype is None else value.astype(dtype, copy=False)
        return self.level.lift(self.parent.asarray(value, dtype))

    def to_host(self, array: Array) -> Any:
        raise_if_read("numpy")

    def device_index(self, array: Array) -> int | None:
        return self.parent.device_index(array.values)

    def rng(self, seed: int) -> Any:
        return self.parent.rng(seed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.parent, name)
