"""A layer and the batch norm behind it as one layer, in evaluation."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from ...functions.creation.factories import ones_like, zeros_like
from ...tensor import Tensor
from ..modules.batchnorm import _BatchNorm
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
]  # fmt: skip

M = TypeVar("M", bound=Module)


def _fused(layer: Any, bn: Any, fuse: Any, *more: Any) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused = copy.deepcopy(layer)
    stats = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    fused.weight, fused.bias = fuse(fused.weight, fused.bias, *stats, *more)
    return fused


def fuse_conv_bn_eval(conv: M, bn: _BatchNorm, transpose: bool = False) -> M:
    """A convolution that computes what `bn` makes of the result of `conv`.

    `transpose`: the convolution is transposed. AssertionError unless both are in evaluation mode
    and `bn` tracks statistics.

    >>> import cugrad as torch
    >>> conv, bn = torch.nn.Conv2d(2, 3, 2).eval(), torch.nn.BatchNorm2d(3).eval()
    >>> x = torch.randn(1, 2, 4, 4)
    >>> torch.allclose(torch.nn.utils.fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-5)
    True
    """
    fused: M = _fused(conv, bn, fuse_conv_bn_weights, transpose)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor | None, bn_b: Tensor | None, transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """The weight and bias of a convolution that does the work of a batch norm too."""
    dtype, bias_dtype = conv_w.dtype, conv_w.dtype if conv_b is None else conv_b.dtype
    conv_b = zeros_like(bn_rm) if conv_b is None else conv_b
    bn_w = ones_like(bn_rm) if bn_w is None else bn_w
    bn_b = zeros_like(bn_rm) if bn_b is None else bn_b
    scale = bn_w * (bn_rv + bn_eps).rsqrt()
    ahead = [1, -1] if transpose else [-1, 1]
    weight = conv_w * scale.reshape(ahead + [1] * (conv_w.dim() - 2))
    bias = (conv_b - bn_rm) * scale + bn_b
    return (Parameter(weight.to(dtype).detach(), conv_w.requires_grad),
            Parameter(bias.to(bias_dtype).detach(), conv_b.requires_grad))  # fmt: skip


def fuse_linear_bn_eval(linear: M, bn: _BatchNorm) -> M:
    """A fully connected layer that computes what `bn` makes of the result of `linear`.

    AssertionError unless both are in evaluation mode, `bn` tracks statistics, and has as many
    features, or one.
    """
    features = linear.out_features
    if bn.num_features not in (1, features) and not (linear.training or bn.training):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={features} and bn.num_features={bn.num_features}"
        )
    fused: M = _fused(linear, bn, fuse_linear_bn_weights)
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
    bn_w: Tensor, bn_b: Tensor,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """The weight and bias of a fully connected layer that does the work of a batch norm too."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
