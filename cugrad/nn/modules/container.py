"""Modules that hold other modules, or parameters."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeVar, overload

from ...functions.interop.legacy import typename
from ...tensor import Tensor
from ..base.pairs import pairs_of
from ..parameter import Parameter
from .module import Module, indent

__all__ = [
    "Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential",
]  # fmt: skip

Self = TypeVar("Self", bound="_Numbered")
ListSelf = TypeVar("ListSelf", bound="ParameterList")


class _Numbered(Module):
    """Children in order under the names "0", "1", ... (or their own, from an OrderedDict)."""

    def _key(self, index: int) -> str:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range")
        return list(self._modules)[position]

    def _of(self: Self, modules: Iterable[tuple[str, Module]]) -> Self:
        part = type(self)()
        for name, module in modules:
            part.add_module(name, module)
        return part

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self: Self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._of(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        keys = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            del self._modules[key]
        self._number(self._modules.values())

    def _number(self, modules: Iterable[Module]) -> None:
        self._modules = {str(position): module for position, module in enumerate(modules)}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self: Self, module: Module) -> Self:
        """Add `module` at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: Self, modules: Iterable[Module]) -> Self:
        """Add every module of an iterable at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"{self._get_name()}.extend should be called with an iterable, "
                f"but got {type(modules).__name__}"
            )
        for module in list(modules):
            self.append(module)
        return self

    def insert(self: Self, index: int, module: Module) -> Self:
        """Put `module` before position `index`; those behind move up by one."""
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        modules = list(self)
        modules.insert(index, module)
        self._number(modules)
        return self

    def pop(self, key: int | slice) -> Any:
        """Take out and return the module at `key`."""
        taken = self[key]
        del self[key]
        return taken


class Sequential(_Numbered):
    """Modules called one after the other, each on the output of the one before.

    Takes modules, or one OrderedDict of named modules.

    >>> from cugrad import nn
    >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
    )
    """

    def __init__(self, *args: Module | OrderedDict[str, Module]) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for position, part in enumerate(args):
                self.add_module(str(position), part)  # type: ignore[arg-type]

    def extend(self: Self, sequential: Iterable[Module]) -> Self:
        """Add every module of an iterable at the end."""
        return super().extend(sequential)

    def forward(self, input: Any) -> Any:
        """Feed `input` through every module in order."""
        for module in self._modules.values():
            input = module(input)
        return input

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *_another(other))

    def __iadd__(self, other: Sequential) -> Sequential:
        return self.extend(_another(other))

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*(list(self) * _times(other)))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        return self.extend(list(self) * (_times(other) - 1))


def _another(other: Any) -> Sequential:
    if not isinstance(other, Sequential):
        raise ValueError(
            f"add operator supports only objects of Sequential class, but {type(other)} is given."
        )
    return other


def _times(other: Any) -> int:
    if not isinstance(other, int):
        raise TypeError(f"unsupported operand type(s) for *: {Sequential} and {type(other)}")
    if other <= 0:
        raise ValueError(f"Non-positive multiplication factor {other} for {Sequential}")
    return other


class ModuleList(_Numbered):
    """A list of modules, registered so that their parameters are found; it has no forward.

    >>> from cugrad import nn
    >>> layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    >>> len(list(layers.parameters()))
    6
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _of(self, modules: Iterable[tuple[str, Module]]) -> ModuleList:
        return type(self)(module for _, module in modules)

    def insert(self, index: int, module: Module) -> None:  # type: ignore[override]
        """Put `module` before position `index`; those behind move up by one."""
        super().insert(index, module)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __repr__(self) -> str:
        runs: list[list[Any]] = []  # [first, last, repr]: equal neighbours share a line
        for position, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1][1] = position
            else:
                runs.append([position, position, text])
        lines = [
            f"({first}): {text}"
            if first == last
            else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        body = "\n  " + "\n  ".join(indent(line) for line in lines) + "\n" if lines else ""
        return f"{self._get_name()}({body})"


class ModuleDict(Module):
    """A dictionary of modules, registered so that their parameters are found.

    >>> from cugrad import nn
    >>> nn.ModuleDict({"encoder": nn.Linear(2, 2)})["encoder"]
    Linear(in_features=2, out_features=2, bias=True)
    """

    def __init__(
        self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None
    ) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """(name, module) pairs."""
        return self._modules.items()

    def clear(self) -> None:
        """Take out every module."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take out and return the module called `key`."""
        return self._modules.pop(key)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add every (name, module) of a mapping or of an iterable of pairs."""
        for name, module in pairs_of("ModuleDict", modules):
            self[name] = module


def _held(value: Any) -> Any:
    """A tensor as a parameter; anything else as it is."""
    return Parameter(value) if isinstance(value, Tensor) and type(value) is Tensor else value


def _described(value: Any, kind_of: Callable[[Any], Any] = attrgetter("dtype")) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    where = f" ({value.device})" if value.device.type != "cpu" else ""
    size = "x".join([str(n) for n in value.shape])
    return f"{kind} containing: [{kind_of(value)} of size {size}{where}]"


class ParameterList(Module):
    """A list of parameters, which are registered; tensors that are put in become parameters.

    Other values may be in it, too.

    >>> import cugrad as torch
    >>> params = torch.nn.ParameterList([torch.ones(2), torch.zeros(3)])
    >>> params
    ParameterList(
        (0): Parameter containing: [torch.float32 of size 2]
        (1): Parameter containing: [torch.float32 of size 3]
    )
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _key(self, index: Any) -> str:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range")
        return str(position % len(self))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(self[i] for i in range(*index.indices(len(self))))
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._key(index), _held(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self: ListSelf, values: Iterable[Any]) -> ListSelf:
        return self.extend(values)

    def append(self: ListSelf, value: Any) -> ListSelf:
        """Add a value at the end."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self: ListSelf, values: Iterable[Any]) -> ListSelf:
        """Add every value of an iterable at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(
                f"{self._get_name()}.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join([f"  ({k}): {_described(value)}" for k, value in enumerate(self)])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters, which are registered; tensors that are put in become parameters.

    Other values may be in it, too; keys are texts, in the order in which they came.

    >>> import cugrad as torch
    >>> params = torch.nn.ParameterDict({"left": torch.ones(2)})
    >>> params["right"] = torch.zeros(3)
    >>> [name for name, _ in params.named_parameters()]
    ['left', 'right']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _name(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'). Open an issue on github if you need non-string "
                "keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._name(key))

    def __setitem__(self, key: str, value: Any) -> None:
        name = self._name(key)
        self._keys[name] = None
        setattr(self, name, _held(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._name(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: ParameterDict) -> ParameterDict:
        both = self.copy()
        both.update(other)
        return both

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Another one that holds the same values."""
        return ParameterDict({key: self[key] for key in self})

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value for a key, which is put in first if it is not there."""
        if key not in self:
            self[key] = default
        return self[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The value for a key, or `default` if it is not there."""
        return getattr(self, key) if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new one, with the same value for all keys."""
        return ParameterDict(dict.fromkeys(keys, default))

    def clear(self) -> None:
        """Take out every value."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take out and return the value for a key."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take out and return the last key and its value."""
        key = next(reversed(self))
        return key, self.pop(key)

    def keys(self) -> Iterable[str]:
        """The keys."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self[key] for key in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        """(key, value) pairs."""
        return [(key, self[key]) for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Add every (key, value) of a mapping or of an iterable of pairs."""
        pairs = pairs_of("ParameterDict", parameters)
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs = sorted(pairs)  # as PyTorch does, from before dicts were in order
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join([f"  ({k}): {_described(v, typename)}" for k, v in self.items()])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")


class Container(Module):
    """Deprecated: a module with the modules that are given by name. Subclass Module instead."""

    def __init__(self, **kwargs: Any) -> None:
        warnings.warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in "
            "`nn.Module`. Subclass that instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)
