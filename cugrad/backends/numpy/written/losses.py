"""Cross entropy of few scores, by few calls of NumPy: each takes longer than its numbers.

Each bit is that of the row, as small steps on all devices are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..exponential import quick_exp
from ..half import SINGLE
from ..sums import MANY as SUMS_BY_BLAS
from ..sums import summed_by_blas
from .registry import are_plain, backward, forward

Array = np.ndarray[Any, Any]

MANY = 1 << 16  # scores from which on the row's own way is as quick


def _are_few(x: Array, target: Array, weight: Any, ignore_index: int, smoothing: float) -> bool:
    """Whether these are some rows of scores, each of which counts, as much as any other."""
    if x.ndim != 2 or target.ndim != 1 or weight is not None or smoothing or not are_plain(x):
        return False
    if type(target) is not np.ndarray or target.dtype != np.int64 or not 0 < x.size < MANY:
        return False
    return bool((target != ignore_index).all())


@forward("cross_entropy", few=True)
def _cross_entropy(
    x: Array, target: Array, weight: Any = None, reduction: str = "mean",
    ignore_index: int = -100, label_smoothing: float = 0.0,
) -> tuple[Array, ...] | None:  # fmt: skip
    few = reduction != "none" and _are_few(x, target, weight, ignore_index, label_smoothing)
    if not few:
        return None
    top = np.maximum.reduce(x, 1, keepdims=True)
    below = x - top
    chosen = below[np.arange(len(x)), target]
    quick_exp(below, out=below)
    by_blas = below.size >= SUMS_BY_BLAS >= x.shape[1]
    log_sum = np.log(summed_by_blas(below, False) if by_blas else np.add.reduce(below, 1))
    loss, total = np.add.reduce(log_sum - chosen), SINGLE.type(len(x))
    if reduction == "mean":
        loss = loss / total
    return np.asarray(loss), np.asarray(total), top[..., None], log_sum[:, None, None]


@backward("cross_entropy", few=True)
def _cross_entropy_slope(g: Array, saved: Any, params: Any, inputs: Any) -> Any:
    x, target, reduction = saved["self"], saved["target"], params["reduction"]
    how = params["ignore_index"], params["label_smoothing"]
    if reduction == "none" or not _are_few(x, target, saved.get("weight"), *how):
        return None
    slope = x - saved["top"][..., 0]
    quick_exp(slope, out=slope)
    share = g / saved["total_weight"] if reduction == "mean" else g
    slope *= share * np.exp(-saved["log_sum"][..., 0])
    slope[np.arange(len(x)), target] -= share
    return slope, None, None
