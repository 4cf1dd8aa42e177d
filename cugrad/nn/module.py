"""Module: the tree of layers that owns parameters and buffers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from .. import dtypes
from ..autograd.mode import no_grad
from ..autograd.mode import state as watched
from ..autograd.node import HookDict, RemovableHandle
from ..autograd.ranges import ranged
from ..tensor import Tensor
from . import state
from .backward_hooks import BackwardHooks
from .tree import Tree

Self = TypeVar("Self", bound="Module")


class _Hook(NamedTuple):
    call: Callable[..., Any]
    with_kwargs: bool
    always_call: bool


def _add_hook(hooks: HookDict, hook: Any, prepend: bool) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    behind = dict(hooks) if prepend else {}
    for key in behind:
        del hooks[key]
    hooks[handle.id] = hook
    hooks.update(behind)
    return handle


def indent(text: str) -> str:
    """Text with all lines but the first moved right by two, as nested reprs show."""
    first, *rest = text.split("\n")
    return "\n".join([first] + ["  " + line if line.strip() else "" for line in rest])


class Module(Tree):
    """Base class of all layers and models: subclass it, assign parts, write `forward`.

    Parameters, buffers and submodules assigned as attributes are registered by name and take part
    in `parameters()`, `state_dict()`, `to()` and the rest.

    >>> import cugrad as torch
    >>> from cugrad import nn
    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = nn.Parameter(torch.ones(()))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> [name for name, _ in Scale().named_parameters()]
    ['factor']
    """

    _version: int = 1  # of the state_dict layout, raised when a subclass's keys change

    def __init__(self) -> None:
        super().__init__()
        self.training = True
        self._forward_pre_hooks = HookDict()
        self._forward_hooks = HookDict()
        self._backward_pre_hooks = HookDict()
        self._backward_hooks = HookDict()

    # --- calling

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's output; every subclass writes its own."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if watched.ranges:
            with ranged(f"nn.Module: {type(self).__name__}", "module", owner=self):
                return self._call_with_hooks(args, kwargs)
        if (self._forward_hooks or self._forward_pre_hooks
                or self._backward_hooks or self._backward_pre_hooks):  # fmt: skip
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result, called, behind = None, set(), None
        try:
            for hook in list(self._forward_pre_hooks.values()):
                args, kwargs = self._run_pre_hook(hook, args, kwargs)
            if self._backward_hooks or self._backward_pre_hooks:
                pre_hooks = self._backward_pre_hooks.values()
                behind = BackwardHooks(self, self._backward_hooks.values(), pre_hooks)
                args = behind.around_inputs(args)
            result = self.forward(*args, **kwargs)
            for key, hook in list(self._forward_hooks.items()):
                called.add(key)
                result = self._run_hook(hook, args, kwargs, result)
            return result if behind is None else behind.around_outputs(result)
        except BaseException:
            for key, hook in list(self._forward_hooks.items()):
                if hook.always_call and key not in called:
                    result = self._run_hook(hook, args, kwargs, result)
            raise

    def _run_pre_hook(
        self, hook: _Hook, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
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

    def _run_hook(
        self, hook: _Hook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
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
        return _add_hook(self._forward_pre_hooks, _Hook(hook, with_kwargs, False), prepend)

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
        return _add_hook(self._forward_hooks, _Hook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` when the gradients of the outputs have come.

        It gets them as a tuple, with None for what is no tensor; what it returns replaces them.
        """
        return _add_hook(self._backward_pre_hooks, hook, prepend)

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
        return _add_hook(self._backward_hooks, hook, prepend)

    # --- modes, dtypes, devices

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every submodule and then on this module, as for initialisation."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self: Self, mode: bool = True) -> Self:
        """Set training (or, with False, evaluation) mode on this module and all below it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode; the same as `train(False)`."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Switch gradients on or off for every parameter, as for freezing a part of a model."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros when `set_to_none` is False."""
        for parameter in self.parameters():
            if parameter.grad is None:
                continue
            if set_to_none:
                parameter.grad = None
                continue
            if parameter.grad.grad_fn is not None:  # a gradient made under create_graph
                parameter.grad.detach_()
            else:
                parameter.grad.requires_grad_(False)
            parameter.grad.zero_()

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Put `fn`'s result in place of every parameter's data, gradient and buffer."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is None:
                    continue
                gradient = parameter.grad
                parameter.grad = None  # it must not disagree with the data in between
                parameter.data = fn(parameter.data)
                if gradient is not None:
                    parameter.grad = fn(gradient)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    def to(
        self: Self,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
        non_blocking: bool = False,
    ) -> Self:
        """Move and cast parameters and buffers in place: `to(device)`, `to(dtype)`, `to(tensor)`.

        Only floating-point and complex tensors are cast; integer buffers just move.

        Raises:
            TypeError: for an integer or boolean dtype.
        """
        if isinstance(device, Tensor):
            device, dtype = device.device, device.dtype
        elif isinstance(device, dtypes.dtype):
            device, dtype = None, device
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, "
                f"but got desired dtype={dtype}"
            )

        def convert(tensor: Tensor) -> Tensor:
            castable = tensor.is_floating_point() or tensor.is_complex()
            return tensor.to(device, dtype if castable else None, non_blocking)

        return self._apply(convert)

    def cuda(self: Self, device: int | str | None = None) -> Self:
        """Move parameters and buffers to a GPU, the current one by default."""
        return self._apply(lambda tensor: tensor.cuda(device))

    def cpu(self: Self) -> Self:
        """Move parameters and buffers to the host."""
        return self._apply(lambda tensor: tensor.cpu())

    def type(self: Self, dst_type: dtypes.dtype | str) -> Self:
        """Cast every parameter and buffer to `dst_type`, integer buffers too."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def _cast(self: Self, dtype: dtypes.dtype) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self._cast(dtypes.float32)

    def double(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float64."""
        return self._cast(dtypes.float64)

    def half(self: Self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self._cast(dtypes.float16)

    def bfloat16(self: Self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self._cast(dtypes.bfloat16)

    # --- state_dict

    def state_dict(
        self,
        *,
        destination: OrderedDict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> OrderedDict[str, Any]:
        """Every parameter and persistent buffer by dotted name, sharing memory with the module.

        `keep_vars` gives the parameters themselves instead of detached tensors.
        """
        return state.collect(self, destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy `state_dict` into the parameters and buffers; returns the keys left over.

        `strict` demands the same keys on both sides; `assign` puts the given tensors in place
        (keeping `requires_grad`) instead of copying their values.

        Raises:
            RuntimeError: lists every missing or unexpected key and every size mismatch.
        """
        return state.load(self, state_dict, strict, assign)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Write this module's own entries (override point)."""
        state.save_own(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Read this module's own entries and report what does not fit (override point)."""
        state.load_own(
            self,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    # --- looks

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What a subclass adds to its repr, as `in_features=3, bias=True`."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr().split("\n") if self.extra_repr() else []
        children = [f"({name}): {indent(repr(child))}" for name, child in self._modules.items()]
        if len(extra) == 1 and not children:
            return f"{self._get_name()}({extra[0]})"
        lines = extra + children
        body = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{self._get_name()}({body})"
