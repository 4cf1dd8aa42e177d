"""PyTorch's import path `torch.nn.modules` for the layers."""

from typing import Any

from ...absent import missing
from . import module

__all__ = ["module"]


def __getattr__(name: str) -> Any:
    from .. import __dict__ as layers

    if name[:1].isupper() and name in layers:
        return layers[name]
    raise missing(__name__, name)
