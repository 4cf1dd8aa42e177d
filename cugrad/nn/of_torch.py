"""Functions of nn that are functions of torch itself too.

Where the two differ, those here have the form of PyTorch's C++: all arguments by position, the
reduction of a loss as a number, and `train` for `training`.
"""

from __future__ import annotations

from typing import Any

from ..autograd.recording.record import recorded
from ..functions import FUNCTIONS, accepting
from ..functions.creation.random import Generator
from ..functions.methods import METHODS
from ..tensor import Tensor
from . import functional
from .functional import (
    adaptive_avg_pool1d,
    avg_pool1d,
    celu,
    celu_,
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_similarity,
    feature_dropout,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    prelu,
    rms_norm,
    rrelu_,
    selu,
    selu_,
    threshold_,
)
from .functional.activation import randomly_leaky
from .functional.embedding import begins_of, padding_of

__all__ = [
    "adaptive_avg_pool1d", "adaptive_max_pool1d", "addmv_", "alpha_dropout", "alpha_dropout_",
    "as_strided_", "avg_pool1d", "batch_norm", "binary_cross_entropy_with_logits", "celu", "celu_",
    "conj_physical_", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity",
    "ctc_loss", "detach", "detach_", "dropout", "dropout_", "embedding", "embedding_bag",
    "feature_alpha_dropout", "feature_alpha_dropout_", "feature_dropout", "feature_dropout_",
    "group_norm", "hinge_embedding_loss", "index_put_", "instance_norm", "kl_div", "layer_norm",
    "ldexp_", "log_softmax", "margin_ranking_loss", "max_pool1d", "max_pool1d_with_indices",
    "max_pool2d", "max_pool3d", "pairwise_distance", "poisson_nll_loss", "prelu", "rms_norm",
    "rrelu", "rrelu_", "selu", "selu_", "softmax", "threshold", "threshold_",
    "triplet_margin_loss",
]  # fmt: skip

# In torch itself these have out=.
log_softmax, softmax, threshold = accepting(
    {"log_softmax": METHODS["log_softmax"], "softmax": METHODS["softmax"],
     "threshold": functional.threshold},
    ["log_softmax", "softmax", "threshold"],
).values()  # fmt: skip
addmv_, as_strided_, conj_physical_, detach, detach_, index_put_, ldexp_ = accepting(
    {name: getattr(Tensor, name)
     for name in ("addmv_", "as_strided_", "conj_physical_", "detach", "detach_", "index_put_",
                  "ldexp_")},
    (),
).values()  # fmt: skip


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """`nn.functional.rrelu`, with a generator that draws the slopes."""
    return randomly_leaky(input, lower, upper, training, generator, False)


