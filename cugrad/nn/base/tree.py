"""The tree of named parts that a Module is: registration and walking, no computing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ...functions.interop.legacy import typename
from ...runtime.absent import because
from ...tensor import Tensor
from ..parameter import Buffer, Parameter
from .global_hooks import registered

Self = TypeVar("Self", bound="Tree")


class Tree:
    """Parameters, buffers and children by name, found by assigning them as attributes."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Any]

    def __init__(self) -> None:
        # past __setattr__, which needs these rooms to be there
        self.__dict__.update(
            _parameters={}, _buffers={}, _non_persistent_buffers_set=set(), _modules={}
        )

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in own:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, keep="_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Tree):
            if "_modules" not in own:
                raise AttributeError("cannot assign module before Module.__init__() call")
            if name in own["_parameters"]:
                self._reject(value, "parameter", name, "nn.Parameter")
            self._forget(name, keep="_modules")
            self._modules[name] = registered("module", self, name, value)
        elif name in own.get("_parameters", ()):
            if value is not None:
                self._reject(value, "parameter", name, "nn.Parameter")
            self._parameters[name] = None
        elif name in own.get("_modules", ()):
            if value is not None:
                self._reject(value, "child module", name, "nn.Module")
            self._modules[name] = registered("module", self, name, None)
        elif name in own.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                self._reject(value, "buffer", name, "nn.Buffer, torch.Tensor")
            self._buffers[name] = registered("buffer", self, name, value)
            if isinstance(value, Buffer):  # which says anew whether a state dict holds it
                note = set.discard if value.persistent else set.add
                note(own["_non_persistent_buffers_set"], name)
        elif isinstance(value, Tensor) and isinstance(value, Buffer):
            if "_buffers" not in own:
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            self._forget(name, keep="_buffers")
            self.register_buffer(name, value, value.persistent)
        else:
            object.__setattr__(self, name, value)

    @staticmethod
    def _reject(value: object, kind: str, name: str, type_name: str) -> None:
        raise TypeError(
            f"cannot assign '{typename(value)}' as {kind} '{name}' "
            f"(torch.{type_name} or None expected)"
        )

    def _forget(self, name: str, keep: str) -> None:
        """Take `name` out of every room but the one it is about to enter."""
        own = self.__dict__
        own.pop(name, None)
        for room in ("_parameters", "_buffers", "_modules"):
            if room != keep:
                own[room].pop(name, None)
        own["_non_persistent_buffers_set"].discard(name)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for room in ("_parameters", "_buffers", "_modules"):
            if room in own and name in own[room]:
                return own[room][name]
        raise AttributeError(
            f"'{type(self).__name__}' object has no attribute '{name}'"
            + because("cugrad.nn.Module", name)
        )

    def __delattr__(self, name: str) -> None:
        for room in (self._parameters, self._buffers, self._modules):
            if name in room:
                del room[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__}
        names.update(self._parameters, self._buffers, self._modules)
        return sorted(name for name in names if not name[0].isdigit())

    def _check_name(self, kind: str, room: str, name: str) -> None:
        if room not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
        if "." in name:
            got = f", got: {name}" if kind == "module" else ""
            raise KeyError(f'{kind} name can\'t contain "."{got}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[room]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add `param` under `name`; None declares a parameter that this instance lacks."""
        self._check_name("parameter", "_parameters", name)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{typename(param)}' object to parameter '{name}' "
                "(torch.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                f"created explicitly. To express '{name}' as a function of another Tensor, "
                "compute the value in the forward() method."
            )
        if param is not None:
            param = registered("parameter", self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but no parameter; `persistent` puts it in state_dict."""
        self._check_name("buffer", "_buffers", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{typename(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        self._buffers[name] = registered("buffer", self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Tree | None) -> None:
        """Add a submodule under `name`, which may be no valid identifier, such as "0"."""
        if module is not None and not isinstance(module, Tree):
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name("module", "_modules", name)
        self._modules[name] = registered("module", self, name, module)

    register_module = add_module

    # --- walking the tree

    def named_modules(
        self: Self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """Yield (dotted name, module) for this module and all below it, parents first."""
        memo = set() if memo is None else memo
        pending: list[tuple[str, Any]] = [(prefix, self)]
        while pending:
            path, module = pending.pop()
            if remove_duplicate:
                if module in memo:
                    continue
                memo.add(module)
            yield path, module
            dot = "." if path else ""
            pending.extend(
                (path + dot + name, child)
                for name, child in reversed(module._modules.items())
                if child is not None
            )

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """Yield this module and all below it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, module) for the direct submodules, each module once."""
        seen: set[Any] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Any]:
        """Yield the direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, room: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules: Iterable[tuple[str, Any]] = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, member in module.__dict__[room].items():
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(member))
                yield path + ("." if path else "") + name, member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield (dotted name, parameter); `recurse=False` keeps to this module's own."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield every parameter once; what optimizers are given."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield (dotted name, buffer); `recurse=False` keeps to this module's own."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield every buffer once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Any:
        """The submodule at a dotted path; "" is this module."""
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Tree):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Tree, strict: bool = False) -> None:
        """Puts a module at a dotted path; `strict`: in the place of one that is there.

        Raises ValueError for an empty path or what is no module, AttributeError for a path on which
        something is missing, or no module.
        """
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Tree):
            raise AttributeError(f"`{name}` is not an nn.Module")
        if not isinstance(module, Tree):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        parameter = module._member(name, "_parameters", "an nn.Parameter")
        if parameter is None:
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        return module._member(name, "_buffers", "a buffer")

    def _member(self, name: str, room: str, description: str) -> Any:
        if not hasattr(self, name):
            raise AttributeError(f"{type(self).__name__} has no attribute `{name}`")
        if name not in self.__dict__[room]:
            raise AttributeError(f"`{name}` is not {description}")
        return self.__dict__[room][name]
