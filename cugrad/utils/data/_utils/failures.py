"""Errors of workers on their way to the process that asked."""

from __future__ import annotations

import pickle
import sys
import traceback
from typing import Any, NoReturn

__all__ = ["ExceptionWrapper"]


class KeyErrorText(str):
    """What a KeyError shows as it is, where it would show the `repr` of a str."""

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """The type and the traceback of the exception that is being handled, or of `exc_info`."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        kind, *rest = exc_info or sys.exc_info()
        self.exc_type: Any = kind
        self.exc_msg = "".join(traceback.format_exception(kind, *rest))
        self.where = where

    def reraise(self) -> NoReturn:
        """Raises an exception of that type; a RuntimeError, if a text alone does not make one."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(KeyErrorText(text))
        if getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            error = self.exc_type(text)
        except Exception:  # it wants other arguments
            error = RuntimeError(text)
        raise error from None

    def __reduce__(self) -> Any:
        try:
            pickle.dumps(self.exc_type)
            kind = self.exc_type
        except Exception:  # a class of a function's, of which the other process has none
            kind = RuntimeError
        return _restored, (kind, self.exc_msg, self.where)


def _restored(kind: Any, text: str, where: str) -> ExceptionWrapper:
    wrapper = ExceptionWrapper.__new__(ExceptionWrapper)
    wrapper.exc_type, wrapper.exc_msg, wrapper.where = kind, text, where
    return wrapper
