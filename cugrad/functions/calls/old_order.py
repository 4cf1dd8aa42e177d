"""The order in which PyTorch once had the numbers of sums and products: before the tensors.

PyTorch still takes it, with a warning, and old programs have it: `p.add_(-lr, p.grad)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ...ops.table import TABLE
from ...runtime.frames import warn_user
from ...tensor import Tensor

__all__ = ["in_any_order", "numbers_first", "reordered"]

Form = tuple[tuple[str, ...], tuple[str, ...]]  # the numbers, in the old order, and the tensors
F = TypeVar("F", bound=Callable[..., Any])
_FORMS: dict[str, Form] = {}  # of functions that are no rows


def numbers_first(*numbers: str) -> Callable[[F], F]:
    """Decorates a function of three tensors that takes these numbers before them, too."""

    def declare(function: F) -> F:
        _FORMS[function.__name__] = numbers, function.__code__.co_varnames[:3]
        return function

    return declare


def _form(name: str, function: Callable[..., Any]) -> Form | None:
    """The form of a function, or of its method in place; `function` may have another name."""
    for each in (name, function.__name__):
        op = TABLE.get(each.removesuffix("_"))
        if op is not None and op.number_first:
            return (op.number_first,), op.inputs
        if each.removesuffix("_") in _FORMS:
            return _FORMS[each.removesuffix("_")]
    return None


def in_any_order(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or method, which takes its numbers before its tensors, too."""
    form = None if name.startswith("__") else _form(name, function)  # operators have two operands
    if form is None:
        return function
    most = len(form[1])

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if len(args) > most:
            args, more = reordered(name, function, args) or (args, {})
            named |= more
        return function(*args, **named)

    return call


def reordered(
    name: str, function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The tensors, and the numbers by name, of arguments in the old order; None of others."""
    words, tensors = _form(name, function) or ((), ())
    numbers = [x for x in args if isinstance(x, (int, float, complex))]
    others: tuple[Any, ...] = tuple([x for x in args if isinstance(x, Tensor)])
    if len(tensors) == 2 == len(numbers) and len(others) == 1:
        others += (numbers.pop(),)  # the second operand of a sum may be a number, too
    elif args and not isinstance(args[-1], Tensor):
        return None  # behind the tensors numbers are named
    if not 0 < len(numbers) <= len(words) or len(others) != len(tensors):
        return None
    _warn(name, words[: len(numbers)], tensors[1:])
    return others, dict(zip(words, numbers))


def _warn(name: str, words: tuple[str, ...], tensors: tuple[str, ...]) -> None:
    old = ", ".join([f"Number {x}" for x in words] + [f"Tensor {x}" for x in tensors])
    new = ", ".join([f"Tensor {x}" for x in tensors] + ["*"] + [f"Number {x} = 1" for x in words])
    warn_user(
        f"This overload of {name} is deprecated:\n\t{name}({old})\n"
        f"Consider using one of the following signatures instead:\n\t{name}({new})"
    )
