"""Losses of nn.functional over classes, label sets, and distances of one's own."""

from __future__ import annotations

from collections.abc import Callable

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...functions import FUNCTIONS
from ...functions.calls.arguments import of_one_dtype, of_reals
from ...functions.creation.factories import zeros
from ...functions.creation.ranges import arange
from ...functions.indexing.bounds import is_looked_at
from ...tensor import Tensor
from .loss import check_reduction, pairwise_distance, reduced, settled

__all__ = ["multi_margin_loss", "multilabel_margin_loss", "triplet_margin_with_distance_loss"]


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
    losses = (+margin - x.gather(1, index) + x).relu()  # no gradient where the margin is just kept
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
