"""ctc_loss: a kernel forward, and backward one behind zeros; `nn/functional/alignments.py` asks."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ...wanted import wanted
from ..kernels.alignments import KERNELS
from .launch import FLOATS, LIMIT, accumulator, dense, int32, kernel, name_of
from .placed.copies import INDICES
from .placed.sums import begin
from .plans import kept

__all__ = ["ctc_loss", "ctc_loss_backward"]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray


def _are_taken(log_probs: Array, labels: Array, longest: int) -> bool:
    if not wanted.fused or name_of(log_probs.dtype) not in FLOATS or not log_probs.size:
        return False
    if max(log_probs.shape) >= LIMIT:
        return False
    return name_of(labels.dtype) in INDICES and (2 * longest + 1) * log_probs.shape[1] < LIMIT


def _threads(states: int) -> int:
    return min(512, max(32, 1 << (states - 1).bit_length()))


def _losses(
    log_probs: Array, labels: Array, table: Array, blank: int, longest: int
) -> tuple[Array, Array] | None:
    """The losses of (T, N, C), and the logarithms that the gradient needs, (T, N, states)."""
    if not _are_taken(log_probs, labels, longest):
        return None
    (steps, count, classes), states = log_probs.shape, 2 * longest + 1
    alphas = ndarray((steps, count, states), accumulator(log_probs.dtype))
    losses = ndarray((count,), log_probs.dtype)
    run = kernel(
        KERNELS["ctc_forward"], "ctc_forward", name_of(losses.dtype), name_of(labels.dtype)
    )
    run((count,), (_threads(states),),
        (dense(log_probs), dense(labels), table, alphas, losses, int32(count), int32(classes),
         int32(blank), int32(states)))  # fmt: skip
    return losses, alphas


def _gradients(
    g: Array, log_probs: Array, labels: Array, table: Array, alphas: Array, blank: int,
    longest: int,
) -> Array | None:  # fmt: skip
    """The gradient of the log-probabilities; the same bits in each run."""
    if not _are_taken(log_probs, labels, longest) or g.dtype != log_probs.dtype:
        return None
    (_, count, classes), states = log_probs.shape, 2 * longest + 1
    result = begin(ndarray(log_probs.shape, log_probs.dtype))
    betas, following = ndarray((count, 2, states), alphas.dtype), ndarray((count, states), np.int32)
    name = "ctc_backward"
    run = kernel(KERNELS[name], name, name_of(log_probs.dtype), name_of(labels.dtype))
    run((count,), (_threads(states),),
        (dense(g), dense(log_probs), dense(labels), table, alphas, betas, following, result,
         int32(count), int32(classes), int32(blank), int32(states)))  # fmt: skip
    return result


ctc_loss = kept(_losses, ("log_probs", "labels", "table"), ("without", "longest"))
ctc_loss_backward = kept(
    _gradients, ("g", "log_probs", "labels", "table", "alphas"), ("without", "longest")
)
