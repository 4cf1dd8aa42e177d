"""Rows that only move elements: picked along a dim, and joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd, prod
from typing import Any, NamedTuple

import cupy

from ....copies import channels_lie_last
from ...fused.copies import dense_copy
from ...kernels.placed.copies import JOINED, KERNELS
from ..launch import BLOCK, LIMIT, blocks, dense, int32, int64, kernel, name_of
from ..plans import kept
from ..registry import NodeCall, backward, forward

__all__ = [
    "INDICES",
    "MOST_Y",
    "STORED",
    "Word",
    "named_by_one",
    "span",
    "take_rows",
    "taken_along",
    "team_for",
    "told_of_rows",
    "word_of",
]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray
INDICES = ("int64", "int32")
STORED = {16: ("int64", 2), 8: ("int64", 1), 4: ("int32", 1), 2: ("uint16", 1), 1: ("uint8", 1)}
MOST_Y = 65535  # blocks in the second and third dim of a grid


class Word(NamedTuple):
    """What is moved at a time: a pack of elements of a dtype. Bytes `of` it are elements."""

    stored: str
    pack: int
    size: int

    def of(self, nbytes: int) -> int:
        return nbytes // self.size


def word_of(*nbytes: int) -> Word:
    """The longest of which all of these lengths and addresses are multiples."""
    stored, pack = STORED[gcd(16, *nbytes)]
    return Word(stored, pack, gcd(16, *nbytes) // pack)


def span(x: Array, dims: Iterable[int]) -> tuple[int, int] | None:
    """How many elements some neighbouring dims have, and the bytes from one to the next; None where
    these differ.
    """
    size, step = 1, 0
    for d in reversed(list(dims)):
        n = x.shape[d]
        if n == 1:
            continue
        if size == 1:
            step = x.strides[d]
        elif x.strides[d] != step * size:
            return None
        size *= n
    return size, step


def team_for(packs: int) -> int:
    """How many threads share a row of so many packs."""
    return min(BLOCK, 1 << (packs - 1).bit_length())


# In the order of the dims ------------------------------------------------------------------------


@forward("clone", keeps=True)
def clone(self: Array, order: str) -> Array | None:
    """In one kernel, where the copy is to lie in the order of its dims."""
    steps = [s for s, n in zip(self.strides, self.shape) if n > 1]
    in_order = order == "C" or 0 in self.strides or steps == sorted(steps, reverse=True)
    return dense_copy(self) if in_order else None


@forward("unsafe_view", keeps=True)
def unsafe_view(self: Array, shape: tuple[int, ...]) -> Array | None:
    """In one kernel."""
    copy = dense_copy(self)
    return None if copy is None else copy.reshape(shape)


def _triangle(x: Array, diagonal: int, upper: bool) -> Array | None:
    """In one kernel, of elements of any dtype."""
    if x.ndim < 2 or not x.size or x.itemsize not in STORED:
        return None
    planes = range(x.ndim - 2)
    if x.itemsize == 16 and x.strides[-1] != 16 or span(x, planes) is None:
        x = dense(x)
    (rows, columns), (_, plane_step) = x.shape[-2:], span(x, planes) or (1, 0)
    result, steps = ndarray(x.shape, x.dtype), (plane_step, *x.strides[-2:])
    stored, each = STORED[x.itemsize]
    size = x.itemsize // each
    if any(step % size for step in steps):
        return None
    pack = 1
    if steps[2] == x.itemsize:
        together = columns * x.itemsize, *steps[:2], x.data.ptr, result.data.ptr
        pack = gcd(16, *together) // size
    run = kernel(KERNELS["keep_triangle"], "keep_triangle", stored, None, pack, EACH=each)
    edge = max(-rows, min(columns, int(diagonal)))
    run((blocks(x.size * each // pack),), (BLOCK,),
        (x, result, int64(x.size * each), int64(rows), int64(columns),
         *[int64(step // size) for step in steps], int64(edge), int32(upper)))  # fmt: skip
    return result


@forward("tril", keeps=True)
def tril(self: Array, diagonal: int) -> Array | None:
    """In one kernel."""
    return _triangle(self, diagonal, False)


@forward("triu", keeps=True)
def triu(self: Array, diagonal: int) -> Array | None:
    """In one kernel."""
    return _triangle(self, diagonal, True)


# Picked along a dim -------------------------------------------------------------------------------


def _spans(x: Array, dim: int) -> Any:
    """Those before and behind a dim; None where rows cannot be found by steps, or are strewn in
    pieces of more than one word.
    """
    above, within = span(x, range(dim)), span(x, range(dim + 1, x.ndim))
    if above is None or within is None:
        return None
    if within[0] > 1 and within[1] != x.itemsize and x.itemsize > 8:
        return None
    return *above, *within


def _taken(x: Array, index: Array, dim: int) -> Array | None:
    """x with what an index of any shape names along a dim."""
    if name_of(index.dtype) not in INDICES or not 0 <= dim < x.ndim:
        return None
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    if not x.size or not index.size or x.itemsize not in STORED:
        return None
    planes, plane_step, width, step = _spans(x, dim) or _spans(x := dense(x), dim)
    result = ndarray(shape, x.dtype)
    spans = (planes, plane_step), x.strides[dim], (width, step)
    take_rows(x, index, result, x.shape[dim], spans)
    return result


def take_rows(x: Array, index: Array, result: Array, n: int, spans: Any) -> None:
    """Copies rows of planes that an index below n names; `spans` are how many planes there are and
    the bytes from one to the next, those from row to row, and what `span` says of a row.
    """
    word, numbers, grid = told_of_rows(x, result, index.size, spans)
    run = kernel(KERNELS["take_rows"], "take_rows", word.stored, name_of(index.dtype), word.pack)
    rows, count, *rest = numbers
    run(grid, (BLOCK,), (x, dense(index), result, rows, int64(n), count, *rest))


def told_of_rows(x: Array, result: Array, many: int, spans: Any) -> tuple[Word, list[Any], Any]:
    """What rows are moved by: the words of x, the numbers for a kernel, and its blocks; so `many`
    rows are taken of each plane.
    """
    (planes, plane_step), row_step, (width, step) = spans
    apart = width > 1 and step != x.itemsize
    nbytes = x.itemsize if apart else width * x.itemsize
    steps = plane_step, row_step, step if apart else nbytes
    word = word_of(nbytes, *steps, x.data.ptr, result.data.ptr)
    count = width * x.itemsize // word.size  # elements of a row
    team = team_for(count // word.pack)
    tiles = min(MOST_Y, blocks(count, team * word.pack * 4))
    numbers = [int64(planes * many), int64(many), int64(count),
               *[int64(word.of(s)) for s in steps[:2]], int64(word.of(step) if apart else 1),
               int32(team)]  # fmt: skip
    return word, numbers, (blocks(planes * many, BLOCK // team), tiles)


taken_along = kept(_taken, ("x", "index"), ("dim",))


@forward("index_select", keeps=True)
def index_select(self: Array, index: Array, dim: int) -> Array | None:
    """In one kernel, of elements of any dtype."""
    return _taken(self, index, dim)


@forward("embedding", keeps=True)
def embedding(weight: Array, indices: Array, padding_idx: int) -> Array | None:
    """In one kernel."""
    return _taken(weight, indices, 0)


def named_by_one(indices: Any) -> tuple[int, Array] | None:
    """The dim, and the array, of what one array of indices names, with all of the dims beside it;
    None for other indices.
    """
    if type(indices) is not tuple:
        return None
    whole = slice(None)
    places = [d for d, i in enumerate(indices) if not (type(i) is slice and i == whole)]
    if len(places) != 1 or type(indices[places[0]]) is not ndarray:
        return None
    index = indices[places[0]]
    return (places[0], index) if name_of(index.dtype) in INDICES else None  # a mask has other dims


# Joined -------------------------------------------------------------------------------------------


def _joined(tensors: Sequence[Array], dim: int, shape: tuple[int, ...]) -> Array | None:
    """Arrays of one dtype in an array of `shape`, in which a part of each row comes from each: its
    dims from `dim` on.
    """
    dtype, rows = tensors[0].dtype, prod(shape[:dim])
    operands = []  # an array, the bytes of its rows, and those from one row to the next
    for x in tensors:
        if not x.size:
            continue
        above, within = span(x, range(dim)), span(x, range(dim, x.ndim))
        nbytes = prod(x.shape[dim:]) * x.itemsize
        if above is None or within is None or within[0] > 1 and within[1] != x.itemsize:
            x, above = dense(x), (rows, nbytes)
        operands.append((x, nbytes, above[1]))
    if not operands or dtype.itemsize not in STORED:
        return None
    result = ndarray(shape, dtype)
    word = word_of(result.data.ptr, *[n for x, *ns in operands for n in (x.data.ptr, *ns)])
    wide = int(result.nbytes // (word.size * word.pack) >= LIMIT)
    total, to = sum(nbytes for _, nbytes, _ in operands), 0
    for k in range(0, len(operands), JOINED):
        some = operands[k : k + JOINED]
        count = next(n for n in (2, 4, JOINED) if n >= len(some))
        begin, numbers = 0, []
        for _, nbytes, step in some:
            numbers += [*[int64(word.of(n)) for n in (nbytes, step, to)], int32(begin)]
            begin += blocks(rows * (nbytes // (word.size * word.pack)), 4 * BLOCK)
            to += nbytes
        absent = [int64(0), int64(0), int64(0), int32(begin)] * (count - len(some))
        name = f"join_rows_{count}"
        run = kernel(KERNELS[name], name, word.stored, None, word.pack, WIDE=wide)
        arrays = [x for x, *_ in some] + [None] * (count - len(some))
        run((begin,), (BLOCK,),
            (*arrays, result, int64(rows), int64(word.of(total)), *numbers, *absent))  # fmt: skip
    return result


def _alike(tensors: Any, dim: int, but: int) -> bool:
    """Whether all are CuPy's, of one dtype, and of one shape beside the dim `but`."""
    first = tensors[0]
    if type(first) is not ndarray:
        return False
    rest = (*first.shape[:but], *first.shape[but + 1 :]) if but >= 0 else first.shape
    for x in tensors:
        if type(x) is not ndarray or x.dtype != first.dtype or x.ndim != first.ndim:
            return False
        if ((*x.shape[:but], *x.shape[but + 1 :]) if but >= 0 else x.shape) != rest:
            return False
    return True


