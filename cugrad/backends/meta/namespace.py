"""`xp` of the device "meta": the NumPy backend's functions, of which only the layout is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..features import put_at
from ..numpy.backend import NumpyNamespace
from .arrays import MetaArray, blank, blank_like, of, run

__all__ = ["MetaNamespace"]

HOST = NumpyNamespace()
METADATA = frozenset(["may_share_memory", "shares_memory", "result_type", "promote_types",
                      "can_cast", "shape", "ndim", "size", "iinfo", "finfo", "dtype",
                      "broadcast_shapes", "issubdtype", "isscalar", "errstate", "min_scalar_type",
                      "isdtype", "iscomplexobj", "isrealobj"])  # fmt: skip


class HostNames:
    """One of NumPy's namespaces: `linalg`, `fft`, `special`."""

    def __init__(self, host: Any) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._host, name)
        value: Any
        if isinstance(attribute, type):
            value = attribute
        elif callable(attribute):
            value = self._function(name, attribute)
        elif type(attribute).__name__ in ("module", "SimpleNamespace", "ScipySpecial"):
            value = HostNames(attribute)
        else:
            value = attribute
        self.__dict__[name] = value  # found without this detour from now on
        return value

    @staticmethod
    def _function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if name in METADATA:
            return lambda *args, **kwargs: function(*[_layout(a) for a in args], **kwargs)
        return lambda *args, **kwargs: run(name, function, args, kwargs)


def _layout(value: Any) -> Any:
    return value._layout if isinstance(value, MetaArray) else value


class MetaNamespace(HostNames):
    """The top of it, with what makes arrays."""

    ndarray = MetaArray
    sorts_at_once = False
    sums_by_blas = False  # layouts are those of sums of products that were formed
    cast = copied = sparse_product = sampled_product = None
    put_at = staticmethod(put_at)

    def __init__(self) -> None:
        super().__init__(HOST)

    def one_kernel(self, name: str, run: Callable[[], Any]) -> Any:
        """What `run()` answers."""
        return run()

    def empty(self, shape: Any, dtype: Any = float, order: Any = "C") -> MetaArray:
        """An array of a shape."""
        return blank(shape, dtype)

    zeros = ones = empty

    def full(self, shape: Any, value: Any, dtype: Any = None) -> MetaArray:
        """An array of a shape; of the value only the dtype counts."""
        return blank(shape, np.asarray(_layout(value)).dtype if dtype is None else dtype)

    def asarray(self, a: Any, dtype: Any = None, order: Any = None) -> MetaArray:
        """The array itself, or one of the shape and the dtype of what the host has."""
        if not isinstance(a, MetaArray):
            return blank_like(np.asarray(a, dtype))
        return a if dtype is None or a.dtype == dtype else blank_like(a._layout.astype(dtype))

    def array(
        self, a: Any, dtype: Any = None, copy: bool = True, order: Any = "K", ndmin: int = 0
    ) -> MetaArray:
        """An array of the shape and the dtype of another."""
        return blank_like(np.array(_layout(a), dtype, ndmin=ndmin))

    def broadcast_to(self, array: MetaArray, shape: Any) -> MetaArray:
        """A view with repeated elements."""
        return of(HOST.broadcast_to(array._layout, shape))

    def where(self, condition: Any, *branches: Any) -> Any:
        """NumPy's, of three."""
        return run("where", np.where, (condition, *branches), {})
