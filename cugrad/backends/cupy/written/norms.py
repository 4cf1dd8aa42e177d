"""Layers that standardise: a kernel or two forward, two backward for all gradients together."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import cupy

from ... import moments
from ...moments import waiting
from ...wanted import wanted
from ..fused.reductions import BLOCKS
from ..kernels.norms import KERNELS
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

__all__ = ["track_moment"]

Array = Any  # cupy.ndarray
WEIGHT, BIAS, MEAN = 1, 2, 4  # `parts` of the kernels
MOST_PARTS = 256  # of a channel, so that the last block has little to add
STEPS = 16  # that a thread should have to do at least
ndarray = cupy.ndarray


def _weight_dtype(x: Array, n: int, *vectors: Array | None) -> str | None:
    """The dtype of weight and bias, of n elements each; None where the kernels take them not."""
    names = {name_of(v.dtype) for v in vectors if v is not None} or {name_of(x.dtype)}
    if (
        len(names) > 1
        or not names <= {name_of(x.dtype), "float32"}
        or name_of(x.dtype) not in FLOATS
    ):
        return None
    if any(v is not None and v.size != n for v in vectors):
        return None
    return names.pop()


def _parts(weight: Any, bias: Any = None, mean: bool = True) -> Any:
    return int32((weight is not None) * WEIGHT + (bias is not None) * BIAS + mean * MEAN)


def _operands(x: Array, weight: Array | None, bias: Array | None) -> tuple[Array, Array]:
    """Weight and bias, and another array in the place of what is absent and not read."""
    one = x if bias is None else dense(bias)
    first = one if weight is None else dense(weight)
    return first, first if bias is None else one


def _moments(x: Array, *moments: Array | None) -> list[Array] | None:
    """Means and factors as the kernels read them; None where they are in another dtype."""
    if any(m is None or m.dtype != accumulator(x.dtype) for m in moments):
        return None
    return [dense(m) for m in moments]


# Rows ---------------------------------------------------------------------------------------------


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
    dtype = _weight_dtype(x, rows.weights, weight, bias)
    if dtype is None or not rows.number:
        return None
    x, kind = dense(x), accumulator(x.dtype)
    result, factors = ndarray(x.shape, x.dtype), ndarray((rows.number,), kind)
    means = ndarray((rows.number,), kind) if centred else factors
    first, second = _operands(x, weight, bias)
    rows.launch(
        "norm_rows", dtype, [x, result], x, first, second, result, means, factors,
        _parts(weight, bias, centred), int32(rows.groups), int32(rows.spread), kind(eps),
    )  # fmt: skip
    return result, means, factors


def _rows_backward(
    g: Array, x: Array, weight: Array | None, means: Array | None, factors: Array, rows: Rows
) -> Array | None:
    dtype = _weight_dtype(x, rows.weights, weight)
    moments = _moments(x, factors if means is None else means, factors)
    if dtype is None or not rows.number or g.dtype != x.dtype or moments is None:
        return None
    g, x = dense(g), dense(x)
    result = ndarray(x.shape, x.dtype)
    first, _ = _operands(x, weight, None)
    rows.launch(
        "norm_rows_backward", dtype, [g, x, result], g, x, first,
        *moments, result,
        _parts(weight, mean=means is not None), int32(rows.groups), int32(rows.spread),
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
        slopes, offsets, _ = _sums(
            call, dense(call.g), dense(x), means, factors, sheet, rows.groups, shared
        )
    return call.answer(input=result, weight=slopes, bias=offsets)


# Channels -----------------------------------------------------------------------------------------


class Sheet(NamedTuple):
    """An array (N, C, L): `each` elements, N * L, in a channel, `length` of them neighbours."""

    channels: int
    each: int
    length: int

    @property
    def fits(self) -> bool:
        return 0 < self.each < LIMIT and 0 < self.channels < LIMIT

    @property
    def across(self) -> bool:
        """Whether a block has 32 channels, which are neighbours."""
        return self.length == 1

    @property
    def tiles(self) -> int:
        return blocks(self.channels, 32) if self.across else self.channels

    @property
    def part(self) -> int:
        """How many elements of a channel a block adds up."""
        along = BLOCK // 32 if self.across else BLOCK
        parts = min(blocks(self.each, along * STEPS), BLOCKS // self.tiles, MOST_PARTS)
        return blocks(self.each, max(1, parts))

    def launch(self, name: str, x: Array, weight: str, *args: Any) -> None:
        """Starts a kernel that walks over channels, and leaves two numbers of each in parts."""
        parts, kind = blocks(self.each, self.part), accumulator(x.dtype)
        partial = ndarray((parts if parts > 1 else 0, 2, self.channels), kind)
        arrays = [a for a in args if a is None or isinstance(a, ndarray)]
        sizes = [int32(n) for n in (self.channels, self.each, self.length, self.part)]
        text = KERNELS[name]
        kernel(text, name, name_of(x.dtype), weight, ACROSS=int(self.across))(
            (self.tiles, parts), (BLOCK,),
            (*arrays, partial, tickets_of_stream(), *sizes, *args[len(arrays) :]),
        )  # fmt: skip


def _sheet(x: Array) -> tuple[Array, Sheet]:
    """(N, C, ...) as it lies, in order of its dims or with its channels last; else as a copy."""
    channels = x.shape[1]
    if x.ndim in (4, 5) and not x.flags.c_contiguous and _lies_last(x):
        return x, Sheet(channels, x.size // max(1, channels), 1)
    return dense(x), Sheet(channels, x.size // max(1, channels), prod(x.shape[2:]))


def _lies_last(x: Array) -> bool:
    flags = x.transpose(0, *range(2, x.ndim), 1).flags
    return bool(flags.c_contiguous)


def _like(x: Array) -> Array:
    """A new array that lies as `x`, which is dense or has its channels last."""
    if x.flags.c_contiguous:
        return ndarray(x.shape, x.dtype)
    block = ndarray((x.shape[0], *x.shape[2:], x.shape[1]), x.dtype)
    return block.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


def _sums(
    call: NodeCall, g: Array, x: Array, means: Array | None, factors: Array, sheet: Sheet,
    per_row: int = 0, shared: int = 1,
) -> tuple[Array | None, Array | None, Array]:  # fmt: skip
    """The gradients of weight and bias, where they are asked for, and both in full precision."""
    asked = [name if name in call.op.inputs and call.wants(name) else None
             for name in ("weight", "bias")]  # fmt: skip
    weight = call["weight"]
    dtype = x.dtype if weight is None else weight.dtype
    new = [None if name is None else ndarray(call.shape(name), dtype) for name in asked]
    sums = ndarray((2, sheet.channels), accumulator(x.dtype))
    spare, moments = ndarray((1,), dtype), (factors if means is None else means, factors)
    sheet.launch(
        "channel_sums", x, name_of(dtype), g, x, *map(dense, moments),
        *[spare if a is None else a for a in new], sums, int32(per_row), int32(shared),
        _parts(new[0], new[1], means is not None),
    )  # fmt: skip
    return new[0], new[1], sums


@forward("native_batch_norm", keeps=True, moves=True)
def batch_norm(
    input: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array] | None:
    """In two kernels: the statistics, and what is made with them."""
    x, sheet = _sheet(input)
    dtype = _weight_dtype(x, sheet.channels, weight, bias)
    if dtype is None or not sheet.fits:
        return None
    kind = accumulator(x.dtype)
    means, factors = ndarray((sheet.channels,), kind), ndarray((sheet.channels,), kind)
    moved, momentum = _running(x, sheet, weight, bias)
    moved_as = dtype if moved[0] is None else name_of(moved[0].dtype)
    sheet.launch("channel_moments", x, moved_as, x, means, factors, *moved, kind(eps),
                 kind(momentum))  # fmt: skip
    return _applied(x, weight, bias, means, factors, sheet, dtype), means, factors


def _running(
    x: Array, sheet: Sheet, weight: Array | None, bias: Array | None
) -> tuple[list[Array | None], float]:
    """Running mean, variance and count that wait for this batch norm, as the kernel changes them,
    and how far.
    """
    running = waiting.taken()
    if running is None:
        return [None, None, None], 0.0
    arrays = running.mean, running.var, running.batches
    alike = _weight_dtype(x, sheet.channels, *arrays[:2]) is not None
    there = [a for a in arrays if a is not None]
    dense_here = all(type(a) is ndarray and a.flags.c_contiguous for a in there)
    counts = running.batches is None or name_of(running.batches.dtype) == "int64"
    if not alike or not dense_here or not counts or running.mean is None or sheet.each < 2:
        return [None, None, None], 0.0
    running.moved = True
    return list(arrays), running.momentum


def _applied(
    x: Array, weight: Array | None, bias: Array | None, means: Array, factors: Array,
    sheet: Sheet, dtype: str,
) -> Array:  # fmt: skip
    result = _like(x)
    first, second = _operands(x, weight, bias)
    _each("channel_apply", x, dtype, sheet, [x, result], x, first, second, means, factors, result,
          _parts(weight, bias))  # fmt: skip
    return result


def _each(name: str, x: Array, dtype: str, sheet: Sheet, elements: list[Array], *args: Any) -> None:
    """Starts a kernel with a thread for each pack of elements, which are of one channel, or one
    after another.
    """
    pack = pack_of(x.size if sheet.across else sheet.length, *elements)
    arrays = [a for a in args if isinstance(a, ndarray)]
    sizes = int64(x.size), int32(sheet.channels), int32(sheet.length)
    kernel(KERNELS[name], name, name_of(x.dtype), dtype, pack)(
        (blocks(x.size // pack),), (BLOCK,), (*arrays, *sizes, *args[len(arrays) :])
    )


@backward("native_batch_norm", keeps=True)
def gradients_of_channels(call: NodeCall) -> tuple[Array | None, ...] | None:
    """Sums over each channel, which are the gradients of weight and bias; then the input's."""
    x, means, factors, weight = (call[name] for name in ("input", "mean", "invstd", "weight"))
    moments = None if x is None else _moments(x, means, factors)
    if moments is None:
        return None
    (x, sheet), (means, factors) = _sheet(x), moments
    dtype = _weight_dtype(x, sheet.channels, weight)
    if dtype is None or not sheet.fits or call.g.dtype != x.dtype:
        return None
    g = call.g if call.g.strides == x.strides else _in_the_order_of(x, call.g)
    slopes, offsets, sums = _sums(call, g, x, means, factors, sheet)
    result = None
    if call.wants("input"):
        result = _like(x)
        first, _ = _operands(x, weight, None)
        _each("channel_backward", x, dtype, sheet, [g, x, result], g, x, first, means, factors,
              sums, result, _parts(weight), accumulator(x.dtype)(sheet.each))  # fmt: skip
    return call.answer(input=result, weight=slopes, bias=offsets)


