"""What losses with a reduction are, and that whose options PyTorch has under this path."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import dtype as DType
from ...tensor import Tensor
from ..functional.linear_cross_entropy import LinearCrossEntropyOptions, linear_cross_entropy
from ..functional.loss import settled
from .linear import Linear
from .module import Module

__all__ = ["LinearCrossEntropyOptions"]

LOSSES = f"{__package__}.loss"  # where PyTorch has these classes
LinearCrossEntropyOptions.__module__ = __name__


class _Loss(Module):
    """What losses are, for `isinstance`; a user's own keeps its `reduction`."""

    __module__ = LOSSES

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.reduction = settled(reduction, size_average, reduce)


class _WeightedLoss(_Loss):
    """Losses with a weight for each class."""

    __module__ = LOSSES

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy between a linear layer of the input, (N, in_features), and the target.

    `out_features` are the dims of a loss of several dims: the layer has num_classes times as many
    outputs. `options` asks for logits in chunks, see `LinearCrossEntropyOptions`.

    >>> import cugrad as torch
    >>> loss = torch.nn.LinearCrossEntropyLoss(3, 10)
    >>> loss(torch.randn(5, 3), torch.arange(5)).shape, loss.linear
    (torch.Size([]), Linear(in_features=3, out_features=10, bias=False))
    """

    __module__ = LOSSES

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (),
        bias: bool = False, device: Any = None, dtype: DType | None = None,
        reduction: str = "mean", weight: Tensor | None = None, ignore_index: int | None = None,
        label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
    ) -> None:  # fmt: skip
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0.0 <= label_smoothing <= 1.0:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features = num_classes, out_features
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        outputs = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, outputs, bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """`functional.linear_cross_entropy` with the layer and settings of this module."""
        places = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return linear_cross_entropy(
            input,
            self.linear.weight.reshape(*places, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(places),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """Sizes and settings."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
