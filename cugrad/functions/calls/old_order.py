"""The order in which PyTorch once had the numbers of sums and products: before the tensors.

PyTorch still takes it, with a warning, and old programs have it: `p.add_(-lr, p.grad)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ...runtime.frames import warn_user
from ...tensor import Tensor

__all__ = ["in_any_order", "reordered"]

AFFINE = ("beta", "alpha"), ("input", "a", "b")
THREE = ("value",), ("input", "tensor1", "tensor2")
# By function: the numbers, in the old order, and the tensors.
FORMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(("add", "sub", "subtract"), (("alpha",), ("input", "other"))),
    **dict.fromkeys(("addcmul", "addcdiv"), THREE),
    **dict.fromkeys(("addmm", "addmv", "addr", "addbmm", "baddbmm"), AFFINE),
}  # fmt: skip


def in_any_order(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, or method, which takes its numbers before its tensors, too."""
    if name.removesuffix("_") not in FORMS:
        return function
    most = len(FORMS[name.removesuffix("_")][1])

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if len(args) > most:
            args, more = reordered(name, args) or (args, {})
            named |= more
        return function(*args, **named)

    return call


def reordered(name: str, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The tensors, and the numbers by name, of arguments in the old order; None of others."""
    words, tensors = FORMS.get(name.removesuffix("_"), ((), ()))
    numbers = [x for x in args if isinstance(x, (int, float, complex))]
    others: tuple[Any, ...] = tuple([x for x in args if isinstance(x, Tensor)])
    if len(words) == 1 < len(numbers) and len(others) == len(tensors) - 1:
        others += (numbers.pop(),)  # the second operand of a sum may be a number, too
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
