"""Which frames of a stack are the user's, and which the library's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from inspect import CO_VARARGS
from types import FrameType, FunctionType

__all__ = ["LAYERS", "called", "is_ours", "name_in", "users_frames", "warn_user"]

PACKAGE = __name__.partition(".")[0]
WRAPPERS = ("call", "function", "run")  # what many functions are called, or stands around them
# What reads like a program of the user's: which layer it was.
LAYERS = tuple([f"{PACKAGE}.{room}." for room in ("nn", "optim", "models")])

# No layers, but functions, which users call.
FUNCTIONS = tuple([f"{PACKAGE}.nn.{room}" for room in ("functional", "utils")])


def users_frames(shown: tuple[str, ...] = ()) -> Iterator[FrameType]:
    """The frames that are not the library's own, innermost first; modules `shown` are not.

    >>> next(users_frames()).f_globals["__name__"].startswith("cugrad")
    False
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_ours(frame, shown):
            yield frame
        frame = frame.f_back


def called(below: tuple[str, ...] = ()) -> str:
    """The function of the library that the user, or a layer, has called; "" where it has no name.

    For errors that arise far below it: in modules `below`, which may be called by others than the
    library's, such as CuPy.
    """
    name, frame = "", sys._getframe(1)
    while below and frame.f_back is not None and not is_ours(frame, below):
        frame = frame.f_back
    while frame.f_back is not None and (
        is_ours(frame, LAYERS) or frame.f_globals.get("__name__", "").startswith(FUNCTIONS)
    ):
        at = name_in(frame)
        if at and not at.startswith("__"):
            name = at
        frame = frame.f_back
    return name


def name_in(frame: FrameType) -> str:
    """The name by which users know the function that runs in a frame; "" where it has none.

    What stands around a function, and has it in a variable of its own, has its name.
    """
    code = frame.f_code
    function = frame.f_globals.get(code.co_name)
    if getattr(function, "__code__", None) is not code:
        function = _stood_around(frame) if code.co_flags & CO_VARARGS else None
    name = function if isinstance(function, str) else getattr(function, "__name__", code.co_name)
    if name in WRAPPERS or name.startswith("<"):
        return ""
    return name if name.startswith("__") else name.removeprefix("_")


def _stood_around(frame: FrameType) -> FunctionType | str | None:
    """The function that the one in a frame stands around, or the name that it has been given."""
    held = {name: frame.f_locals.get(name) for name in frame.f_code.co_freevars}
    name = held.get("name")
    if isinstance(name, str):
        return name
    for value in held.values():
        if isinstance(value, FunctionType) and value.__code__ is not frame.f_code:
            return value
    return None


def is_ours(frame: FrameType, shown: tuple[str, ...] = ()) -> bool:
    """Whether a frame is the library's own; modules `shown` are not."""
    module = frame.f_globals.get("__name__", "")
    is_inside = module == PACKAGE or module.startswith(PACKAGE + ".")
    return is_inside and not module.startswith(shown)


def warn_user(text: str, shown: tuple[str, ...] = LAYERS) -> None:
    """A warning at the line of the user's that is running; modules `shown` count as the user's."""
    depth, frame = 1, sys._getframe(0)
    while frame.f_back is not None and is_ours(frame, shown):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)
