"""The simulated device's array: NumPy's, behind CuPy's manners."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..copies import copied_as_it_lies
from .machine import Machine
from .races import Access

__all__ = ["SimulatedArray"]

VIEWS = frozenset(["reshape", "transpose", "swapaxes", "squeeze", "ravel", "view", "diagonal",
                   "moveaxis", "rollaxis", "broadcast_to", "expand_dims", "atleast_1d",
                   "atleast_2d", "atleast_3d", "real", "imag", "T", "flip", "fliplr", "flipud",
                   "rot90", "as_strided", "sliding_window_view", "split", "array_split",
                   "hsplit", "vsplit", "asarray", "ascontiguousarray", "astype",
                   "broadcast_arrays", "lib.stride_tricks.as_strided"])  # fmt: skip
SYNCHRONOUS = frozenset(["nonzero", "flatnonzero", "argwhere", "unique", "item", "tolist",
                         "array_equal", "allclose", "repeat", "extract", "compress"])  # fmt: skip
WRITES_FIRST = frozenset(["copyto", "put", "place", "putmask", "fill_diagonal", "index_add",
                          "index_reduce", "put_along_axis", "fill", "sort!",
                          "track_moment", "__setitem__"])  # fmt: skip


PLAIN = frozenset([int, float, bool, str, type(None), type])  # what is passed on as it is


class SimulatedFlags:
    """What an array's layout is, asked of the host's array."""

    __slots__ = ("_host", "owndata")

    def __init__(self, host: Any, owndata: bool) -> None:
        self._host, self.owndata = host, owndata

    c_contiguous = property(lambda self: self._host.c_contiguous)
    f_contiguous = property(lambda self: self._host.f_contiguous)
    forc = property(lambda self: self._host.forc)
    fnc = property(lambda self: self._host.fnc)


class SimulatedArray:
    """An array in the simulated device's memory. NumPy arrays do not mix with it: TypeError.

    Each face of the device ("simulated", and "cuda" where it stands in) has a subclass, with its
    `machine`.
    """

    __slots__ = ("_host", "_allocation", "_base", "__weakref__")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]
    machine: Machine
    _host: np.ndarray[Any, Any]
    _allocation: Any
    _base: Any

    # what it is

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    strides = property(lambda self: self._host.strides)
    base = property(lambda self: self._base)
    device = property(lambda self: SimpleNamespace(id=0))

    @property
    def flags(self) -> Any:
        return SimulatedFlags(self._host.flags, self._base is None)

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self._host.__array_interface__["data"][0])

    # to the host

    def get(self) -> np.ndarray[Any, Any]:
        """A copy in host memory; waits for the current stream."""
        return copied_as_it_lies(value_of(self, "get"))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise TypeError(f"{function.__name__}.{method} is not supported on a simulated device")
        return run(type(self), function.__name__, function, inputs, kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        raise BufferError("a simulated device has no place in DLPack; want x.cpu() first")

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self._host)))

    def __bool__(self) -> bool:
        return bool(value_of(self, "bool"))

    def __int__(self) -> int:
        return int(value_of(self, "int"))

    def __index__(self) -> int:
        return operator.index(value_of(self, "index")[()])

    def __float__(self) -> float:
        return float(value_of(self, "float"))

    def __complex__(self) -> complex:
        return complex(value_of(self, "complex"))

    def __repr__(self) -> str:
        return repr(value_of(self, "repr")).replace("array", "simulated", 1)

    def item(self, *index: Any) -> Any:
        return value_of(self, "item").item(*index)

    def tolist(self) -> Any:
        return value_of(self, "tolist").tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return value_of(self, "tobytes").tobytes(order)

    # parts

    def __getitem__(self, index: Any) -> Any:
        items = index if isinstance(index, tuple) else (index,)
        if not any(isinstance(i, (SimulatedArray, np.ndarray, list)) for i in items):
            if not any(i is Ellipsis for i in items):
                items = (*items, Ellipsis)  # a 0-d view, where NumPy would give a scalar
            return view(self, self._host[items])
        masks = any(getattr(getattr(i, "dtype", None), "kind", "") == "b" for i in items)
        name = "mask" if masks else "getitem"
        elements = run(type(self), name, _getitem, (self, items), {}, hosts=True)
        if masks:
            self.machine.synchronize_stream(self.machine.current())
        return elements

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError(f"Unsupported type {type(value)}: want a device array, or a scalar")
        items = index if isinstance(index, tuple) else (index,)
        if isinstance(value, np.ndarray):
            value = value[()]
        if not any(isinstance(i, (SimulatedArray, np.ndarray, list)) for i in items):
            whole = items if any(i is Ellipsis for i in items) else (*items, Ellipsis)
            part = view(self, self._host[whole])  # the bytes that are written, and no others
            run(type(self), "__setitem__", _setitem, (part, value, (...,)), {})
            return
        run(type(self), "__setitem__", _setitem, (self, value, items), {}, hosts=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("ctypes", "tofile", "dump", "dumps", "setflags"):
            raise AttributeError(f"a simulated array has no attribute {name!r}")
        attribute = getattr(np.ndarray, name, None)
        if attribute is None:
            raise AttributeError(f"a simulated array has no attribute {name!r}")
        if not callable(attribute):
            return run(type(self), name, lambda a: getattr(a, name), (self,), {})
        kind = "sort!" if name == "sort" else name

        def method(*args: Any, **kwargs: Any) -> Any:
            return run(type(self), kind, attribute, (self, *args), kwargs)

        return method

    @property
    def T(self) -> Any:
        return view(self, self._host.T)


def _getitem(array: Any, items: tuple[Any, ...]) -> Any:
    return array[items]


def _setitem(array: Any, value: Any, items: tuple[Any, ...]) -> None:
    array[items] = value


def value_of(array: SimulatedArray, name: str) -> np.ndarray[Any, Any]:
    """The values, once the current stream is done."""
    machine = array.machine
    with machine.lock:
        stream = machine.current()
        machine.launch(stream, name, (array,), ())
        machine.charge(stream, name, "d2h", machine.model.copy(array.nbytes, "d2h", True),
                       array.nbytes, 0.0)  # fmt: skip
        machine.synchronize_stream(stream)
        return array._host


def view(array: SimulatedArray, host: np.ndarray[Any, Any]) -> Any:
    """Another array on the same memory."""
    array_view: Any = object.__new__(type(array))
    array_view._host, array_view._allocation = host, array._allocation
    array_view._base = array if array._base is None else array._base
    return array_view


def place(kind: Any, host: Any, stream: Any, name: str) -> Any:
    """A new array of a host one's values and layout, written by the launch that has begun."""
    machine = kind.machine
    allocation = machine.pool.allocate(host.nbytes, stream.timeline)
    strides = None if host.flags.c_contiguous else np.empty_like(host, subok=False).strides
    array: Any = object.__new__(kind)
    array._allocation, array._base = allocation, None
    array._host = np.ndarray(host.shape, host.dtype, allocation.memory, 0, strides)
    if host.nbytes:
        tick = machine.clocks.known[stream.timeline][stream.timeline]
        access = Access(stream.timeline, tick, name)  # the launch has begun it
        machine.clocks.check(allocation.shadow, 0, allocation.shadow.size, access, True)
        np.copyto(array._host, host)
    return array


