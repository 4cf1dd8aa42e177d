"""Norms over rows, or over groups of channels, and their gradients, all by one way through.

With c = x - mean and n elements that share a mean, the gradient of x is
r (g w - sum(g w) / n - c r² sum(g w c) / n), where r is 1 / sqrt(variance + eps); that of w is the
sum of g c r. BLAS adds up the sums.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..blocks import along_rows
from ..half import SINGLE
from ..sums import MANY
from .registry import are_plain, backward, forward, rows_of

Array = np.ndarray[Any, Any]
LONG = 1 << 16  # elements of a row, which a sum adds up one after another
BLOCKS = 4  # that are standardised at a time: fewer would cost more calls
Standard = tuple[Array, Array, Array]


def _standardised(x: Array, size: int, weight: Array | None, bias: Array | None, eps: float) -> Any:
    """Rows of so many elements less their mean, over the root of their variance; then `weight` and
    `bias`, as long as some whole rows, or a whole row. Also the mean, and what it was divided by,
    turned over.
    """
    result, rows, ones = np.empty(x.shape, SINGLE), x.reshape(-1, size), np.ones(size, SINGLE)
    width = max([size, *[a.size for a in (weight, bias) if a is not None]])
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
            np.subtract(rows[part], mean, out)
            np.vecdot(out, out, rstd[:, 0])
            rstd /= size
            rstd += eps
            np.divide(1, np.sqrt(rstd, rstd), rstd)
            out *= rstd
            lines = out.reshape(-1, width)
            if weight is not None:
                lines *= weight
            if bias is not None:
                lines += bias
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
    result, (mean, rstd) = _standardised(x, size, factor, summand, eps)
    kept = x.shape[:first] + (1,) * len(normalized_shape)
    return result, mean.reshape(kept), rstd.reshape(kept)


@forward("native_group_norm")
def _group_norm(
    x: Array, weight: Array | None, bias: Array | None, num_groups: int, eps: float = 1e-5
) -> Standard | None:
    size = prod(x.shape[1:]) // num_groups
    if not are_plain(x, weight, bias) or not 0 < size <= LONG:
        return None
    # A number for each element of an image, as one for each run of a channel takes a loop for each.
    each = prod(x.shape[2:])
    factor, summand = [a if a is None else np.repeat(a, each) for a in (weight, bias)]
    result, (mean, rstd) = _standardised(x, size, factor, summand, eps)
    return result, mean.reshape(len(x), -1), rstd.reshape(len(x), -1)


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
            np.subtract(rows[part], mean[part], centred)
            np.multiply(centred, slope, products)
            to_weight += np.matmul(r[:, 0], products)
            to_bias += np.matmul(np.ones(len(slope), SINGLE), slope)
            centred *= np.matmul(products, w)[:, None] * r * r * r * (-1 / size)
            centred -= np.matmul(slope, w)[:, None] * r * (1 / size)
            np.multiply(slope, w, products)
            products *= r
            centred += products
    return (
        result if "input" in inputs else None,
        to_weight.reshape(shape) if "weight" in inputs else None,
        to_bias.reshape(shape) if "bias" in inputs else None,
    )


@backward("native_group_norm")
def _group_norm_slopes(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    x, weight = saved.get("input"), saved.get("weight")
    if x is None or not are_plain(g, x, weight):
        return None
    groups, (count, channels) = params["num_groups"], x.shape[:2]
    each, size = channels // groups, prod(x.shape[2:])
    by_group, by_channel = (count, groups, each * size), (count, groups, each, size)
    g, mean, rstd = g.reshape(by_channel), saved["mean"][..., None], saved["rstd"][..., None]
    w = np.ones((groups, each), SINGLE) if weight is None else weight.reshape(groups, each)
    factors = None if weight is None else np.repeat(w, size)  # a run of a channel is short
    result, rows = np.empty(x.shape, SINGLE), x.reshape(by_group)
    to_input = result.reshape(by_channel)
    to_weight, to_bias = np.zeros((2, groups, each), SINGLE)
    step = rows_of(channels * size)
    scratch = np.empty((min(step, count), *by_group[1:]), SINGLE)
    ones = np.ones(size, SINGLE)
    with along_rows(each * size):
        for start in range(0, count, step):
            part = slice(start, start + step)
            slope, r = g[part], rstd[part]
            slopes, out = slope.reshape(len(slope), -1), to_input[part].reshape(-1, *by_group[1:])
            centred = np.subtract(rows[part], mean[part], scratch[: len(slope)])
            products = np.vecdot(slope, centred.reshape(slope.shape))
            sums = np.matmul(slope, ones)
            to_weight += np.add.reduce(products * r, 0)
            to_bias += np.add.reduce(sums, 0)
            centred *= np.vecdot(products, w)[..., None] * r * r * (1 / (each * size))
            centred += np.vecdot(sums, w)[..., None] * (1 / (each * size))
            if factors is not None:
                slopes = np.multiply(slopes, factors, out.reshape(slopes.shape))
            np.subtract(slopes.reshape(out.shape), centred, out)
            out *= r
    return (
        result if "input" in inputs else None,
        to_weight.reshape(channels) if "weight" in inputs else None,
        to_bias.reshape(channels) if "bias" in inputs else None,
    )
