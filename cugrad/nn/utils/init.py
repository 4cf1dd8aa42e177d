"""Modules whose initial values do not matter."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from ...functions.creation.random import fork_rng
from ..modules.module import Module

__all__ = ["skip_init"]

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """A module whose parameters have some values or other; no generator notices that it was made.

    RuntimeError for a class that is no Module, or whose constructor has no argument `device`.

    >>> import cugrad as torch
    >>> torch.nn.utils.skip_init(torch.nn.Linear, 5, 1).weight.shape
    torch.Size([1, 5])
    """
    if not isinstance(module_cls, type) or not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    with fork_rng():
        return module_cls(*args, **kwargs)
