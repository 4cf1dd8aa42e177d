"""Functions of one number in half precision: of all 65536 values once, then looked up."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["MANY", "looked_up", "table_of"]

Array = np.ndarray[Any, Any]
MANY = 1 << 16  # elements from which on a table is made: it takes as long as so many


def table_of(
    function: Callable[..., Any], dtype: np.dtype[Any], args: Any, params: dict[str, Any]
) -> Array | None:
    """The values `function(x, *args, **params)` for each number x of a dtype, by its bits.

    None where an argument is no plain value.
    """
    try:  # numbers that are equal may be told apart by their text: 1 and 1.0, 0.0 and -0.0
        return _kept(function, dtype, repr((args, params)), args, *params.items())
    except TypeError:  # not hashable
        return None


@lru_cache(maxsize=64)  # 128 kilobytes each
def _kept(
    function: Callable[..., Any], dtype: np.dtype[Any], text: str, args: Any, *params: Any
) -> Array:
    with np.errstate(all="ignore"):  # not all of the numbers were asked for
        every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
        table: Array = function(every, *args, **dict(params))
    table.flags.writeable = False
    return table


def looked_up(table: Array, bits: Array) -> Array:
    """The values of numbers, given by their bits."""
    return table.take(bits, mode="wrap")  # which asks less of each than whether it is there
