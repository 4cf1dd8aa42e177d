"""Losses as modules: CrossEntropyLoss, NLLLoss, MSELoss."""

from __future__ import annotations

from ..tensor import Tensor
from . import functional
from .module import Module


class CrossEntropyLoss(Module):
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

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = functional.check_reduction(reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of logits `input` against `target`."""
        return functional.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(Module):
    """Negative log likelihood of target classes, given log-probabilities of shape (N, C, ...).

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.NLLLoss()(torch.tensor([[-0.5, -2.0]]), torch.tensor([0]))
    tensor(0.5000)
    """

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = functional.check_reduction(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of log-probabilities `input` against class numbers `target`."""
        return functional.nll_loss(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class MSELoss(Module):
    """Squared difference, averaged ("mean"), summed ("sum") or per element ("none").

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> nn.MSELoss()(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = functional.check_reduction(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss of `input` against `target` of the same shape."""
        return functional.mse_loss(input, target, reduction=self.reduction)
