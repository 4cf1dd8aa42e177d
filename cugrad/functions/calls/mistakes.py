"""What a wrong-typed argument did deep inside, said of the call: `f(): argument 'x' must be int`.

Nothing is looked at before an error has happened: the frames that it came through still hold the
arguments, and the functions' annotations say what they should have been.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import wraps
from numbers import Number
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from ...backends.several import at_home, calls_away, several
from ...runtime.dispatching import Unasked, newly_asked
from ...tensor import Tensor

__all__ = ["MISTAKES", "explained", "saying"]

LIBRARIES = ("cugrad.", "numpy", "cupy", "ml_dtypes", "scipy")
MISTAKES = (TypeError, AttributeError)  # what a value of a wrong type makes Python raise

# What Python and NumPy say of an operand, which names neither function nor argument.
FOREIGN = (
    "interpreted as an integer|not supported between|bad operand|unsupported operand"
    "|is not iterable|is not subscriptable|not all arguments converted|must be real number"
    "|could not be promoted|did not contain a loop|object has no attribute|has no len"
)
PLAIN: dict[str, tuple[Any, ...]] = {
    "Tensor": (Tensor,), "int": (int, np.integer, Tensor), "float": (Number, np.generic, Tensor),
    "Tensors": (Tensor, list, tuple), "Ints": (int, np.integer, tuple, list, Tensor),
    "Sequence[int]": (tuple, list), "Sequence[Tensor]": (tuple, list), "str": (str,),
}  # fmt: skip
WORDS = {"float": "Number", "Ints": "tuple of ints", "Sequence[int]": "tuple of ints",
         "Sequence[Tensor]": "tuple of Tensors", "Tensors": "Tensor"}  # fmt: skip
# Where functions of users live; what the others are given is the library's own doing.
INNER = ("cugrad.ops", "cugrad.backends", "cugrad.autograd", "cugrad.functions.calls.arguments",
         "cugrad.tensor", "cugrad.functions.calls.out")  # fmt: skip


def explained(error: BaseException, name: str = "") -> TypeError | None:
    """A TypeError that says more than `error`, which a call of the function `name` has raised.

    None where `error` says enough, is no mistake of an argument, or came through the user's own
    code, such as a hook or a module's `forward`, whose lines its traceback has to show.
    """
    if not _is_inside(error.__traceback__):
        return None
    text, name = str(error), name.lstrip("_").removesuffix("_method")
    is_foreign = bool(re.search(FOREIGN, text))
    if is_foreign:
        for frame in _frames(error.__traceback__):
            message = _mistake(frame)
            if message is not None:
                return TypeError(message)
    if name and isinstance(error, AttributeError) and hasattr(Tensor, error.name or ""):
        return TypeError(f"{name}(): got {type(error.obj).__name__}, want a Tensor")
    says_where = name in text or re.match(r"[\w.]+(\(\):?|:) ", text)
    if isinstance(error, AttributeError) or not name or says_where:
        return None
    return TypeError(f"{name}(): {text}")


def saying(function: Callable[..., Any], module: str) -> Callable[..., Any]:
    """The function, for users of `module`: its errors say which argument is wrong."""
    name = function.__name__

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if several.devices and calls_away(name, args, options):
            with at_home(*args, *options.values()):
                return call(*args, **options)
        try:
            return function(*args, **options)
        except MISTAKES as error:
            if isinstance(error, Unasked) or newly_asked((*args, *options.values())):
                return call(*args, **options)
            better = explained(error, name)
            if better is None:
                raise
            raise better from None

    call.__module__ = module  # where pickle finds it
    return call


def _is_inside(traceback: TracebackType | None) -> bool:
    """Whether all frames are of the library, or of the arrays below it."""
    while traceback is not None:
        if not traceback.tb_frame.f_globals.get("__name__", "").startswith(LIBRARIES):
            return False
        traceback = traceback.tb_next
    return True


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    """The frames of public functions of the library, the outermost first."""
    while traceback is not None:
        frame = traceback.tb_frame
        module = frame.f_globals.get("__name__", "")
        is_public = module.startswith("cugrad.") and not module.startswith(INNER)
        if is_public and not frame.f_code.co_name.startswith("_"):
            yield frame
        traceback = traceback.tb_next


def _mistake(frame: FrameType) -> str | None:
    """What is wrong with the first argument of a frame's function that is of a wrong type."""
    function = _function_of(frame)
    if function is None:
        return None
    name = frame.f_code.co_name
    parameters = inspect.signature(function).parameters
    for position, (key, parameter) in enumerate(parameters.items(), "self" not in parameters):
        if key in ("dtype", "device", "requires_grad") or key not in frame.f_locals:
            continue
        value, annotation = frame.f_locals[key], str(parameter.annotation)
        if parameter.kind is parameter.VAR_POSITIONAL:
            wrong = [v for v in value if isinstance(v, (str, float))]
            if key == "sizes" and wrong:
                got = type(wrong[0]).__name__
                return f"{name}(): argument 'size' (position 1) must be tuple of ints, not {got}"
            continue
        word = _wanted(value, annotation)
        if word is not None:
            got = type(value).__name__
            if key == "self":  # a method that was called as a function
                key, position = "input", 1
            return f"{name}(): argument '{key}' (position {position}) must be {word}, not {got}"
    return None


def _wanted(value: Any, annotation: str) -> str | None:
    """The word for what a parameter takes, if it does not take `value`."""
    parts = [part.strip() for part in annotation.split("|")]
    if value is None:
        return None if {"None", "Any", "<class 'inspect._empty'>"} & set(parts) else parts[0]
    if "str" not in parts and isinstance(value, str) and "Any" in parts:
        return "Number"
    plain = [PLAIN[part] for part in parts if part in PLAIN]
    if not plain or len(plain) + ("None" in parts) < len(parts):
        return None  # takes more than is known here
    if isinstance(value, tuple(kind for kinds in plain for kind in kinds)):
        return None
    word = next(part for part in parts if part in PLAIN)
    return WORDS.get(word, word)


def _function_of(frame: FrameType) -> Any:
    """The function whose code runs in a frame, below its decorators; None where it is not found."""
    function = frame.f_globals.get(frame.f_code.co_name)
    while function is not None and getattr(function, "__code__", None) is not frame.f_code:
        function = getattr(function, "__wrapped__", None)
    return function
