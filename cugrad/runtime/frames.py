"""Which frames of a stack are the user's, and which the library's."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from types import FrameType

__all__ = ["LAYERS", "called", "is_ours", "users_frames", "warn_user"]

PACKAGE = __name__.partition(".")[0]
WRAPPERS = ("call", "function", "run")  # what stands around many functions
# What reads like a program of the user's: which layer it was.
LAYERS = tuple([f"{PACKAGE}.{room}." for room in ("nn", "optim", "models")])


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


def called() -> str:
    """The function of the library that the user, or a layer, has called; "" where it has no name.

    For errors that arise far below it.
    """
    name, frame = "", sys._getframe(1)
    while frame.f_back is not None and is_ours(frame, LAYERS):
        at = frame.f_code.co_name
        if at not in WRAPPERS and not at.startswith(("__", "<")):
            name = at.removeprefix("_")
        frame = frame.f_back
    return name


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
