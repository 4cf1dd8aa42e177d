"""Runs pytest with a CuPy of NumPy's making, so that code for CUDA executes where there is no GPU.

    python -m tests.support.fake_cuda tests/ops/test_rows_raw.py -q

The library then finds one usable CUDA device and all of it runs as on a GPU, CuPy backend
included. The fake is as strict as CuPy where NumPy is lenient: a host array among device arrays,
an implicit conversion to NumPy, a name or a keyword that CuPy lacks, and a dtype without a loop
all raise. Kernels launched by name are built for the host; cuBLAS reads its operands by pointer
and leading dimension. Copies of page-locked memory are asynchronous (`fake_streams.py`); races are
the simulated device's part. Needs CuPy installed, to know its signatures, and a C++ compiler.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import operator
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tests.support import (
    fake_cublas,
    fake_cusparse,
    fake_loops,
    fake_pools,
    fake_processes,
    fake_streams,
)
from tests.support.cuda_on_cpu import Program
from tests.support.fake_streams import HERE, captured, current, device_is_used, host_waits

Host = np.ndarray[Any, Any]


# Arrays ------------------------------------------------------------------------------------------
# --------


def bare(value: Any) -> Any:
    """What NumPy gets for a value of ours; TypeError for a host array, as CuPy raises."""
    if isinstance(value, ndarray):
        device_is_used()
        check_device(value)
        if value._base is not None or value._data is not None:
            check_aligned(value._host)
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (tuple, list)):
        return type(value)(bare(item) for item in value)
    if isinstance(value, slice):
        return slice(bare(value.start), bare(value.stop), bare(value.step))
    return value


def check_device(array: ndarray) -> None:
    """CuPy's error for an array of another device than the current one."""
    if array._device != HERE.device:
        raise ValueError(
            "Array device must be same as the current device: "
            f"array device = {array._device} while current = {HERE.device}"
        )


def check_aligned(host: Host) -> None:
    """CUDA's error for elements that do not begin at multiples of their size."""
    step = min(host.itemsize, 16)
    if step > 1 and host.size and host.__array_interface__["data"][0] % step:
        raise fake_streams.failure(716)  # cudaErrorMisalignedAddress


def clothed(value: Any) -> Any:
    """A result as CuPy gives it: arrays, 0-d ones too, on the device."""
    if isinstance(value, (np.ndarray, np.generic)):
        same = OWNERS.get(id(value))
        if same is not None and same._host is value:
            return same  # as of `out=`, and of `astype(copy=False)`
        made = ndarray.__new__(ndarray)
        made._host = host = np.asarray(value)
        made._data, made._block, made._device = None, None, HERE.device
        made._base = base = owner_of(made)
        if base is not None:
            made._device = base._device
        else:
            count(made)
        if not host.flags.writeable:  # CuPy has no read-only arrays
            host.flags.writeable = True
        return made
    if isinstance(value, tuple):  # NumPy's are named tuples in places
        return tuple(map(clothed, value))
    return list(map(clothed, value)) if type(value) is list else value


OWNERS: weakref.WeakValueDictionary[int, ndarray] = weakref.WeakValueDictionary()


def owner_of(made: ndarray) -> Any:
    """The array that owns the memory of another one, the same object each time; None for itself."""
    host = made._host
    while isinstance(host.base, np.ndarray):
        host = host.base
    found = OWNERS.get(id(host))
    if found is not None and found._host is host:
        return found if host is not made._host else None
    if host is not made._host:
        return clothed(host)
    OWNERS[id(host)] = made
    return None


LIVE: dict[int, weakref.ref[Host]] = {}  # by id: arrays that own memory


def count(made: ndarray, own: bool = True, block: Any = None) -> None:
    """Counts the memory that an array owns as the device's, as long as the program has that: a copy
    on its way still has the bytes, and not what is counted, as with CuPy.
    """
    allocate, host = HERE.allocator or STATE.allocator, made._host
    if own and allocate is not None and block is None:
        block = allocate(host.nbytes)
    made._block = block
    while isinstance(host.base, np.ndarray):
        host = host.base
    key = id(host)
    LIVE[key] = weakref.ref(host, lambda gone: LIVE.pop(key, None))


def memory_at(address: int) -> Host | None:
    """The array that owns the device memory that an address lies in."""
    for found in list(LIVE.values()):
        host = found()
        if host is not None and 0 <= address - host.ctypes.data < host.nbytes:
            return host
    return None


class Memory:
    """cupy.cuda.Memory: a block that an array of its own has."""

    def __init__(self, ptr: int, size: int, held: Any, device_id: int) -> None:
        self.ptr, self.size, self.device_id, self._held = ptr, size, device_id, held

    def bytes(self) -> Any:
        """The bytes, for an array that knows nothing of the one that has them."""
        found = (ctypes.c_ubyte * self.size).from_address(self.ptr)
        found.held = self._held  # type: ignore[attr-defined]
        return found


