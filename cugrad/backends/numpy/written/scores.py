"""Softmax along the last dim, some rows at a time: each pass but its sum is a chain."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..blocks import along_rows
from ..compiled.chains import chain
from ..exponential import SCALE, powers
from ..half import SINGLE
from ..sums import MANY, summed_by_blas
from .registry import are_plain, backward, forward, rows_of

Array = np.ndarray[Any, Any]
BLOCKS = 4  # that are taken at a time: fewer would cost more calls


def _takes(dim: Any, *arrays: Array) -> bool:
    last = arrays[0].ndim - 1
    return (
        type(dim) is int and last >= 0 and dim in (-1, last) and are_plain(*arrays)
        and 0 < arrays[0].shape[-1] <= MANY and arrays[0].shape == arrays[-1].shape
    )  # fmt: skip


@chain()
def _powers_below(x: Array, top: Array, out: Array) -> None:
    np.subtract(x, top, out)
    out *= SCALE
    powers(out, out)


@chain()
def _over(out: Array, total: Array) -> None:
    out /= total


@forward("softmax")
def _softmax(x: Array, dim: int) -> Array | None:
    if not _takes(dim, x):
        return None
    size = x.shape[-1]
    result, rows, step = np.empty(x.shape, SINGLE), x.reshape(-1, size), BLOCKS * rows_of(size)
    shares = result.reshape(rows.shape)
    with along_rows(size):
        for start in range(0, len(rows), step):
            part, out = rows[start : start + step], shares[start : start + step]
            _powers_below(part, np.maximum.reduce(part, 1, keepdims=True), out)
            _over(out, summed_by_blas(out, True))
    return result


@chain()
def _slope_into(g: Array, total: Array, result: Array, out: Array) -> None:
    np.subtract(g, total, out)
    out *= result


@backward("softmax")
def _softmax_slope(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    result = saved["result"]
    if not _takes(params["dim"], g, result):
        return None
    size = g.shape[-1]
    slope, step = np.empty(g.shape, SINGLE), BLOCKS * rows_of(size)
    rows = [x.reshape(-1, size) for x in (g, result, slope)]
    with along_rows(size):
        for start in range(0, len(rows[0]), step):
            g, y, out = (x[start : start + step] for x in rows)
            _slope_into(g, np.vecdot(g, y)[:, None], y, out)
    return (slope,)
