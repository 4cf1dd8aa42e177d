"""An update of large arrays in the host's memory as one loop over their elements, by Numba.

NumPy goes through a block once for each operation of a rule; the loop goes through it once for all,
with the same bits: it is made of the same calls, in the same order, one element at a time, and LLVM
may neither reorder nor fuse them. Numba is an optional dependency, and is imported when the first
array is stepped that is large enough to pay for its compiler. Where it cannot be had, or cannot
compile, the calls of NumPy serve. `blocks.py` runs either, by the same blocks in the same threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ...autograd.recording.templates import compiled
from ...backends.numpy.compiled.loops import loop_of_text, warn
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
    try:
        called = {call.function for call in form.program.calls}
        kernel, count = loop_of_text(compiled(loop_text(form)), called), len(form.arrays)
        if kernel is None:  # a rule that calls others is not compiled
            return None

        def loop(*arguments: Any) -> None:
            arrays = [array.reshape(-1) for array in arguments[:count]]  # views
            kernel(*arrays, *map(_number, arguments[count:]))

        loop(*[np.ones(1, dtype) for _ in form.arrays], *constants)  # which compiles it
    except Exception as error:  # a compiler that fails leaves what there is without it
        warn(f"could not compile a step: {type(error).__name__}: {error}")
        return None
    return loop


def _number(constant: Any) -> Any:
    """A constant as a number in the dtype of the arrays, or a truth."""
    return constant if isinstance(constant, bool) else constant[()]
