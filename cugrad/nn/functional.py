"""The functional face of nn: PyTorch's functions over recorded rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .. import dtypes
from ..autograd.record import recorded
from ..functions.arranging import channel_shuffle as channel_shuffle
from ..functions.arranging import pixel_shuffle as pixel_shuffle
from ..functions.arranging import pixel_unshuffle as pixel_unshuffle
from ..functions.bounds import is_looked_at
from ..functions.padding import pad as pad
from ..functions.queries import finfo
from ..ops import random as draw
from ..tensor import Tensor, make
from .activation_functions import *  # noqa: F403
from .conv_functions import *  # noqa: F403
from .grid_functions import *  # noqa: F403
from .image_functions import *  # noqa: F403
from .loss_functions import *  # noqa: F403
from .loss_functions import check_reduction
from .pooling_functions import *  # noqa: F403


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias, for weight of shape (out_features, in_features)."""
    return recorded.linear(input, weight, bias)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability `p` and scale the rest by 1 / (1 - p)."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    mask = make(draw.bernoulli(None, 1.0 - p, input._array.shape, input.device))
    if inplace:
        return input.mul_(mask.to(input.dtype) * (1 / (1 - p) if p < 1 else 0.0))
    return recorded.native_dropout(input, mask, p)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of (N, C, ...), in training with the input's own mean and variance.

    Running statistics of shape (C,) are used when not training, and in training are moved towards
    the input's by `momentum`, in place. Source: https://arxiv.org/abs/1502.03167.
    """
    channels = _channels(input, running_mean=running_mean, weight=weight, bias=bias)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError(
                "batch_norm: got no running_mean or no running_var, want both when training=False"
            )
        return recorded.batch_norm_inference(input, weight, bias, running_mean, running_var, eps)
    count = input.numel() // max(channels, 1)
    if count == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.shape}"
        )
    result, mean, invstd = recorded.native_batch_norm(input, weight, bias, eps)
    if running_mean is not None:
        _move(running_mean, mean._array, momentum)
    if running_var is not None and count > 1:
        variance = 1 / (invstd._array * invstd._array) - eps
        _move(running_var, variance * (count / (count - 1)), momentum)
    return result


def _channels(input: Tensor, **vectors: Tensor | None) -> int:
    """The number of channels of (N, C, ...); RuntimeError for a vector that has another length."""
    channels = input.shape[1] if input.dim() > 1 else max(input.numel(), 1)
    for name, vector in vectors.items():
        if vector is not None and vector.numel() != channels:
            raise RuntimeError(
                f"batch_norm: {name} should contain {channels} elements not {vector.numel()}: "
                f"one per channel of the input of shape {tuple(input.shape)}"
            )
    return channels


def _move(running: Tensor, towards: Any, momentum: float | Tensor) -> None:
    """running += momentum * (towards - running), as one in-place change that no graph records."""
    array = running._array
    array += (towards - array) * (momentum._array if isinstance(momentum, Tensor) else momentum)
    running.counter[0] += 1


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last dims, of `normalized_shape`, to mean 0 and variance 1.

    Source: https://arxiv.org/abs/1607.06450.
    """
    wanted = _trailing_shape("layer_norm", input, normalized_shape)
    return recorded.native_layer_norm(input, weight, bias, wanted, eps)[0]


