"""What is in another place while a function is traced, and put back when that ends."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

from .node import map_aggregate
from .proxy import Proxy

__all__ = ["WRAPPED", "Patches", "wrapped"]

_ABSENT = object()
# The functions that `wrap` was told of: the globals where they are, by (whose they are, name).
WRAPPED: dict[tuple[int, str], dict[str, Any]] = {}


class Patches:
    """Values that were put into dicts and classes for a while.

    The classes and modules are those of the whole process: while one thread traces, others that
    call modules see the tracing, as with PyTorch.
    """

    def __init__(self) -> None:
        self.before: list[tuple[Callable[[str, Any], None], Callable[[str], None], str, Any]] = []
        self.seen: set[int] = set()

    def __enter__(self) -> Patches:
        return self

    def __exit__(self, *error: object) -> None:
        while self.before:
            put, remove, name, value = self.before.pop()
            remove(name) if value is _ABSENT else put(name, value)

    def put_into_dict(self, names: dict[str, Any], name: str, value: Any) -> None:
        """Changes what a dict says of a name."""
        self.before.append((names.__setitem__, names.__delitem__, name, names.get(name, _ABSENT)))
        names[name] = value

    def put_into_class(self, owner: type, name: str, value: Any) -> None:
        """Changes a method."""
        put, remove = functools.partial(setattr, owner), functools.partial(delattr, owner)
        self.before.append((put, remove, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def wrap_told(self) -> None:
        """Wraps the functions that `wrap` was told of."""
        for (_, name), names in list(WRAPPED.items()):
            function = names[name] if name in names else getattr(builtins, name)
            if not hasattr(function, "_fx_wrapped"):
                self.put_into_dict(names, name, wrapped(function))

    def wrap_among(self, names: dict[str, Any], functions: set[int]) -> None:
        """Wraps functions, by id, wherever they are among some names; looks there once only."""
        if id(names) in self.seen:
            return
        self.seen.add(id(names))
        for name, value in list(names.items()):
            if not name.startswith("_") and callable(value) and id(value) in functions:
                self.put_into_dict(names, name, wrapped(value))


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose calls with a proxy are one node."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxies: list[Proxy] = []
        map_aggregate((args, kwargs), lambda x: proxies.append(x) if isinstance(x, Proxy) else x)
        if not proxies:
            return function(*args, **kwargs)
        result = proxies[-1].tracer.create_proxy("call_function", function, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    call._fx_wrapped = True  # type: ignore[attr-defined]
    return call
