"""Channels that are standardised: by their own statistics in two kernels each way, by given ones in
one forward and two backward.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import cupy

from .... import moments
from ....moments import waiting
from ....wanted import wanted
from ...fused.reductions import BLOCKS
from ...kernels.norms import KERNELS
from ..launch import (
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
    pack_of,
    tickets_of_stream,
)
from ..registry import NodeCall, backward, forward
from .vectors import moments_of, parts_of, vectors, weight_dtype

__all__ = ["Sheet", "sums_of", "track_moment"]

Array = Any  # cupy.ndarray
MOST_PARTS = 512  # of a channel, so that the last block has little to add
STEPS = 16  # that a thread should have to do at least
MOST_CHANNELS = 4  # that a thread has, where they are neighbours
# Bytes of arrays that a thread reads at a time: 32 of each of 135,000 threads, 1,024 on each of an
# H200's processors, are 4 MB, and 4.8 TB/s at 0.6 microseconds want 3 MB on their way.
AT_A_TIME = {"channel_moments": 32, "channel_sums": 16}
ndarray = cupy.ndarray


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
        """Whether neighbours in memory are of neighbouring channels."""
        return self.length == 1

    def pack(self, *elements: Array) -> int:
        """How many neighbours in memory a thread reads at a time."""
        if not self.across:
            return pack_of(self.length, *elements)
        pack = min(pack_of(self.channels, *elements), MOST_CHANNELS)
        while pack > 1 and 32 * pack > self.channels:
            pack //= 2
        return pack

    def cut(self, pack: int) -> tuple[int, int]:
        """Of blocks side by side how many there are, and how many elements of a channel one of them
        adds up.
        """
        tiles = blocks(self.channels, 32 * pack) if self.across else self.channels
        along, whole = (BLOCK // 32, 1) if self.across else (BLOCK * pack, pack)
        parts = min(blocks(self.each, along * STEPS), BLOCKS // tiles, MOST_PARTS)
        return tiles, blocks(self.each, max(1, parts) * whole) * whole

    def launch(
        self, name: str, elements: tuple[Array, ...], weight: str, *args: Any, **numbers: int
    ) -> None:
        """Starts a kernel that walks over channels of some arrays, and leaves two numbers of each
        in parts.
        """
        x, pack = elements[0], self.pack(*elements)
        tiles, part = self.cut(pack)
        parts, kind = blocks(self.each, part), accumulator(x.dtype)
        partial = ndarray((parts if parts > 1 else 0, 2, self.channels), kind)
        arrays = [*elements, *[a for a in args if a is None or isinstance(a, ndarray)]]
        sizes = [int32(n) for n in (self.channels, self.each, self.length, part)]
        lines = max(1, AT_A_TIME[name] // (pack * x.dtype.itemsize))
        numbers = {"ACROSS": int(self.across), "LINES": lines, **numbers}
        kernel(KERNELS[name], name, name_of(x.dtype), weight, pack, **numbers)(
            (tiles, parts), (BLOCK,),
            (*arrays, partial, tickets_of_stream(), *sizes,
             *args[len(arrays) - len(elements) :]),
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


def sums_of(
    call: NodeCall, g: Array, x: Array, means: Array | None, factors: Array, sheet: Sheet,
    per_row: int = 0, shared: int = 1, eps: float | None = None,
) -> tuple[Array | None, Array | None, Array]:  # fmt: skip
    """The gradients of weight and bias, where they are asked for, and both in full precision. With
    `eps` the factors are variances.
    """
    asked = [name if name in call.op.inputs and call.wants(name) else None
             for name in ("weight", "bias")]  # fmt: skip
    weight = call["weight"]
    dtype = x.dtype if weight is None else weight.dtype
    new = [None if name is None else ndarray(call.shape(name), dtype) for name in asked]
    sums = ndarray((2, sheet.channels), accumulator(x.dtype))
    spare, moments = ndarray((1,), dtype), (factors if means is None else means, factors)
    sheet.launch(
        "channel_sums", (g, x), name_of(dtype), *map(dense, moments),
        *[spare if a is None else a for a in new], sums, int32(per_row), int32(shared),
        parts_of(new[0], new[1], means is not None), accumulator(x.dtype)(eps or 0.0),
        GIVEN=int(eps is not None),
    )  # fmt: skip
    return new[0], new[1], sums


@forward("native_batch_norm", keeps=True, moves=True)
def batch_norm(
    input: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array] | None:
    """In two kernels: the statistics, and what is made with them."""
    x, sheet = _sheet(input)
    dtype = weight_dtype(x, sheet.channels, weight, bias)
    if dtype is None or not sheet.fits:
        return None
    kind = accumulator(x.dtype)
    means, factors = ndarray((sheet.channels,), kind), ndarray((sheet.channels,), kind)
    moved, momentum = _running(x, sheet, weight, bias)
    moved_as = dtype if moved[0] is None else name_of(moved[0].dtype)
    sheet.launch("channel_moments", (x,), moved_as, means, factors, *moved, kind(eps),
                 kind(momentum))  # fmt: skip
    return _applied(x, weight, bias, Statistics(means, factors), sheet, dtype), means, factors


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
    alike = weight_dtype(x, sheet.channels, *arrays[:2]) is not None
    there = [a for a in arrays if a is not None]
    dense_here = all(type(a) is ndarray and a.flags.c_contiguous for a in there)
    counts = running.batches is None or name_of(running.batches.dtype) == "int64"
    if not alike or not dense_here or not counts or running.mean is None or sheet.each < 2:
        return [None, None, None], 0.0
    running.moved = True
    return list(arrays), running.momentum


class Statistics(NamedTuple):
    """A mean and a factor for each channel; with `eps` the factors are variances."""

    means: Array | None
    factors: Array
    eps: float | None = None


def _applied(
    x: Array, weight: Array | None, bias: Array | None, statistics: Statistics, sheet: Sheet,
    dtype: str,
) -> Array:  # fmt: skip
    result = _like(x)
    first, second = vectors(x, weight, bias)
    means, factors, eps = statistics
    means = factors if means is None else means
    _each("channel_apply", x, dtype, sheet, [x, result, means, factors], x, first, second,
          means, factors, result,
          parts_of(weight, bias, statistics.means is not None), accumulator(x.dtype)(eps or 0.0),
          GIVEN=int(eps is not None))  # fmt: skip
    return result


def _each(
    name: str, x: Array, dtype: str, sheet: Sheet, elements: list[Array], *args: Any, **numbers: int
) -> None:
    """Starts a kernel with a thread for each pack of elements, which are of one channel, or of
    channels one after another. Those of `elements` are read by packs.
    """
    pack = pack_of(sheet.channels if sheet.across else sheet.length, *elements)
    arrays = [a for a in args if isinstance(a, ndarray)]
    sizes = int64(x.size), int32(sheet.channels), int32(sheet.length)
    numbers = {"ACROSS": int(sheet.across), **numbers}
    kernel(KERNELS[name], name, name_of(x.dtype), dtype, pack, **numbers)(
        (blocks(x.size // pack),), (BLOCK,), (*arrays, *sizes, *args[len(arrays) :])
    )


@backward("native_batch_norm", keeps=True)
def gradients_of_channels(call: NodeCall) -> tuple[Array | None, ...] | None:
    """Sums over each channel, which are the gradients of weight and bias; then the input's."""
    x, means, factors, weight = (call[name] for name in ("input", "mean", "invstd", "weight"))
    moments = None if x is None else moments_of(x, means, factors)
    if moments is None:
        return None
    (x, sheet), (means, factors) = _sheet(x), moments
    dtype = weight_dtype(x, sheet.channels, weight)
    if dtype is None or not sheet.fits or call.g.dtype != x.dtype:
        return None
    g = call.g if call.g.strides == x.strides else _in_the_order_of(x, call.g)
    slopes, offsets, sums = sums_of(call, g, x, means, factors, sheet)
    result = None
    if call.wants("input"):
        result = _like(x)
        first, _ = vectors(x, weight, None)
        read = [g, x, result, means, factors]
        _each("channel_backward", x, dtype, sheet, read, g, x, first, means, factors, sums, result,
              parts_of(weight), accumulator(x.dtype)(sheet.each))  # fmt: skip
    return call.answer(input=result, weight=slopes, bias=offsets)


