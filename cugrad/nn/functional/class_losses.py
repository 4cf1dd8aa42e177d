"""The losses of nn.functional over scores of classes, with class numbers or probabilities."""

from __future__ import annotations

from ... import dtypes
from ...autograd.autocast import autocasts
from ...autograd.recording.recorded import first_of, recorded
from ...dtypes import type_name
from ...functions.calls.arguments import of_reals, refuse_whole
from ...functions.indexing.bounds import is_looked_at
from ...tensor import Tensor
from .loss import settled

__all__ = ["cross_entropy", "nll_loss"]


def _check_target(input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """The number of classes; raises, in PyTorch's words, when shapes or dtypes do not fit."""
    shape, target_shape = tuple(input.shape), tuple(target.shape)
    if not shape:
        raise RuntimeError("nll_loss: got a 0-d input, want (C,) or (N, C, ...)")
    if len(shape) > 1 and target_shape[:1] != shape[:1]:
        raise ValueError(
            f"Expected input batch_size ({shape[0]}) to match target batch_size "
            f"({target_shape[0] if target_shape else 'none'})."
        )
    if len(shape) == 2 and len(target_shape) > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise RuntimeError(
            f"expected target dtype to be Long or Byte, but got {type_name(target.dtype)} "
            "(nll_loss); class probabilities have the shape of the input and go to cross_entropy"
        )
    if target_shape != (shape[:1] + shape[2:] if len(shape) > 1 else ()):
        raise RuntimeError(
            f"Expected target size {list(shape[:1] + shape[2:])}, got {list(target_shape)}"
        )
    classes = shape[_class_dim(input)]
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            f"expected scalar type {type_name(input.dtype)} but found {type_name(weight.dtype)} "
            "(weight of nll_loss)"
        )
    _check_weight(weight, classes)
    return classes


def _one_class(input: Tensor, target: Tensor) -> Tensor:
    """The target: without a dim for an input of classes alone, of which it may be a list of one."""
    if input.dim() != 1 or target.dim() != 1:
        return target
    if target.shape[0] != 1:
        raise ValueError(
            f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}"
        )
    return target.reshape(())


def _check_weight(weight: Tensor | None, classes: int) -> None:
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes "
            f"but got weight tensor of shape: {list(weight.shape)}"
        )


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
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-weight[target] * input[target], where input holds log-probabilities (N, C, ...) or (C,).

    `target` holds class numbers, (N, ...) or (); "mean" divides by the sum of the weights used.
    """
    reduction, target = settled(reduction, size_average, reduce), _one_class(input, target)
    classes = _check_target(input, target, weight)
    _check_range(target, classes, ignore_index)
    refuse_whole("nll_loss", input)
    return first_of.nll_loss(input, target, weight, reduction, ignore_index)


@autocasts
@of_reals
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Cross entropy of logits (N, C, ...) or (C,) with class numbers or class probabilities.

    `cugrad.nn.CrossEntropyLoss` says what the parameters mean.
    """
    reduction = settled(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.shape == input.shape:
        if not target.is_floating_point():
            raise RuntimeError(
                "Expected floating point type for target with class probabilities, got "
                f"{type_name(target.dtype)}"
            )
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    target = _one_class(input, target)
    classes = _check_target(input, target, weight)
    _check_range(target, classes, ignore_index)
    refuse_whole("log_softmax", input)
    how = (weight, reduction, ignore_index, label_smoothing)
    return first_of.cross_entropy(input, target, *how)


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
    _check_weight(weight, classes)
    if label_smoothing > 0.0:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    products = scores * target
    if weight is not None:
        products = products * _per_class(weight, scores)
    losses = -products.sum(dim)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / losses.numel()
