"""What functions of programs call to hand their own calls to classes and modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from ..runtime.dispatching import are_asked, asked, here, overloaded
from ..tensor import Tensor

__all__ = [
    "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "redispatch_function", "wrap_torch_function",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether the class of an argument, or a mode, takes calls.

    >>> import cugrad as torch
    >>> torch.overrides.has_torch_function((torch.ones(1), 3))
    False
    """
    if here.passing:
        here.passing = False
        return False
    return are_asked(relevant_args)


def has_torch_function_unary(obj: Any) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Any) -> bool:
    """`has_torch_function` of arguments by position."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What a mode, or the class of an argument, answers to a call of `public_api`.

    The innermost mode is asked first, then the classes of the relevant arguments, those of
    subclasses before their bases. TypeError where each of them answers NotImplemented.
    """
    return asked(public_api, overloaded(relevant_args), args, kwargs)


def redispatch_function(
    func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
) -> Any:
    """Runs the function itself. The calls in it go to classes and modes again.

    For a `__torch_function__` that wants to see what a function calls.
    """
    was = here.passing
    try:
        here.passing = True
        return func(*args, **(kwargs or {}))
    finally:
        here.passing = was


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[F], F]:
    """Decorates a function so that classes and modes get its calls.

    `dispatcher` gets the arguments of a call, and returns those whose classes are asked.

    >>> import cugrad as torch
    >>> class Length:
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         return func.__name__
    >>> @torch.overrides.wrap_torch_function(lambda a: (a,))
    ... def twice(a):
    ...     return a + a
    >>> twice(2), twice(Length())
    (4, 'twice')
    """

    def inner(func: F) -> F:
        @wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    return inner


def is_tensor_like(inp: Any) -> bool:
    """Whether a value is a tensor, or its class has a `__torch_function__`.

    >>> import cugrad as torch
    >>> torch.overrides.is_tensor_like(torch.ones(1)), torch.overrides.is_tensor_like([1])
    (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")