class UnownedMemory(Memory):
    """cupy.cuda.UnownedMemory: memory of another library."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        if device_id < 0:
            raise RuntimeError("UnownedMemory requires explicit device ID for a null pointer.")
        super().__init__(ptr, size, owner, device_id)
        self._owner = owner


class MemoryPointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


GARBAGE = 0x7B  # in each byte of new memory: large numbers in all dtypes


class NewMemory:
    """What `alloc` gives: of what is to lie in it each array has memory of its own."""

    ptr = 2**40

    def __add__(self, offset: int) -> NewMemory:
        return self


NEW = NewMemory()


class ndarray:
    """cupy.ndarray, holding a NumPy array that is not shown."""

    __slots__ = ("_host", "_base", "_data", "_block", "_device", "__weakref__")
    __array_priority__ = 100
    _host: Host
    _base: Any
    _data: Any
    _block: Any  # what is counted of an array that owns its memory
    _device: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._init(*args, **kwargs)

    def _init(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: Any = None,
        strides: Any = None,
        order: str | None = "C",
    ) -> None:
        block = memptr if isinstance(memptr, fake_pools.MemoryPointer) else None  # a promise
        memptr = None if memptr is NEW or block is not None else memptr
        buffer = None if memptr is None else memptr.mem.bytes()
        start = 0 if memptr is None else memptr.ptr - memptr.mem.ptr
        self._host = np.ndarray(shape, dtype, buffer, start, strides, order or "C")  # type: ignore[call-overload]
        if memptr is None and self._host.flags.forc:  # nothing may count on what was there
            ctypes.memset(self._host.ctypes.data, GARBAGE, self._host.nbytes)
        self._base, self._data = None, memptr
        self._device = HERE.device if memptr is None else memptr.device_id
        OWNERS[id(self._host)] = self
        count(self, memptr is None, block)
        capture = current().capture
        if capture is not None and memptr is None:
            if HERE.allocator is None:
                raise AssertionError("memory of a graph that is not from a pool of its own")
            capture.holds(self._host)

    @property
    def data(self) -> Any:
        if self._data is not None:
            return self._data
        root = self if self._base is None else self._base
        start = self._host.ctypes.data
        if root._data is not None:  # a view of what names no base
            return MemoryPointer(root._data.mem, start - root._data.mem.ptr)
        memory = Memory(root._host.ctypes.data, root._host.nbytes, root, root._device)
        return MemoryPointer(memory, start - memory.ptr)

    @property
    def device(self) -> Any:
        return SimpleNamespace(id=self._device)

    @property
    def base(self) -> Any:
        return self._base

    # What an array is made of: the host knows it, and no device is asked.
    dtype = property(lambda self: self._host.dtype)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    ndim = property(lambda self: self._host.ndim)
    shape = property(lambda self: self._host.shape)
    size = property(lambda self: self._host.size)
    strides = property(lambda self: self._host.strides)

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> Host:
        return synchronized("get", self._host).copy(order)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Host:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise TypeError(f"{function.__name__}.{method} is not supported by CuPy")
        return getattr(sys.modules["cupy"], function.__name__)(*inputs, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_c_contiguous":
            return self._host.flags.c_contiguous
        if name.startswith("__") or not hasattr(REAL.ndarray, name):
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        if name in ("item", "tolist", "nonzero"):
            synchronized(name, self._host)
        device_is_used()
        if name not in VIEWS and callable(getattr(self._host, name)):
            check_device(self)
        found = getattr(self._host, name)
        if name == "flags":
            return SimpleNamespace(**{k: getattr(found, k) for k in FLAGS})
        if not callable(found) or isinstance(found, np.generic):
            return clothed(found)

        def method(*args: Any, **kwargs: Any) -> Any:
            names, positional = parameters_of_method(name)
            if not set(kwargs) <= set(names) or len(args) > positional:
                raise TypeError(f"cupy.ndarray.{name} takes {names}, got {len(args)}, {[*kwargs]}")
            function = getattr(self._host, name)  # of an array that is there until the end
            with np.errstate(all="ignore"):
                host = function(*map(bare, args), **{k: bare(v) for k, v in kwargs.items()})
            copies = name in VIEWS and host.size and not np.may_share_memory(host, self._host)
            if copies:  # as `reshape` does of what has gaps
                check_device(self)
            return clothed(host)

        if current().capture is None:
            return method
        call = captured(lambda self, *args, **kwargs: method(*args, **kwargs), name in CHANGES)
        return partial(call, self)

    @captured
    def __getitem__(self, index: Any) -> Any:
        device_is_used()
        return clothed(self._host[bare_index(index, self._host.shape)])

    @partial(captured, changes=True)
    def __setitem__(self, index: Any, value: Any) -> None:
        device_is_used()
        check_device(self)
        with np.errstate(all="ignore"):
            self._host[bare_index(index, self._host.shape)] = bare(value)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __bool__(self) -> bool:
        return bool(synchronized("bool", self._host))

    def __int__(self) -> int:
        return int(synchronized("int", self._host))

    def __float__(self) -> float:
        return float(synchronized("float", self._host))

    def __complex__(self) -> complex:
        return complex(synchronized("complex", self._host))

    def __repr__(self) -> str:
        return repr(self._host)

    __hash__ = None  # type: ignore[assignment]


# Methods that launch nothing, on whatever device.
VIEWS = {"view", "transpose", "swapaxes", "squeeze", "reshape", "diagonal", "ravel"}
CHANGES = {"fill", "sort", "itemset", "put", "partition"}  # methods that write to their array
FLAGS = ("c_contiguous", "f_contiguous", "owndata", "fnc", "forc")  # CuPy's have no `writeable`


@cache
def parameters_of_method(name: str) -> tuple[tuple[str, ...], float]:
    """The names that a method of CuPy's arrays takes, and how many by position."""
    from tests.backends import cupy_contract as contract

    takes = contract.without_self(contract.parameters_of(getattr(REAL.ndarray, name)))
    if takes is None:
        return (), float("inf")
    several = takes.any_positional or any(n.startswith("*") for n in takes.names)
    return takes.names, float("inf") if several else takes.positional


