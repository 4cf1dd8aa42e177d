"""MetaArray: an array with a shape, strides and a dtype, whose memory is never touched.

Behind it is an array of NumPy's over memory that was asked for and never written: the system gives
it no pages. Views are NumPy's views of it. Elementwise functions, products of matrices, and copies
and sums of much are not run: the layouts of their results are NumPy's rules. Others run
once on the zeros that untouched memory reads as; their results are thrown away but for the layout.
"""

from __future__ import annotations

import mmap
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

__all__ = ["MetaArray", "blank", "run"]

NO_DATA = "Cannot copy out of meta tensor; no data!"
# Whose results' shapes depend on values.
OF_VALUES = frozenset(["nonzero", "flatnonzero", "argwhere", "unique", "item", "tolist", "extract",
                       "compress", "array_equal", "allclose", "get", "tobytes", "bincount",
                       "histogram"])  # fmt: skip
WRITES_FIRST = frozenset(["copyto", "put", "place", "putmask", "fill_diagonal", "index_add",
                          "index_reduce", "put_along_axis", "fill", "sort!"])  # fmt: skip
COPIES = frozenset(["astype", "copy", "zeros_like", "ones_like", "empty_like"])
REDUCTIONS = frozenset(["sum", "prod", "mean", "max", "min", "amax", "amin", "any", "all", "argmax",
                        "argmin", "std", "var", "nansum", "logaddexp.reduce"])  # fmt: skip
SMALL = 2**20  # bytes, up to which copies and reductions run on zeros
LARGE = 1 << 20  # bytes: NumPy would fill smaller ones with zeros, and so touch larger ones
_RESERVE_NOTHING = 0x4000  # Linux's MAP_NORESERVE


class MetaArray:
    """An array of the device "meta"."""

    __slots__ = ("_layout", "__weakref__")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]
    _layout: np.ndarray[Any, Any]

    shape = property(lambda self: self._layout.shape)
    dtype = property(lambda self: self._layout.dtype)
    ndim = property(lambda self: self._layout.ndim)
    size = property(lambda self: self._layout.size)
    nbytes = property(lambda self: self._layout.nbytes)
    itemsize = property(lambda self: self._layout.itemsize)
    strides = property(lambda self: self._layout.strides)
    flags = property(lambda self: self._layout.flags)
    data = property(lambda self: SimpleNamespace(ptr=0))

    @property
    def base(self) -> Any:
        """What owns the memory that there would be."""
        owner = self._layout
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        return None if owner is self._layout else owner

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise NotImplementedError(NO_DATA)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            function = getattr(function, method)
        return run(function.__name__, function, inputs, kwargs)

    def __len__(self) -> int:
        return len(self._layout)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def _refuse(self, *args: Any) -> NoReturn:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    __bool__ = __int__ = __index__ = __float__ = __complex__ = item = tolist = _refuse

    def __getitem__(self, index: Any) -> Any:
        items = index if isinstance(index, tuple) else (index,)
        if any(getattr(getattr(i, "dtype", None), "kind", "") == "b" for i in items):
            _refuse_values("a mask as an index")
        if not any(isinstance(i, (MetaArray, np.ndarray, list)) for i in items):
            whole = items if any(i is Ellipsis for i in items) else (*items, Ellipsis)
            return of(self._layout[whole])
        return run("getitem", operator.getitem, (self, items), {}, hosts=True)

    def __setitem__(self, index: Any, value: Any) -> None:
        part = self[index]
        np.broadcast_to(np.empty(getattr(value, "shape", ())), part.shape)  # raises if it does not

    def __getattr__(self, name: str) -> Any:
        attribute = None if name.startswith("__") else getattr(np.ndarray, name, None)
        if attribute is None:
            raise AttributeError(f"a meta array has no attribute {name!r}")
        if not callable(attribute):
            return run(name, lambda a: getattr(a, name), (self,), {})
        kind = "sort!" if name == "sort" else name
        return lambda *args, **kwargs: run(kind, attribute, (self, *args), kwargs)

    def __repr__(self) -> str:
        return f"meta(..., shape={self.shape}, dtype={self.dtype})"


