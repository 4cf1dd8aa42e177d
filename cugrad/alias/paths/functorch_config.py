"""torch._functorch.config: settings of a compiler that is not there; each may be set."""

from __future__ import annotations

from typing import Any

from ._dynamo import Patch as patch

__all__ = ["patch"]


def __getattr__(name: str) -> Any:
    """None, until a program sets it."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
