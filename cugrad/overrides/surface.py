"""Which functions are public, hand their calls to classes and modes, and what they are called."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from .. import autograd, fft, functions, linalg, special
from ..functions.creation import drawing, factories, random
from ..functions.operators import OPERATORS
from ..nn import functional, init, of_torch
from ..nn.recurrent import stacks
from ..runtime.absent import LIBRARY, Absent
from ..runtime.dispatching import UNCONVERTED, overridable, when_switched_on
from ..signal import windows
from ..tensor import Tensor

__all__ = [
    "get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions",
    "get_testing_overrides", "is_tensor_method_or_property", "resolve_name",
]  # fmt: skip


# What an operator is to those who take calls: the method that it is another way to write.
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div",
    "__itruediv__": "div_", "__mod__": "remainder", "__imod__": "remainder_",
    "__ifloordiv__": "floor_divide_", "__rand__": "bitwise_and", "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor",
    "__matmul__": "matmul", "__neg__": "neg", "__abs__": "abs", "__lt__": "lt",
    "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__ne__": "ne",
}  # fmt: skip
# Of Tensor's attributes those whose calls no class takes.
_OWN = {
    "__init__", "__new__", "__init_subclass__", "__torch_function__", "__iter__", "__dir__",
    "__setstate__", "as_subclass", "_make_subclass", "fill_in", "counter", "rare",
}  # fmt: skip


_FUNCTIONAL = "torch.nn.functional"


def _rooms() -> dict[str, ModuleType]:
    return {"torch.nn.functional": functional, "torch.linalg": linalg, "torch.fft": fft,
            "torch.special": special, "torch.nn.init": init}  # fmt: skip


def _made_of_none() -> frozenset[str]:
    """Functions that make tensors of no tensor: the class of none sees their calls."""
    names = {*factories.__all__, *random.__all__, "from_numpy", "frombuffer", "sparse_coo_tensor"}
    names.update(n for n in windows.__all__ if n.endswith("_window"))
    taking = {"bernoulli", "complex", "polar"}
    return frozenset(n for n in names - taking if not n.endswith("_like"))


# Functions of arrays, lists and numbers, of classes that take calls, too.
_OF_DATA = {
    f"torch.{name}" for name in (
        "as_tensor", "asarray", "from_numpy", "frombuffer", "get_rng_state", "initial_seed",
        "manual_seed", "seed", "set_rng_state", "sparse_coo_tensor", "tensor",
    )
}  # fmt: skip
# Functions that ask what their argument is.
_UNSEEN = {
    "calculate_gain", "can_cast", "is_tensor", "promote_types", "result_type", "typename",
}  # fmt: skip


def _public() -> Iterator[tuple[str, Any, bool]]:
    """Where each public function is, and whether classes of tensors are asked."""
    library = sys.modules[LIBRARY]
    unasked = _made_of_none()
    asking = {*functions.FUNCTIONS, *linalg.FUNCTIONS, *drawing.__all__, *factories.__all__,
              *random.__all__, *of_torch.__all__, *stacks.__all__, "_assert", "is_inference",
              "norm_except_dim", "dsmm", "smm", "spmm"}  # fmt: skip
    for name in sorted(unasked | asking):
        function = getattr(library, name, None)
        if isinstance(function, FunctionType) and name not in _UNSEEN:
            yield f"torch.{name}", function, name not in unasked
    yield "torch.autograd.grad", autograd.grad, True
    for room, module in _rooms().items():
        for name in getattr(module, "__all__", None) or vars(module):
            function = getattr(module, name)
            is_open = name[0] != "_" and name not in _UNSEEN
            if isinstance(function, FunctionType) and is_open:
                if function.__module__.startswith(module.__name__) or module is not init:
                    yield f"{room}.{name}", function, name not in ("fftfreq", "rfftfreq")


def _members() -> Iterator[tuple[str, Any]]:
    """The methods and properties of Tensor whose calls a class may take."""
    for name, value in list(vars(Tensor).items()):
        if name in _OWN or isinstance(value, Absent):
            continue
        if isinstance(value, (FunctionType, property)):
            yield name, value


@when_switched_on
def _switch_on() -> None:
    """Makes public functions, and the methods and properties of Tensor, overridable."""
    members = dict(_members())
    for name, member in members.items():
        if isinstance(member, property):
            for part, bound in (("fget", member.__get__), ("fset", member.__set__)):
                function = getattr(member, part)
                if isinstance(function, FunctionType):
                    overridable(function, bound)
        else:
            shown = members.get(_OPERATORS.get(name, ""), member)
            overridable(member, shown, operator=name in OPERATORS)
    for name, function, by_classes in _public():
        # a size, a dtype or a device may be a proxy; data may be of any class
        aside = () if by_classes else (object,) if name in _OF_DATA else (Tensor,)
        # layers call what the functions of nn.functional say more of
        inner = getattr(function, "__wrapped__", None) if name.startswith(_FUNCTIONAL) else None
        if isinstance(inner, FunctionType) and inner.__module__.startswith(functional.__name__):
            overridable(inner, function, aside)
        else:
            overridable(function, aside=aside)
    UNCONVERTED.update(get_default_nowrap_functions())


# ---------------------------------------------------------------------- lists


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """The functions whose results `Tensor.__torch_function__` gives back as they are."""
    parts: Any = vars(Tensor)
    return {parts[name].__get__ for name in ("_base", "grad", "_grad") if name in parts
            and isinstance(parts[name], property)}  # fmt: skip


@cache
def _names() -> dict[Callable[..., Any], str]:
    names: dict[Callable[..., Any], str] = {}
    for name, member in _members():
        shown = f"torch.Tensor.{name}"
        if isinstance(member, property):
            names.setdefault(member.__get__, f"{shown}.__get__")
            names.setdefault(member.__set__, f"{shown}.__set__")
        else:
            names.setdefault(member, shown)
            if member.__name__ == name:  # the name that it has among those it goes by
                names[member] = shown
    methods = {*names}
    for name, function, _ in _public():
        is_own = name.endswith(f".{function.__name__}")
        if names.setdefault(function, name) != name and is_own and function not in methods:
            names[function] = name
    return names


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name of a function that a `__torch_function__` got; None for one that is not public.

    >>> import cugrad as torch
    >>> torch.overrides.resolve_name(torch.Tensor.shape.__get__)
    'torch.Tensor.shape.__get__'
    """
    return _names().get(f)


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of Tensor, or the `__get__` of one of its properties.

    >>> import cugrad as torch
    >>> torch.overrides.is_tensor_method_or_property(torch.Tensor.add)
    True
    >>> torch.overrides.is_tensor_method_or_property(torch.add)
    False
    """
    return func.__name__ == "__get__" or any(func is member for _, member in _members())


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions whose calls a class may take, by the module or class where they are."""
    listed: dict[Any, list[Callable[..., Any]]] = {}
    rooms = {**_rooms(), "torch": sys.modules[LIBRARY], "torch.autograd": autograd}
    for name, function, by_classes in _public():
        if by_classes:
            listed.setdefault(rooms[name.rpartition(".")[0]], []).append(function)
    listed[Tensor] = []
    for _, member in _members():
        listed[Tensor] += [member.__get__] if isinstance(member, property) else [member]
    return listed


def get_ignored_functions() -> set[Callable[..., Any]]:
    """The functions that make tensors of no tensor: modes see their calls, classes do not."""
    return {function for _, function, by_classes in _public() if not by_classes}


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each function whose calls a class may take a stand-in that has its signature.

    Stand-ins return -1.
    """
    return {f: _stand_in(f) for functions in get_overridable_functions().values()
            for f in functions}  # fmt: skip


def _stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    def stand_in(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        stand_in.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    except (TypeError, ValueError):  # the `__get__` of a property
        parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        stand_in.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return stand_in