def _refuse_values(what: str) -> NoReturn:
    raise NotImplementedError(f"{what}: the shape depends on values, and meta tensors have none")


def of(layout: np.ndarray[Any, Any]) -> MetaArray:
    """The array of a layout."""
    array = object.__new__(MetaArray)
    array._layout = layout
    return array


def blank(shape: Any, dtype: Any, strides: Any = None) -> MetaArray:
    """A new array. Its memory is not touched, and takes no pages."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=object)) if shape else 1
    nbytes = count * dtype.itemsize
    memory: Any
    if nbytes < LARGE:
        memory = np.zeros(count, dtype)
    else:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _RESERVE_NOTHING
        memory = np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)
        memory = memory.view(dtype)
    return of(np.ndarray(shape, dtype, memory, 0, strides if count else None))


def blank_like(result: np.ndarray[Any, Any]) -> MetaArray:
    """A new array of the shape, the dtype and the order of another."""
    strides = None
    if not result.flags.c_contiguous:
        strides = np.empty_like(result, subok=False).strides
    return blank(result.shape, result.dtype, strides)


def run(
    name: str, function: Callable[..., Any], args: Any, kwargs: Any, hosts: bool = False
) -> Any:
    """What a NumPy function would answer, without its values.

    `hosts` lets arrays of the host pass; elsewhere they are a TypeError, as on any device.
    """
    if name in OF_VALUES:
        _refuse_values(name)
    sources: list[Any] = []
    plain = [_plain(a, sources, hosts) for a in args]
    out = kwargs.get("out")
    if out is not None:
        return out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if name in WRITES_FIRST:
        if name == "copyto":
            np.broadcast_to(plain[1], plain[0].shape)  # raises where it does not fit
        return None
    named = {key: _plain(value, sources, hosts) for key, value in kwargs.items()}
    with np.errstate(all="ignore"):
        if isinstance(function, np.ufunc) and function.signature is None and not named:
            return _elementwise(function, plain)
        if name == "matmul" and len(plain) == 2 and min(x.ndim for x in plain) > 1:
            return _product(*plain)
        if isinstance(plain[0], np.ndarray) and plain[0].nbytes > SMALL:
            if name in COPIES:
                return blank_like(_retyped(plain, named))
            if name in REDUCTIONS:
                return _reduced(function, plain, named)
        return _clothed(function(*plain, **named), sources)


def _retyped(plain: list[Any], named: dict[str, Any]) -> Any:
    """The layout of a copy, which may have another dtype: of one element in memory."""
    source = plain[0]
    words = [x for x in plain[1:] if x is not None and not isinstance(x, (bool, str))]
    dtype = named.get("dtype") or (words[0] if words else source.dtype)
    dtype = np.dtype(dtype)
    steps = [s // source.itemsize * dtype.itemsize for s in source.strides]
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), source.shape, steps)


def _reduced(function: Callable[..., Any], plain: list[Any], named: dict[str, Any]) -> Any:
    """The result has the dims of one of single elements, and the sizes that are not reduced."""
    source = plain[0]
    result = np.asarray(function(np.ones((1,) * source.ndim, source.dtype), *plain[1:], **named))
    axis = named.get("axis", plain[1] if len(plain) > 1 else None)
    axes = range(source.ndim) if axis is None else np.atleast_1d(np.array(axis, int))
    reduced = {int(a) % source.ndim for a in axes} if source.ndim else set()
    kept = [n for d, n in enumerate(source.shape) if d not in reduced]
    if result.ndim == source.ndim:
        kept = [1 if d in reduced else n for d, n in enumerate(source.shape)]
    return blank(tuple(kept), result.dtype)


def _elementwise(function: np.ufunc, operands: list[Any]) -> Any:
    """By NumPy's rules for the dtypes and the order of results."""
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    results = function(*[np.ones(1, x.dtype) if isinstance(x, np.ndarray) else x
                         for x in operands])  # fmt: skip
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    steps = _steps([x for x in arrays if x.shape == shape], shape)
    several = isinstance(results, tuple)
    blanks = [
        blank(shape, r.dtype, None if steps is None else [s * r.dtype.itemsize for s in steps])
        for r in (results if several else (results,))
    ]
    return tuple(blanks) if several else blanks[0]


