"""Contexts that get the calls of all public functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..runtime.dispatching import here, switch_on
from ..runtime.kept import Switch

__all__ = ["BaseTorchFunctionMode", "TorchFunctionMode"]


class TorchFunctionMode(Switch):
    """A context that gets the calls of all public functions of its thread, those that make tensors
    too.

    A subclass has `__torch_function__(self, func, types, args=(), kwargs=None)`. What that calls
    goes to the mode outside of this one; `with self:` in it has calls come here again.

    >>> import cugrad as torch
    >>> class Named(torch.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(torch.overrides.resolve_name(func))
    ...         return func(*args, **(kwargs or {}))
    >>> with Named():
    ...     y = torch.ones(2).mul(3)
    torch.ones
    torch.Tensor.mul
    """

    def __init__(self) -> None:
        pass

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__: write one")

    def as_is(self) -> Any:
        return here.modes

    def change(self, before: Any) -> Any:
        switch_on()
        vars(here).update(modes=(*before, self))
        return self

    def put_back(self, before: Any) -> None:
        vars(here).update(modes=before)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that does with each call what would have been done."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))
