"""Losses of nn.functional over classes, label sets, distances of one's own, and alignments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...functions import FUNCTIONS
from ...functions.calls.arguments import of_one_dtype, of_reals
from ...functions.creation.factories import as_tensor, full, zeros
from ...functions.creation.ranges import arange
from ...functions.indexing.bounds import is_looked_at
from ...tensor import Tensor
from .loss import check_reduction, pairwise_distance, reduced, settled

__all__ = [
    "ctc_loss", "multi_margin_loss", "multilabel_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) with a distance of one's own.

    `distance_function` is the Euclidean one by default; `swap` uses the smaller of the distances
    from anchor and from positive to negative.
    """
    check_reduction(reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
            f"negative {negative.dim()}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = FUNCTIONS["minimum"](far, distance(positive, negative))
    return reduced((margin + near - far).clamp(min=0), reduction)


@autocasts
@of_reals
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over classes j but the target y of max(0, margin - x[y] + x[j])^p, times weight[y].

    `input` is (N, C) or (C,), `target` (N,) or () of class numbers.
    """
    reduction = settled(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    if input.dim() > 2 or input.shape[-1:] == (0,):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}"
        )
    single = input.dim() < 2
    x = input.reshape(1, -1) if single else input
    y = target.reshape(-1)
    if target.dim() > 1 or y.shape[0] != x.shape[0]:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
            f"samples (batch size). Expected target size [{x.shape[0]}], but got "
            f"{list(target.shape)}. Input has shape {list(input.shape)}."
        )
    classes = x.shape[1]
    if weight is not None and weight.shape[0] != classes:
        raise RuntimeError(
            f"inconsistent weight size, expected {classes} but got {list(weight.shape)}"
        )
    _check_classes(y, classes)
    of_one_dtype("multi_margin_loss", input, weight=weight)
    index = y.unsqueeze(1)
    losses = (margin - x.gather(1, index) + x).relu()  # no gradient where the margin is just kept
    if p == 2:
        losses = losses * losses
    if weight is not None:
        losses = losses * weight.index_select(0, y).unsqueeze(1)
    others = arange(classes, device=x.device) != index
    losses = recorded.where(others, losses, 0.0).sum(1) / classes
    if single and reduction == "none" and target.dim() == 0:
        return losses.squeeze(0)
    return reduced(losses, reduction)


def _check_classes(target: Tensor, classes: int) -> None:
    if is_looked_at(target._array):
        array, xp = target._array, backend_of(target._array).xp
        if array.size and bool(xp.any((array < 0) | (array >= classes))):
            raise RuntimeError(f"target out of range: want class numbers in [0, {classes})")


@autocasts
@of_reals
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over classes j of the sum over target classes y of max(0, 1 - x[y] + x[j]).

    `target` has the shape of `input`, (N, C) or (C,): the target classes, ended by a -1; j runs
    over the classes that are no target.
    """
    reduction = settled(reduction, size_average, reduce)
    if input.dim() > 2 or input.shape[-1:] == (0,):
        raise RuntimeError(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input.shape)}"
        )
    if input.shape != target.shape:
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    single = input.dim() < 2
    x, y = (input.reshape(1, -1), target.reshape(1, -1)) if single else (input, target)
    classes = x.shape[1]
    if is_looked_at(y._array):
        array, xp = y._array, backend_of(y._array).xp
        if array.size and bool(xp.any((array < -1) | (array >= classes))):
            raise RuntimeError(f"argument #2 'target' is out of range: want [-1, {classes})")
    listed = (y < 0).cumsum(1) == 0  # before the first -1
    chosen = recorded.where(listed, y, classes)
    is_target = zeros((x.shape[0], classes + 1), dtype=dtypes.bool_, device=x.device)
    is_target = is_target.scatter(1, chosen, True)[:, :classes]
    of_targets = x.gather(1, recorded.where(listed, y, 0))
    pairs = (1 - of_targets.unsqueeze(2) + x.unsqueeze(1)).relu()
    counted = listed.unsqueeze(2) & ~is_target.unsqueeze(1)
    losses = recorded.where(counted, pairs, 0.0).sum((1, 2)) / classes
    if single and reduction == "none":
        return losses.squeeze(0)
    return reduced(losses, reduction)


# Alignments ---------------------------------------------------------------------------------------


