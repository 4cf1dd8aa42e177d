"""Softmax, its logarithm, losses of classes, and statistics of rows: a kernel each way."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import cupy

from ..kernels.scores import KERNELS
from ..kernels.statistics import KERNELS as STATISTICS
from ..kernels.statistics import KINDS
from .launch import (
    BLOCK,
    FLOATS,
    LIMIT,
    accumulator,
    blocks,
    dense,
    held_by_team,
    int32,
    int64,
    kernel,
    name_of,
    pack_of,
    team_of,
    tickets_of_stream,
)
from .registry import NodeCall, backward, forward

__all__ = ["Dims", "Scores", "many_rows", "rows_along"]

Array = Any  # cupy.ndarray
Dims = tuple[int, ...] | None
HOW = {"none": 0, "sum": 1, "mean": 2}
ALONE = 1 << 16  # elements of a row that is the only one
ndarray = cupy.ndarray


class Scores(NamedTuple):
    """Rows of n elements in arrays (N, n, inner)."""

    number: int
    n: int
    inner: int

    @property
    def fits(self) -> bool:
        return bool(self.number and self.n) and max(self.n, self.inner) < LIMIT

    def pack(self, *arrays: Array) -> int:
        return pack_of(self.n, *arrays) if self.inner == 1 else 1

    def held(self, pack: int) -> tuple[int, tuple[int, int, int]]:
        """How many packs a thread keeps, 0 where it reads again, and the grid."""
        if self.inner > 1:
            return 0, self.grid(pack)
        team, held = held_by_team(self.n, pack)
        block = max(BLOCK, team)
        return held, (blocks(self.number * team, block), block, team)

    def grid(self, pack: int, most: int = 1024) -> tuple[int, int, int]:
        """Blocks, threads in each, and threads that share a row."""
        if self.inner > 1:
            return blocks(self.number, 32), BLOCK, 8
        team = min(most, team_of(self.n // pack))
        block = max(BLOCK, team)
        return blocks(self.number * team, block), block, team


def _along(x: Array, dim: int) -> Scores | None:
    """The rows along a dim; None where the row says what is wrong with it."""
    if type(dim) is not int or not -x.ndim <= dim < x.ndim or name_of(x.dtype) not in FLOATS:
        return None
    dim %= x.ndim
    rows = Scores(x.size // (x.shape[dim] or 1), x.shape[dim], prod(x.shape[dim + 1 :]))
    return rows if rows.fits else None


def _softmax(name: str, log: bool, arrays: list[Array], dim: int) -> Array | None:
    rows = _along(arrays[0], dim)
    if rows is None or any(x.dtype != arrays[0].dtype for x in arrays):
        return None
    arrays = [dense(x) for x in arrays]
    result = ndarray(arrays[0].shape, arrays[0].dtype)
    pack = rows.pack(*arrays, result)
    held, (grid, block, team) = rows.held(pack)
    run = kernel(KERNELS[name], name, name_of(result.dtype), None, pack, ACROSS=int(rows.inner > 1),
                 LOG=int(log), HELD=held)  # fmt: skip
    run((grid,), (block,), (*arrays, result, int64(rows.number), int32(rows.n),
        int32(rows.inner), int32(team)))  # fmt: skip
    return result


@forward("softmax", keeps=True)
def softmax(self: Array, dim: int) -> Array | None:
    """In one kernel."""
    return _softmax("softmax", False, [self], dim)


@forward("log_softmax", keeps=True)
def log_softmax(self: Array, dim: int) -> Array | None:
    """In one kernel."""
    return _softmax("softmax", True, [self], dim)


@forward("softmax_backward", keeps=True)
def softmax_backward(grad_output: Array, output: Array, dim: int) -> Array | None:
    """In one kernel."""
    if grad_output.shape != output.shape:
        return None
    return _softmax("softmax_backward", False, [grad_output, output], dim)


@forward("log_softmax_backward", keeps=True)
def log_softmax_backward(grad_output: Array, output: Array, dim: int) -> Array | None:
    """In one kernel."""
    if grad_output.shape != output.shape:
        return None
    return _softmax("softmax_backward", True, [grad_output, output], dim)


# Losses -------------------------------------------------------------------------------------------


def _scores(x: Array, target: Array, weight: Array | None, reduction: str) -> Scores | None:
    """The rows of scores (N, C, ...) or (C,) with a target each."""
    if x.ndim == 0 or reduction not in HOW or name_of(target.dtype) != "int64":
        return None
    rows = _along(x, min(1, x.ndim - 1))
    if rows is None or target.size != rows.number:
        return None
    if weight is None:
        return rows
    is_read = name_of(weight.dtype) in (name_of(x.dtype), "float32") and weight.shape == (rows.n,)
    return rows if is_read else None


@forward("cross_entropy", keeps=True)
def cross_entropy(
    self: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int,
    label_smoothing: float,
) -> tuple[Array, ...] | None:  # fmt: skip
    """In one kernel, the sum over all rows included."""
    rows = _scores(self, target, weight, reduction)
    if rows is None:
        return None
    x, kind = dense(self), accumulator(self.dtype)
    pack, whole = rows.pack(x), 16 // self.itemsize
    loose = int(rows.inner == 1 and pack < whole and rows.n >= 64)
    pack = whole if loose else pack
    grid, block, team = rows.grid(pack, 512)  # so that a processor has two blocks
    loss = ndarray(target.shape if reduction == "none" else (), x.dtype)
    total = ndarray((), x.dtype)
    lead = 1 if x.ndim == 1 else x.shape[0]
    top, log_sum = (ndarray((lead, 1, rows.number // lead), kind) for _ in range(2))
    partial = ndarray((2, grid) if reduction != "none" else (0,), kind)
    dtype = None if weight is None else name_of(weight.dtype)
    run = kernel(KERNELS["cross_entropy"], "cross_entropy", name_of(x.dtype), dtype, pack,
                 ACROSS=int(rows.inner > 1), LOOSE=loose)  # fmt: skip
    run((grid,), (block,), (
        x, dense(target), x if weight is None else dense(weight), loss, total, top, log_sum,
        partial, tickets_of_stream(), int64(rows.number), int32(rows.n), int32(rows.inner),
        int32(team), int32(HOW[reduction]), int32(weight is not None), int64(ignore_index),
        kind(label_smoothing),
    ))  # fmt: skip
    return loss, total, top, log_sum


@forward("cross_entropy_backward", keeps=True)
def cross_entropy_backward(
    grad_output: Array, self: Array, target: Array, weight: Array | None, total_weight: Array,
    top: Array | None, log_sum: Array | None, reduction: str, ignore_index: int,
    label_smoothing: float,
) -> Array | None:  # fmt: skip
    """In one kernel, if top and log_sum are there."""
    rows = _scores(self, target, weight, reduction)
    if rows is None or top is None or log_sum is None:
        return None
    kind = accumulator(self.dtype)
    if grad_output.dtype != self.dtype or total_weight.dtype != self.dtype or top.dtype != kind:
        return None
    if grad_output.size != (rows.number if reduction == "none" else 1) or log_sum.dtype != kind:
        return None
    x, result = dense(self), ndarray(self.shape, self.dtype)
    pack = rows.pack(x, result)
    grid, block, team = rows.grid(pack)
    dtype = None if weight is None else name_of(weight.dtype)
    run = kernel(
        KERNELS["cross_entropy_backward"], "cross_entropy_backward", name_of(x.dtype), dtype, pack,
        ACROSS=int(rows.inner > 1),
    )  # fmt: skip
    run((grid,), (block,), (
        dense(grad_output), x, dense(target), x if weight is None else dense(weight),
        total_weight, dense(top), dense(log_sum), result, int64(rows.number), int32(rows.n),
        int32(rows.inner), int32(team), int32(HOW[reduction]), int32(weight is not None),
        int64(ignore_index), kind(label_smoothing),
    ))  # fmt: skip
    return result


@forward("nll_loss", keeps=True)
def nll_loss(
    self: Array, target: Array, weight: Array | None, reduction: str, ignore_index: int
) -> tuple[Array, Array] | None:
    """In one kernel, the sum over all rows included."""
    rows = _scores(self, target, weight, reduction)
    if rows is None:
        return None
    x, kind = dense(self), accumulator(self.dtype)
    loss = ndarray(target.shape if reduction == "none" else (), x.dtype)
    total, grid = ndarray((), x.dtype), blocks(rows.number)
    partial = ndarray((2, grid) if reduction != "none" else (0,), kind)
    dtype = None if weight is None else name_of(weight.dtype)
    run = kernel(KERNELS["nll_loss"], "nll_loss", name_of(x.dtype), dtype, ACROSS=0)
    run((grid,), (BLOCK,), (
        x, dense(target), x if weight is None else dense(weight), loss, total, partial,
        tickets_of_stream(), int64(rows.number), int32(rows.n), int32(rows.inner),
        int32(HOW[reduction]), int32(weight is not None), int64(ignore_index),
    ))  # fmt: skip
    return loss, total


@forward("nll_loss_backward", keeps=True)
def nll_loss_backward(
    grad_output: Array, target: Array, weight: Array | None, total_weight: Array,
    input_shape: tuple[int, ...], reduction: str, ignore_index: int,
) -> Array | None:  # fmt: skip
    """In one kernel."""
    if name_of(grad_output.dtype) not in FLOATS or 0 in input_shape:
        return None
    result = ndarray(tuple(input_shape), grad_output.dtype)
    rows = _scores(result, target, weight, reduction)
    if rows is None or total_weight.dtype != grad_output.dtype:
        return None
    if grad_output.size != (rows.number if reduction == "none" else 1):
        return None
    name = "nll_loss_backward"
    dtype = None if weight is None else name_of(weight.dtype)
    run = kernel(KERNELS[name], name, name_of(result.dtype), dtype, ACROSS=0)
    run((blocks(result.size),), (BLOCK,), (
        dense(grad_output), dense(target), grad_output if weight is None else dense(weight),
        total_weight, result, int64(rows.number), int32(rows.n), int32(rows.inner),
        int32(HOW[reduction]), int32(weight is not None), int64(ignore_index),
    ))  # fmt: skip
    return result


# Statistics ---------------------------------------------------------------------------------------


def rows_along(shape: tuple[int, ...], dim: Dims) -> tuple[Scores, tuple[int, ...]] | None:
    """The rows along dims that follow one another, and these; None for others, and for what has no
    elements.
    """
    dims = tuple(range(len(shape))) if dim is None else dim
    if type(dims) is not tuple or not dims or any(not -len(shape) <= d < len(shape) for d in dims):
        return None
    dims = tuple(sorted([d % len(shape) for d in dims]))
    if dims != tuple(range(dims[0], dims[-1] + 1)) or not prod(shape):
        return None
    n, inner = prod(shape[dims[0] : dims[-1] + 1]), prod(shape[dims[-1] + 1 :])
    return Scores(prod(shape) // n, n, inner), dims


def many_rows(shape: tuple[int, ...], dim: Dims) -> tuple[Scores, tuple[int, ...]] | None:
    """The same; None for a few long rows, which would keep few blocks busy."""
    lines = rows_along(shape, dim)
    if lines is None or not lines[0].fits or lines[0].number < 32 and lines[0].n > ALONE:
        return None
    return lines


def _launched(name: str, kind: str, rows: Scores, correction: float, *arrays: Array | None) -> None:
    """Starts a kernel; of its arrays those with as many elements as the first one are in rows."""
    there = [x for x in arrays if x is not None]
    largest = max(x.size for x in there)
    pack = rows.pack(*[x for x in there if x.size == largest])
    grid, block, team = rows.grid(pack)
    dtype = there[0].dtype
    run = kernel(STATISTICS[name], name, name_of(dtype), None, pack, ACROSS=int(rows.inner > 1),
                 KIND=KINDS[kind])  # fmt: skip
    freedom = accumulator(dtype)(max(rows.n - correction, 0))
    run((grid,), (block,), (*arrays, int64(rows.number), int32(rows.n), int32(rows.inner),
        int32(team), freedom))  # fmt: skip


def _statistic(
    kind: str, x: Array, dim: Dims, correction: float, keepdim: bool, with_mean: bool = False
) -> Any:
    rows_and_dims = many_rows(x.shape, dim)
    if (
        rows_and_dims is None
        or name_of(x.dtype) not in FLOATS
        or type(correction) not in (int, float)
    ):
        return None
    rows, dims = rows_and_dims
    shape = [1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]
    result = ndarray(tuple(shape), x.dtype)
    mean = ndarray(result.shape, x.dtype) if with_mean else None
    _launched("row_statistic", kind, rows, correction, dense(x), result, mean)
    return (result, mean) if with_mean else result


@forward("logsumexp", keeps=True)
def logsumexp(self: Array, dim: Dims, keepdim: bool) -> Array | None:
    """In one kernel."""
    result: Array | None = _statistic("logsumexp", self, dim, 0, keepdim)
    return result


def _spread(kind: str, with_mean: bool) -> Any:
    return lambda self, dim, correction, keepdim: _statistic(
        kind, self, dim, correction, keepdim, with_mean
    )


for _kind in ("var", "std"):
    forward(_kind, keeps=True)(_spread(_kind, False))
    forward(f"{_kind}_mean", keeps=True)(_spread(_kind, True))


def _slopes(kind: str) -> Any:
    def gradient(call: NodeCall) -> tuple[Array | None, ...] | None:
        x, result = call["self"], call["result"]
        rows_and_dims = many_rows(call.shape("self"), call.params["dim"])
        if x is None or rows_and_dims is None or call.g.dtype != x.dtype:
            return None
        result = call.g if result is None else result
        if name_of(x.dtype) not in FLOATS or result.dtype != x.dtype:
            return None
        x, out = dense(x), ndarray(x.shape, x.dtype)
        correction = call.params.get("correction", 0)
        _launched("row_statistic_backward", kind, rows_and_dims[0], correction, dense(call.g), x,
                  dense(result), out)  # fmt: skip
        return call.answer(self=out)

    return gradient


for _kind in KINDS:
    backward(_kind)(_slopes(_kind))
