"""PyTorch's import path `torch.nn.modules` for the layers."""

from typing import Any

from . import module

__all__ = ["module"]


def __getattr__(name: str) -> Any:
    from .. import __dict__ as layers

    if name[:1].isupper() and name in layers:
        return layers[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
