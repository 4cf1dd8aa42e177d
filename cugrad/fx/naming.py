"""What functions, types and values are called in generated code: PyTorch's names for them."""

from __future__ import annotations

import builtins
import inspect
import keyword
import math
import re
import sys
from collections.abc import Callable, Hashable
from types import FunctionType, GenericAlias
from typing import Any, NamedTuple

from ..device import device
from ..overrides import resolve_name
from ..utils import _pytree as pytree
from . import _pytree as fx_pytree
from .binding import NAMES

__all__ = [
    "BUILTINS",
    "Builtin",
    "Namespace",
    "is_ours",
    "qualified_name",
    "snake_case",
    "type_name",
]

LIBRARY = __name__.partition(".")[0]


class Builtin(NamedTuple):
    """What generated code may use without an import, and how a file would import it."""

    import_str: str
    obj: Any


# `torch` is this library in generated code, whatever else goes by that name.
BUILTINS = {
    "inf": Builtin("from math import inf", math.inf),
    "nan": Builtin("from math import nan", math.nan),
    "NoneType": Builtin("NoneType = type(None)", type(None)),
    "torch": Builtin(f"import {LIBRARY} as torch", sys.modules[LIBRARY]),
    "device": Builtin(f"from {LIBRARY} import device", device),
    "fx_pytree": Builtin(f"import {LIBRARY}.fx._pytree as fx_pytree", fx_pytree),
    "pytree": Builtin(f"import {LIBRARY}.utils._pytree as pytree", pytree),
}
_TAKEN: dict[str, Any] = {
    **{word: object() for word in keyword.kwlist}, **vars(builtins),
    **{name: entry.obj for name, entry in BUILTINS.items()},
}  # fmt: skip
_NAME = re.compile(r"^([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?$")
_NO_LETTERS = re.compile("[^0-9a-zA-Z_]+")
_humps = re.compile(r"(?<=[a-z])([A-Z])")


def snake_case(name: str) -> str:
    """A name as Python's variables are written.

    >>> snake_case("BatchNorm"), snake_case("ALL_CAPS")
    ('batch_norm', 'all_caps')
    """
    return _humps.sub(r"_\1", name).lower()


class Namespace:
    """Names that are in use, each for one object at most; none hides a builtin of Python's.

    >>> names = Namespace()
    >>> [names.create_name(n, None) for n in ("add", "add", "add_7", "add", "len", "a.b")]
    ['add', 'add_1', 'add_7', 'add_8', 'len_1', 'a_b']
    """

    def __init__(self) -> None:
        self._obj_to_name: dict[Any, str] = {}
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """A name like the candidate that nothing else has; None where it is no object's."""
        if obj is not None and obj in self._obj_to_name:
            return self._obj_to_name[obj]
        match = _NAME.match(candidate)
        if match is None:
            candidate = _NO_LETTERS.sub("_", candidate) or "_unnamed"
            if candidate[0].isdigit():
                candidate = f"_{candidate}"
            match = _NAME.match(candidate)
            assert match is not None, candidate
        base, number = match.group(1, 2)
        if number is None or candidate in self._used_names:
            count = self._base_count.get(base, 0)
            if _TAKEN.get(candidate, obj) is not obj:
                count += 1
                candidate = f"{base}_{count}"
        else:
            count = int(number)
        while candidate in self._used_names:
            count += 1
            candidate = f"{base}_{count}"
        self._used_names.add(candidate)
        self._base_count[base] = count
        if obj is not None:
            self._obj_to_name[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Says whose a name is that was created for no object; AssertionError if it has another."""
        if self._obj_to_name.setdefault(obj, name) is not name:
            raise AssertionError("obj is already associated")

    def _rename_object(self, obj: Any, name: str) -> None:
        if obj not in self._obj_to_name:
            raise AssertionError(f"Object {obj} is not in _obj_to_name")
        self._obj_to_name[obj] = name
        self._used_names.add(name)


def _public(module: str) -> str:
    """A module of this library under PyTorch's name."""
    head, dot, rest = module.partition(".")
    return f"torch{dot}{rest}" if head == LIBRARY else module


def is_ours(obj: Any) -> bool:
    """Whether a function or class is of this library, so that code can say `torch.` of it."""
    home = getattr(obj, "__module__", None)
    return isinstance(home, str) and home.partition(".")[0] in (LIBRARY, "torch")


def _public_name(home: str, name: str, obj: Any) -> str:
    """Where users see what `home` has: `torch.Tensor`, not `torch.tensor.Tensor`."""
    if vars(sys.modules[LIBRARY]).get(name) is obj:
        return f"torch.{name}"
    return f"{_public(home)}.{name}"


def qualified_name(func: Callable[..., Any]) -> str:
    """The dotted name of a function, PyTorch's where it is one of PyTorch's.

    RuntimeError for a lambda whose source is not at hand.

    >>> import math, cugrad as torch
    >>> qualified_name(len), qualified_name(math.sqrt), qualified_name(torch.nn.functional.relu)
    ('len', 'math.sqrt', 'torch.nn.functional.relu')
    """
    name = func.__name__
    if getattr(builtins, name, None) is func:
        return name
    public = resolve_name(func) if isinstance(func, Hashable) else None
    if public is not None:
        return NAMES.get(public, public)
    if name == "<lambda>":
        try:
            name = inspect.getsource(func).split("=")[0].strip()
        except Exception as error:
            raise RuntimeError("Unable to represent lambda") from error
    home = func.__module__
    if home is None:
        raise RuntimeError(f"cannot find module for {func}")
    return _public_name(home, name, func) if is_ours(func) else f"{home}.{name}"


def type_name(obj: Any) -> str:
    """A type as annotations show it: builtins bare, others with their module.

    >>> import cugrad as torch
    >>> type_name(int), type_name(torch.Tensor), type_name(...), type_name(list[int])
    ('int', 'torch.Tensor', '...', 'list[int]')
    """
    if isinstance(obj, type) and not isinstance(obj, GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        if is_ours(obj):
            return _public_name(obj.__module__, obj.__qualname__, obj)
        return f"{obj.__module__}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    return obj.__name__ if isinstance(obj, FunctionType) else repr(obj)
