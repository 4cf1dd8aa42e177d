"""torch.utils.hooks: handles of hooks, and marks for hooks that are not saved."""

from __future__ import annotations

import warnings
from typing import Any

from ..autograd.recording.node import RemovableHandle
from ..runtime.absent import explain

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Any) -> Any:
    """Marks a function: a tensor that has it as a hook is saved without it, and with no warning."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Any) -> None:
    """Warns if a tensor has backward hooks, which are lost when it is saved."""
    for hook in list((tensor._backward_hooks or {}).values()):
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, "
                "you can decorate the function with @torch.utils.hooks.unserializable_hook to "
                "suppress this warning",
                stacklevel=2,
            )


explain(__name__)
