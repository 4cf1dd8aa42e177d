"""The loss functions of nn.functional that compare tensors element by element, or by distance."""

from __future__ import annotations

import math
from typing import Any

from ...autograd.autocast import autocasts
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...backends.batched.arrays import plain
from ...dtypes import promote_types
from ...functions.calls.arguments import array_of, of_reals, refuse_complex
from ...functions.creation.factories import full_like
from ...functions.shapes.views import broadcast_tensors
from ...runtime.frames import warn_user
from ...tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "cosine_similarity", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div",
    "l1_loss", "margin_ranking_loss", "mse_loss", "multilabel_soft_margin_loss",
    "pairwise_distance", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss",
]  # fmt: skip

_REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> str:
    """`reduction` if it is one of "none", "mean", "sum"; else ValueError."""
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction, want none, mean or sum")
    return reduction


def settled(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction asked for, maybe by its two old names; ValueError as `check_reduction`."""
    if size_average is None and reduce is None:
        return check_reduction(reduction)
    averages, reduces = size_average is not False, reduce is not False
    word = "none" if not reduces else "mean" if averages else "sum"
    warn_user(
        f"size_average and reduce args will be deprecated, please use reduction='{word}' instead.",
        shown=(),
    )
    return word


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """Losses of elements as `reduction` has them: themselves, their mean, or their sum."""
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" else losses.sum()


def _broadcast(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one shape; warns where they had two."""
    if input.shape == target.shape:
        return input, target
    warn_user(
        f"Using a target size ({target.shape}) that is different to the input size "
        f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
        "Please ensure they have the same size.",
        shown=(),
    )
    first, second = broadcast_tensors(input, target)
    return first, second


def _numbers(x: Tensor, other: Tensor) -> Tensor:
    """One of the operands of a loss; bools in the dtype of the other, unless that is of bools."""
    if x._array.dtype.kind != "b":
        return x
    if other._array.dtype.kind == "b":
        raise NotImplementedError(
            "a loss of differences is not implemented for 'Bool': convert an operand, x.float()"
        )
    return x.to(other.dtype)


def _check_weight(weight: Tensor, input: Tensor) -> None:
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")


# Differences --------------------------------------------------------------------------------------


@autocasts
@of_reals
def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """(input - target)², averaged, summed or per element; warns where shapes differ.

    With `weight`, of the shape of input, the mean is over the sum of the weights.
    """
    reduction = settled(reduction, size_average, reduce)
    first, second = _broadcast(_numbers(input, target), _numbers(target, input))
    difference = first - second  # which is all that is kept
    if weight is not None:
        return _weighted_mean(difference.square(), weight, input, reduction)
    if reduction == "none":
        return difference.square()
    return recorded.square_total(difference, reduction == "mean")


def _weighted_mean(losses: Tensor, weight: Tensor, input: Tensor, reduction: str) -> Tensor:
    _check_weight(weight, input)
    total = reduced(losses * weight, "sum" if reduction == "mean" else reduction)
    return total / weight.sum() if reduction == "mean" else total


@autocasts
def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """|input - target|, averaged, summed or per element; warns where shapes differ.

    With `weight`, of the shape of input, the mean is over the sum of the weights.
    """
    reduction = settled(reduction, size_average, reduce)
    first, second = _broadcast(input, target)
    losses = (first - second).abs()
    if weight is None:
        return reduced(losses, reduction)
    return _weighted_mean(losses, weight, input, reduction)


@autocasts
@of_reals
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """d² / (2 beta) where |d| < beta, else |d| - beta / 2, of d = input - target."""
    reduction = settled(reduction, size_average, reduce)
    beta = number(beta, "smooth_l1_loss", "beta")
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    first, second = _broadcast(_numbers(input, target), _numbers(target, input))
    if beta == 0:
        return reduced((first - second).abs(), reduction)
    return reduced(recorded.smooth_l1(first, second, beta), reduction)


@autocasts
@of_reals
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d² / 2 where |d| <= delta, else delta (|d| - delta / 2), of d = input - target."""
    check_reduction(reduction)
    delta = number(delta, "huber_loss", "delta")
    if isinstance(delta, complex):
        raise TypeError("huber_loss(): argument 'delta' (position 4) must be float, not complex")
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if input._array.dtype.kind == "b":
        raise RuntimeError("result type Float can't be cast to the desired output type Bool")
    first, second = _broadcast(input, _numbers(target, input))
    losses = recorded.huber(first, second, delta)
    if weight is not None:
        _check_weight(weight, input)
        losses = losses * weight
    return reduced(losses, reduction)


# Probabilities ------------------------------------------------------------------------------------


@autocasts
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-(target * log(input) + (1 - target) * log(1 - input)), for probabilities.

    The logarithms are at least -100. On the host, a RuntimeError for an input outside [0, 1].
    """
    reduction = settled(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    array = plain(input._array)
    if input.is_cpu and array.size and (array.min() < 0 or array.max() > 1):
        raise RuntimeError("all elements of input should be between 0 and 1")
    losses = recorded.binary_cross_entropy_each(input, target)
    return reduced(losses if weight is None else losses * weight, reduction)


@autocasts
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`binary_cross_entropy` of sigmoid(input), in log space; pos_weight scales positive targets.

    (1 - t) x - (1 + (pos_weight - 1) t) log σ(x), for x = input, t = target.
    """
    reduction = settled(reduction, size_average, reduce)
    if input.shape != target.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    if pos_weight is None and not target.is_complex():
        losses = recorded.binary_cross_entropy_with_logits_each(input, target)
    else:
        log_sigmoid = recorded.log_sigmoid(input)
        if pos_weight is not None:
            log_sigmoid = log_sigmoid * ((pos_weight - 1) * target + 1)
        losses = (1 - target) * input - log_sigmoid
    return reduced(losses if weight is None else losses * weight, reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The mean over classes, the last dim of input, of binary cross entropy with logits."""
    reduction = settled(reduction, size_average, reduce)
    losses = -(
        target * recorded.log_sigmoid(input) + (1 - target) * recorded.log_sigmoid(-input)
    )  # fmt: skip
    losses = losses if weight is None else losses * weight
    classes = input.dim() - 1
    return reduced(losses.sum(classes) / input.size(classes), reduction)


@autocasts
def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    """target * (log(target) - input): the divergence from log-probabilities `input`.

    `log_target` says that target holds log-probabilities too. "batchmean" divides the sum by the
    size of dim 0, as the definition has it; "mean" divides by the number of elements. RuntimeError
    for complex numbers and integers.
    """
    for x in (input, target):
        if isinstance(x, Tensor) and not x.dtype.is_floating_point:
            word = "Complex" if x.dtype.is_complex else "Integral"
            raise RuntimeError(f"kl_div: {word} inputs not supported. Got {x.dtype}")
    array_of(input, "kl_div")
    array_of(target, "kl_div", "target", 2)
    if reduction != "batchmean":
        reduction = settled(reduction, size_average, reduce)
    if reduction == "mean":
        warn_user(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.'mean' will be changed to behave the same as 'batchmean' in the next major "
            "release.",
            shown=(),
        )
    if log_target:
        losses = target.exp() * (target - input)
    else:
        losses = recorded.xlogy(target, target) - target * input
    if reduction != "batchmean":
        return reduced(losses, reduction)
    total = losses.sum()
    return total / input.shape[0] if input.dim() else total


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)² / var) / 2, with var at least eps; `full` adds log(2π) / 2.

    `var` is a float, of the shape of input, or with its last dim 1 or absent. On the host, a
    ValueError where it is negative.
    """
    check_reduction(reduction)
    spread = _variance(input, var)
    refuse_complex("gaussian_nll_loss", (spread,))
    # unseen by derivatives: below eps they are those at eps
    constant = spread.detach()
    spread = spread + (constant.clamp(min=eps) - constant)
    difference = input - target
    losses = 0.5 * (spread.log() + difference * difference / spread)
    return reduced(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


def _variance(input: Tensor, var: Tensor | float) -> Tensor:
    """`var` as a tensor that broadcasts with `input`."""
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        return full_like(input, var)
    array = plain(var._array)
    if var.is_cpu and array.size and array.min() < 0:
        raise ValueError("var has negative entry/entries")
    if var.shape == input.shape:
        return var
    if tuple(input.shape[:-1]) == tuple(var.shape):
        return var.unsqueeze(-1)
    unlike = [n for m, n in zip(input.shape, var.shape) if m != n]
    if input.dim() != var.dim() or unlike != [1]:
        raise ValueError("var is of incorrect size")
    return var


@autocasts
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False,
    size_average: bool | None = None, eps: float = 1e-08, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """exp(input) - target * input, or without `log_input` input - target * log(input + eps).

    `full` adds Stirling's approximation of log(target!) where target > 1.
    """
    reduction = settled(reduction, size_average, reduce)
    if log_input:
        losses = input.exp() - target * input
    else:
        losses = input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        losses = losses + stirling.masked_fill(target <= 1, 0).to(losses.dtype)
    return reduced(losses, reduction)


# Margins ------------------------------------------------------------------------------------------


@autocasts
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """log(1 + exp(-target * input)), for targets 1 and -1, without overflow."""
    reduction = settled(reduction, size_average, reduce)
    products = target * input
    if products.shape != input.shape:
        raise RuntimeError(
            f"soft_margin_loss: output with shape {list(input.shape)} doesn't match the broadcast "
            f"shape {list(products.shape)}: the target may not be larger than the input"
        )
    return reduced(-recorded.log_sigmoid(products), reduction)


@autocasts
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """`input` where target is 1, max(0, margin - input) where it is -1."""
    reduction = settled(reduction, size_average, reduce)
    apart = recorded.where(target != 1, recorded.clamp_min(+margin - input, 0), 0)
    return reduced(apart + recorded.where(target != -1, input, 0), reduction)


@autocasts
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, -target * (input1 - input2) + margin): a target of 1 ranks input1 higher."""
    reduction = settled(reduction, size_average, reduce)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return reduced(recorded.clamp_min(-target * (input1 - input2) + margin, 0), reduction)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm over the last dim of x1 - x2 + eps."""
    dims = (max(x1.dim(), x2.dim()) - 1,) if x1.dim() or x2.dim() else ()
    p = number(p, "pairwise_distance", "p")
    return recorded.linalg_vector_norm(x1 - x2 + eps, p, dims, keepdim)


@autocasts
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-06, swap: bool = False, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d the p-norm over the last dim.

    `swap` takes d(positive, negative) for the last where that is smaller.
    """
    reduction = settled(reduction, size_average, reduce)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
            f"negative {negative.dim()}D inputs"
        )
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = recorded.minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced(recorded.clamp_min(margin + near - far, 0), reduction)