@autocasts
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability of each label sequence, over all alignments with the input.

    Source: Graves et al. 2006, Connectionist Temporal Classification, eq. 6-8, in log space.

    Args:
        log_probs: (T, N, C) or (T, C), log-probabilities of C classes, one of them the blank.
        targets: (N, S), padded, or all sequences one behind the other.
        input_lengths, target_lengths: (N,), tensors or tuples.
        zero_infinity: losses that no alignment allows become 0, and their gradients.

    "mean" divides each loss by its target length first.
    """
    check_reduction(reduction)
    single = log_probs.dim() == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        if targets.dim() == 1:
            targets = targets.unsqueeze(0)
    steps, count, classes = log_probs.shape
    inputs = _lengths(input_lengths, "input_lengths", count)
    sizes = _lengths(target_lengths, "target_lengths", count)
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range: got {blank}, want [0, {classes})")
    if len(inputs) and int(inputs.max()) > steps:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value "
            f"{int(inputs.max())} (while checking arguments for ctc_loss)"
        )
    if len(inputs) and int(inputs.min()) < 0 or len(sizes) and int(sizes.min()) < 0:
        raise RuntimeError("input_lengths and target_lengths must be non-negative")
    labels = _label_rows(targets, sizes, blank)
    losses = _alignments(log_probs, labels, inputs, sizes, blank)
    if zero_infinity:
        losses = recorded.where(losses == float("inf"), 0.0, losses)
    if reduction == "mean":
        divisor = as_tensor(np.maximum(sizes, 1), device=losses.device).to(losses.dtype)
        return (losses / divisor).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.squeeze(0) if single else losses


def _lengths(lengths: Any, name: str, count: int) -> np.ndarray[Any, Any]:
    """Lengths on the host, which decides with them what to compute."""
    values = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    if isinstance(lengths, Tensor) and lengths._array.dtype.kind not in "iu":
        raise RuntimeError(f"{name} must be integral")
    array = np.asarray(values, np.int64).reshape(-1)
    if len(array) != count:
        raise RuntimeError(f"{name} must be of size batch_size: got {len(array)}, want {count}")
    return array


def _label_rows(targets: Tensor, sizes: np.ndarray[Any, Any], blank: int) -> Tensor:
    """The label sequences as rows (N, S), where padding is blank."""
    longest = int(sizes.max(initial=0))
    if targets.dim() == 2:
        if targets.shape[0] != len(sizes):
            raise RuntimeError(
                f"Expected tensor to have size {len(sizes)} at dimension 0, but got size "
                f"{targets.shape[0]} for argument #2 'targets' (while checking arguments for "
                "ctc_loss)"
            )
        if targets.shape[1] < longest:
            raise RuntimeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size "
                f"{targets.shape[1]} for argument #2 'targets' (while checking arguments for "
                "ctc_loss)"
            )
        return targets[:, :longest].to(dtypes.int64)
    if targets.dim() != 1 or targets.shape[0] < int(sizes.sum()):
        raise RuntimeError(
            f"Expected 1-dimensional targets of at least {int(sizes.sum())} labels, got "
            f"{list(targets.shape)}"
        )
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else sizes
    place = np.minimum(starts[:, None] + np.arange(longest), max(targets.shape[0] - 1, 0))
    if not targets.shape[0]:
        return full((len(sizes), longest), blank, dtype=dtypes.int64, device=targets.device)
    index = as_tensor(place, device=targets.device)
    return targets.to(dtypes.int64)[index]


def _alignments(log_probs: Tensor, labels: Tensor, inputs: Any, sizes: Any, blank: int) -> Tensor:
    """-log p(labels | inputs) by the forward recursion, all examples at once."""
    steps, count, _ = log_probs.shape
    longest = labels.shape[1]
    states = 2 * longest + 1
    device = log_probs.device
    path = full((count, states), blank, dtype=dtypes.int64, device=device)
    path[:, 1::2] = labels
    # a label may follow the one before last unless that is the same, or a blank
    skips = zeros((count, states), dtype=dtypes.bool_, device=device)
    if states > 2:
        skips[:, 2:] = (path[:, 2:] != blank) & (path[:, 2:] != path[:, :-2])
    low = float("-inf")
    emitted = log_probs.gather(2, path.unsqueeze(0).expand(steps, count, states))
    if not steps:
        return recorded.where(as_tensor(sizes == 0, device=device), 0.0, float("inf")).to(
            log_probs.dtype
        )
    first = arange(states, device=device) < 2
    alpha = recorded.where(first, emitted[0], low)
    pad = FUNCTIONS["constant_pad_nd"]
    alphas = [alpha]
    for t in range(1, steps):
        one = pad(alpha, (1, 0), low)[:, :states]
        two = recorded.where(skips, pad(alpha, (2, 0), low)[:, :states], low)
        alpha = _log_sum(FUNCTIONS["stack"]([alpha, one, two])) + emitted[t]
        alphas.append(alpha)
    table = FUNCTIONS["stack"](alphas)  # (T, N, states)
    rows = arange(count, device=device)
    last = as_tensor(np.maximum(inputs - 1, 0), device=device)
    final = table[last, rows]  # (N, states)
    end = as_tensor(2 * sizes, device=device).unsqueeze(1)
    ends = final.gather(1, end).squeeze(1)
    before = final.gather(1, (end - 1).clamp(min=0)).squeeze(1)
    before = recorded.where(as_tensor(sizes == 0, device=device), low, before)
    losses = -_log_sum(FUNCTIONS["stack"]([ends, before]))
    nothing = as_tensor(inputs == 0, device=device)
    if not bool((inputs == 0).any()):
        return losses
    empty = as_tensor(np.where(sizes == 0, 0.0, np.inf), device=device).to(losses.dtype)
    return recorded.where(nothing, empty, losses)


def _log_sum(terms: Tensor) -> Tensor:
    """The logarithm of the sum over dim 0, with a zero gradient where all terms are -inf."""
    most = terms.detach().amax(0)
    most = recorded.where(most == float("-inf"), 0.0, most)
    total = (terms - most).exp().sum(0)
    none = total == 0
    return recorded.where(none, float("-inf"), recorded.where(none, 1.0, total).log() + most)
