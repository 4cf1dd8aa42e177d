"""Losses over classes, label sets, distances of one's own, and alignments, as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .functional import margin_losses
from .functional.loss import check_reduction
from .loss import _Loss, _WeightedLoss


class MultiMarginLoss(_WeightedLoss):
    """The mean over other classes of max(0, margin - x[y] + x[j])^p, for x of shape (N, C).

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.MultiMarginLoss()(torch.tensor([[0.1, 0.2, 0.4, 0.8]]), torch.tensor([3]))
    tensor(0.3250)
    """

    weight: Tensor | None

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        *,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.dim() != 1:
            raise ValueError(
                f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D"
            )
        self.p, self.margin, self.reduction = p, margin, check_reduction(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of scores `input` for class numbers `target`."""
        return margin_losses.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(_Loss):
    """Margins of the target classes over all others; `target` lists classes, ended by a -1."""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)

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
        super().__init__()
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin}"
            )
        self.distance_function, self.margin, self.swap = distance_function, margin, swap
        self.reduction = check_reduction(reduction)

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
        super().__init__()
        self.blank, self.zero_infinity = blank, zero_infinity
        self.reduction = check_reduction(reduction)

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """The loss of log-probabilities (T, N, C); see `functional.ctc_loss`."""
        return margin_losses.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction,
            self.zero_infinity,
        )  # fmt: skip
