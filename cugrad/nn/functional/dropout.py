"""The dropout functions: random zeros per element or per channel, and those that keep variance."""

from __future__ import annotations

from ...autograd.recording.inplace import apply_inplace
from ...autograd.recording.record import recorded
from ...functions.calls.arguments import refuse_complex
from ...ops import random as draw
from ...ops.table import TABLE
from ...runtime.frames import warn_user
from ...tensor import Tensor, make

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
    "feature_dropout",
]  # fmt: skip

# What SELU gives far below zero, -scale * alpha: dropped elements become it. Source: Klambauer et
# al. 2017, https://arxiv.org/abs/1706.02515.
SATURATED = -1.7580993408473766


def check_probability(p: float) -> None:
    """ValueError where `p` is no probability."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropped(input: Tensor, p: float, inplace: bool, per_channel: bool = False) -> Tensor:
    """`input` with elements, or whole channels, dropped; one bit for each is kept for backward."""
    if p == 1.0:
        return input.mul_(0.0) if inplace else input * 0.0
    if input._array.size:
        refuse_complex("dropout", (input,))
    shape = tuple(input.shape)
    if per_channel:
        shape = (*shape[:2], *(1,) * (len(shape) - 2))
    bits = make(draw.bernoulli_bits(None, 1.0 - p, shape, input.device))
    if inplace:
        how = {"mask_shape": shape, "p": p}
        return apply_inplace(TABLE["native_dropout"], (input, bits), how)
    return recorded.native_dropout(input, bits, shape, p)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability `p` and scale the rest by 1 / (1 - p)."""
    check_probability(p)
    if not training or p == 0.0:
        return input
    return _dropped(input, p, inplace)


def feature_dropout(input: Tensor, p: float, train: bool, *, inplace: bool = False) -> Tensor:
    """Zero each channel, dim 1 of (N, C, ...), with probability `p`; scale the others."""
    check_probability(p)
    if not train or p == 0.0:
        return input
    if input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return _dropped(input, p, inplace, True)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, L) or (C, L) with probability `p`, and scale the others."""
    check_probability(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that "
            "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
            "a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    if input.dim() == 3:
        return feature_dropout(input, p, training, inplace=inplace)
    return _of_channels_first(input, p, training, inplace)


def _of_channels_first(input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    """An input without a batch dimension; in place, its view with one is changed."""
    result = feature_dropout(input.unsqueeze(0), p, training, inplace=inplace)
    return input if inplace else result.squeeze(0)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, H, W) with probability `p`, and scale the others.

    As in PyTorch a 3D input is taken as (N, C, L), with a warning.
    """
    check_probability(p)
    if input.dim() not in (3, 4):
        warn_user(
            f"dropout2d: Received a {input.dim()}-D input to dropout2d, which is deprecated and "
            "will result in an error in a future release. To retain the behavior and silence this "
            "warning, please use dropout instead.",
            shown=(),
        )
    elif input.dim() == 3:
        warn_user(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim.",
            shown=(),
        )
    return feature_dropout(input, p, training, inplace=inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero whole channels of (N, C, D, H, W) or (C, D, H, W) with probability `p`."""
    check_probability(p)
    if input.dim() not in (4, 5):
        warn_user(
            f"dropout3d: Received a {input.dim()}-D input to dropout3d, which is deprecated and "
            "will result in an error in a future release. To retain the behavior and silence this "
            "warning, please use dropout instead.",
            shown=(),
        )
    if input.dim() == 4:
        return _of_channels_first(input, p, training, inplace)
    return feature_dropout(input, p, training, inplace=inplace)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps the mean and the variance of a standard normal input, for SELU networks.

    Dropped elements become SELU's lowest value, then all are scaled and shifted.
    """
    return _alpha(input, p, training, inplace, per_channel=False)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """`alpha_dropout` of whole channels, dim 1 of (N, C, ...)."""
    return _alpha(input, p, training, inplace, per_channel=True)


def _alpha(input: Tensor, p: float, training: bool, inplace: bool, per_channel: bool) -> Tensor:
    check_probability(p)
    if not training or p == 0.0:
        return input
    if per_channel and input.dim() < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    if p == 1.0:
        return _dropped(input, p, inplace)
    # what is kept becomes scale x - p low, what is dropped (1 - p) low
    scale = 1 / ((1 - p) * (1 + p * SATURATED**2)) ** 0.5
    low = scale * SATURATED
    if inplace:
        input.mul_(scale).sub_(low)
        return _dropped(input, p, True, per_channel).mul_(1 - p).add_((1 - p) * low)
    return _dropped(input * scale - low, p, False, per_channel) * (1 - p) + (1 - p) * low
