"""The losses of nn.functional over scores of classes, with class numbers or probabilities."""

from __future__ import annotations

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.record import recorded
from ...functions.calls.arguments import of_reals
from ...functions.indexing.bounds import is_looked_at
from ...tensor import Tensor
from .loss import check_reduction

__all__ = ["cross_entropy", "linear_cross_entropy", "nll_loss"]


def _check_target(input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """The number of classes; raises, in PyTorch's words, when shapes or dtypes do not fit."""
    shape, target_shape = tuple(input.shape), tuple(target.shape)
    if not shape:
        raise RuntimeError("nll_loss: got a 0-d input, want (C,) or (N, C, ...)")
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise RuntimeError(
            f"nll_loss: expected target of dtype {dtypes.int64} but found {target.dtype}; "
            "class probabilities have the shape of the input and go to cross_entropy"
        )
    if len(shape) > 1 and target_shape[:1] != shape[:1]:
        raise ValueError(
            f"Expected input batch_size ({shape[0]}) to match target batch_size "
            f"({target_shape[0] if target_shape else 'none'})."
        )
    if target_shape != (shape[:1] + shape[2:] if len(shape) > 1 else ()):
        raise RuntimeError(
            f"Expected target size {list(shape[:1] + shape[2:])}, got {list(target_shape)}"
        )
    classes = shape[_class_dim(input)]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes "
            f"but got weight tensor of shape: {list(weight.shape)}"
        )
    return classes


def _check_range(target: Tensor, classes: int, ignore_index: int) -> None:
    """IndexError for a class that is not there; on a GPU it is not looked for: that would wait."""
    array = target._array
    if is_looked_at(array) and array.size and (array.min() < 0 or array.max() >= classes):
        wrong = array[((array < 0) | (array >= classes)) & (array != ignore_index)]
        if wrong.size:
            raise IndexError(f"Target {wrong[0]} is out of bounds.")


def _class_dim(input: Tensor) -> int:
    return 0 if input.dim() == 1 else 1


@autocasts
@of_reals
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-weight[target] * input[target], where input holds log-probabilities (N, C, ...) or (C,).

    `target` holds class numbers, (N, ...) or (); "mean" divides by the sum of the weights used.
    """
    check_reduction(reduction)
    classes = _check_target(input, target, weight)
    _check_range(target, classes, ignore_index)
    return recorded.nll_loss(input, target, weight, reduction, ignore_index)[0]


@autocasts
@of_reals
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits (N, C, ...) or (C,) with class numbers or class probabilities.

    `cugrad.nn.CrossEntropyLoss` says what the parameters mean.
    """
    check_reduction(reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.is_floating_point() and target.shape == input.shape:
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    classes = _check_target(input, target, weight)
    _check_range(target, classes, ignore_index)
    how = (weight, reduction, ignore_index, label_smoothing)
    return recorded.cross_entropy(input, target, *how)[0]


def _per_class(weight: Tensor, scores: Tensor) -> Tensor:
    """Weights of shape (C,) ready to be multiplied with (N, C, ...) or (C,)."""
    return weight if scores.dim() == 1 else weight.reshape(-1, *(1,) * (scores.dim() - 2))


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    """Cross entropy of logits with the probabilities `target`."""
    dim = _class_dim(input)
    scores = recorded.log_softmax(input, dim)
    classes = scores.shape[dim]
    if label_smoothing > 0.0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    products = scores * target
    if weight is not None:
        products = products * _per_class(weight, scores)
    losses = -products.sum(dim)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / losses.numel()


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of the logits `input @ linear_weight.T + linear_bias`.

    `input` is (N, in_features) or (in_features,), `linear_weight` (C, ..., in_features): the dims
    between make a loss of so many dims.
    """
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}"
        )
    features = input.shape[-1]
    if features != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{features} and {linear_weight.shape[-1]}, respectively"
        )
    places = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != places:
        raise RuntimeError(f"expected linear_bias shape {places}, got {tuple(linear_bias.shape)}")
    if len(places) > 1 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} "
            f"requires batched input, (N, {features}), got unbatched input with shape "
            f"{tuple(input.shape)}"
        )
    shape = (*input.shape[:-1], *places)
    if tuple(target.shape) == shape and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = recorded.linear(input, linear_weight.reshape(-1, features), bias).reshape(shape)
    return cross_entropy(
        logits, target, weight, reduction=reduction, label_smoothing=label_smoothing,
        ignore_index=-100 if ignore_index is None else ignore_index,
    )  # fmt: skip
