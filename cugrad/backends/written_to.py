"""Array functions of our own that take `out=`, as NumPy's and CuPy's do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["may_write"]

Array = Any


def may_write(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of an array that writes its result to `out`, where there is one.

    >>> import numpy as np
    >>> x = np.array([4.0, 9.0])
    >>> may_write(lambda x: x ** 0.5)(x, out=x)
    array([2., 3.])
    """

    @wraps(function)
    def run(x: Array, *args: Any, out: Array | None = None) -> Array:
        value = function(x, *args)
        if out is None:
            return value
        out[...] = value
        return out

    return run
