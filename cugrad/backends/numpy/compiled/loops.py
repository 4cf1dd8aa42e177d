"""Loops over elements, compiled by Numba: which functions they may call, and what is said once."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

__all__ = ["loop_of_text", "warn"]


def loop_of_text(code: Any, called: Iterable[str], **constants: Any) -> Any:
    """The function `loop` of a text, compiled, which calls functions by NumPy's names; None without
    Numba, or where it has not all of them.
    """
    functions = _functions()
    if functions is None or not functions.keys() >= {*called}:
        return None
    scope = {"__name__": __name__, **{name: functions[name] for name in called}, **constants}
    exec(code, scope)
    return functions["njit"](scope["loop"])


@cache
def _functions() -> dict[str, Callable[..., Any]] | None:
    """The functions that loops call, of elements; "njit" compiles. None without Numba."""
    try:
        import numba

        if numba.config.DISABLE_JIT:
            return None
        njit = numba.njit(nogil=True, error_model="numpy")
        return {"njit": njit, **BY_OPERATOR, **{f.__name__: njit(f) for f in ELEMENTWISE}}
    except Exception as error:  # one that is of no use beside this NumPy says so at its import
        if not (isinstance(error, ModuleNotFoundError) and error.name == "numba"):
            warn(f"could not be used: {type(error).__name__}: {error}")
        return None


_warned = list[str]()


def warn(what: str) -> None:
    """Says, once in a process, why large tensors take longer than they could."""
    if not _warned:
        _warned.append(what)
        slower = "large tensors are computed on the CPU by NumPy, which takes longer than loops"
        warnings.warn(f"{slower} that are compiled: Numba {what}", stacklevel=2)


BY_OPERATOR: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "divide": operator.truediv, "negative": operator.neg, "greater": operator.gt,
    "less": operator.lt, "equal": operator.eq, "sqrt": math.sqrt, "absolute": abs,
}  # fmt: skip


# As NumPy has them; what calls others is not compiled.


def copyto(x: Any) -> Any:
    return x


def square(x: Any) -> Any:
    return x * x


def where(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def choose(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def maximum(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b


def minimum(a: Any, b: Any) -> Any:
    return a if a < b or a != a else b


ELEMENTWISE = (copyto, square, where, choose, maximum, minimum)
