"""Norms over rows, or over groups of channels, and their gradients, all by one way through.

With c = x - mean and n elements that share a mean, the gradient of x is
r (g w - sum(g w) / n - c r² sum(g w c) / n), where r is 1 / sqrt(variance + eps); that of w is the
sum of g c r. BLAS adds up the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..blocks import along_rows
from ..compiled.chains import chain
from ..half import SINGLE
from ..sums import MANY
from .registry import are_plain, backward, forward, rows_of

Array = np.ndarray[Any, Any]
LONG = 1 << 16  # elements of a row, which a sum adds up one after another
RUN = 64  # elements of a channel of an image for which a number is read once
BLOCKS = 4  # that are standardised at a time: fewer would cost more calls
Standard = tuple[Array, Array, Array]


@chain()
def _centre(x: Array, mean: Array, out: Array) -> None:
    np.subtract(x, mean, out)


@chain()
def _scale(out: Array, rstd: Array, weight: Array | None, bias: Array | None) -> None:
    out *= rstd
    if weight is not None:
        out *= weight
    if bias is not None:
        out += bias


def _scale_repeated(out: Array, rstd: Array, weight: Array | None, bias: Array | None) -> None:
    """A number for each element of an image, as one for each run of a channel takes a loop."""
    groups = out.shape[1]
    factor, summand = [a if a is None else np.repeat(a, out.shape[-1]).reshape(groups, -1)
                       for a in (weight, bias)]  # fmt: skip
    _scale.function(out.reshape(len(out), groups, -1), rstd[..., 0], factor, summand)


_scale_runs = chain(calls=_scale_repeated)(_scale.function)


def _standardised(
    x: Array, size: int, eps: float, scale: Callable[[Array, Array], None], width: int
) -> Any:
    """Rows of so many elements less their mean, over the root of their variance. `scale(rows,
    rstd)` divides some rows, as many whole ones as `width` has. Also the mean, and what rows were
    divided by, turned over.
    """
    result, rows, ones = np.empty(x.shape, SINGLE), x.reshape(-1, size), np.ones(size, SINGLE)
    moments = np.empty((2, len(rows), 1), SINGLE)
    step = BLOCKS * rows_of(width) * (width // size)
    standard = result.reshape(rows.shape)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        out, (mean, rstd) = standard[part], moments[:, part]
        if size <= MANY:
            np.vecdot(rows[part], ones, mean[:, 0])  # reads row after row: matmul takes longer
        else:
            np.add.reduce(rows[part], 1, out=mean[:, 0])
        mean /= size
        with along_rows(size):
            _centre(rows[part], mean, out)
            np.vecdot(out, out, rstd[:, 0])
            rstd /= size
            rstd += eps
            np.divide(1, np.sqrt(rstd, rstd), rstd)
            scale(out, rstd)
    return result, moments


@forward("native_layer_norm")
def _layer_norm(
    x: Array, weight: Array | None, bias: Array | None, normalized_shape: tuple[int, ...],
    eps: float = 1e-5,
) -> Standard | None:  # fmt: skip
    size, first = prod(normalized_shape), x.ndim - len(normalized_shape)
    if not are_plain(x, weight, bias) or not 0 < size <= LONG:
        return None
    factor, summand = [a if a is None else a.reshape(size) for a in (weight, bias)]
    scale = lambda out, rstd: _scale(out, rstd, factor, summand)
    result, (mean, rstd) = _standardised(x, size, eps, scale, size)
    kept = x.shape[:first] + (1,) * len(normalized_shape)
    return result, mean.reshape(kept), rstd.reshape(kept)


def _by_runs(x: Array, groups: int, *each: Array | None) -> tuple[Any, list[Array | None]]:
    """A shape of images, groups, channels and their runs, and numbers of channels so that they
    broadcast against it. Channels whose runs are short are one, with a number for each element.
    """
    size, run = prod(x.shape[1:]) // groups, prod(x.shape[2:])
    if run < RUN:
        each, run = tuple([None if a is None else np.repeat(a, run) for a in each]), size
    many = size // run
    return (-1, groups, many, run), [
        None if a is None else a.reshape(groups, many, -1) for a in each
    ]


@forward("native_group_norm")
def _group_norm(
    x: Array, weight: Array | None, bias: Array | None, num_groups: int, eps: float = 1e-5
) -> Standard | None:
    size = prod(x.shape[1:]) // num_groups
    if not are_plain(x, weight, bias) or not 0 < size <= LONG:
        return None
    runs, (factor, summand) = _by_runs(x, num_groups, weight, bias)
    scale_runs = _scale_runs if runs[2] > 1 else _scale

    def scale(out: Array, rstd: Array) -> None:
        scale_runs(out.reshape(runs), rstd.reshape(-1, num_groups, 1, 1), factor, summand)

    result, (mean, rstd) = _standardised(x, size, eps, scale, prod(x.shape[1:]))
    return result, mean.reshape(len(x), -1), rstd.reshape(len(x), -1)


@chain()
def _centre_times(x: Array, mean: Array, slope: Array, centred: Array, products: Array) -> None:
    np.subtract(x, mean, centred)
    np.multiply(centred, slope, products)


@chain(rooms=1)
def _slope_of_centred(
    centred: Array, factor: Array, summand: Array, slope: Array, w: Array, r: Array, room: Array
) -> None:
    centred *= factor
    centred -= summand
    np.multiply(slope, w, room)
    room *= r
    centred += room


@backward("native_layer_norm")
def _layer_norm_slopes(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    x, weight = saved.get("input"), saved.get("weight")
    if x is None or not are_plain(g, x, weight):
        return None
    shape = params["normalized_shape"]
    size = prod(shape)
    g, rows = g.reshape(-1, size), x.reshape(-1, size)
    mean, rstd = saved["mean"].reshape(-1, 1), saved["rstd"].reshape(-1, 1)
    w = np.ones(size, SINGLE) if weight is None else weight.reshape(size)
    result = np.empty(x.shape, SINGLE)  # no view of it: it may become a leaf's gradient as it is
    to_input = result.reshape(-1, size)
    to_weight, to_bias = np.zeros(size, SINGLE), np.zeros(size, SINGLE)
    step = rows_of(size)
    scratch = np.empty((min(step, len(rows)), size), SINGLE)
    with along_rows(size):
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            slope, centred, r = g[part], to_input[part], rstd[part]
            products = scratch[: len(slope)]
            _centre_times(rows[part], mean[part], slope, centred, products)
            to_weight += np.matmul(r[:, 0], products)
            to_bias += np.matmul(np.ones(len(slope), SINGLE), slope)
            factor = np.matmul(products, w)[:, None] * r * r * r * (-1 / size)
            summand = np.matmul(slope, w)[:, None] * r * (1 / size)
            _slope_of_centred(centred, factor, summand, slope, w, r, products)
    return (
        result if "input" in inputs else None,
        to_weight.reshape(shape) if "weight" in inputs else None,
        to_bias.reshape(shape) if "bias" in inputs else None,
    )


@chain(rooms=1)
def _slope_of_groups(
    slope: Array, x: Array, mean: Array, factors: Array | None, factor: Array, summand: Array,
    r: Array, out: Array, room: Array,
) -> None:  # fmt: skip
    np.subtract(x, mean, room)
    room *= factor
    room += summand
    if factors is not None:
        slope = np.multiply(slope, factors, out)
    np.subtract(slope, room, out)
    out *= r


def _slope_of_repeated(
    slope: Array, x: Array, mean: Array, factors: Array | None, factor: Array, summand: Array,
    r: Array, out: Array, room: Array,
) -> None:  # fmt: skip
    by_group = (len(slope), slope.shape[1], -1)
    if factors is not None:
        factors = np.repeat(factors, slope.shape[-1]).reshape(by_group[1:])
    slope, x, mean, factor, summand, r, out, room = (
        a.reshape(by_group) for a in (slope, x, mean, factor, summand, r, out, room)
    )
    _slope_of_groups.function(slope, x, mean, factors, factor, summand, r, out, room)


_slope_of_runs = chain(1, _slope_of_repeated)(_slope_of_groups.function)


@backward("native_group_norm")
def _group_norm_slopes(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    x, weight = saved.get("input"), saved.get("weight")
    if x is None or not are_plain(g, x, weight):
        return None
    groups, (count, channels) = params["num_groups"], x.shape[:2]
    each, size = channels // groups, prod(x.shape[2:])
    by_channel, elements = (count, groups, each, size), each * size
    images, g = x.reshape(by_channel), g.reshape(by_channel)
    mean, rstd = saved["mean"][..., None], saved["rstd"][..., None]
    w = np.ones((groups, each), SINGLE) if weight is None else weight.reshape(groups, each)
    runs, (factors,) = _by_runs(x, groups, weight)
    slope_of = _slope_of_runs if runs[2] > 1 else _slope_of_groups
    result = np.empty(x.shape, SINGLE)
    to_input = result.reshape(by_channel)
    to_weight, to_bias = np.zeros((2, groups, each), SINGLE)
    step = BLOCKS * rows_of(channels * size)
    scratch = np.empty((min(step, count), *by_channel[1:]), SINGLE)
    ones = np.ones(size, SINGLE)
    with along_rows(elements):
        for start in range(0, count, step):
            part = slice(start, start + step)
            slope, m, r = g[part], mean[part], rstd[part]
            sums = np.matmul(slope.reshape(-1, size), ones).reshape(slope.shape[:-1])
            products = np.vecdot(slope, images[part])
            products -= sums * m  # of what is less the mean
            to_weight += np.add.reduce(products * r, 0)
            to_bias += np.add.reduce(sums, 0)
            factor = np.vecdot(products, w)[..., None] * r * r * (1 / elements)
            summand = np.vecdot(sums, w)[..., None] * (1 / elements)
            m, factor, summand, r = (a[..., None] for a in (m, factor, summand, r))
            wide = (slope, images[part], to_input[part], scratch[: len(slope)])
            slope, of, out, room = (a.reshape(runs) for a in wide)
            slope_of(slope, of, m, factors, factor, summand, r, out, room)
    return (
        result if "input" in inputs else None,
        to_weight.reshape(channels) if "weight" in inputs else None,
        to_bias.reshape(channels) if "bias" in inputs else None,
    )
