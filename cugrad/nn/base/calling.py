"""Calls modules through their hooks, and registers these."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ...autograd.mode import state as watched
from ...autograd.ranges import ranged
from ...autograd.recording.node import HookDict, RemovableHandle
from ...functions.calls.mistakes import MISTAKES, explained
from .backward_hooks import BackwardHooks, add_plain_hooks
from .global_hooks import Hook, added, common, everywhere, own, refuse_two_kinds
from .tree import Tree

__all__ = ["Called"]

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Called(Tree):
    """What is called as a function, computes `forward`, and tells its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self._forward_pre_hooks = HookDict()
        self._forward_hooks = HookDict()
        self._backward_pre_hooks = HookDict()
        self._backward_hooks = HookDict()
        # by the numbers of their handles: which hooks want what, as PyTorch keeps it
        self._forward_pre_hooks_with_kwargs: dict[int, bool] = {}
        self._forward_hooks_with_kwargs: dict[int, bool] = {}
        self._forward_hooks_always_called: dict[int, bool] = {}
        self._is_full_backward_hook: bool | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's output; every subclass writes its own."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if watched.ranges:
            with ranged(f"nn.Module: {type(self).__name__}", "module", owner=self):
                return self._call_with_hooks(args, kwargs)
        if (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks
                or self._backward_pre_hooks or everywhere):  # fmt: skip
            return self._call_with_hooks(args, kwargs)
        try:
            return self.forward(*args, **kwargs)
        except MISTAKES as error:
            better = explained(error)
            if better is None:
                raise
            raise better from None

    def _call_with_hooks(self, args: Args, kwargs: Kwargs) -> Any:
        result, called, behind = None, set(), None
        try:
            before = own(self._forward_pre_hooks, self._forward_pre_hooks_with_kwargs)
            for hook in [*common("forward_pre"), *before]:
                args, kwargs = self._run_pre_hook(hook, args, kwargs)
            full = [hook.call for hook in common("full")]
            plain = [hook.call for hook in common("plain")]
            if self._backward_hooks:
                kind = full if self._is_full_backward_hook is not False else plain
                kind += self._backward_hooks.values()
            early = [hook.call for hook in common("backward_pre")]
            early += self._backward_pre_hooks.values()
            if full or early:
                behind = BackwardHooks(self, full, early)
                args = behind.around_inputs(args)
            result = self.forward(*args, **kwargs)
            for hook in [*common("forward"), *self._own_forward_hooks()]:
                called.add(hook.number)
                result = self._run_hook(hook, args, kwargs, result)
            result = result if behind is None else behind.around_outputs(result)
            if plain:
                add_plain_hooks(self, plain, args, result)
            return result
        except Exception:
            self._run_always(called, args, kwargs, result)
            raise

    def _own_forward_hooks(self) -> list[Hook]:
        return own(
            self._forward_hooks, self._forward_hooks_with_kwargs, self._forward_hooks_always_called
        )

    def _run_always(self, called: set[int], args: Args, kwargs: Kwargs, result: Any) -> None:
        """The hooks that run although forward, or another hook, has failed."""
        for hooks, of in ((common("forward"), "global "), (self._own_forward_hooks(), "")):
            for hook in hooks:
                if not hook.always_call or hook.number in called:
                    continue
                try:
                    result = self._run_hook(hook, args, kwargs, result)
                except Exception as error:
                    warnings.warn(
                        f"{of}module forward hook with ``always_call=True`` raised an exception "
                        f"that was silenced as another error was raised in forward: {error}",
                        stacklevel=4,
                    )

    def _run_pre_hook(self, hook: Hook, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        if not hook.with_kwargs:
            changed = hook.call(self, args)
            if changed is None:
                return args, kwargs
            return (changed if isinstance(changed, tuple) else (changed,)), kwargs
        changed = hook.call(self, args, kwargs)
        if changed is None:
            return args, kwargs
        if isinstance(changed, tuple) and len(changed) == 2:
            return changed
        raise RuntimeError(
            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
            f"but got {changed}."
        )

    def _run_hook(self, hook: Hook, args: Args, kwargs: Kwargs, result: Any) -> Any:
        changed = (
            hook.call(self, args, kwargs, result)
            if hook.with_kwargs
            else hook.call(self, args, result)
        )
        return result if changed is None else changed

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before every forward; what it returns replaces `args`.

        With `with_kwargs` the hook is called as `hook(module, args, kwargs)` and may return
        `(args, kwargs)`. The handle's `remove()` takes the hook out again.
        """
        handle = added(self._forward_pre_hooks, hook, prepend)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after every forward; its result replaces the output.

        With `with_kwargs` the hook is called as `hook(module, args, kwargs, output)`; with
        `always_call` also when forward raised. The handle's `remove()` takes the hook out.
        """
        handle = added(self._forward_hooks, hook, prepend)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` when the gradients of the outputs have come.

        It gets them as a tuple, with None for what is no tensor; what it returns replaces them.
        """
        return added(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs have come.

        Both are tuples, with None for what is no tensor; what the hook returns replaces
        `grad_input`. Where no input requires a gradient it is called with the outputs'. Positional
        arguments of forward that are tensors count as inputs; neither they nor the outputs may be
        changed in place.

        >>> import cugrad as torch
        >>> layer = torch.nn.ReLU()
        >>> handle = layer.register_full_backward_hook(lambda m, inputs, outputs: (inputs[0] * 2,))
        >>> x = torch.ones(2, requires_grad=True)
        >>> layer(x).sum().backward()
        >>> x.grad
        tensor([2., 2.])
        """
        self._set_kind_of_backward_hooks(True)
        return added(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Deprecated: call `hook(module, grad_input, grad_output)` with what the node that made the
        output was given and returned, which need not be the gradients of the module's inputs.

        `register_full_backward_hook` sees those; a module can have hooks of one kind.
        """
        self._set_kind_of_backward_hooks(False)
        return added(self._backward_hooks, hook)

    def _set_kind_of_backward_hooks(self, full: bool) -> None:
        if self._is_full_backward_hook is (not full):
            refuse_two_kinds("on a single Module")
        self._is_full_backward_hook = full