def run(
    kind: Any, name: str, function: Callable[..., Any], args: Any, kwargs: Any, hosts: bool = False
) -> Any:
    """Runs a NumPy function on device arrays as a kernel of the current stream.

    `hosts` lets host arrays pass, which CuPy takes in few places, indices among them.
    """
    machine: Machine = kind.machine
    reads: list[Any] = []
    if type(function) is np.ufunc and len(args) > function.nin:
        args, kwargs = args[: function.nin], {**kwargs, "out": args[function.nin :]}
    bare_args: list[Any] = []
    for value in args:
        if type(value) is kind:
            reads.append(value)
            bare_args.append(value._host)
        else:
            bare_args.append(value if type(value) in PLAIN else _bare(value, kind, reads, hosts))
    count = len(reads)
    bare_kwargs = {k: _bare(v, kind, reads, hosts) for k, v in kwargs.items()} if kwargs else {}
    if name in VIEWS:
        with np.errstate(all="ignore"):
            result = function(*bare_args, **bare_kwargs)
        clothed = _as_views(result, reads)
        if clothed is not None:
            return clothed
    outs = kwargs.get("out")
    writes = [args[0]] if name in WRITES_FIRST else []
    if outs is not None:
        writes = list(outs) if isinstance(outs, tuple) else [outs]
    with machine.lock:
        stream = machine.current()
        others = reads
        if len(writes) == 1:
            others = [a for a in reads if a is not writes[0]]
        elif writes:
            others = [a for a in reads if not any(a is w for w in writes)]
        machine.launch(stream, name, others, writes)
        with np.errstate(all="ignore"):
            result = function(*bare_args, **bare_kwargs)
        outputs: list[Any] = []
        if writes and outs is not None:
            result = outs[0] if isinstance(outs, tuple) and len(outs) == 1 else outs
        else:
            result = _clothe(result, kind, others, stream, name, outputs)
        machine.finish(stream, name, others if outs is None else reads[:count], outputs or writes)
        if name in SYNCHRONOUS or name.startswith("linalg."):
            machine.synchronize_stream(stream)
    return result


