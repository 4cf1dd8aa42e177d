"""`xp` of the simulated device: the NumPy backend's functions, run as kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..features import put_at
from ..numpy.backend import NumpyNamespace
from .array import SimulatedArray, place, run, view

__all__ = ["SimulatedNamespace"]


class Host(NumpyNamespace):
    """What the host computes for a device: like a GPU it divides integers by zero unnoticed."""

    floor_divide, remainder, fmod = np.floor_divide, np.remainder, np.fmod


HOST = Host()
SUBSPACES = frozenset(["lib", "stride_tricks", "special"])
EMPTY = frozenset(["empty", "empty_like"])
METADATA = frozenset(["may_share_memory", "shares_memory", "result_type", "promote_types",
                      "can_cast", "shape", "ndim", "size", "iinfo", "finfo", "dtype",
                      "broadcast_shapes", "issubdtype", "isscalar", "normalize_axis_index",
                      "errstate", "min_scalar_type", "isdtype", "iscomplexobj",
                      "isrealobj"])  # fmt: skip


class Names:
    """One of NumPy's namespaces (`linalg`, `fft`, ...) for one kind of device array."""

    def __init__(self, kind: type, host: Any, prefix: str) -> None:
        self._kind, self._of, self._prefix = kind, host, prefix

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._of, name)
        full = self._prefix + name
        if isinstance(attribute, type) or not callable(attribute):
            is_module = type(attribute).__name__ == "module" or name in SUBSPACES
            value = Names(self._kind, attribute, full + ".") if is_module else attribute
        else:
            value = self._function(full, attribute)
        self.__dict__[name] = value  # found without this detour from now on
        return value

    def _function(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        kind = self._kind
        if name in METADATA:

            def metadata(*args: Any, **kwargs: Any) -> Any:
                return function(*_plain(args), **_plain(kwargs))

            return metadata

        hosts = name in ("index_add", "index_reduce")  # CuPy takes a host index here

        def kernel(*args: Any, **kwargs: Any) -> Any:
            return run(kind, name, function, args, kwargs, hosts)

        kernel.__name__ = name.rpartition(".")[2]
        return kernel


class SimulatedNamespace(Names):
    """The top of it, with what concerns memory and the host."""

    def __init__(self, kind: type) -> None:
        super().__init__(kind, HOST, "")
        self.ndarray = kind

    put_at = staticmethod(put_at)
    copied = None  # by methods of arrays

    def one_kernel(self, name: str, run: Callable[[], Any]) -> Any:
        """What `run()` answers, at the cost of one kernel, for what a GPU has one for."""
        return self._kind.machine.in_kernels(name, run)  # type: ignore[attr-defined]

    def empty(self, shape: Any, dtype: Any = float, order: Any = "C") -> Any:
        """An array of what its memory happens to contain: poison, or a former tenant's values."""
        return self._empty(np.empty(shape, dtype, order))

    def empty_like(self, a: Any, dtype: Any = None, order: Any = "K", shape: Any = None) -> Any:
        return self._empty(np.empty_like(_plain(a), dtype, order, False, shape))

    def zeros_like(self, a: Any, dtype: Any = None, order: Any = "K", shape: Any = None) -> Any:
        return self._like("zeros_like", a, dtype, order, False, shape)

    def ones_like(self, a: Any, dtype: Any = None, order: Any = "K", shape: Any = None) -> Any:
        return self._like("ones_like", a, dtype, order, False, shape)

    def _like(self, name: str, a: Any, *how: Any) -> Any:
        """An array of one number in the form of another, which is not read."""
        like, function = _plain(a), getattr(HOST, name)
        return run(self._kind, name, lambda: function(like, *how), (), {})

    def _empty(self, host: Any) -> Any:
        machine = self._kind.machine  # type: ignore[attr-defined]
        with machine.lock:
            machine.raise_late()
            stream = machine.current()
            allocation = machine.pool.allocate(host.nbytes, stream.timeline)
            array: Any = object.__new__(self._kind)
            array._allocation, array._base = allocation, None
            strides = None if host.flags.c_contiguous else host.strides
            array._host = np.ndarray(host.shape, host.dtype, allocation.memory, 0, strides)
            return array

    def asarray(self, a: Any, dtype: Any = None, order: Any = None) -> Any:
        """An array on the device; host memory is staged, and may be changed when this returns."""
        if isinstance(a, SimulatedArray):
            return run(self._kind, "asarray", np.asarray, (a, dtype, order), {})
        return self.from_host(_stacked(a), dtype, order)

    def array(
        self, a: Any, dtype: Any = None, copy: bool = True, order: Any = "K", ndmin: int = 0
    ) -> Any:
        """A copy on the device."""
        if isinstance(a, SimulatedArray):
            return run(self._kind, "array", np.array, (a, dtype),
                       {"copy": copy or None, "order": order, "ndmin": ndmin})  # fmt: skip
        if isinstance(a, (list, tuple)) and any(isinstance(x, SimulatedArray) for x in a):
            return run(self._kind, "array", np.array, (list(a), dtype), {"ndmin": ndmin})
        return self.from_host(np.array(a, dtype, order=order, ndmin=ndmin))

    def ascontiguousarray(self, a: Any, dtype: Any = None) -> Any:
        if isinstance(a, SimulatedArray):
            return run(self._kind, "ascontiguousarray", np.ascontiguousarray, (a, dtype), {})
        return self.from_host(np.ascontiguousarray(a, dtype))

    def from_host(self, value: Any, dtype: Any = None, order: Any = None) -> Any:
        """Host values on the device, through a staging buffer, in stream order."""
        host = np.asarray(np.asarray(value, dtype, order=order))
        if host.dtype.kind in "OSU":
            raise TypeError(f"a device array of dtype {host.dtype}: want numbers")
        if not host.dtype.isnative:
            host = host.astype(host.dtype.newbyteorder("="))
        machine = self._kind.machine  # type: ignore[attr-defined]
        with machine.lock:
            stream = machine.current()
            machine.launch(stream, "host to device", (), ())
            array = place(self._kind, host, stream, "host to device")
            seconds = machine.model.copy(host.nbytes, "h2d", True)
            machine.charge(stream, "host to device", "h2d", seconds, host.nbytes, 0.0)
            return array

    def broadcast_to(self, array: Any, shape: Any) -> Any:
        return view(array, HOST.broadcast_to(array._host, shape))

    def from_dlpack(self, source: Any) -> Any:
        return self.from_host(np.from_dlpack(source))


def _stacked(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and any(isinstance(x, SimulatedArray) for x in value):
        raise TypeError("asarray: got a list of device arrays, want xp.stack(...)")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, SimulatedArray):
        return value._host
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {k: _plain(v) for k, v in value.items()}
    return value
