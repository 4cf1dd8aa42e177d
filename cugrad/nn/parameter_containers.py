"""Modules that hold parameters: ParameterList, ParameterDict."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..tensor import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["ParameterDict", "ParameterList"]

ListSelf = TypeVar("ListSelf", bound="ParameterList")


def _held(value: Any) -> Any:
    """A tensor as a parameter; anything else as it is."""
    return Parameter(value) if isinstance(value, Tensor) and type(value) is Tensor else value


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    where = f" ({value.device})" if value.device.type != "cpu" else ""
    size = "x".join([str(n) for n in value.shape])
    return f"{kind} containing: [{value.dtype} of size {size}{where}]"


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

    def __repr__(self) -> str:
        lines = [f"\n    ({k}): {_described(value)}" for k, value in enumerate(self)]
        return f"{self._get_name()}({''.join(lines)}{chr(10) if lines else ''})"

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
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but "
                f"got {type(parameters).__name__}"
            )
        pairs = parameters.items() if isinstance(parameters, (Mapping, ParameterDict)) else None
        for key, value in parameters if pairs is None else pairs:
            self[key] = value

    def __repr__(self) -> str:
        lines = [f"\n    ({key}): {_described(value)}" for key, value in self.items()]
        return f"{self._get_name()}({''.join(lines)}{chr(10) if lines else ''})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")
