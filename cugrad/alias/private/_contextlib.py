"""torch.utils._contextlib: what contexts derive from that are decorators, too."""

from __future__ import annotations

from typing import Any

from ...runtime.contexts import Context as _DecoratorContextManager

__all__ = ["_DecoratorContextManager", "_NoParamDecoratorContextManager"]


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that has no settings, and decorates without being called first."""

    def __new__(cls, orig_func: Any = None) -> Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
