"""Hooks common to all modules, which PyTorch has in `torch.nn.modules.module`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from ...autograd.recording.node import HookDict, RemovableHandle

__all__ = [
    "Hook", "added", "common", "everywhere", "own", "refuse_two_kinds",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook", "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook", "register_module_module_registration_hook",
    "register_module_parameter_registration_hook", "registered",
]  # fmt: skip


class Hook(NamedTuple):
    """A hook of a module, or of all of them, and how it wants to be called.

    A module keeps its own by the numbers of their handles, and beside them what they want.
    """

    call: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False
    kind: str = ""  # of those for all modules
    number: int = 0  # of its handle


everywhere = HookDict()  # one for all kinds: a module that is called looks here first


def common(kind: str) -> list[Hook]:
    """The hooks of one kind, in the order of registration."""
    return [hook for hook in list(everywhere.values()) if hook.kind == kind] if everywhere else []


def registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """What hooks make of a parameter, buffer or module that a module is given."""
    for hook in common(kind):
        changed = hook.call(module, name, value)
        value = value if changed is None else changed
    return value


def own(
    hooks: Mapping[int, Callable[..., Any]], with_kwargs: Mapping[int, bool],
    always_call: Mapping[int, bool] | None = None,
) -> list[Hook]:  # fmt: skip
    """A module's own hooks of one kind."""
    always = always_call or {}
    return [
        Hook(call, key in with_kwargs, key in always, number=key)
        for key, call in list(hooks.items())
    ]


def refuse_two_kinds(where: str) -> NoReturn:
    """A hook of gradients would join hooks of the other kind."""
    raise RuntimeError(
        "Cannot use both regular backward hooks and full backward hooks "
        f"{where}. Please use only one of them."
    )


def added(hooks: HookDict, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    """Puts a hook behind those that are there, or before them."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, got {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    behind = dict(hooks) if prepend else {}
    for key in behind:
        del hooks[key]
    hooks[handle.id] = hook
    hooks.update(behind)
    return handle


def _add(
    kind: str, hook: Callable[..., Any], with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    handle = added(everywhere, hook)
    everywhere[handle.id] = Hook(hook, with_kwargs, always_call, kind, handle.id)
    return handle


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, parameter)` whenever a module is given a parameter.

    What it returns is registered instead, unless it is None; as for buffers and modules.
    """
    return _add("parameter", hook)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` whenever a module is given a buffer."""
    return _add("buffer", hook)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` whenever a module is given a submodule."""
    return _add("module", hook)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before every forward of every module, before its own hooks."""
    return _add("forward_pre", hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after every forward of every module, before its own hooks.

    `with_kwargs` and `always_call` are those of `Module.register_forward_hook`.

    >>> from cugrad import nn
    >>> import cugrad as torch
    >>> names = []
    >>> hook = lambda module, args, output: names.append(type(module).__name__)
    >>> with nn.modules.module.register_module_forward_hook(hook):
    ...     x = nn.Sequential(nn.Identity(), nn.ReLU())(torch.ones(2))
    >>> names
    ['Identity', 'ReLU', 'Sequential']
    """
    return _add("forward", hook, with_kwargs, always_call)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Deprecated: `Module.register_backward_hook` of every module."""
    if common("full"):
        refuse_two_kinds("as a global Module hook")
    return _add("plain", hook)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_pre_hook` of every module, before its own hooks."""
    return _add("backward_pre", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_hook` of every module, before its own hooks."""
    if common("plain"):
        refuse_two_kinds("as a global Module hook")
    return _add("full", hook)