def synchronized(what: str, host: Host) -> Host:
    """Notes that the host waits for the device here."""
    STATE.syncs.append(what)
    host_waits()
    return host


def bare_index(index: Any, shape: tuple[int, ...]) -> Any:
    """An index for NumPy; CuPy takes host arrays here too, and wraps an index that is too large."""
    items = list(index) if isinstance(index, tuple) else [index]
    dims = [_dims_of(item) for item in items]
    used = 0
    for i, item in enumerate(items):
        if item is Ellipsis:
            dims[i] = len(shape) - sum(dims)
        if isinstance(item, ndarray) and item._host.dtype.kind == "b":
            synchronized("mask", item._host)  # the shape of the result depends on the values
        items[i] = bare(item) if not isinstance(item, np.ndarray) else item
        if isinstance(items[i], np.ndarray) and items[i].dtype.kind in "iu" and shape[used]:
            items[i] = items[i] % shape[used]
        used += dims[i]
    check_together([item for item in items if isinstance(item, np.ndarray)])
    return tuple(items) if isinstance(index, tuple) else items[0]


def check_together(arrays: list[Host]) -> None:
    """CuPy's error for index arrays, of which masks are as long as what they pick, that do not
    broadcast.
    """
    if len(arrays) < 2:
        return
    shapes = [x.shape if x.dtype.kind != "b" else (np.count_nonzero(x),) for x in arrays]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        words = "operands could not be broadcast together with shapes" + " ".join(map(str, shapes))
        raise ValueError(words) from None


def _dims_of(item: Any) -> int:
    """How many dims an item of an index takes up; ... is known when the others are."""
    if item is None or item is Ellipsis:
        return 0
    mask = getattr(item, "dtype", np.dtype(int)).kind == "b"
    return item.ndim if mask else 1


def _binary(name: str) -> Callable[[Any, Any], Any]:
    def method(self: ndarray, other: Any) -> Any:
        alone = other is None or type(other).__eq__ is object.__eq__
        if alone and name in ("__eq__", "__ne__"):  # it equals no element
            return clothed(np.full(self.shape, name == "__ne__"))
        if not isinstance(other, (ndarray, int, float, complex, np.generic)):
            return NotImplemented if not isinstance(other, np.ndarray) else bare(other)
        bare(self)
        loop = loop_of(name, self, other)
        with np.errstate(all="ignore"):
            host = OPERATORS.get(name, getattr(ndarray_of_numpy, name))(self._host, bare(other))
        return host if host is NotImplemented else clothed(fake_loops.fitted(host, loop))

    return captured(method)


def loop_of(name: str, a: ndarray, b: Any) -> Any:
    """The dtypes of the result of an operator, `__add__` or `__radd__` or their like."""
    short = name.strip("_")
    if short not in fake_loops.OPERATORS:
        return fake_loops.results(fake_loops.OPERATORS[short[1:]], b, a)
    if short == "pow" and a.dtype.kind in "ifc":
        if type(b) is int and b == 2:
            return fake_loops.results("square", a)
        if type(b) is float and b == 0.5:
            return fake_loops.results("sqrt", a)
    return fake_loops.results(fake_loops.OPERATORS[short], a, b)


# Operators whose results are others than NumPy's.
OPERATORS: dict[str, Any] = {
    "__mod__": fake_loops.DIFFERENT["mod"],
    "__rmod__": lambda a, b: fake_loops.DIFFERENT["mod"](b, a),
    "__floordiv__": fake_loops.DIFFERENT["floor_divide"],
    "__rfloordiv__": lambda a, b: fake_loops.DIFFERENT["floor_divide"](b, a),
}
ndarray_of_numpy = np.ndarray


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    def method(self: ndarray, other: Any) -> Any:
        bare(self)
        found = fake_loops.results(fake_loops.OPERATORS[name.strip("_")[1:]], self, other)
        if found is not None:
            fake_loops.check_output(name, found[0], self._host.dtype)
        with np.errstate(all="ignore"):
            getattr(self._host, name)(bare(other))
        return self

    return captured(method, changes=True)