def _reduction(number: int) -> str:
    """The word for PyTorch's number of a reduction; of one that it does not know, "none"."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"argument 'reduction' must be int, not {type(number).__name__}")
    return {1: "mean", 2: "sum"}.get(number, "none")


# Pooling, normalisation, embedding ----------------------------------------------------------------


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """Maxima of `output_size` parts of the last dim, and where they are.

    >>> import cugrad as torch
    >>> torch.adaptive_max_pool1d(torch.tensor([[1., 3., 2., 0.]]), 2)
    (tensor([[3., 2.]]), tensor([[1, 2]]))
    """
    values, indices = functional.adaptive_max_pool1d(input, output_size, return_indices=True)
    return values, indices


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`nn.functional.batch_norm`; `cudnn_enabled` changes nothing, since cuDNN is not used."""
    return functional.batch_norm(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
    cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """`nn.functional.instance_norm`; `cudnn_enabled` changes nothing."""
    return functional.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """`nn.functional.layer_norm`; `cudnn_enable` changes nothing."""
    return functional.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """`nn.functional.group_norm`; `cudnn_enabled` changes nothing."""
    return functional.group_norm(input, num_groups, weight, bias, eps)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    """The rows of `weight` at `indices`; the row `padding_idx`, unless -1, gets no gradient.

    >>> import cugrad as torch
    >>> torch.embedding(torch.eye(3), torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    return functional.embedding(
        indices, weight, None if padding_idx == -1 else padding_idx,
        scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
    )  # fmt: skip


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """`nn.functional.embedding_bag`, of which mode 0 is "sum", 1 "mean" and 2 "max"; and of what.

    Behind the result are the bag of each index, how many count in each bag (0 for "sum"), and for
    "max" the row that each number is from, else the third again. RuntimeError for another mode.

    >>> import cugrad as torch
    >>> rows, at = torch.eye(3), torch.tensor([2, 0, 1])
    >>> torch.embedding_bag(rows, at, torch.tensor([0, 2]), mode=1)[1:3]
    (tensor([0, 0, 1]), tensor([2, 1]))
    """
    if mode not in (0, 1, 2):
        raise RuntimeError("`mode` must be sum, mean, or max.")
    result = functional.embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq,
        mode=("sum", "mean", "max")[mode], sparse=sparse, per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset, padding_idx=padding_idx,
    )  # fmt: skip
    bags, begins = result.shape[0], begins_of(indices, offsets, include_last_offset)
    places = FUNCTIONS["arange"](indices.shape[0], dtype=offsets.dtype, device=offsets.device)
    bag = FUNCTIONS["searchsorted"](begins, places, right=True) - 1
    counted = indices != padding_of(weight, padding_idx)
    sizes = indices.new_zeros(bags)
    if mode:
        sizes = sizes.index_add(0, bag, counted.to(indices.dtype))
    largest = sizes.clone()
    if mode == 2:
        padding = padding_of(weight, padding_idx)
        rows = recorded.embedding_bag_max(weight.detach(), indices, begins, padding)[1]
        largest = rows.masked_fill(rows == weight.shape[0], 0).to(indices.dtype)
    return result, bag.to(indices.dtype), sizes, largest


# Dropout ------------------------------------------------------------------------------------------


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout`."""
    return functional.dropout(input, p, train)


def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.dropout`, in place."""
    return functional.dropout(input, p, train, inplace=True)


def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.alpha_dropout`."""
    return functional.alpha_dropout(input, p, train)


def alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.alpha_dropout`, in place."""
    return functional.alpha_dropout(input, p, train, inplace=True)


def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.feature_alpha_dropout`."""
    return functional.feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`nn.functional.feature_alpha_dropout`, in place."""
    return functional.feature_alpha_dropout(input, p, train, inplace=True)


def feature_dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """`feature_dropout`, in place."""
    return functional.feature_dropout(input, p, train, inplace=True)


# Losses -------------------------------------------------------------------------------------------


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None,
    pos_weight: Tensor | None = None, reduction: int = 0,
) -> Tensor:  # fmt: skip
    """`nn.functional.binary_cross_entropy_with_logits`; reduction 0 "none", 1 "mean", 2 "sum".

    So it is with all losses of this form: where nothing is said there is no reduction.
    """
    return functional.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight=pos_weight, reduction=_reduction(reduction)
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.cosine_embedding_loss`."""
    return functional.cosine_embedding_loss(
        input1, input2, target, margin, reduction=_reduction(reduction)
    )


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: int = 0, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """`nn.functional.ctc_loss`."""
    return functional.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _reduction(reduction),
        zero_infinity,
    )  # fmt: skip


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.hinge_embedding_loss`."""
    return functional.hinge_embedding_loss(input, target, margin, reduction=_reduction(reduction))


def kl_div(
    input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False
) -> Tensor:
    """`nn.functional.kl_div`; reduction 1, "mean", is over elements."""
    losses = functional.kl_div(input, target, reduction="none", log_target=log_target)
    word = _reduction(reduction)
    return losses if word == "none" else losses.mean() if word == "mean" else losses.sum()


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """`nn.functional.margin_ranking_loss`."""
    return functional.margin_ranking_loss(
        input1, input2, target, margin, reduction=_reduction(reduction)
    )


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """`nn.functional.poisson_nll_loss`."""
    return functional.poisson_nll_loss(
        input, target, log_input, full, eps=eps, reduction=_reduction(reduction)
    )


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0,
    eps: float = 1e-6, swap: bool = False, reduction: int = 0,
) -> Tensor:  # fmt: skip
    """`nn.functional.triplet_margin_loss`."""
    return functional.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, reduction=_reduction(reduction)
    )
