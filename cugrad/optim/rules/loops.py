"""An update of large arrays in the host's memory as one loop over their elements, by Numba.

NumPy goes through a block once for each operation of a rule; the loop goes through it once for all,
with the same bits: it is made of the same calls, in the same order, one element at a time, and LLVM
may neither reorder nor fuse them. Numba is an optional dependency, and is imported when the first
array is stepped that is large enough to pay for its compiler. Where it cannot be had, or cannot
compile, the calls of NumPy serve. `blocks.py` runs either, by the same blocks in the same threads.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from ...autograd.recording.templates import compiled
from .rule import Form

__all__ = ["loop_of"]

LEAST = 1 << 20  # elements of an array for which a loop is compiled, in a second
REALS = (np.dtype(np.float32), np.dtype(np.float64))


def loop_of(form: Form, arrays: Sequence[Any], constants: Sequence[Any]) -> Any:
    """The update of a form as a compiled loop, which needs no scratch arrays; None where arrays
    are small, or lie in memory otherwise than it reads them, or where there is no Numba.
    """
    first = arrays[0]
    dtype = first.dtype
    if dtype not in REALS or not all(_is_plain(array, first) for array in arrays):
        return None
    loop = form.loops.get(dtype)
    if loop is None and dtype not in form.loops and first.size >= LEAST:
        loop = form.loops[dtype] = _compiled(form, dtype, constants)
    # elements of arrays that share memory would be written before others read them
    if loop is None or any(np.may_share_memory(a, b) for a, b in combinations(arrays, 2)):
        return None
    return loop


def _is_plain(array: Any, first: Any) -> bool:
    return type(array) is np.ndarray and array.flags.carray and array.dtype == first.dtype


def loop_text(form: Form) -> str:
    """A function `loop(*arrays, *constants)` of arrays with one dim: a form's calls by element."""
    arrays, program = form.arrays, form.program
    constants = [f"c{at}" for at in range(len(program.constants))]
    lines = [f"{name} = all_{name}[at]" for name in arrays]
    lines += [f"{c.place} = {c.function}({', '.join(c.operands)})" for c in program.calls]
    lines += [f"all_{arrays[at]}[at] = {arrays[at]}" for at in form.writes]
    head = f"def loop({', '.join([*(f'all_{name}' for name in arrays), *constants])}):"
    return "\n        ".join([f"{head}\n    for at in range(all_param.size):", *lines, ""])


def _compiled(form: Form, dtype: np.dtype[Any], constants: Sequence[Any]) -> Any:
    """The loop for arrays of a dtype, which takes what `Bound.update` does; None without Numba."""
    functions = _functions()
    called = {call.function for call in form.program.calls}
    if functions is None or not called <= functions.keys():
        return None
    try:
        named = {"__name__": __name__, **{name: functions[name] for name in called}}
        exec(compiled(loop_text(form)), named)
        kernel, count = functions["njit"](named["loop"]), len(form.arrays)

        def loop(*arguments: Any) -> None:
            arrays = [array.reshape(-1) for array in arguments[:count]]  # views
            kernel(*arrays, *map(_number, arguments[count:]))

        loop(*[np.ones(1, dtype) for _ in form.arrays], *constants)  # which compiles it
    except Exception as error:  # a compiler that fails leaves what there is without it
        _warn(f"could not compile it: {type(error).__name__}: {error}")
        return None
    return loop


def _number(constant: Any) -> Any:
    """A constant as a number in the dtype of the arrays, or a truth."""
    return constant if isinstance(constant, bool) else constant[()]


@cache
def _functions() -> dict[str, Callable[..., Any]] | None:
    """The functions of a program's calls, of elements; "njit" compiles. None without Numba."""
    try:
        import numba

        if numba.config.DISABLE_JIT:
            return None
        njit = numba.njit(nogil=True, error_model="numpy")
        return {"njit": njit, **BY_OPERATOR, **{f.__name__: njit(f) for f in ELEMENTWISE}}
    except Exception as error:  # one that is of no use beside this NumPy says so at its import
        if not (isinstance(error, ModuleNotFoundError) and error.name == "numba"):
            _warn(f"could not be used: {type(error).__name__}: {error}")
        return None


_warned = list[str]()


def _warn(what: str) -> None:
    """Says, once in a process, why a step takes longer than it could."""
    if not _warned:
        _warned.append(what)
        slower = "optimizers step on the CPU by NumPy, which takes longer than a compiled loop"
        warnings.warn(f"{slower}: Numba {what}", stacklevel=2)


BY_OPERATOR: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "divide": operator.truediv, "negative": operator.neg, "greater": operator.gt,
    "less": operator.lt, "equal": operator.eq, "sqrt": math.sqrt, "absolute": abs,
}  # fmt: skip


# As NumPy has them; a rule that calls others is not compiled.


def copyto(x: Any) -> Any:
    return x


def where(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def choose(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def maximum(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b


def minimum(a: Any, b: Any) -> Any:
    return a if a < b or a != a else b


ELEMENTWISE = (copyto, where, choose, maximum, minimum)
