"""Context managers that decorate functions, generators, coroutines and classes too."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, TypeVar

__all__ = ["Context", "described"]

F = TypeVar("F", bound=Callable[..., Any])

CLASS_TEXT = (
    "Decorating classes is deprecated and will be disabled in future versions. You should only "
    "decorate functions or methods. To preserve the current behavior of class decoration, you can "
    "directly decorate the `__init__` method and nothing else."
)


def described(thing: Any) -> str:
    """The `repr` of a context: its class and the arguments that are not defaults. Arguments are
    read from attributes of the same name; `...` stands for one that the context does not keep.

    >>> import cugrad as torch
    >>> torch.inference_mode(), torch.inference_mode(False)
    (inference_mode(), inference_mode(mode=False))
    """
    parts, unknown = [], object()
    parameters = inspect.signature(type(thing)).parameters
    for name, parameter in parameters.items():
        value = getattr(thing, name, getattr(thing, f"_{name}", unknown))
        if value is not unknown and value is not parameter.default and value != parameter.default:
            parts.append(f"{name}={value!r}")
    if not all(hasattr(thing, n) or hasattr(thing, f"_{n}") for n in parameters):
        parts.append("...")
    return f"{type(thing).__name__}({', '.join(parts)})"


class Context:
    """A context manager that is a decorator: the context holds while the function runs.

    Each call enters a context of its own, `clone()`. A generator, a coroutine and an async
    generator are in the context while their own code runs, not while they are suspended.
    """

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    __repr__ = described

    def clone(self) -> Context:
        """Another context with the same settings."""
        return type(self)()

    def __call__(self, function: F) -> F:
        return decorated(self.clone, function)


def decorated(clone: Callable[..., Any], function: Any, depth: int = 3) -> Any:
    """The function as it runs in contexts that `clone` makes; `depth` frames below the user's."""
    if inspect.isclass(function):
        warnings.warn(CLASS_TEXT, FutureWarning, stacklevel=depth)
    elif inspect.isgeneratorfunction(function):
        return _generator(clone, function)
    elif inspect.isasyncgenfunction(function):
        return _async_generator(clone, function)
    elif inspect.iscoroutinefunction(function):
        return _coroutine(clone, function)

    @functools.wraps(function, updated=() if inspect.isclass(function) else ("__dict__",))
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with clone():
            return function(*args, **kwargs)

    return wrapped


def _stepped(clone: Callable[[], Context], steps: Any) -> Generator[Any, Any, Any]:
    """Runs each step of a generator in a context; passes on what is sent and thrown in."""
    step: Callable[[], Any] = functools.partial(steps.send, None)
    while True:
        try:
            with clone():
                value = step()
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield value
            step = functools.partial(steps.send, sent)
        except GeneratorExit:
            with clone():
                steps.close()
            raise
        except BaseException as error:
            step = functools.partial(steps.throw, error)


def _generator(clone: Callable[[], Context], function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return (yield from _stepped(clone, function(*args, **kwargs)))

    return wrapped


class _Held:
    """An awaitable whose own code runs in contexts, its event loop outside of them."""

    __slots__ = ("clone", "awaited")

    def __init__(self, clone: Callable[[], Context], awaited: Any) -> None:
        self.clone, self.awaited = clone, awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        return _stepped(self.clone, self.awaited.__await__())


def _coroutine(clone: Callable[[], Context], function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return await _Held(clone, function(*args, **kwargs))

    return wrapped


def _async_generator(clone: Callable[[], Context], function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        steps = function(*args, **kwargs)
        step = steps.__anext__()
        while True:
            try:
                value = await _Held(clone, step)
            except StopAsyncIteration:
                return
            try:
                step = steps.asend((yield value))
            except GeneratorExit:
                await _Held(clone, steps.aclose())
                raise
            except BaseException as error:
                step = steps.athrow(error)

    return wrapped
