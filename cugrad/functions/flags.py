"""Attributes of `torch.backends` that are set: their types, their texts, and contexts of them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import backends
from ..runtime.absent import refuse
from ..runtime.contexts import Context
from ..runtime.kept import Switch

__all__ = ["BackendFlag", "Flagged", "Flags", "Switches", "disable_global_flags", "flags_frozen"]


class _Frozen:
    is_so = False


class BackendFlag:
    """An attribute that is set to a bool (or what `kind` says); `tell` is called with what is set.

    `ask`, where there is one, answers what it is now. A switch without `tell` changes nothing: its
    `text` says why.
    """

    def __init__(
        self, value: Any, text: str, tell: Callable[[Any], None] | None = None,
        ask: Callable[[], Any] | None = None, kind: Any = bool,
    ) -> None:  # fmt: skip
        self.value, self.__doc__, self.tell, self.kind = value, text, tell, kind
        self.ask = ask or (lambda: self.value)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, holder: object, owner: type) -> Any:
        return self if holder is None else self.ask()

    def __set__(self, holder: Any, value: Any) -> None:
        if _Frozen.is_so:
            raise RuntimeError(
                f"not allowed to set {getattr(holder, '__name__', 'matmul')} flags after "
                "disable_global_flags; please use flags() context manager instead"
            )
        self.put(value)

    def put(self, value: Any) -> None:
        """Sets it, frozen or not."""
        if not isinstance(value, self.kind):
            want = getattr(self.kind, "__name__", "bool")
            raise RuntimeError(f"{self.name}: expects a {want}, but got {type(value).__name__}")
        if self.tell is not None:
            self.tell(value)
        self.value = value


class Switches(ModuleType):
    """A module of `torch.backends`: what is set there must be one of its switches."""

    def __init__(self) -> None:
        super().__init__(f"{backends.__name__}.{type(self).__name__}", type(self).__doc__)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return refuse(self.__name__, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(n for n in vars(type(self)) if not n.startswith("_"))]

    def __setattr__(self, name: str, value: Any) -> None:
        flag = getattr(type(self), name, None)
        if not name.startswith("__") and not isinstance(flag, BackendFlag):
            raise AttributeError(f"{self.__name__} has no switch {name!r}")
        super().__setattr__(name, value)


class Flagged(Switches):
    """A module of `torch.backends` whose switches are called flags, and are set together, too."""

    def set_flags(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Sets the flags that are not None, in their order or by `_name=`; all as they were."""
        flags = {n: flag for n, flag in vars(type(self)).items() if isinstance(flag, BackendFlag)}
        values = dict(zip(flags, args)) | {n.removeprefix("_"): v for n, v in kwargs.items()}
        if len(args) > len(flags) or not values.keys() <= flags.keys():
            raise TypeError(f"set_flags(): got {args} and {kwargs}, want some of {list(flags)}")
        before = tuple([flag.ask() for flag in flags.values()])
        for name, value in values.items():
            if value is not None:
                flags[name].put(value)
        return before


class Flags(Switch, Context):
    """Switches of a module that have other values for a while."""

    def __init__(self, module: ModuleType, values: dict[str, Any]) -> None:
        self.module, self.values = module, values

    def as_is(self) -> dict[str, Any]:
        return {name: getattr(self.module, name) for name in self.values}

    def change(self, before: dict[str, Any]) -> None:
        self.put_back(self.values)

    def put_back(self, before: dict[str, Any]) -> None:
        for name, value in before.items():
            vars(type(self.module))[name].put(value)

    def clone(self) -> Flags:
        """Another context with the same settings."""
        return type(self)(self.module, self.values)


def disable_global_flags() -> None:
    """From here on a flag of `torch.backends` is set by a context `flags()` alone.

    Setting one by itself is a RuntimeError then, for the rest of the process.
    """
    _Frozen.is_so = True


def flags_frozen() -> bool:
    """Whether `disable_global_flags` was called."""
    return _Frozen.is_so


vars(backends).update(disable_global_flags=disable_global_flags, flags_frozen=flags_frozen)
