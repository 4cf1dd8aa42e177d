"""Weights of convolutions in another memory format."""

from __future__ import annotations

from typing import Any, TypeVar

from ..modules import conv
from ..modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

M = TypeVar("M", bound=Module)


def _convert(module: M, kinds: Any, memory_format: Any) -> M:
    for part in module.modules():
        if isinstance(part, kinds):
            weight = part.weight.detach()
            part.weight.data = weight.clone().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Has the weights of all 2d convolutions in a module lie in a memory format; the module.

    >>> import cugrad as torch
    >>> from cugrad.nn.utils import convert_conv2d_weight_memory_format
    >>> net = convert_conv2d_weight_memory_format(torch.nn.Conv2d(3, 4, 2), torch.channels_last)
    >>> net.weight.is_contiguous(memory_format=torch.channels_last)
    True
    """
    return _convert(module, (conv.Conv2d, conv.ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """The same for 3d convolutions."""
    return _convert(module, (conv.Conv3d, conv.ConvTranspose3d), memory_format)
