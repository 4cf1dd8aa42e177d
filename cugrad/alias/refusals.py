"""What stands for an absent name of PyTorch while `torch` is cugrad: using it is an error.

Programs import names that they may never use, derive classes from them, and ask `isinstance`. Each
of these works; a call raises NotImplementedError with the reason.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from functools import cache
from types import ModuleType
from typing import Any, NoReturn

from ..runtime.absent import PAGE

__all__ = ["AbsentModule", "operators", "refusal", "refuse_the_rest"]


class Refusing(ABCMeta):
    """The class of classes that stand for absent names, and of those derived from them."""

    path: str
    reason: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{cls.path}: {cls.reason} ({PAGE})")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or "path" not in vars(cls):  # a class of the user's is as it is
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        return refusal(f"{cls.path}.{name}", cls.reason)

    def __repr__(cls) -> str:
        return f"<{cls.path}: {cls.reason}>" if "path" in vars(cls) else super().__repr__()

    def __str__(cls) -> str:  # packages make tables of dtypes by what `str` says of them
        return cls.path if "path" in vars(cls) else super().__str__()


@cache
def refusal(path: str, reason: str) -> Any:
    """The class that stands for `path`: nothing is an instance of it, and a call of it raises.

    >>> import cugrad as torch
    >>> tracer = refusal("torch.fx.Tracer", "there are no graphs")
    >>> isinstance(torch.ones(1), tracer)
    False
    >>> tracer()
    Traceback (most recent call last):
    NotImplementedError: torch.fx.Tracer: there are no graphs (docs/torch-compatibility.md)
    """
    home, _, name = path.rpartition(".")
    if name.endswith(("Error", "Exception", "Warning")):  # programs catch it; it is never raised
        return type(
            name, (RuntimeWarning if name[-1] == "g" else RuntimeError,), {"__module__": home}
        )
    names = {"path": path, "reason": reason, "__module__": home, "__doc__": f"Absent: {reason}.",
             "__class_getitem__": classmethod(lambda cls, item: cls)}  # fmt: skip
    return Refusing(name, (), names)


class AbsentModule(ModuleType):
    """A module of PyTorch's that is absent: it can be imported, and so can any name of it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, f"Absent: {reason}.")
        self.__path__: list[str] = []
        self.reason = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return refusal(f"{self.__name__}.{name}", self.reason)


def refuse_the_rest(module: str, path: str, reason: str) -> None:
    """Has a module that stands for `torch.<path>` refuse the names that it does not have."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return refusal(f"torch.{path}.{name}", reason)

    names = vars(sys.modules[module])
    names["__getattr__"], names["__path__"] = __getattr__, []


class Namespaces(ModuleType):
    """torch.ops: the namespaces of operators. Those of `torch.library.custom_op` are here."""

    def __init__(self) -> None:
        super().__init__("torch.ops", type(self).__doc__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
        space = AbsentModule(f"torch.ops.{name}", "operators of C++ libraries cannot be loaded")
        return vars(self).setdefault(name, space)

    def load_library(self, path: Any) -> NoReturn:
        """OSError: packages catch it, and go on without their operators of C++."""
        raise OSError(f"{path}: operators of C++ libraries cannot be loaded ({PAGE})")


operators = Namespaces()
