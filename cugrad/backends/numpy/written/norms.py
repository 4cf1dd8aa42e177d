"""The gradients of norms over rows, or over groups of channels: all of them by one way through.

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
from .registry import are_plain, backward, rows_of

Array = np.ndarray[Any, Any]


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
    w = np.ones(1, SINGLE) if weight is None else weight.reshape(groups, each)
    result, rows = np.empty(x.shape, SINGLE), x.reshape(by_group)
    to_input = result.reshape(by_channel)
    to_weight, to_bias = np.zeros((2, groups, each), SINGLE)
    step = rows_of(channels * size)
    scratch = np.empty((min(step, count), *by_group[1:]), SINGLE)
    with along_rows(each * size):
        for start in range(0, count, step):
            part = slice(start, start + step)
            slope, r = g[part], rstd[part]
            centred = np.subtract(rows[part], mean[part], scratch[: len(slope)])
            pairs = slope[..., None, :], centred.reshape(slope.shape)[..., None]
            products, sums = np.matmul(*pairs)[..., 0, 0], np.matmul(slope, np.ones(size, SINGLE))
            to_weight += np.sum(products * r, 0)
            to_bias += np.sum(sums, 0)
            centred *= np.sum(products * w, -1, keepdims=True) * r * r * r * (-1 / (each * size))
            centred -= np.sum(sums * w, -1, keepdims=True) * r * (1 / (each * size))
            np.multiply(slope, (r * w)[..., None], to_input[part])
            to_input[part] += centred.reshape(slope.shape)
    return (
        result if "input" in inputs else None,
        to_weight.reshape(channels) if "weight" in inputs else None,
        to_bias.reshape(channels) if "bias" in inputs else None,
    )