@forward("cat", keeps=True)
def cat(tensors: Any, dim: int) -> Array | None:
    """In one kernel for sixteen arrays; where all have their channels last, the result has."""
    if not _alike(tensors, dim, dim) or not 0 <= dim < tensors[0].ndim:
        return None
    rank = tensors[0].ndim
    order = (0, *range(2, rank), 1)
    turned = all(map(channels_lie_last, tensors))
    if turned:
        tensors, dim = [x.transpose(order) for x in tensors], order.index(dim)
    shape = list(tensors[0].shape)
    shape[dim] = sum(x.shape[dim] for x in tensors)
    result = _joined(tensors, dim, tuple(shape))
    if result is None or not turned:
        return result
    return result.transpose(0, rank - 1, *range(1, rank - 1))


@forward("stack", keeps=True)
def stack(tensors: Any, dim: int) -> Array | None:
    """In one kernel for sixteen arrays."""
    if not _alike(tensors, dim, -1) or not 0 <= dim <= tensors[0].ndim:
        return None
    shape = tensors[0].shape
    return _joined(tensors, dim, (*shape[:dim], len(tensors), *shape[dim:]))


@backward("cat", "stack")
def pieces_of_gradient(call: NodeCall) -> tuple[Array, ...]:
    """The parts of the gradient, which are views of it."""
    g, dim, start = call.g, call.params["dim"], 0
    before, parts = (slice(None),) * dim, []
    for shape in call.shapes:
        if len(shape) < g.ndim:
            parts.append(g[(*before, start, ...)])
            start += 1
        else:
            parts.append(g[(*before, slice(start, start + shape[dim]))])
            start += shape[dim]
    return tuple(parts)
