"""What happens around an optimizer's step: its range in a profile, and the user's hooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..autograd.ranges import ranged
from ..autograd.recording.node import HookDict, RemovableHandle, add_hook
from ..graphs.capture import is_current_stream_capturing

__all__ = [
    "HOOKS", "observed", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook",
    "registered",
]  # fmt: skip

ACTS = ("step", "state_dict", "load_state_dict")
HOOKS = tuple(f"_optimizer_{act}_{when}_hooks" for act in ACTS for when in ("pre", "post"))
_global_optimizer_pre_hooks, _global_optimizer_post_hooks = HookDict(), HookDict()


def registered(hooks: HookDict, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    """Puts a hook behind, or with `prepend` before, those that are there."""
    handle = add_hook(hooks, hook)
    if prepend:
        others = [(key, hooks.pop(key)) for key in list(hooks) if key != handle.id]
        hooks.update(others)
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(optimizer, args, kwargs)` before each step of every optimizer.

    It may return other arguments.

    >>> import cugrad as torch
    >>> from cugrad.optim.optimizer import register_optimizer_step_pre_hook
    >>> handle = register_optimizer_step_pre_hook(lambda opt, args, kwargs: print("before"))
    >>> torch.optim.SGD([torch.ones(1, requires_grad=True)]).step()
    before
    >>> handle.remove()
    """
    return registered(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Calls `hook(optimizer, args, kwargs)` after each step of every optimizer.

    >>> import cugrad as torch
    >>> from cugrad.optim.optimizer import register_optimizer_step_post_hook
    >>> handle = register_optimizer_step_post_hook(lambda opt, args, kwargs: print("after"))
    >>> torch.optim.SGD([torch.ones(1, requires_grad=True)]).step()
    after
    >>> handle.remove()
    """
    return registered(_global_optimizer_post_hooks, hook)


def observed(step: Callable[..., Any]) -> Callable[..., Any]:
    """A `step` with its range and hooks, also that of a user's class; once, if it calls super's."""
    if getattr(step, "hooked", False):
        return step

    @wraps(step)
    def run(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        if self._stepping or "_optimizer_step_pre_hooks" not in vars(self):
            return step(
                *args, **kwargs
            )  # the latter: a wrapper that has made no optimizer of itself
        if is_current_stream_capturing():
            self._cuda_graph_capture_health_check()
        with ranged(f"Optimizer.step#{type(self).__name__}.step", "optimizer"):
            before, after = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
            if before or _global_optimizer_pre_hooks:
                for hook in [*_global_optimizer_pre_hooks.values(), *before.values()]:
                    args, kwargs = _arguments(step, hook(self, args, kwargs), args, kwargs)
            try:
                self._stepping = True
                out = step(*args, **kwargs)
            finally:
                self._stepping = False
            if after or _global_optimizer_post_hooks:
                for hook in [*after.values(), *_global_optimizer_post_hooks.values()]:
                    hook(self, args, kwargs)
        return out

    run.hooked = True  # type: ignore[attr-defined]
    return run


def _arguments(step: Any, changed: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a step after a hook has seen them."""
    if changed is None:
        return args, kwargs
    if isinstance(changed, tuple) and len(changed) == 2:
        return changed
    raise RuntimeError(
        f"{step} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
    )
