"""Running sums, products and extrema, their gradients, the gradient of lines' products, and extrema
of lines: a kernel each.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import cupy
import numpy as np

from ..kernels.scans import KERNELS, KINDS
from ..launches.starting import not_noted
from .launch import (
    BLOCK,
    FLOATS,
    LIMIT,
    accumulator,
    blocks,
    dense,
    int32,
    int64,
    kernel,
    name_of,
)
from .ordering import ORDERED
from .registry import NodeCall, backward, forward

__all__: list[str] = []

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray
MANY = 1 << 14  # lines side by side: a thread walks along each
LONG = 1 << 10  # elements in a line, for a block
LONGEST, FEW = 1 << 14, 256  # of a line that a block walks along, where lines are so few


def _team(lines: int, n: int, inner: int) -> int:
    """How many threads have a line: 1, a warp, or a block."""
    return 1 if inner > 1 and lines >= MANY else 32 if n <= LONG else BLOCK


def _scan(
    kind: str, x: Array, dim: int, g: Array | None = None, y: Array | None = None,
    reverse: bool = False,
) -> tuple[Array, Array] | None:  # fmt: skip
    """The results and, of extrema, their indices; None for operands that the kernel leaves."""
    operands = [a for a in (x, g, y) if a is not None]
    if name_of(x.dtype) not in FLOATS or any(a.dtype != x.dtype for a in operands):
        return None
    if type(dim) is not int or not 0 <= dim < x.ndim or any(a.shape != x.shape for a in operands):
        return None
    n, inner = x.shape[dim], prod(x.shape[dim + 1 :])
    if not x.size or n >= LIMIT:
        return None
    lines, x = x.size // n, dense(x)
    team = _team(lines, n, inner)
    result = ndarray(x.shape, x.dtype)
    indices = ndarray(x.shape if kind in ("largest", "least") else (0,), np.int64)
    run = kernel(KERNELS["scan"], "scan", name_of(x.dtype), None, 1, KIND=KINDS[kind],
                 REVERSE=int(reverse), TEAM=team)  # fmt: skip
    others = [None if a is None else dense(a) for a in (g, y)]
    run((blocks(lines * team),), (BLOCK,), (
        others[0], x, others[1], result, indices, int64(lines), int32(n), int64(inner),
    ))  # fmt: skip
    return result, indices


def _of(kind: str) -> Any:
    def forward_of_kind(self: Array, dim: int) -> Array | None:
        results = _scan(kind, self, dim)
        return None if results is None else results[0]

    return forward_of_kind


for _row, _kind in (("cumsum", "sum"), ("cumprod", "product"), ("logcumsumexp", "log")):
    forward(_row, keeps=True)(_of(_kind))


def _extreme(kind: str) -> Any:
    return lambda self, dim: _scan(kind, self, dim)


for _row, _kind in (("cummax", "largest"), ("cummin", "least")):
    forward(_row, keeps=True)(_extreme(_kind))


@backward("cumsum", keeps=True)
def gradient_of_sums(call: NodeCall) -> tuple[Array | None, ...] | None:
    """The sum of the gradients of all that come later."""
    results = _scan("sum", call.g, call.params["dim"], reverse=True)
    return None if results is None else call.answer(self=results[0])


def _gradient(kind: str) -> Any:
    def gradient(call: NodeCall) -> tuple[Array | None, ...] | None:
        x, y = call["self"], call["result"]
        if x is None or y is None:
            return None
        results = _scan(kind, x, call.params["dim"], call.g, y, reverse=True)
        return None if results is None else call.answer(self=results[0])

    return gradient


for _row, _kind in (("cumprod", "affine"), ("logcumsumexp", "logs")):
    backward(_row, keeps=True)(_gradient(_kind))


@backward("prod", keeps=True)
def gradient_of_product(call: NodeCall) -> tuple[Array | None, ...] | None:
    """In one kernel, without a division: the product before each element, and then that behind it;
    of few long lines in three.
    """
    x, dim = call["self"], call.params["dim"]
    if x is None or name_of(x.dtype) not in FLOATS or call.g.dtype != x.dtype:
        return None
    n, inner = x.size, 1
    if dim is not None:
        if type(dim) is not int or not -x.ndim <= dim < x.ndim:
            return None
        n, inner = x.shape[dim], prod(x.shape[dim % x.ndim + 1 :])
    lines = x.size // n if n > 1 else 0
    if not 0 < lines == call.g.size or n >= LIMIT:
        return None
    if n <= LONGEST or lines >= FEW:
        return call.answer(self=_times_others(dense(call.g), dense(x), lines, n, inner))
    result = _by_parts(dense(call.g), dense(x), lines, n, inner)
    return None if result is None else call.answer(self=result)


def _times_others(g: Array, x: Array, lines: int, n: int, inner: int) -> Array:
    """Of each element of a line the product of the others, times what `g` has for the line."""
    out, team = ndarray(x.shape, x.dtype), _team(lines, n, inner)
    sums = accumulator(x.dtype)
    before = out if out.dtype == sums else ndarray(x.shape, sums)
    name = "gradient_of_product"
    run = kernel(KERNELS[name], name, name_of(x.dtype), None, 1, KIND=KINDS["product"], TEAM=team)
    run((blocks(lines * team),), (BLOCK,),
        (g, x, before, out, int64(lines), int32(n), int64(inner)))  # fmt: skip
    return out


@lru_cache(maxsize=1024)
def _length_of_parts(n: int) -> int:
    """A divisor of the length of a line, small, so that many blocks have a part; 0 if none fits."""
    lengths = (*range(LONG, 31, -1), *range(LONG + 1, LONGEST + 1))
    return next((d for d in lengths if n % d == 0 and n // d <= LONGEST), 0)


def _by_parts(g: Array, x: Array, lines: int, n: int, inner: int) -> Array | None:
    """The same of few long lines, for more blocks: first of the products of equal parts. None where
    there are no such, and of halves, to which those products would be rounded.
    """
    length = _length_of_parts(n)
    if not length or x.dtype != accumulator(x.dtype):
        return None
    parts = n // length
    not_noted()  # what CuPy launches
    products = cupy.prod(x.reshape((lines // inner, parts, length, inner)), axis=2)
    slopes = _times_others(g, products, lines, parts, inner)
    return _times_others(slopes, x, lines * parts, length, inner)


# Extrema of lines ---------------------------------------------------------------------------------


def _best(
    x: Array, dim: Any, keepdim: bool, least: bool, values: bool
) -> tuple[Array | None, Array] | None:  # fmt: skip
    if type(dim) is not int or not -x.ndim <= dim < x.ndim or name_of(x.dtype) not in ORDERED:
        return None
    dim %= x.ndim
    n, inner = x.shape[dim], prod(x.shape[dim + 1 :])
    if not x.size or n >= LIMIT:
        return None
    lines, x = x.size // n, dense(x)
    team = _team(lines, n, inner)
    shape = (*x.shape[:dim], *(1,) * keepdim, *x.shape[dim + 1 :])
    result, indices = ndarray(shape, x.dtype) if values else None, ndarray(shape, np.int64)
    run = kernel(KERNELS["extreme"], "extreme", name_of(x.dtype), None, 1, LEAST=int(least),
                 TEAM=team)  # fmt: skip
    run((blocks(lines * team),), (BLOCK,), (
        x, result, indices, int64(lines), int32(n), int64(inner),
    ))  # fmt: skip
    return result, indices


def _extremes(least: bool) -> Any:
    return lambda self, dim, keepdim: _best(self, dim, keepdim, least, True)


def _places(least: bool) -> Any:
    def place(self: Array, dim: int | None, keepdim: bool) -> Array | None:
        results = _best(self, dim, keepdim, least, False)
        return None if results is None else results[1]

    return place


for _least in (False, True):
    forward("min" if _least else "max", keeps=True)(_extremes(_least))
    forward("argmin" if _least else "argmax", keeps=True)(_places(_least))