def _trailing_shape(
    function: str, input: Tensor, normalized_shape: Sequence[int]
) -> tuple[int, ...]:
    """`normalized_shape` as a tuple; RuntimeError where the input's shape does not end in it."""
    wanted = tuple(normalized_shape)
    if not wanted:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
            f"one element, but got normalized_shape = {list(wanted)} ({function})"
        )
    if tuple(input.shape)[-len(wanted) :] != wanted:
        raise RuntimeError(
            f"Given normalized_shape={list(wanted)}, expected input with shape "
            f"[*, {', '.join(map(str, wanted))}], but got input of size{list(input.shape)}"
        )
    return wanted


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """input / √(mean of its squares over the last dims + eps); eps None is the dtype's epsilon.

    Source: https://arxiv.org/abs/1910.07467.
    """
    wanted = _trailing_shape("rms_norm", input, normalized_shape)
    if eps is None:
        eps = finfo(input.dtype).eps
    wide = input.float() if input.dtype.itemsize == 2 else input
    dims = tuple(range(-len(wanted), 0))
    result = wide * ((wide * wide).mean(dims, keepdim=True) + eps).rsqrt()
    result = result.to(input.dtype)
    return result if weight is None else result * weight


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each of `num_groups` groups of channels of (N, C, ...), for each sample alone.

    Source: https://arxiv.org/abs/1803.08494.
    """
    shape = tuple(input.shape)
    if len(shape) < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {len(shape)}"
        )
    if num_groups < 1 or shape[1] % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(shape)} and num_groups={num_groups}"
        )
    size = prod(shape[1:]) // num_groups
    if shape[0] * size == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )
    grouped = input.reshape(shape[0], num_groups, size)
    result = recorded.native_layer_norm(grouped, None, None, (size,), eps)[0].reshape(shape)
    per_channel = (shape[1],) + (1,) * (len(shape) - 2)
    if weight is not None:
        result = result * weight.reshape(per_channel)
    return result if bias is None else result + bias.reshape(per_channel)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """The rows of `weight` at the indices `input`; row `padding_idx` gets no gradient.

    IndexError for an index that is not there; on a GPU nobody looks, for it would wait.
    """
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    if input.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {input.dtype} instead (while checking arguments for embedding)"
        )
    array = input._array
    if is_looked_at(array) and array.size and (array.min() < 0 or array.max() >= rows):
        raise IndexError(f"index out of range in self: embedding has {rows} rows")
    padding = -1 if padding_idx is None else padding_idx % rows
    return recorded.embedding(weight, input, padding)


def _check_target(input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """The number of classes; raises, in PyTorch's words, when shapes or dtypes do not fit."""
    shape, wanted = tuple(input.shape), tuple(target.shape)
    if not shape:
        raise RuntimeError("nll_loss: got a 0-d input, want (C,) or (N, C, ...)")
    if target.dtype not in (dtypes.int64, dtypes.uint8):
        raise RuntimeError(
            f"nll_loss: expected target of dtype {dtypes.int64} but found {target.dtype}; "
            "class probabilities have the shape of the input and go to cross_entropy"
        )
    if len(shape) > 1 and wanted[:1] != shape[:1]:
        raise ValueError(
            f"Expected input batch_size ({shape[0]}) to match target batch_size "
            f"({wanted[0] if wanted else 'none'})."
        )
    if wanted != (shape[:1] + shape[2:] if len(shape) > 1 else ()):
        raise RuntimeError(
            f"Expected target size {list(shape[:1] + shape[2:])}, got {list(wanted)}"
        )
    classes = shape[_class_dim(input)]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"weight tensor should be defined either for all {classes} classes or no classes "
            f"but got weight tensor of shape: {list(weight.shape)}"
        )
    return classes


def _check_range(target: Tensor, classes: int, ignore_index: int) -> None:
    """IndexError for a class that is not there; on a GPU nobody looks, for it would wait."""
    array = target._array
    if is_looked_at(array) and array.size and (array.min() < 0 or array.max() >= classes):
        wrong = array[((array < 0) | (array >= classes)) & (array != ignore_index)]
        if wrong.size:
            raise IndexError(f"Target {wrong[0]} is out of bounds.")


def _class_dim(input: Tensor) -> int:
    return 0 if input.dim() == 1 else 1


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
    dim = _class_dim(input)
    scores = recorded.log_softmax(input, dim)
    if target.is_floating_point() and target.shape == input.shape:
        return _soft_cross_entropy(scores, target, weight, reduction, label_smoothing)
    classes = _check_target(input, target, weight)
    _check_range(target, classes, ignore_index)
    loss, total = recorded.nll_loss(scores, target, weight, reduction, ignore_index)
    if label_smoothing == 0.0:
        return loss
    if weight is not None:
        scores = scores * _per_class(weight, scores)
    smooth = recorded.masked_fill(-scores.sum(dim), target == ignore_index, 0.0)
    if reduction != "none":
        smooth = smooth.sum()
    if reduction == "mean":
        smooth = smooth / total
    return (1 - label_smoothing) * loss + label_smoothing / classes * smooth


def _per_class(weight: Tensor, scores: Tensor) -> Tensor:
    """Weights of shape (C,) ready to be multiplied with (N, C, ...) or (C,)."""
    return weight if scores.dim() == 1 else weight.reshape(-1, *(1,) * (scores.dim() - 2))


def _soft_cross_entropy(
    scores: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    """Cross entropy of log-probabilities with the probabilities `target`."""
    dim = _class_dim(scores)
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
