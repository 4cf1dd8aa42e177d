"""Functions of examples that do not meet: on a host as many at a time as stay in its cache."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

__all__ = ["by_rows", "dots", "product_sums", "row_products", "summed_by_rows"]

Array = Any
LONG = 1 << 16  # elements of a row, which BLAS adds up one after another
ROOMS = 4  # times the room that xp names are taken at a time: fewer would cost more calls
MANY = 64  # times that room, from which on it pays


def dots(xp: Any, a: Array, b: Array) -> Array:
    """The sums of a * b along the last dim, by BLAS."""
    return xp.matmul(a[..., None, :], b[..., None])[..., 0, 0]


def product_sums(xp: Any, a: Array, b: Array, dims: tuple[int, ...] | None) -> Array | None:
    """The sums of a * b over the last dim, kept as 1, where a host need not form the products."""
    if dims not in ((-1,), (a.ndim - 1,)) or a.shape[-1] > LONG:
        return None
    if not xp.sums_by_blas or a.dtype != b.dtype or a.dtype.kind != "f":
        return None
    return dots(xp, a, b)[..., None]


def row_products(xp: Any, a: Array, b: Array) -> Array:
    """a @ bᵀ of stacks of matrices: a host is quicker where the one of more rows comes first."""
    if xp.sums_by_blas and b.shape[-2] > a.shape[-2]:
        return xp.swapaxes(xp.matmul(b, xp.swapaxes(a, -1, -2)), -1, -2)
    return xp.matmul(a, xp.swapaxes(b, -1, -2))


def summed_by_rows(
    xp: Any,
    function: Callable[..., Array],
    dims: int,
    *arrays: Array | None,
    run: int | None = None,
) -> Array:
    """As `by_rows`, of a function that answers with a sum over rows, in an array of its own."""
    room, x = xp.cache_elements, arrays[0]
    if room is None or x is None or x.size < room or x.ndim <= dims:
        return function(*arrays)
    if x.size < MANY * room:
        with xp.along_rows(run or x.shape[-1]):
            return function(*arrays)
    flat = _flat(dims, arrays)
    if flat is None:
        return function(*arrays)
    rows = flat[0].shape[0]
    step = max(1, ROOMS * room * rows // x.size)
    total = None
    with xp.along_rows(run or x.shape[-1]):
        for start in range(0, rows, step):
            part = slice(start, start + step)
            value = function(*[None if a is None else a[part] for a in flat])
            if total is None:
                total = value
            else:
                total += value
    return total


def _flat(dims: int, arrays: tuple[Any, ...]) -> list[Any] | None:
    """Arrays with one dim of rows in front; None where they would have to be copied."""
    lead = arrays[0].shape[: arrays[0].ndim - dims]
    if len(lead) == 1:
        return list(arrays)
    if not all(a is None or a.flags.c_contiguous for a in arrays):
        return None
    rows = prod(lead)
    return [None if a is None else a.reshape(rows, *a.shape[len(lead) :]) for a in arrays]


def by_rows(
    xp: Any, function: Callable[..., Any], dims: int, *arrays: Array | None, run: int | None = None
) -> Any:
    """`function(*arrays)`, where the last `dims` dims of arrays are a row, and rows do not meet.

    The function is called with some of the rows at a time, or with all of them, and answers an
    array or a tuple, of as many rows. It counts dims from the last. `run` is for how many elements,
    one beside the other, it reads a number that it computes of each row; or else for a line.
    """
    room, x = xp.cache_elements, arrays[0]
    if room is None or x is None or x.size < room or x.ndim <= dims:
        return function(*arrays)
    if run is None:
        run = next((n for n in reversed(x.shape) if n != 1), 1)
    if x.size < MANY * room:
        with xp.along_rows(run):
            return function(*arrays)
    lead = x.shape[: x.ndim - dims]
    if len(lead) > 1:
        flat = _flat(dims, arrays)
        if flat is None:
            return function(*arrays)
        values = by_rows(xp, function, dims, *flat, run=run)
        if type(values) is tuple:
            return tuple([value.reshape(*lead, *value.shape[1:]) for value in values])
        return values.reshape(*lead, *values.shape[1:])
    step = max(1, ROOMS * room * lead[0] // x.size)
    results: list[Array] = []
    single = False
    with xp.along_rows(run):
        for start in range(0, lead[0], step):
            part = slice(start, start + step)
            values = function(*[None if a is None else a[part] for a in arrays])
            if not results:
                single = type(values) is not tuple
                results = [xp.empty((lead[0], *value.shape[1:]), value.dtype)
                           for value in ((values,) if single else values)]  # fmt: skip
            for result, value in zip(results, (values,) if single else values):
                result[part] = value
    return results[0] if single else tuple(results)
