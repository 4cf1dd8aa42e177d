"""torch.nn.utils._named_member_accessor: another tensor for one of a module's, by its name."""

from __future__ import annotations

from typing import Any

from ...nn.modules.module import Module
from ...tensor import Tensor

__all__ = ["set_tensor", "swap_tensor"]


def set_tensor(module: Module, name: str, tensor: Tensor | None) -> None:
    """Puts a tensor in the place of a parameter, a buffer or an attribute of a module."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(
    module: Module, name: str, tensor: Tensor | None, allow_missing: bool = False
) -> Tensor | None:
    """As `set_tensor`, and returns what was there; AttributeError for a name that was not.

    TypeError for what is no module, no tensor, or stands where something else than a tensor is.
    """
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if not (tensor is None or isinstance(tensor, Tensor)):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name or not name:
        raise KeyError(f'tensor name can\'t be empty or contain ".", got {name!r}')
    tables = (module._parameters, module._buffers)
    home: Any = next((t for t in tables if name in t), module.__dict__)
    if name not in home and not (hasattr(module, name) or allow_missing):
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    before = home.get(name, getattr(module, name, None))
    if before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    home[name] = tensor
    return before
