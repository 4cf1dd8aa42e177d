"""Wraps layers of a model so that each call of one is a checkpoint, or leaves what it saves on the
host; the names in a state dict stay those of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from ...memory import save_on_cpu
from ...utils.checkpoint import checkpoint
from ..modules.module import Module
from ..parameter import Parameter

__all__ = [
    "ActivationWrapper", "CheckpointImpl", "CheckpointWrapper", "OffloadWrapper",
    "apply_activation_checkpointing", "checkpoint_wrapper", "offload_wrapper",
]  # fmt: skip

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = _CHECKPOINT_WRAPPED_MODULE + "."


class CheckpointImpl(Enum):
    """Which of the two checkpoints: `use_reentrant` of `torch.utils.checkpoint.checkpoint`."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """A module around another one, which is there for what a call of it saves."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_CHECKPOINT_WRAPPED_MODULE), name)

    def __getitem__(self, key: Any) -> Any:
        module: Any = self._checkpoint_wrapped_module
        return module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """The parameters by the names that they have in the module within."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), parameter


def _without_prefix(module: Module, state: dict[str, Any], prefix: str, *args: Any) -> Any:
    _replace(state, prefix + _CHECKPOINT_PREFIX, prefix)
    return state


def _with_prefix(module: Module, state: dict[str, Any], prefix: str, *args: Any) -> None:
    _replace(state, prefix, prefix + _CHECKPOINT_PREFIX)


def _replace(state: dict[str, Any], old: str, new: str) -> None:
    for name in [name for name in state if name.startswith(old)]:
        state[new + name[len(old) :]] = state.pop(name)


class OffloadWrapper(ActivationWrapper):
    """A module whose calls leave on the host what backward needs."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the module within."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """A module each call of which is a checkpoint: it runs again in backward."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = partial(
                checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT
            )
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the module within."""
        module = self._checkpoint_wrapped_module
        if not kwargs or self.checkpoint_impl is not CheckpointImpl.REENTRANT:
            return self.checkpoint_fn(module, *args, **kwargs)

        def by_place(*values: Any) -> Any:
            named = zip(kwargs, values[len(args) :], strict=True)
            return module(*values[: len(args)], **dict(named))

        return self.checkpoint_fn(by_place, *args, *kwargs.values())


def offload_wrapper(module: Module) -> Module:
    """A module around this one whose calls leave on the host what backward needs."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """A module around this one each call of which is a checkpoint.

    Args:
        module: what runs again in backward.
        checkpoint_impl: which of the two checkpoints.
        checkpoint_fn: called with the module and its arguments, instead of
            `torch.utils.checkpoint.checkpoint`.
        checkpoint_fn_kwargs: keywords for either.

    >>> import cugrad as torch
    >>> from cugrad.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    >>> layer = checkpoint_wrapper(torch.nn.Linear(2, 1))
    >>> list(layer.state_dict()), layer(torch.ones(3, 2)).shape
    (['weight', 'bias'], torch.Size([3, 1]))
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def _always(module: Module) -> bool:
    return True


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = _always,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Wraps those modules below a model, from the innermost on, of which a function says so.

    Args:
        model: changed in place; it is not wrapped itself.
        checkpoint_wrapper_fn: gives the module around one.
        check_fn: whether a module is wrapped.
        auto_wrap_policy: called with `module`, `recurse` and `nonwrapped_numel`, instead: whether
            to look below a module, or, with `recurse=False`, whether to wrap it. Of the elements of
            its parameters those count that are wrapped nowhere below it.

    >>> import cugrad as torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
    >>> apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, torch.nn.Linear))
    >>> [type(layer).__name__ for layer in model]
    ['CheckpointWrapper', 'Tanh']
    """

    def chosen(module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
        return recurse or check_fn(module)

    _wrap_below(model, checkpoint_wrapper_fn, auto_wrap_policy or chosen)


def _wrap_below(
    module: Module, wrapper: Callable[[Module], Module], policy: Callable[..., bool]
) -> int:
    """Wraps what is below a module; how many elements of its parameters are wrapped now."""
    elements, wrapped = sum([p.numel() for p in module.parameters()]), 0
    if not policy(module=module, recurse=True, nonwrapped_numel=elements):
        return 0
    for name, child in module.named_children():
        inside = _wrap_below(child, wrapper, policy)
        own = sum([p.numel() for p in child.parameters()])
        is_asked = policy(module=child, recurse=True, nonwrapped_numel=own)
        if is_asked and policy(module=child, recurse=False, nonwrapped_numel=own - inside):
            setattr(module, name, wrapper(child))
            inside = own
        wrapped += inside
    return wrapped
