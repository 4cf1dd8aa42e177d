"""state_dict of a module tree, collected and loaded."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import __future__ as chosen
from ...autograd.mode import no_grad
from ...tensor import Tensor
from ..parameter import Parameter, is_lazy
from .conversion import load_by_swap

if TYPE_CHECKING:
    from ..modules.module import Module


EXTRA = "_extra_state"  # the key of what a module saves beside tensors


class _IncompatibleKeys(NamedTuple):
    """What load_state_dict could not match, by key."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        names = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({names})"


def by_position(args: tuple[Any, ...], *named: Any) -> tuple[Any, Any, Any]:
    """The options of `state_dict` where some are given in the old way; those by name count."""
    warnings.warn(
        "Positional args are being deprecated, use kwargs instead. Refer to "
        "https://pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.state_dict"
        " for details.",
        FutureWarning,
        stacklevel=3,
    )
    options = (*args, *(None, "", False)[len(args) :])
    destination = options[0] if named[0] is None else named[0]
    return destination, named[1] or options[1], named[2] or options[2]


class PostHook:
    """A hook of `state_dict` that may change the dict, and not replace it."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *args: Any) -> None:
        if self.hook(*args) is not None:
            raise RuntimeError("state_dict post-hook must return None")


class PreLoadHook:
    """A hook that sees what a module is about to read."""

    def __init__(self, hook: Callable[..., Any], with_module: bool) -> None:
        self.hook, self.with_module = hook, with_module

    def __call__(self, module: Module, *args: Any) -> None:
        if self.with_module:
            self.hook(module, *args)
        else:
            self.hook(*args)


def collect(
    module: Module, destination: OrderedDict[str, Any] | None, prefix: str, keep_vars: bool
) -> OrderedDict[str, Any]:
    """Write the state of `module` and all below it into `destination`."""
    if destination is None:  # tensors by dotted name, and the layout version of every module
        destination = OrderedDict()
        destination._metadata = OrderedDict()  # type: ignore[attr-defined]
    metadata = getattr(destination, "_metadata", None)
    local = {"version": module._version}
    if metadata is not None:
        metadata[prefix[:-1]] = local
    for hook in list(module._state_dict_pre_hooks.values()):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(
                destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
            )
    for hook in list(module._state_dict_hooks.values()):
        replaced = hook(module, destination, prefix, local)
        destination = destination if replaced is None else replaced
    return destination


def _own_state(module: Module) -> dict[str, Tensor]:
    own = {**module._parameters, **module._buffers}
    transient = module._non_persistent_buffers_set
    return {name: t for name, t in own.items() if t is not None and name not in transient}


def save_own(module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """Write the module's own parameters and persistent buffers."""
    for name, tensor in _own_state(module).items():
        destination[prefix + name] = tensor if keep_vars else tensor.detach()
    if _overrides(module, "get_extra_state"):
        destination[prefix + EXTRA] = module.get_extra_state()


def _overrides(module: Module, name: str) -> bool:
    from ..modules.module import Module

    return getattr(type(module), name) is not getattr(Module, name)


def load(
    module: Module, state_dict: Mapping[str, Any], strict: bool, assign: bool
) -> _IncompatibleKeys:
    """Copy `state_dict` into `module` and all below it; raise with everything that is wrong."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    metadata = getattr(state_dict, "_metadata", None) or {}
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []

    def visit(part: Module, prefix: str, entries: dict[str, Any]) -> None:
        local = dict(metadata.get(prefix[:-1], {}))
        if assign:
            local["assign_to_params_buffers"] = True
        if part._load_state_dict_pre_hooks:  # they see, and may change, what is below the module
            entries = {k: v for k, v in entries.items() if k.startswith(prefix)}
        part._load_from_state_dict(entries, prefix, local, True, missing, unexpected, errors)
        for name, child in part._modules.items():
            if child is not None:
                visit(child, f"{prefix}{name}.", entries)
        for hook in list(part._load_state_dict_post_hooks.values()):
            if hook(part, _IncompatibleKeys(missing, unexpected)) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                    "to return new values, if incompatible_keys need to be modified, it should be "
                    "done inplace."
                )

    visit(module, "", dict(state_dict))  # an override of _load_from_state_dict may rename keys
    if strict and unexpected:
        errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
    if strict and missing:
        errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    if errors:
        raise RuntimeError(
            "Error(s) in loading state_dict for {}:\n\t{}".format(
                type(module).__name__, "\n\t".join(errors)
            )
        )
    return _IncompatibleKeys(missing, unexpected)


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def load_own(
    module: Module,
    state_dict: dict[str, Any],
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Copy the entries under `prefix` into the module's own tensors; note what does not fit."""
    for hook in list(module._load_state_dict_pre_hooks.values()):
        hook(
            module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
            error_msgs,
        )  # fmt: skip
    own = _own_state(module)
    for name, tensor in own.items():
        key = prefix + name
        if key in state_dict:
            assign = local_metadata.get("assign_to_params_buffers", False)
            error = _load_entry(module, name, tensor, key, state_dict[key], assign)
            if error is not None:
                error_msgs.append(error)
        elif strict:
            missing_keys.append(key)
    extra = prefix + EXTRA
    if not _overrides(module, "set_extra_state"):
        if strict and extra in state_dict:
            unexpected_keys.append(extra)
    elif extra in state_dict:
        module.set_extra_state(state_dict[extra])
    elif strict:
        missing_keys.append(extra)
    if strict:
        for key in state_dict:
            if key.startswith(prefix) and key != extra:
                head, dot, _ = key[len(prefix) :].partition(".")
                if head not in (module._modules if dot else own):
                    unexpected_keys.append(key)


def _load_entry(
    module: Module, name: str, tensor: Tensor, key: str, value: Any, assign: bool
) -> str | None:
    """Load one tensor; returns the error message, if any."""
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(value)}"
        )
    if is_lazy(tensor) and is_lazy(value):
        return None  # neither has elements
    if not is_lazy(tensor) and tensor.shape == () and value.shape == (1,):
        value = value[0]  # files of PyTorch 0.3 have no tensors without dims
    if value.shape != tensor.shape:
        return (
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {tensor.shape}."
        )
    if tensor.is_meta and not value.is_meta and not assign:
        warnings.warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter "
            "in the current model, which is a no-op. (Did you mean to pass `assign=True` to assign "
            "items in the state dictionary to their corresponding key in the module instead of "
            "copying them in place?)",
            stacklevel=2,
        )
    swaps = chosen.get_swap_module_params_on_conversion()
    try:
        with no_grad():
            if swaps:
                load_by_swap(tensor, value, assign)
            elif not assign:
                tensor.copy_(value)
            elif isinstance(tensor, Parameter):
                if not isinstance(value, Parameter):
                    value = Parameter(value, requires_grad=tensor.requires_grad)
                setattr(module, name, value.requires_grad_(tensor.requires_grad))
            else:
                setattr(module, name, value)
    except Exception as error:
        action = "swapping" if swaps else "copying"
        return (
            f'While {action} the parameter named "{key}", whose dimensions in the model are '
            f"{tensor.size()} and whose dimensions in the checkpoint are {value.size()}, "
            f"an exception occurred : {error.args}."
        )
    return None