def _steps(arrays: list[Any], shape: tuple[int, ...]) -> list[int] | None:
    """The strides, in elements, of a result of operands of its shape; None for C order.

    NumPy's result keeps the order of dims in which the operands lie.
    """
    if not arrays or any(x.flags.c_contiguous for x in arrays):
        return None
    far = [max(abs(x.strides[d]) for x in arrays) for d in range(len(shape))]
    steps, step = [0] * len(shape), 1
    for d in sorted(range(len(shape)), key=lambda d: (far[d], -d)):
        steps[d], step = step, step * shape[d]
    return steps


def _product(a: Any, b: Any) -> MetaArray:
    """Of matrices, whose batch dims broadcast."""
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matmul: got {a.shape} and {b.shape}")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return blank((*batch, a.shape[-2], b.shape[-1]), np.result_type(a.dtype, b.dtype))


def _plain(value: Any, sources: list[Any], hosts: bool) -> Any:
    if type(value) is MetaArray:
        sources.append(value._layout)
        return value._layout
    if type(value) in (tuple, list):
        return type(value)([_plain(v, sources, hosts) for v in value])
    if isinstance(value, np.ndarray) and not hosts:
        raise TypeError(f"Unsupported type {type(value)}: want arrays of one device")
    if type(value) is slice:
        return slice(*[_plain(v, sources, hosts) for v in (value.start, value.stop, value.step)])
    return value


def _clothed(result: Any, sources: list[Any]) -> Any:
    """A result of NumPy's as arrays of this device: views stay views, the rest is blank."""
    if type(result) in (tuple, list):
        return type(result)([_clothed(r, sources) for r in result])
    if isinstance(result, tuple):  # with names
        return tuple([_clothed(r, sources) for r in result])
    if isinstance(result, np.generic):
        return blank((), result.dtype)
    if not isinstance(result, np.ndarray):
        return result
    if any(result is source or np.may_share_memory(result, source) for source in sources):
        return of(result)
    return blank_like(result)


def _operator(name: str) -> Callable[..., Any]:
    reflected = name.startswith("__r") and name != "__rshift__"
    function = getattr(operator, name.replace("__r", "__", 1) if reflected else name)
    ufunc = UFUNCS.get(function.__name__, function)

    def method(self: Any, *other: Any) -> Any:
        if other and not isinstance(other[0], (MetaArray, int, float, complex, np.generic)):
            return NotImplemented
        args = (*other, self) if reflected else (self, *other)
        return run(function.__name__, ufunc, args, {})

    return method


UFUNCS: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "pow": np.power, "and_": np.bitwise_and,
    "or_": np.bitwise_or, "xor": np.bitwise_xor, "lshift": np.left_shift,
    "rshift": np.right_shift, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "neg": np.negative,
    "pos": np.positive, "abs": np.absolute, "invert": np.invert,
}  # fmt: skip


def _same(self: MetaArray, other: Any) -> MetaArray:
    np.broadcast_to(np.empty(getattr(other, "shape", ())), self.shape)
    return self


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor",
              "lshift", "rshift", "matmul"):  # fmt: skip
    setattr(MetaArray, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(MetaArray, f"__r{_name}__", _operator(f"__r{_name}__"))
    setattr(MetaArray, f"__i{_name}__", _same)
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"):
    setattr(MetaArray, f"__{_name}__", _operator(f"__{_name}__"))
