"""DistributedDataParallel, which is not available: there is no package for several processes."""

from __future__ import annotations

from typing import Any

from ...absent import DISTRIBUTED, PAGE
from ..modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """A class that can be imported, and asked of a module; making one raises RuntimeError."""

    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"DistributedDataParallel: {DISTRIBUTED} ({PAGE})")
