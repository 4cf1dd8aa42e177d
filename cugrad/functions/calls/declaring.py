"""Public functions by name, each of which one file declares, and what a declaration may add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["declared", "joining"]

F = TypeVar("F", bound=Callable[..., Any])


def declared(*sources: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The functions of several files as one dict. One that has no name of its own gets this one.

    Raises ValueError where two of them declare a name: one would replace the other unseen.

    >>> declared({"abs": abs}, {"abs": abs, "max": max})
    {'abs': <built-in function abs>, 'max': <built-in function max>}
    >>> declared({"abs": abs}, {"abs": max})
    Traceback (most recent call last):
    ValueError: 'abs' is declared twice, as builtins.abs and builtins.max: keep one
    """
    functions: dict[str, Callable[..., Any]] = {}
    for source in sources:
        for name, function in source.items():
            if functions.setdefault(name, function) is not function:
                twins = [f"{f.__module__}.{f.__qualname__}" for f in (functions[name], function)]
                raise ValueError(f"{name!r} is declared twice, as {' and '.join(twins)}: keep one")
            own = function.__name__
            if own in ("call", "<lambda>") or own.startswith("_") and not own.endswith("__"):
                function.__name__ = function.__qualname__ = name
    return functions


def joining(function: F) -> F:
    """Marks a function that PyTorch computes by `cat`, whose words for a wrong `out=` it uses."""
    function.joins = True  # type: ignore[attr-defined]
    return function
