"""Module: the tree of layers that owns parameters and buffers, and hooks of all modules."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from ... import dtypes
from ...autograd.mode import no_grad
from ...autograd.recording.node import HookDict, RemovableHandle, add_hook
from ...compiler.uncompiled import compile
from ...functions.creation.factories import empty_like
from ...functions.maths.together import zero_gradients
from ...runtime.absent import explain
from ...tensor import Tensor
from ..base import state
from ..base.calling import Called
from ..base.conversion import convert
from ..base.global_hooks import (
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from ..base.tree import Tree
from ..parameter import is_lazy

__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook",
    "register_module_forward_hook", "register_module_forward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]  # fmt: skip

Self = TypeVar("Self", bound="Module")
_IncompatibleKeys = state._IncompatibleKeys
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
NONE: Mapping[int, Any] = MappingProxyType({})


def indent(text: str) -> str:
    """Text with all lines but the first moved right by two, as nested reprs show."""
    first, *rest = text.split("\n")
    return "\n".join([first] + ["  " + line if line.strip() else "" for line in rest])


class Module(Called):
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
    # hooks of state_dict; those of a module are in a dict of its own
    _state_dict_pre_hooks = NONE
    _state_dict_hooks = NONE
    _load_state_dict_pre_hooks = NONE
    _load_state_dict_post_hooks = NONE

    call_super_init: bool = False  # whether arguments go to the class behind Module
    dump_patches: bool = False  # PyTorch's, of files that hold source

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            name = f"{type(self).__name__}.__init__()"
            if kwargs:
                raise TypeError(f"{name} got an unexpected keyword argument '{next(iter(kwargs))}'")
            raise TypeError(f"{name} takes 1 positional argument but {len(args) + 1} were given")
        super().__init__()
        self.training = True
        if self.call_super_init:
            super(Tree, self).__init__(*args, **kwargs)

    # --- modes, dtypes, devices

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every submodule and then on this module, as for initialisation."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Leave this module as it is, and check and warn as `torch.compile` does of it."""
        compile(self, *args, **kwargs)

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

    _fills_gradients = False  # whether it was last told to set gradients to zero, which stay

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop every parameter's gradient, or fill it with zeros when `set_to_none` is False."""
        if self._fills_gradients == bool(set_to_none):
            self._fills_gradients = not set_to_none
        if not set_to_none:
            zero_gradients(self.parameters())
            return
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad = None

    _of_older_files: Mapping[str, Any] = MappingProxyType({})  # what whole modules in them lack

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes the attributes of a module that was pickled, perhaps by an older version."""
        own = self.__dict__
        own.update(state)
        blank = object.__new__(Module)
        Module.__init__(blank)
        for name, value in {**blank.__dict__, **self._of_older_files}.items():
            own.setdefault(name, value)

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Put `fn`'s result in place of every parameter's data, gradient and buffer."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with no_grad():
            for name, parameter in self._parameters.items():
                if parameter is not None:
                    convert(self, name, parameter, fn)
            for name, buffer in self._buffers.items():
                if buffer is not None and is_lazy(buffer):
                    buffer.data = fn(buffer.data)
                elif buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    def to(
        self: Self,
        device: Any = None,
        dtype: dtypes.dtype | None = None,
        non_blocking: bool = False,
        *,
        memory_format: Any = None,
    ) -> Self:
        """Move and cast parameters and buffers in place: `to(device)`, `to(dtype)`, `to(tensor)`.

        Only floating-point and complex tensors are cast; integer buffers just move. Weights of four
        dims, or five, are laid out as `memory_format` says.

        Raises:
            TypeError: for an integer or boolean dtype.
        """
        if isinstance(device, Tensor):
            device, dtype = device.device, device.dtype
        elif isinstance(device, dtypes.dtype):
            device, dtype = None, device
        if dtype is not None and not isinstance(dtype, dtypes.dtype):
            raise TypeError(f"nn.Module.to: got {type(dtype).__name__} for dtype, want a dtype")
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, "
                f"but got desired dtype={dtype}"
            )
        if dtype is not None and dtype.is_complex:
            warnings.warn(
                "Complex modules are a new feature under active development whose design may "
                "change, and some modules might not work as expected when using complex tensors as "
                "parameters or buffers.",
                stacklevel=2,
            )

        def convert(tensor: Tensor) -> Tensor:
            castable = tensor.is_floating_point() or tensor.is_complex()
            kind = dtype if castable else None
            if memory_format is None or tensor.dim() not in (4, 5):
                return tensor.to(device, kind, non_blocking)
            return tensor.to(device, kind, non_blocking, memory_format=memory_format)

        return self._apply(convert)

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Move parameters and buffers to a device without their values, which are left open."""
        return self._apply(lambda tensor: empty_like(tensor, device=device), recurse)

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

    def share_memory(self: Self) -> Self:
        """Moves parameters and buffers into memory that other processes see.

        RuntimeError for those that have no shape yet.
        """
        for tensor in filter(is_lazy, (*self.parameters(), *self.buffers())):
            tensor.share_memory_()
        return self._apply(lambda t: t.share_memory_())

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
        *args: Any,
        destination: OrderedDict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> OrderedDict[str, Any]:
        """Every parameter and persistent buffer by dotted name, sharing memory with the module.

        `keep_vars` gives the parameters themselves instead of detached tensors. Arguments by
        position are deprecated.
        """
        if args:
            destination, prefix, keep_vars = state.by_position(args, destination, prefix, keep_vars)
        return state.collect(self, destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state._IncompatibleKeys:
        """Copy `state_dict` into the parameters and buffers; returns the keys left over.

        `strict` demands the same keys on both sides; `assign` puts the given tensors in place
        (keeping `requires_grad`) instead of copying their values.

        Raises:
            RuntimeError: lists every missing or unexpected key and every size mismatch.
        """
        return state.load(self, state_dict, strict, assign)

    def _own_hooks(self, name: str) -> HookDict:
        """The hooks of one kind, in a dict of this module's own from the first one on."""
        return self.__dict__.setdefault(name, HookDict())

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` collects the module's own."""
        return add_hook(self._own_hooks("_state_dict_pre_hooks"), hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` once the module's entries, and
        those below it, are in `state_dict`, which the hook may change. It must return None.
        """
        return add_hook(self._own_hooks("_state_dict_hooks"), state.PostHook(hook))

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The same; what the hook of the module that was asked returns, replaces the result."""
        return add_hook(self._own_hooks("_state_dict_hooks"), hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` before the module's own entries are read.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        """The same; without `with_module` the hook is not given the module."""
        before = state.PreLoadHook(hook, with_module)
        return add_hook(self._own_hooks("_load_state_dict_pre_hooks"), before)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` once the module, and what is below it, is loaded.

        The hook may change the lists `missing_keys` and `unexpected_keys`. It must return None.
        """
        return add_hook(self._own_hooks("_load_state_dict_post_hooks"), hook)

    def get_extra_state(self) -> Any:
        """What else `state_dict` is to hold of the module; with `set_extra_state` for a subclass
        to write.
        """
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called: write "
            "get_extra_state and set_extra_state in a subclass"
        )

    def set_extra_state(self, state: Any) -> None:
        """Takes back what `get_extra_state` has returned."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called: write "
            "get_extra_state and set_extra_state in a subclass"
        )

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


explain(__name__)
