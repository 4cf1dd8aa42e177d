"""torch.overrides: what functions of a program ask before they hand a call to an argument's class.

Functions of this library call no `__torch_function__`; those of a program that ask for it here do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...tensor import Tensor
from ..refusals import refuse_the_rest

__all__ = [
    "handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property",
    "resolve_name",
]  # fmt: skip


def _overrides(value: Any) -> bool:
    kind = type(value)
    return kind is not Tensor and hasattr(kind, "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether the class of an argument has `__torch_function__`.

    >>> import cugrad as torch
    >>> has_torch_function((torch.ones(1), 3))
    False
    """
    return any(map(_overrides, relevant_args))


def has_torch_function_unary(obj: Any) -> bool:
    """The same of one argument."""
    return _overrides(obj)


def has_torch_function_variadic(*args: Any) -> bool:
    """The same of arguments by position."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the first class answers that has an answer, subclasses first; TypeError if none has."""
    kinds: list[type] = []
    for value in relevant_args:
        kind = type(value)
        if _overrides(value) and kind not in kinds:
            above = [i for i, other in enumerate(kinds) if issubclass(kind, other)]
            kinds.insert(above[0] if above else len(kinds), kind)
    for kind in kinds:
        result = kind.__torch_function__(public_api, tuple(kinds), args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: {kinds}"
    )


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor, or its class has `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether a function is one of Tensor's."""
    return any(value is func for value in vars(Tensor).values())


def resolve_name(f: Any) -> str | None:
    """The name of a function for people."""
    return getattr(f, "__qualname__", None)


refuse_the_rest(__name__, "overrides", "functions here call no __torch_function__")
