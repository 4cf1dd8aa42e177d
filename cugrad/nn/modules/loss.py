"""Losses as modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ...runtime.absent import explain
from ...tensor import Tensor
from ..functional import alignments, class_losses, loss, margin_losses
from .linear_cross_entropy_options import LinearCrossEntropyLoss, _Loss, _WeightedLoss

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "LinearCrossEntropyLoss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "PoissonNLLLoss",
    "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy between logits and target classes, or class probabilities.

    Logits have shape (C,), (N, C) or (N, C, d1, ...); a target of class numbers has the same
    shape without C, one of probabilities the shape of the logits. `weight` has shape (C,).
    `ignore_index` marks targets that do not count, `label_smoothing` in [0, 1] mixes the
    target with the uniform distribution, `reduction` is "mean", "sum" or "none".

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> loss = nn.CrossEntropyLoss()(torch.zeros(2, 4), torch.tensor([0, 3]))
    >>> round(loss.item(), 4)  # log(4)
    1.3863
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of logits `input` against `target`."""
        return class_losses.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_WeightedLoss):
    """Negative log likelihood of target classes, given log-probabilities of shape (N, C, ...).

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.NLLLoss()(torch.tensor([[-0.5, -2.0]]), torch.tensor([0]))
    tensor(0.5000)
    """

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of log-probabilities `input` against class numbers `target`."""
        return class_losses.nll_loss(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class NLLLoss2d(NLLLoss):
    """Deprecated: `NLLLoss`, which takes inputs of any number of dims."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        warnings.warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in "
            "replacement.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class MSELoss(_Loss):
    """Squared difference, averaged ("mean"), summed ("sum") or per element ("none").

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.MSELoss()(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of `input` against `target` of the same shape."""
        return loss.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """|input - target|, averaged, summed or per element."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.l1_loss` with the settings of this module."""
        return loss.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """d² / (2 beta) where |d| < beta, else |d| - beta / 2, of d = input - target."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.smooth_l1_loss` with the settings of this module."""
        return loss.smooth_l1_loss(input, target, beta=self.beta, reduction=self.reduction)


class HuberLoss(_Loss):
    """d² / 2 where |d| <= delta, else delta (|d| - delta / 2), of d = input - target."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, (float, int)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.huber_loss` with the settings of this module."""
        return loss.huber_loss(input, target, delta=self.delta, reduction=self.reduction)


class BCELoss(_WeightedLoss):
    """Binary cross entropy between probabilities `input` and `target`."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.binary_cross_entropy` with the settings of this module."""
        return loss.binary_cross_entropy(
            input, target, weight=self.weight, reduction=self.reduction
        )


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of sigmoid(input) with `target`, computed in log space.

    `weight` scales losses, `pos_weight` those of positive targets; both broadcast.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.BCEWithLogitsLoss()(torch.tensor([0.0, 1000.0]), torch.tensor([0.0, 1.0]))
    tensor(0.3466)
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.binary_cross_entropy_with_logits` with the settings of this module."""
        return loss.binary_cross_entropy_with_logits(
            input, target, weight=self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """The divergence of `target` from log-probabilities `input`: target * (log(target) - input).

    `log_target` says that the target holds log-probabilities too. The mean of the definition is
    "batchmean"; "mean" divides by the number of elements.
    """

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
        log_target: bool = False,
    ) -> None:  # fmt: skip
        is_batchmean = reduction == "batchmean"
        super().__init__(size_average, reduce, "mean" if is_batchmean else reduction)
        self.log_target = log_target
        if is_batchmean:
            self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.kl_div` with the settings of this module."""
        return loss.kl_div(input, target, log_target=self.log_target, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """`input` where the target is 1, max(0, margin - input) where it is -1."""

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.hinge_embedding_loss` with the settings of this module."""
        return loss.hinge_embedding_loss(
            input, target, margin=self.margin, reduction=self.reduction
        )


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)), for targets 1 and -1."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.soft_margin_loss` with the settings of this module."""
        return loss.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The mean over classes, the last dim, of binary cross entropy with logits."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.multilabel_soft_margin_loss` with the settings of this module."""
        return loss.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )


class MarginRankingLoss(_Loss):
    """max(0, -target * (input1 - input2) + margin): a target of 1 ranks input1 higher."""

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """`functional.margin_ranking_loss` with the settings of this module."""
        return loss.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class CosineEmbeddingLoss(_Loss):
    """1 - cos(input1, input2) where the target is 1, max(0, cos - margin) where it is -1."""

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """`functional.cosine_embedding_loss` with the settings of this module."""
        return loss.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class TripletMarginLoss(_Loss):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d the p-norm of differences."""

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False,
        size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """`functional.triplet_margin_loss` with the settings of this module."""
        return loss.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class GaussianNLLLoss(_Loss):
    """The negative log likelihood of `target` under normal distributions (input, var)."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        """`functional.gaussian_nll_loss` with the settings of this module."""
        return loss.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )


class PoissonNLLLoss(_Loss):
    """The negative log likelihood of counts `target`; `log_input`: input is log of the rate."""

    def __init__(
        self, log_input: bool = True, full: bool = False, size_average: bool | None = None,
        eps: float = 1e-08, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """`functional.poisson_nll_loss` with the settings of this module."""
        return loss.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class MultiMarginLoss(_WeightedLoss):
    """The mean over other classes of max(0, margin - x[y] + x[j])^p, for x of shape (N, C).

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.MultiMarginLoss()(torch.tensor([[0.1, 0.2, 0.4, 0.8]]), torch.tensor([3]))
    tensor(0.3250)
    """

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
        size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise ValueError(
                f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D"
            )
        super().__init__(weight, size_average, reduce, reduction)
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of scores `input` for class numbers `target`."""
        return margin_losses.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(_Loss):
    """Margins of the target classes over all others; `target` lists classes, ended by a -1."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of scores `input` (N, C) for the classes `target` (N, C)."""
        return margin_losses.multilabel_margin_loss(input, target, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) with a distance of one's own."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin}"
            )
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of the three."""
        return margin_losses.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction,
        )  # fmt: skip


class CTCLoss(_Loss):
    """-log of the probability of label sequences, over all alignments with the input.

    Source: Graves et al. 2006, Connectionist Temporal Classification.
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """The loss of log-probabilities (T, N, C); see `functional.ctc_loss`."""
        return alignments.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
            self.zero_infinity,
        )  # fmt: skip


explain(__name__)
