"""torch.nn.grad: gradients of convolutions, as functions."""

from __future__ import annotations

from typing import Any

from ..autograd.recording.record import recorded
from ..backends.windows import Ints, numbers
from ..runtime.absent import explain
from ..tensor import Tensor


def _input(n: int, size: Any, weight: Tensor, grad: Tensor, *settings: Ints) -> Tensor:
    stride, padding, dilation = (numbers(value, n) for value in settings[:3])
    how = (stride, padding, dilation, settings[3])
    single = grad.dim() == n + 1
    batch = grad.unsqueeze(0) if single else grad
    result = recorded.convolution_input(batch, weight, tuple(size)[-n:], *how)
    return result.squeeze(0) if single else result


def _weight(n: int, input: Tensor, size: Any, grad: Tensor, *settings: Ints) -> Tensor:
    stride, padding, dilation = (numbers(value, n) for value in settings[:3])
    how = (stride, padding, dilation, settings[3])
    if grad.dim() == n + 1:
        input, grad = input.unsqueeze(0), grad.unsqueeze(0)
    return recorded.convolution_weight(grad, input, tuple(size)[2:], *how)


def conv1d_input(
    input_size: Any, weight: Tensor, grad_output: Tensor, stride: Ints = 1, padding: Ints = 0,
    dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv1d` in its input, which has the shape `input_size`."""
    return _input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor, weight_size: Any, grad_output: Tensor, stride: Ints = 1, padding: Ints = 0,
    dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv1d` in its weight, which has the shape `weight_size`."""
    return _weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Any, weight: Tensor, grad_output: Tensor, stride: Ints = 1, padding: Ints = 0,
    dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` in its input, which has the shape `input_size`.

    >>> import cugrad as torch
    >>> weight, grad = torch.ones(2, 1, 3, 3), torch.ones(1, 2, 6, 6)
    >>> torch.nn.grad.conv2d_input((1, 1, 8, 8), weight, grad).shape
    torch.Size([1, 1, 8, 8])
    """
    return _input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor, weight_size: Any, grad_output: Tensor, stride: Ints = 1, padding: Ints = 0,
    dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` in its weight, which has the shape `weight_size`."""
    return _weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Any, weight: Tensor, grad_output: Tensor, stride: Ints = 1, padding: Ints = 0,
    dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv3d` in its input, which has the shape `input_size`."""
    return _input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor, weight_size: Any, grad_output: Tensor, stride: Ints = 1, padding: Ints = 0,
    dilation: Ints = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """The gradient of `conv3d` in its weight, which has the shape `weight_size`."""
    return _weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)


explain(__name__)