for _name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor",
              "lshift", "rshift"]:  # fmt: skip
    setattr(ndarray, f"__{_name}__", _binary(f"__{_name}__"))
    setattr(ndarray, f"__r{_name}__", _binary(f"__r{_name}__"))
    setattr(ndarray, f"__i{_name}__", _in_place(f"__i{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(ndarray, f"__{_name}__", _binary(f"__{_name}__"))


def _unary(name: str) -> Callable[[Any], Any]:
    def method(self: ndarray) -> Any:
        loop = fake_loops.results(fake_loops.OPERATORS[name], self)
        return clothed(fake_loops.fitted(getattr(operator, name)(bare(self)), loop))

    return captured(method)


for _name in ("neg", "pos", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", _unary(_name))


# The module
# ----------------------------------------------------------------------------------------------

WRITERS = {"copyto", "fill_diagonal", "put", "putmask", "place"}  # change what they are given
HOST_INPUT = {"asarray", "array", "asanyarray", "ascontiguousarray"}  # these take host arrays
PRODUCTS = {"matmul", "dot", "vdot", "inner", "tensordot", "einsum"}
NORMS = {"norm", "matrix_norm", "vector_norm"}  # what cupy.linalg computes with its own kernels
NO_BFLOAT16 = {"sort", "argsort", "matmul", "var", "std"}
SCANS = {"cumsum", "cumprod"}  # along an axis they cast what they are given first


def checker_of(path: str, real: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
    """Raises TypeError for arguments that a function of CuPy's does not take."""
    from tests.backends import cupy_contract as contract

    takes = contract.without_self(contract.parameters_of(real))

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if takes is not None and not takes.any_keyword:
            unknown = set(kwargs) - set(takes.names)
            if unknown or (len(args) > takes.positional and not takes.any_positional):
                raise TypeError(f"{path} takes {takes.names}, got {len(args)} and {set(kwargs)}")

    return check


def function(name: str) -> Callable[..., Any]:
    """CuPy's function of a name: NumPy's, with CuPy's arguments, arrays and loops."""
    check = checker_of(f"cupy.{name}", getattr(REAL, name))
    of_numpy = fake_loops.DIFFERENT.get(name) or getattr(np, name)
    operands = getattr(getattr(np, name, None), "nin", 0)  # of a ufunc; what is behind is written

    def call(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        if name in HOST_INPUT and not isinstance(args[0], ndarray):
            return from_host(args[0], kwargs.pop("blocking", False), *args[1:], **kwargs)
        if name == "ascontiguousarray" and len(args) == 1 and args[0]._host.flags.c_contiguous:
            return args[0]
        if name in ("nonzero", "argwhere", "flatnonzero", "unique", "repeat", "array_equal"):
            STATE.syncs.append(name)
            if current().capture is not None:
                host_waits()
        if name in ("concatenate", "stack") and len(args[0]) > 8:  # it copies their addresses
            small = sum(x.nbytes for x in args[0]) < len(args[0]) << 21
            if small and len({x.dtype for x in args[0]}) == 1 and current().capture is not None:
                raise RuntimeError(
                    "the current stream is capturing, so H2D transfers are disallowed"
                )
        if name in PRODUCTS and any(a.dtype.kind in "fcV" for a in args if type(a) is ndarray):
            fake_cublas.refused("cuBLAS")
        if name in ("sort", "argsort"):
            kwargs["kind"] = "stable"
        if name == "take_along_axis":
            args = (args[0], args[1] % max(1, args[0].shape[args[2]]), *args[2:])
        values = [a for a in (*args, *kwargs.values()) if isinstance(a, ndarray)]
        refuses = name in NO_BFLOAT16 or (name in SCANS and kwargs.get("axis") is None)
        if refuses and any(v._host.dtype.name == "bfloat16" for v in values):
            raise TypeError(f"cupy.{name} has no loop for bfloat16")
        loop = fake_loops.of_call(name, args, kwargs)
        with np.errstate(all="ignore"):
            out = kwargs.get("out")
            host = of_numpy(*map(bare, args), **{k: bare(v) for k, v in kwargs.items()})
        return out if out is not None else clothed(fake_loops.fitted(host, loop))

    def called(*args: Any, **kwargs: Any) -> Any:
        if name in HOST_INPUT and not isinstance(args[0], ndarray):
            return call(*args, **kwargs)
        behind = args[operands:] if operands else ()
        out = kwargs.get("out", behind[0] if behind else None)
        answer = captured(call, name in WRITERS or out is not None)(*args, **kwargs)
        return answer if out is None else out

    called.__name__ = name  # by which a vmap knows some
    return called


def from_host(source: Any, blocking: bool, *args: Any, **kwargs: Any) -> Any:
    """Host data on the device: what is page-locked is read where it lies, when the copy runs."""
    made = clothed(np.array(source, *args, **kwargs))
    STATE.copies.append(made.shape)
    host, stream = made._host, fake_streams.current()
    if stream.capture is not None:
        raise RuntimeError("the current stream is capturing, so H2D transfers are disallowed")
    STATE.watched = None
    if isinstance(source, np.ndarray) and source.dtype == host.dtype and host.size > 1:
        address = source.__array_interface__["data"][0]
        dense = source.flags.forc and source.strides == host.strides
        if dense and fake_streams.locked_at(address):
            host.view(np.uint8).fill(255)
            STATE.watched = source
            fake_streams.copy(host.ctypes.data, address, host.nbytes, True, stream, host)
    if blocking:
        host_waits()
    return made


class Plans:
    """CuPy's cache of the last sixteen of cuFFT's plans; of each key there is a node."""

    def __init__(self) -> None:
        self.kept: dict[Any, Host] = {}  # a plan is something that can be referred to weakly

    def use(self, *key: Any) -> None:
        self.kept[key] = self.kept.pop(key, np.empty(0))
        if len(self.kept) > 16:
            del self.kept[next(iter(self.kept))]

    def __iter__(self) -> Iterator[Any]:
        return iter([(key, SimpleNamespace(plan=plan)) for key, plan in self.kept.items()])


PLANS = Plans()
USED: set[str] = set()  # every name of CuPy's that was asked for


class Module(ModuleType):
    """A fake module that answers for the names that CuPy has."""

    def __init__(self, name: str, real: Any, **names: Any) -> None:
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []
        self._real = real
        vars(self).update(names)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("__"):
            USED.add(f"{super().__getattribute__('__name__')}.{name}")
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        USED.add(f"{self.__name__}.{name}")
        real = getattr(self._real, name)  # AttributeError where CuPy lacks it
        if self.__name__ != "cupy":
            return self._below(name, real)
        if isinstance(real, ModuleType):
            return Module(f"cupy.{name}", real)
        if isinstance(real, type) or not callable(real):
            return getattr(np, name)
        setattr(self, name, function(name))
        if name == "add":
            vars(self)[name].at = lambda *args: add_at(*args)
        return vars(self)[name]

    def _below(self, name: str, real: Any) -> Any:
        path = f"{self.__name__}.{name}".split(".")[1:]
        found: Any = np
        for part in path:
            found = getattr(found, part)
        if isinstance(real, ModuleType):
            return Module(f"{self.__name__}.{name}", real)

        check = checker_of(f"{self.__name__}.{name}", real)

        def call(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            if self.__name__ == "cupy.linalg" and name not in NORMS:
                fake_cublas.refused("cuSOLVER")
            if self.__name__ == "cupy.linalg" and STATE.linalg == "raise":
                STATE.syncs.append(f"linalg.{name}")
            if self.__name__ == "cupy.fft":
                PLANS.use(name, *[x.shape for x in args if isinstance(x, ndarray)])
            run = partial(unlooked_at, found) if name in ("inv", "solve") else found
            host = run(*map(bare, args), **{k: bare(v) for k, v in kwargs.items()})
            return clothed(turned(name, host) if name in ("eigh", "svd") else host)

        call = captured(call)
        call.__name__ = name  # by which a vmap knows those of several axes
        return call if callable(real) and not isinstance(real, type) else found


def unlooked_at(found: Any, *args: Host) -> Any:
    """A function that raises for a singular matrix, as CuPy's, which then knows it if told to look:
    else there are infinities.
    """
    try:
        return found(*args)
    except np.linalg.LinAlgError:
        if STATE.linalg == "raise":
            raise
    if args[0].ndim == 2:
        return np.full_like(args[-1], np.inf)
    return np.stack([unlooked_at(found, *each) for each in zip(*args, strict=True)])


def solve_triangular(
    a: ndarray, b: ndarray, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False,
    overwrite_b: bool = False, check_finite: bool = False,
) -> Any:  # fmt: skip
    """cupyx.scipy.linalg's, by cuBLAS: what is on the other side of the diagonal is not read."""
    USED.add("cupyx.scipy.linalg.solve_triangular")
    fake_cublas.refused("cuBLAS")
    assert not trans and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]
    m, x = bare(a), bare(b).copy()
    n = m.shape[-1]
    with np.errstate(all="ignore"):
        for k in range(n) if lower else range(n - 1, -1, -1):
            if not unit_diagonal:
                x[..., k, :] /= m[..., k, k, None]
            rest = slice(k + 1, None) if lower else slice(0, k)
            x[..., rest, :] -= m[..., rest, k, None] * x[..., k, None, :]
    return clothed(x)


def turned(name: str, host: Any) -> Any:
    """Vectors with other signs than LAPACK's, and those of a stack than those of one matrix."""
    if not isinstance(host, tuple) or host[0].ndim != (1 if name == "eigh" else 2):
        return host
    if name == "eigh":
        host[1][:, 1::2] *= -1
        return host
    u, s, vh = host
    u[:, 1 : len(s) : 2] *= -1
    vh[1 : len(s) : 2] *= -1
    return host


def set_allocator(allocator: Any = None) -> None:
    """Sets that of the process."""
    if fake_streams.HERE.allocator is not None:
        raise ValueError(
            "Can't change the global memory allocator inside `using_allocator` context"
        )
    STATE.allocator = allocator


@contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """Another one for this thread."""
    before, fake_streams.HERE.allocator = fake_streams.HERE.allocator, allocator
    try:
        yield
    finally:
        fake_streams.HERE.allocator = before


@contextmanager
def errstate(*, linalg: str) -> Iterator[None]:
    """cupyx.errstate: under "raise" functions of linear algebra wait for the device."""
    before, STATE.linalg = STATE.linalg, linalg
    try:
        yield
    finally:
        STATE.linalg = before


class Generator:
    """Counts drawn on the device, as cupy.random.Generator does."""

    def __init__(self, bits: Any) -> None:
        self._numbers = np.random.Generator(bits)

    def poisson(self, rate: ndarray, size: Any) -> Any:
        return clothed(self._numbers.poisson(rate._host, size))

    def binomial(self, count: ndarray, chance: ndarray, size: Any) -> Any:
        return clothed(self._numbers.binomial(count._host, chance._host, size))


def as_strided(x: ndarray, shape: Any = None, strides: Any = None) -> Any:
    """As CuPy's: the view names no base."""
    shape = x.shape if shape is None else tuple(shape)
    return ndarray(shape, x.dtype, x.data, x.strides if strides is None else tuple(strides))


def lu_factor(a: ndarray, dtype: Any) -> tuple[Any, ...]:
    """cupy.linalg's own: the factors of each matrix, LAPACK's pivots, and whether all went well."""
    import scipy.linalg

    fake_cublas.refused("cuSOLVER")
    matrices = bare(a).astype(dtype).reshape(-1, *a.shape[-2:])
    lu, pivots = np.empty_like(matrices), np.empty(matrices.shape[:2], np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, matrix in enumerate(matrices):
            lu[i], pivots[i] = scipy.linalg.lu_factor(matrix, check_finite=False)
    info = (np.diagonal(lu, 0, 1, 2) == 0).any(1).astype(np.int32)
    found = lu.reshape(a.shape), pivots.reshape(a.shape[:-1]) + 1, info.reshape(a.shape[:-2])
    return clothed(found)


ORDERS = np.random.default_rng(0)  # in which sums by atomics are added up

# What CUDA adds to memory in one go; CuPy 14.0 has no int64, which later ones have.
ATOMIC = frozenset(["int32", "uint32", "uint64", "float16", "float32", "float64"])


@partial(captured, changes=True)
def add_at(a: ndarray, indices: Any, b: Any = None) -> None:
    """cupy.add.at, which casts to the array's dtype whatever it is given, and adds in any order."""
    USED.add("cupy.add.at")
    index = indices if isinstance(indices, tuple) else (indices,)
    masks = any(getattr(i, "dtype", np.dtype(int)).kind == "b" for i in index)
    if not masks and a.dtype.name not in ATOMIC:
        raise TypeError(f"cupy.add.at has no {a.dtype}")
    with np.errstate(all="ignore"):
        values = np.asarray(bare(b)).astype(a.dtype)
    places = np.arange(a.size).reshape(a.shape)[bare_index(indices, a.shape)]
    values = np.broadcast_to(values, places.shape)
    order = ORDERS.permutation(places.size)
    np.add.at(
        a._host, np.unravel_index(places.reshape(-1)[order], a.shape), values.reshape(-1)[order]
    )


@captured
def erf(x: ndarray) -> Any:
    from math import erf as scalar

    found = np.asarray(np.frompyfunc(scalar, 1, 1)(bare(x)))
    return clothed(found.astype(fake_loops.results("erf", x)[0]))  # type: ignore[index]


class Special(Module):
    """cupyx.scipy.special by SciPy, of the names that CuPy's has and for its dtypes."""

    def __getattr__(self, name: str) -> Any:
        import scipy.special

        USED.add(f"{self.__name__}.{name}")
        if name.startswith("__") or name not in SPECIAL:
            raise AttributeError(f"cupyx.scipy.special has no {name}")

        def call(*arrays: ndarray) -> Any:
            loop = fake_loops.results(name, *arrays)
            wide = [np.asarray(bare(x)) for x in arrays]
            wide = [x.astype("f4") if x.dtype.name == "bfloat16" else x for x in wide]
            return clothed(fake_loops.fitted(getattr(scipy.special, name)(*wide), loop))

        return call


SPECIAL = {
    "digamma", "erfcx", "erfinv", "gammainc", "gammaincc", "gammaincinv", "gammaln", "i0",
    "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "log_ndtr", "ndtri", "y0",
    "y1", "zeta",
}  # fmt: skip


@captured
def erfc(x: ndarray) -> Any:
    from math import erfc as scalar

    found = np.asarray(np.frompyfunc(scalar, 1, 1)(bare(x)))
    return clothed(found.astype(fake_loops.results("erfc", x)[0]))  # type: ignore[index]


# The runtime
# ---------------------------------------------------------------------------------------------


class Runtime(SimpleNamespace):
    """cupy.cuda.runtime: the real one's constants, and what works without a device."""

    def __getattribute__(self, name: str) -> Any:
        USED.add(f"cupy.cuda.runtime.{name}")
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        found = getattr(REAL.cuda.runtime, name)
        if callable(found) and not isinstance(found, type):
            raise NotImplementedError(f"the fake runtime has no {name}")
        return found

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        host = kind != REAL.cuda.runtime.memcpyDeviceToDevice
        holds = [memory_at(dst), memory_at(src)] if host else []
        fake_streams.copy(dst, src, size, host, fake_streams.of(stream), *holds)

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        return {"name": b"Fake", "major": 9, "minor": 0, "totalGlobalMem": 2**34,
                "multiProcessorCount": 1, "warpSize": 32, "sharedMemPerBlock": 49152}  # fmt: skip

    def pointerGetAttributes(self, ptr: int) -> Any:
        return SimpleNamespace(type=1 if fake_streams.locked_at(ptr) else 0)


COUNT = 1  # of devices, see main()


class Device:
    """One of the devices."""

    compute_capability = "90"

    def __init__(self, device: int | None = None) -> None:
        self.id = HERE.device if device is None else device
        if not 0 <= self.id < COUNT:
            raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        self._before: list[int] = []

    def __enter__(self) -> Device:
        self._before.append(HERE.device)
        HERE.device = self.id
        return self

    def __exit__(self, *exc: object) -> None:
        HERE.device = self._before.pop()

    def use(self) -> None:
        HERE.device = self.id


class RawModule:
    """Kernels that run on the host from their source, watched for faults if CHECKS is set."""

    def __init__(self, code: str, options: tuple[str, ...] = (), **rest: Any) -> None:
        self._program, self._checks = Program(code, checks=CHECKS), CHECKS

    def get_function(self, name: str) -> Any:
        def launch(grid: Any, block: Any, args: tuple[Any, ...], *, shared_mem: int = 0) -> None:
            device_is_used()
            taken_by_cupy(grid, block, args, shared_mem)
            owners = [found() for found in list(LIVE.values())] if self._checks else []
            values = [bare_argument(a) for a in args]
            kernel(grid, block, values, shared_mem, arrays=owners, seed=SEED)

        kernel = self._program.kernel(name)
        return captured(launch, changes=True)


def taken_by_cupy(grid: Any, block: Any, args: tuple[Any, ...], shared_mem: int) -> None:
    """Raises what the real CuPy says of a launch before it needs a driver."""
    function = REAL.cuda.function.Function
    some = tuple([None if isinstance(x, (ndarray, MemoryPointer)) else x for x in args])
    stream = SimpleNamespace(ptr=0)
    try:
        function.__new__(function)(grid, block, some, shared_mem=shared_mem, stream=stream)
    except RuntimeError:  # CUDA's: there is no such kernel, or no driver
        pass


def bare_argument(value: Any) -> Any:
    """What a kernel gets: the memory of a device array, a number, or a host array's bytes."""
    if isinstance(value, np.ndarray):
        return np.frombuffer(value.tobytes(), f"V{value.nbytes}")[0]
    return bare(value)


HANDLES: list[Any] = []  # kernels, by the driver's handles of them, less one


class Handled:
    """A kernel that the driver starts by its handle, too, with one struct."""

    _handle = 0

    @property
    def kernel(self) -> SimpleNamespace:
        if not self._handle:
            HANDLES.append(self)
            self._handle = len(HANDLES)
        return SimpleNamespace(ptr=self._handle)

    def __call__(self, grid: Any, block: Any, args: tuple[Any, ...], **kwargs: Any) -> None:
        raise NotImplementedError

    def struct_size(self) -> int:
        """How many bytes its argument has."""
        return 0


def launch_kernel(
    handle: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int,
    addresses: int, extra: int,
) -> None:  # fmt: skip
    """Starts a kernel of one argument, which lies at the first of a list of addresses."""
    USED.add("cupy.cuda.driver.launchKernel")
    args = handle, gx, gy, gz, bx, by, bz, shared, stream, addresses, extra
    if {*map(type, args)} != {int} or min(args) < 0 or max(args[1:8]) >= 2**31:
        try:  # which looks at its arguments, and for a driver each time
            REAL.cuda.driver.launchKernel(*args)
        except RuntimeError:  # CUDA's: there is no driver
            pass
    if not 0 < handle <= len(HANDLES):
        raise fake_streams.refused(400)  # CUDA_ERROR_INVALID_HANDLE
    kernel = HANDLES[handle - 1]
    assert stream == current().ptr and not extra
    address = ctypes.c_void_p.from_address(addresses).value
    size = kernel.struct_size()
    told = np.frombuffer(ctypes.string_at(address, size), f"V{size}") if size else None
    kernel((gx, gy, gz), (bx, by, bz), (told,), shared_mem=shared)


class RawKernel(Handled):
    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), **rest: Any) -> None:
        REAL.RawKernel(code, name, options, **rest)  # which looks at the types of its arguments
        self._code, self._name = code, name
        self._run: Any = None

    def compile(self, log_stream: Any = None) -> None: ...

    def __call__(self, grid: Any, block: Any, args: tuple[Any, ...], **kwargs: Any) -> None:
        if COLLECTED is not None:
            COLLECTED.append(self)
            return
        self._ready()
        self._run(grid, block, args, **kwargs)

    def _ready(self) -> None:
        if self._run is None:
            self.take(RawModule(self._code))

    def struct_size(self) -> int:
        if COLLECTED is not None:
            return 0
        self._ready()
        (kind,) = self._program.kernel(self._name).types
        return int(kind[1:])

    def take(self, module: RawModule) -> None:
        self._program, self._run = module._program, module.get_function(self._name)


@contextmanager
def compiled_together() -> Iterator[None]:
    """Kernels that are launched inside do nothing; behind it all of them are there, compiled in
    few runs of the compiler.
    """
    global COLLECTED
    COLLECTED = []
    try:
        yield
    finally:
        kernels, COLLECTED = dict.fromkeys(k for k in COLLECTED if k._run is None), None
    modules = [RawModule(kernel._code) for kernel in kernels]
    Program.compile_together([module._program for module in modules])
    for kernel, module in zip(kernels, modules, strict=True):
        kernel.take(module)


# The allocator in force, whether linear algebra looks for errors, what made the host wait for the
# device, the shapes of what it copied there, and the page-locked memory that it keeps: CuPy lets go
# of it when it copies again.
STATE = SimpleNamespace(
    allocator=None, linalg="ignore", syncs=[], copies=[], without_handle=0, watched=None
)
REAL: Any = None
NAMES = "CUGRAD_FAKE_CUDA_NAMES"  # of the file for USED, in the environment
COLLECTED: list[RawKernel] | None = None  # kernels that will be compiled together
SEED = 0  # of the order in which blocks and threads of kernels run
CHECKS = False  # whether kernels are watched for races and bounds: slower


def install() -> None:
    """Puts the fake in the place of CuPy, for this process."""
    global REAL
    import cupy as real
    import cupyx as real_cupyx
    import cupyx.scipy.special as real_special

    REAL = real
    fake_loops.read(real, real_special)
    ctypes.CDLL = fake_cublas.CDLL  # type: ignore[misc]
    runtime = Runtime(
        is_hip=False, driverGetVersion=lambda: 13000, runtimeGetVersion=lambda: 13000,
        getDeviceCount=lambda: COUNT, getDevice=lambda: HERE.device,
        deviceSynchronize=fake_streams.synchronize,
        memGetInfo=fake_pools.memory_info, profilerStart=lambda: None, profilerStop=lambda: None,
    )  # fmt: skip
    cuda = Module(
        "cupy.cuda", SimpleNamespace(), runtime=runtime, alloc=lambda size: NEW,
        Stream=fake_streams.Stream,
        Event=fake_streams.Event, Device=Device, PinnedMemory=fake_streams.PinnedMemory,
        PinnedMemoryPointer=fake_streams.PinnedMemoryPointer,
        UnownedMemory=UnownedMemory, MemoryPointer=MemoryPointer,
        get_current_stream=fake_streams.current,
        get_elapsed_time=lambda a, b: 0.0, get_cublas_handle=fake_cublas.get_cublas_handle,
        get_allocator=lambda: fake_streams.HERE.allocator or STATE.allocator,
        set_allocator=set_allocator, using_allocator=using_allocator,
        MemoryPool=fake_pools.MemoryPool, Memory=fake_pools.Memory, memory=fake_pools,
        nvtx=SimpleNamespace(available=False), driver=SimpleNamespace(launchKernel=launch_kernel),
    )  # fmt: skip
    lib = Module("cupy.lib", real.lib)
    linalg = Module("cupy.linalg", real.linalg)
    fft = Module("cupy.fft", real.fft)
    fft.config = Module("cupy.fft.config", real.fft.config, get_plan_cache=lambda: PLANS)
    linalg._decomposition = Module(
        "cupy.linalg._decomposition", SimpleNamespace(), _lu_factor=lu_factor
    )
    lib.stride_tricks = SimpleNamespace(as_strided=as_strided)
    pool = fake_pools.MemoryPool()
    STATE.allocator = pool.malloc
    cupy = Module(
        "cupy", real, cuda=cuda, ndarray=ndarray, lib=lib, linalg=linalg, fft=fft,
        RawModule=RawModule, RawKernel=RawKernel,
        random=Module(
            "cupy.random", real.random, Generator=Generator, Philox4x3210=np.random.PCG64
        ),
        get_default_memory_pool=lambda: pool, asnumpy=lambda a: a.get(), __version__="fake",
    )  # fmt: skip
    special = Special("cupyx.scipy.special", SimpleNamespace(), erf=erf, erfc=erfc)
    sparse = fake_cusparse.modules(clothed, bare, fake_cublas.refused, USED)
    triangles: Any = SimpleNamespace(solve_triangular=captured(solve_triangular))
    scipy = Module(
        "cupyx.scipy",
        SimpleNamespace(),
        special=special,
        sparse=sparse["cupyx.scipy.sparse"],
        linalg=triangles,
    )
    libs = Module("cupy_backends.cuda.libs", SimpleNamespace())
    libs.cublas = fake_cublas.Cublas("cublas")
    sys.modules.update({
        "cupy": cupy, "cupy.cuda": cuda, "cupy.lib": lib,
        "cupyx": Module(
            "cupyx", real_cupyx, errstate=errstate, scipy=scipy,
            cusparse=sparse["cupyx.cusparse"],
        ),
        "cupyx.scipy": scipy,
        **sparse,
        "cupyx.scipy.special": special,
        "cupyx.scipy.linalg": triangles,
        "cupy_backends": Module("cupy_backends", SimpleNamespace()),
        "cupy_backends.cuda": Module("cupy_backends.cuda", SimpleNamespace()),
        "cupy_backends.cuda.libs": libs,
        "cupti": ModuleType("cupti"),  # it sees nothing of what the fake launches
    })  # fmt: skip


def passed(
    *words: str, without: str = "", names: Path | None = None, fused: bool = False, devices: int = 1
) -> str:
    """What pytest prints of tests that all pass in a process whose CuPy is the fake.

    `without` names a variable of the environment that the process shall not have, `names` a file
    for the names of CuPy's that it used. `fused` is whether rows are kernels of their own there:
    each takes a while to compile.
    """
    variables = {k: v for k, v in os.environ.items() if k != without}
    variables |= {"CUGRAD_DEVICE": "cuda", "CUGRAD_FUSED": str(int(fused))}
    variables["CUGRAD_FAKE_DEVICES"] = str(devices)
    if names is not None:
        variables[NAMES] = str(names)
    done = fake_processes.run([*words, "-q", "-p", "no:cacheprovider"], variables)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def main(words: list[str]) -> int:
    """Runs pytest with the fake in the place of CuPy, for this process."""
    global COUNT
    import pytest

    os.environ.setdefault("CUGRAD_DEVICE", "cuda")
    os.environ.setdefault("CUGRAD_CUDNN", "0")  # which looks for a driver
    COUNT = int(os.environ.get("CUGRAD_FAKE_DEVICES", "1"))
    install()
    outcome = pytest.main(words)
    if NAMES in os.environ:
        Path(os.environ[NAMES]).write_text("\n".join(sorted(USED)))
    return int(outcome)


if __name__ == "__main__":
    from tests.support import fake_cuda  # the module that tests import, not __main__

    sys.exit(fake_cuda.main(sys.argv[1:]))