def _in_the_order_of(x: Array, g: Array) -> Array:
    result = _like(x)
    result[...] = g
    return result


@forward("batch_norm_inference", keeps=True)
def batch_norm_inference(
    input: Array, weight: Array | None, bias: Array | None, running_mean: Array,
    running_var: Array, eps: float,
) -> Array | None:  # fmt: skip
    """In one kernel, and one for the factors of the channels."""
    x, sheet = _sheet(input)
    dtype = _weight_dtype(x, sheet.channels, weight, bias)
    if dtype is None or not sheet.fits:
        return None
    kind, name = accumulator(x.dtype), "channel_factors"
    if running_mean.shape != (sheet.channels,) or running_var.shape != running_mean.shape:
        return None
    if running_mean.dtype != running_var.dtype or name_of(running_mean.dtype) not in FLOATS:
        return None
    means, factors = ndarray((sheet.channels,), kind), ndarray((sheet.channels,), kind)
    kernel(KERNELS[name], name, name_of(x.dtype), name_of(running_mean.dtype))(
        (blocks(sheet.channels),), (BLOCK,),
        (dense(running_mean), dense(running_var), means, factors, int32(sheet.channels), kind(eps)),
    )  # fmt: skip
    return _applied(x, weight, bias, means, factors, sheet, dtype)


def track_moment(
    array: Array, statistic: Array, momentum: Any, eps: float | None = None, scale: float = 1.0
) -> None:
    """`moments.track_moment` in one kernel, where the momentum is a number."""
    kinds = [x.dtype.name for x in (array, statistic)]
    fits = wanted.fused and array.flags.c_contiguous and array.shape == statistic.shape
    if not fits or type(momentum) not in (int, float) or not set(kinds) <= set(FLOATS):
        moments.track_moment(array, statistic, momentum, eps, scale)
    elif array.size:
        kind, count = accumulator(array.dtype), array.size
        kernel(KERNELS["track_moment"], "track_moment", *kinds)(
            (blocks(count),), (BLOCK,),
            (array, dense(statistic), int32(count), int32(eps is not None), kind(momentum),
             kind(eps or 0.0), kind(scale)),
        )  # fmt: skip
