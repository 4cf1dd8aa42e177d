"""Tables that ops read, such as the weights of a resampling: made where they are read.

What a host made would have to be copied to a device, each time, and not while a graph is captured.
A device keeps some small ones for the stream that made them; a graph makes its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from . import backend_of
from .several import there
from .traced.arrays import Trace, Untraceable
from .traced.namespace import TracedNamespace
from .wanted import wanted

__all__ = ["forget_tables", "table_beside", "table_of"]

Array = Any
Function = Callable[..., Array]  # of `xp`, the places along each dim as floats, and numbers
Shape = tuple[int, ...]
MOST_KERNELS = 512  # that are kept; then it begins anew
MOST_TABLES, MOST_BYTES = 64, 1 << 20  # that are kept on devices, of so many bytes each
FLOAT64 = np.dtype("float64")

_kernels: dict[Any, Callable[[], Array] | None] = {}
_tables: dict[Any, Array] = {}
_giving_back: set[Any] = set()  # backends that have `_tables` forgotten when memory is short


def table_beside(array: Array, shape: Shape, dtype: Any, function: Function, *numbers: Any) -> Any:
    """A table on the device of another array, to read only: see `table_of`. A small one is kept.

    >>> table_beside(np.empty(0), (2, 3), "int64", lambda xp, i, j: 10 * i + j)
    array([[ 0,  1,  2],
           [10, 11, 12]])
    """
    return there(lambda x: _of_levels(backend_of(x), shape, dtype, function, numbers), array)


def table_of(backend: Any, shape: Shape, dtype: Any, function: Function, *numbers: Any) -> Array:
    """The array whose element at a place is `function(xp, *place, *numbers)`, in a dtype.

    The function computes elementwise in float64, with what all namespaces have: it is one kernel
    where the backend makes them. A host keeps what it has made.
    """
    if backend.device_type == "cpu":
        return _on_host(shape, function, numbers).astype(dtype)
    kernel = _kernel(backend, shape, np.dtype(dtype), function, numbers)
    if kernel is not None:
        return kernel()
    return function(backend.xp, *_places(backend.xp, shape), *numbers).astype(dtype)


def _kept(
    backend: Any, shape: Shape, dtype: Any, function: Function, numbers: tuple[Any, ...]
) -> Array:
    """A table that a device has for the current stream, or makes."""
    if not backend.keeps_launches:
        return table_of(backend, shape, dtype, function, *numbers)
    stream = backend.current_stream()
    if stream.is_capturing():  # what is made now is there when the graph is replayed
        return table_of(backend, shape, dtype, function, *numbers)
    key = backend, backend.current_device(), stream, shape, np.dtype(dtype), function, numbers
    table = _tables.get(key)
    if table is None:
        table = table_of(backend, shape, dtype, function, *numbers)
        if table.nbytes <= MOST_BYTES:
            if len(_tables) >= MOST_TABLES:
                _tables.clear()
            if backend not in _giving_back:
                _giving_back.add(backend)
                backend.on_out_of_memory(forget_tables)
            _tables[key] = table
    return table


def forget_tables() -> bool:
    """Gives back those that devices keep. Whether there were any."""
    has_some = bool(_tables)
    _tables.clear()
    return has_some


def _of_levels(
    backend: Any, shape: Shape, dtype: Any, function: Function, numbers: tuple[Any, ...]
) -> Array:
    """In a vmap, the same for all examples."""
    level = getattr(backend, "level", None)
    if level is None:
        return _kept(backend, shape, dtype, function, numbers)
    return level.lift(_of_levels(backend.parent, shape, dtype, function, numbers))


@lru_cache(maxsize=128)
def _on_host(shape: Shape, function: Function, numbers: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = function(np, *_places(np, shape), *numbers)
    return values


def _places(xp: Any, shape: Shape) -> list[Array]:
    """For each dim the numbers 0, 1, 2, ... along it."""
    ends = lambda d: (1,) * d + (-1,) + (1,) * (len(shape) - d - 1)
    return [xp.arange(n, dtype=FLOAT64).reshape(ends(d)) for d, n in enumerate(shape)]


def _kernel(
    backend: Any, shape: Shape, dtype: np.dtype[Any], function: Function, numbers: tuple[Any, ...]
) -> Any:
    """The kernel that makes such a table; None where there can be none."""
    if not (backend.makes_kernels and wanted.fused) or 0 in shape:
        return None
    key = backend, shape, dtype, function, numbers
    if key not in _kernels:
        if len(_kernels) >= MOST_KERNELS:
            _kernels.clear()
        _kernels[key] = _made(backend, shape, dtype, function, numbers)
    return _kernels[key]


def _made(
    backend: Any, shape: Shape, dtype: np.dtype[Any], function: Function, numbers: tuple[Any, ...]
) -> Any:
    trace = Trace(shape)
    inputs = [trace.input(d, FLOAT64) for d in range(len(shape))]
    try:
        element = function(TracedNamespace(), *inputs, *numbers).astype(dtype)
        return backend.table_function(f"table_{function.__name__.strip('_')}", element, shape)
    except Untraceable:
        return None
