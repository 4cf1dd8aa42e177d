"""torch._VF: the functions of `torch` itself, which layers of programs call by this name."""

from __future__ import annotations

import sys
from typing import Any

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(sys.modules[__name__.partition(".")[0]], name)
