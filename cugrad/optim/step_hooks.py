"""What happens around an optimizer's step: its range in a profile, and the user's hooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..autograd.ranges import ranged
from ..autograd.recording.node import HookDict, RemovableHandle, add_hook

__all__ = ["Hooks", "observed", "registered"]


class Hooks:
    """The hooks of an optimizer, by when they run; made when the first one is registered."""

    def __init__(self) -> None:
        self.before_step, self.after_step = HookDict(), HookDict()
        self.before_save, self.after_save = HookDict(), HookDict()
        self.before_load, self.after_load = HookDict(), HookDict()
        self.stepping = False


def registered(hooks: HookDict, hook: Callable[..., Any], prepend: bool) -> RemovableHandle:
    """Puts a hook behind, or with `prepend` before, those that are there."""
    handle = add_hook(hooks, hook)
    if prepend:
        others = [(key, hooks.pop(key)) for key in list(hooks) if key != handle.id]
        hooks.update(others)
    return handle


def observed(step: Callable[..., Any]) -> Callable[..., Any]:
    """A `step` with its range and hooks, also that of a user's class; once, if it calls super's."""

    @wraps(step)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks = self.hooks
        if hooks.stepping:
            return step(self, *args, **kwargs)
        with ranged(f"Optimizer.step#{type(self).__name__}.step", "optimizer"):
            for hook in list(hooks.before_step.values()):
                changed = hook(self, args, kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), but got "
                        f"{changed}."
                    )
                args, kwargs = changed
            try:
                hooks.stepping = True
                out = step(self, *args, **kwargs)
            finally:
                hooks.stepping = False
            for hook in list(hooks.after_step.values()):
                hook(self, args, kwargs)
        return out

    return run