def _bare(value: Any, kind: Any, reads: list[Any], hosts: bool) -> Any:
    if type(value) is kind:
        reads.append(value)
        return value._host
    if isinstance(value, (int, float, str, type(None), np.dtype, type)):
        return value
    if isinstance(value, np.ndarray | SimulatedArray):
        if hosts and isinstance(value, np.ndarray):
            return value
        raise TypeError(f"Unsupported type {type(value)}: want arrays of one device")
    if isinstance(value, (tuple, list)):
        return type(value)([_bare(v, kind, reads, hosts) for v in value])
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return slice(*[_bare(v, kind, reads, hosts) for v in parts])
    return value


def _owner(host: Any) -> Any:
    while getattr(host, "base", None) is not None:
        host = host.base
    return host


def _as_views(result: Any, inputs: list[Any]) -> Any:
    """A result that is a view of an input, or a tuple or list of such; None if it is a copy."""
    if type(result) in (tuple, list):
        parts = [_as_views(r, inputs) for r in result]
        return None if None in parts or not parts else type(result)(parts)
    if not isinstance(result, np.ndarray):
        return None
    for array in inputs:
        if result is array._host:
            return array
    owner = _owner(result)
    for array in inputs:
        if owner is array._allocation.memory and result.size:
            if not result.flags.writeable:
                _unlock(result)
            return view(array, result)
    return None


def _unlock(host: Any) -> None:
    try:
        host.flags.writeable = True  # a device has no read-only arrays
    except ValueError:
        pass


def _clothe(
    result: Any, kind: type, inputs: list[Any], stream: Any, name: str, outputs: list[Any]
) -> Any:
    """A kernel's results, in device memory."""
    if isinstance(result, np.ndarray):
        if result.base is not None or any(result is a._host for a in inputs):
            views = _as_views(result, inputs)
            if views is not None:
                return views
    elif isinstance(result, np.generic):
        result = np.asarray(result)
    elif isinstance(result, tuple):
        return tuple([_clothe(r, kind, inputs, stream, name, outputs) for r in result])
    elif type(result) is list:
        return [_clothe(r, kind, inputs, stream, name, outputs) for r in result]
    else:
        return result
    outputs.append(place(kind, result, stream, name))
    return outputs[-1]


# Operators ----------------------------------------------------------------------------------------


def _binary(name: str) -> Callable[[Any, Any], Any]:
    reflected = name.startswith("__r") and name != "__rshift__"
    plain = name.replace("__r", "__", 1) if reflected else name
    function = getattr(operator, plain)

    def method(self: Any, other: Any) -> Any:
        if type(other) is not type(self):
            if isinstance(other, (np.ndarray, SimulatedArray)):
                raise TypeError(f"Unsupported type {type(other)}: want arrays of one device")
            if not isinstance(other, (int, float, complex, np.generic)):
                return NotImplemented
        args = (other, self) if reflected else (self, other)
        return run(type(self), plain.strip("_"), function, args, {})

    return method


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    function = getattr(np.ndarray, name)

    def call(target: Any, other: Any) -> None:
        if function(target, other) is NotImplemented:
            raise TypeError(f"{name}: got {type(other).__name__}, want an array or a number")

    def method(self: Any, other: Any) -> Any:
        run_in_place(self, name.strip("_"), call, other)
        return self

    return method


def run_in_place(array: Any, name: str, call: Callable[..., Any], other: Any) -> None:
    """A kernel that changes `array`."""
    reads: list[Any] = []
    value = _bare(other, type(array), reads, False)
    machine = array.machine
    with machine.lock:
        stream = machine.current()
        machine.launch(stream, name, reads, (array,))
        with np.errstate(all="ignore"):
            call(array._host, value)
        machine.finish(stream, name, (array, *reads), (array,))


for _name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor",
              "lshift", "rshift", "matmul"]:  # fmt: skip
    setattr(SimulatedArray, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(SimulatedArray, f"__r{_name}__", _binary(f"__r{_name}__"))
    setattr(SimulatedArray, f"__i{_name}__", _in_place(f"__i{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(SimulatedArray, f"__{_name}__", _binary(f"__{_name}__"))


def _unary(name: str) -> Callable[[Any], Any]:
    function = getattr(operator, name)
    return lambda self: run(type(self), name, function, (self,), {})


for _name in ("neg", "pos", "abs", "invert"):
    setattr(SimulatedArray, f"__{_name}__", _unary(_name))