@autocasts
@of_reals
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along `dim`; lengths count as at least eps."""
    kind = promote_types(x1.dtype, x2.dtype)
    first, second = broadcast_tensors(x1.to(kind), x2.to(kind))

    def direction(x: Tensor) -> Any:
        return x / recorded.clamp_min(x.norm(2, dim, keepdim=True), eps)

    return (direction(first) * direction(second)).sum(dim)


@autocasts
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1.

    Inputs have shape (N, D) or (D,), the target (N,) or ().
    """
    reduction = settled(reduction, size_average, reduce)
    if target.dim() > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if not input1.dim() == input2.dim() == target.dim() + 1:
        shapes = (
            "1D target tensor expects 2D" if target.dim() == 1 else "0D target tensor expects 1D"
        )
        raise RuntimeError(
            f"{shapes} input tensors, but found inputs with sizes {list(input1.shape)} and "
            f"{list(input2.shape)}, and target {list(target.shape)} (cosine_embedding_loss)"
        )
    dim, tiny = target.dim(), 1e-12
    lengths = ((input1 * input1).sum(dim) + tiny) * ((input2 * input2).sum(dim) + tiny)
    cosine = (input1 * input2).sum(dim) / lengths.sqrt()
    alike = recorded.where(target == 1, 1 - cosine, 0)
    apart = recorded.where(target == -1, recorded.clamp_min(cosine - +margin, 0), 0)
    return reduced(alike + apart, reduction)