def _in_the_order_of(x: Array, g: Array) -> Array:
    result = _like(x)
    result[...] = g
    return result


def _given(x: Array, sheet: Sheet, mean: Array, var: Array, eps: float) -> Statistics | None:
    """Running statistics as the kernels read them: as they are, if they are kept as sums are."""
    kind, name = accumulator(x.dtype), "channel_factors"
    if mean.shape != (sheet.channels,) or var.shape != mean.shape:
        return None
    if mean.dtype != var.dtype or name_of(mean.dtype) not in FLOATS:
        return None
    if mean.dtype == kind:
        return Statistics(dense(mean), dense(var), eps)
    means, factors = ndarray((sheet.channels,), kind), ndarray((sheet.channels,), kind)
    kernel(KERNELS[name], name, name_of(x.dtype), name_of(mean.dtype))(
        (blocks(sheet.channels),), (BLOCK,),
        (dense(mean), dense(var), means, factors, int32(sheet.channels), kind(eps)),
    )  # fmt: skip
    return Statistics(means, factors)


@forward("batch_norm_inference", keeps=True)
def batch_norm_inference(
    input: Array, weight: Array | None, bias: Array | None, running_mean: Array,
    running_var: Array, eps: float,
) -> Array | None:  # fmt: skip
    """In one kernel; where statistics are in another dtype than sums, after one for the factors."""
    x, sheet = _sheet(input)
    dtype = weight_dtype(x, sheet.channels, weight, bias)
    if dtype is None or not sheet.fits:
        return None
    statistics = _given(x, sheet, running_mean, running_var, eps)
    return None if statistics is None else _applied(x, weight, bias, statistics, sheet, dtype)


@backward("batch_norm_inference", keeps=True)
def gradients_of_given(call: NodeCall) -> tuple[Array | None, ...] | None:
    """Sums over each channel, which are the gradients of weight and bias, and the input's."""
    g, x, weight, eps = call.g, call["input"], call["weight"], call.params["eps"]
    asks = call.wants("weight"), call.wants("bias")
    if x is None:
        x = g  # of which nothing is read
    if asks[0] and call["running_mean"] is None or g.dtype != x.dtype:
        return None
    x, sheet = _sheet(x)
    dtype = weight_dtype(x, sheet.channels, weight)
    if dtype is None or not sheet.fits or call["running_var"] is None:
        return None
    g = g if g.strides == x.strides else _in_the_order_of(x, g)
    mean = call["running_var"] if call["running_mean"] is None else call["running_mean"]
    statistics = _given(x, sheet, mean, call["running_var"], eps)
    if statistics is None:
        return None
    slopes, offsets, result = None, None, None
    if any(asks):
        slopes, offsets, _ = sums_of(call, g, x, statistics.means, statistics.factors, sheet,
                                   eps=statistics.eps)  # fmt: skip
    if call.wants("input"):
        result = _applied(g, weight, None, statistics._replace(means=None), sheet, dtype)
    return call.answer(input=result, weight=slopes, bias=offsets)


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
