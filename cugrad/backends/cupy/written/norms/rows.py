"""Rows that are standardised: a kernel forward, two backward for all gradients together."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import cupy

from ...kernels.norms import KERNELS
from ..launch import (
    BLOCK,
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
)
from ..registry import NodeCall, backward, forward
from .channels import Sheet, sums_of
from .vectors import moments_of, parts_of, vectors, weight_dtype

__all__: list[str] = []

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray


class Rows(NamedTuple):
    """Arrays as rows of n elements. Where rows are groups of channels, `groups` make a sample, and
    `spread` elements share a weight.
    """

    number: int
    n: int
    groups: int = 1
    spread: int = 1

    @property
    def weights(self) -> int:
        return self.groups * self.n // self.spread

    def launch(self, name: str, weight: str, elements: list[Array], *args: Any) -> None:
        """Starts a kernel of rows; `elements` are those of the arguments that it reads in packs."""
        pack = pack_of(self.n if self.spread == 1 else self.spread, *elements)
        keeps = {}
        if name == "norm_rows":
            team, keeps["HELD"] = held_by_team(self.n, pack)
        else:
            team = team_of(self.n // pack)
        block = max(BLOCK, team)
        sizes = int64(self.number), int32(self.n), int32(team)
        arrays = [x for x in args if isinstance(x, ndarray)]
        kernel(KERNELS[name], name, name_of(elements[0].dtype), weight, pack, **keeps)(
            (blocks(self.number * team, block),), (block,), (*arrays, *sizes, *args[len(arrays) :]),
        )  # fmt: skip


def _rows_forward(
    x: Array, weight: Array | None, bias: Array | None, rows: Rows, eps: float, centred: bool = True
) -> tuple[Array, Array, Array] | None:
    """What is standardised, the means and the factors; without centre the means are no means."""
    dtype = weight_dtype(x, rows.weights, weight, bias)
    if dtype is None or not rows.number:
        return None
    x, kind = dense(x), accumulator(x.dtype)
    result, factors = ndarray(x.shape, x.dtype), ndarray((rows.number,), kind)
    means = ndarray((rows.number,), kind) if centred else factors
    first, second = vectors(x, weight, bias)
    rows.launch(
        "norm_rows", dtype, [x, result], x, first, second, result, means, factors,
        parts_of(weight, bias, centred), int32(rows.groups), int32(rows.spread), kind(eps),
    )  # fmt: skip
    return result, means, factors


def _rows_backward(
    g: Array, x: Array, weight: Array | None, means: Array | None, factors: Array, rows: Rows
) -> Array | None:
    dtype = weight_dtype(x, rows.weights, weight)
    moments = moments_of(x, factors if means is None else means, factors)
    if dtype is None or not rows.number or g.dtype != x.dtype or moments is None:
        return None
    g, x = dense(g), dense(x)
    result = ndarray(x.shape, x.dtype)
    first, _ = vectors(x, weight, None)
    rows.launch(
        "norm_rows_backward", dtype, [g, x, result], g, x, first,
        *moments, result,
        parts_of(weight, mean=means is not None), int32(rows.groups), int32(rows.spread),
    )  # fmt: skip
    return result


def _last(x: Array, normalized_shape: tuple[int, ...]) -> Rows:
    n = prod(normalized_shape)
    return Rows(x.size // n if n else 0, n)


def _kept(x: Array, normalized_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a number for each row."""
    count = len(normalized_shape)
    return (*x.shape[: x.ndim - count], *(1,) * count)


@forward("native_layer_norm", keeps=True)
def layer_norm(
    input: Array, weight: Array | None, bias: Array | None, normalized_shape: tuple[int, ...],
    eps: float,
) -> tuple[Array, Array, Array] | None:  # fmt: skip
    """In one kernel."""
    results = _rows_forward(input, weight, bias, _last(input, normalized_shape), eps)
    if results is None:
        return None
    shape = _kept(input, normalized_shape)
    return results[0], results[1].reshape(shape), results[2].reshape(shape)


@forward("rms_norm", keeps=True)
def rms_norm(
    input: Array, weight: Array | None, normalized_shape: tuple[int, ...], eps: float
) -> tuple[Array, Array] | None:
    """In one kernel."""
    rows = _last(input, normalized_shape)
    results = _rows_forward(input, weight, None, rows, eps, centred=False)
    if results is None:
        return None
    return results[0], results[2].reshape(_kept(input, normalized_shape))


@forward("native_group_norm", keeps=True)
def group_norm(
    input: Array, weight: Array | None, bias: Array | None, num_groups: int, eps: float
) -> tuple[Array, Array, Array] | None:
    """In one kernel."""
    rows = _groups(input, num_groups)
    results = None if rows is None else _rows_forward(input, weight, bias, rows, eps)
    if results is None:
        return None
    shape = input.shape[0], num_groups
    return results[0], results[1].reshape(shape), results[2].reshape(shape)


def _groups(x: Array, num_groups: int) -> Rows | None:
    if not x.size:
        return None
    count, spread = x.shape[0] * num_groups, prod(x.shape[2:])
    return Rows(count, x.size // count, num_groups, spread)


@forward("native_layer_norm_backward", keeps=True)
def layer_norm_backward(
    grad_output: Array, input: Array, weight: Array | None, mean: Array | None,
    rstd: Array | None, normalized_shape: tuple[int, ...], eps: float,
) -> Array | None:  # fmt: skip
    """In one kernel, if mean and rstd are there."""
    if mean is None or rstd is None:
        return None
    return _rows_backward(grad_output, input, weight, mean, rstd, _last(input, normalized_shape))


@forward("rms_norm_backward", keeps=True)
def rms_norm_backward(
    grad_output: Array, input: Array, weight: Array | None, rstd: Array | None,
    normalized_shape: tuple[int, ...], eps: float,
) -> Array | None:  # fmt: skip
    """In one kernel, if rstd is there."""
    if rstd is None:
        return None
    return _rows_backward(grad_output, input, weight, None, rstd, _last(input, normalized_shape))


@backward("native_layer_norm", "rms_norm", "native_group_norm", keeps=True)
def gradients_of_rows(call: NodeCall) -> tuple[Array | None, ...] | None:
    """A kernel for the input, and one for weight and bias together."""
    x, means, factors = call["input"], call["mean"], call["rstd"]
    centred = "bias" in call.op.inputs
    if x is None or (centred and means is None):
        return None
    if "num_groups" in call.params:
        rows, length = _groups(x, call.params["num_groups"]), prod(x.shape[2:])
    else:
        rows, length = _last(x, call.params["normalized_shape"]), 1
    if rows is None:
        return None
    result = _rows_backward(call.g, x, call["weight"], means, factors, rows)
    if result is None:
        return None
    shared = rows.n // rows.spread
    sheet = Sheet(rows.weights, x.size // rows.weights, length)
    if not sheet.fits:
        return None
    slopes, offsets = None, None
    if call.wants("weight") or (centred and call.wants("bias")):
        slopes, offsets, _ = sums_of(
            call, dense(call.g), dense(x), means, factors, sheet, rows.groups, shared
        )
    return call.answer(input=result, weight=slopes, bias=offsets)
