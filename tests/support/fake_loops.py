"""The dtypes of the fake CUDA's results: what the loops of the real CuPy behind each function give.

CuPy chooses a loop of a function by the dtypes of its operands, where a number of Python's is weak.
Its tables are read from the installed CuPy, which needs no GPU for that. So a function without a
loop for bfloat16 answers float32 here, too, and one that has none for complex numbers raises.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

Dtype = np.dtype[Any]
NUMBERS: dict[type, Dtype] = {
    bool: np.dtype("?"), int: np.dtype("i8"), float: np.dtype("f8"), complex: np.dtype("c16"),
}  # fmt: skip
RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 2}  # of dtypes, by their kind
OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "power", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
    "ne": "not_equal", "neg": "negative", "pos": "positive", "abs": "absolute",
    "invert": "invert",
}  # fmt: skip
REAL: dict[str, Any] = {}  # functions of elements by name, of the real CuPy


def read(cupy: Any, special: Any) -> None:
    """Notes the functions of elements of the real CuPy, and those that others are made of."""
    kind = type(cupy.add)
    for module in (special, cupy):
        for name in dir(module):
            if not name.startswith("_") and isinstance(getattr(module, name, None), kind):
                REAL[name] = getattr(module, name)
    REAL["where"] = import_module("cupy._sorting.search")._where_ufunc
    REAL["round"] = REAL["around"] = import_module("cupy._core.core")._round_ufunc
    REAL["clip"] = import_module("cupy._core._routines_math").clip


def dtype_of(value: Any) -> tuple[Dtype, Any] | None:
    """The dtype of an operand, and the type of Python's that makes it weak; None for no operand."""
    host = getattr(value, "_host", value)
    if isinstance(host, (np.ndarray, np.generic)):
        return host.dtype, False
    if type(value) not in NUMBERS:
        return None
    large = type(value) is int and value >= 2**63
    weak = False if type(value) is bool else type(value)
    return np.dtype("u8") if large else NUMBERS[type(value)], weak


def results(name: str, *operands: Any) -> tuple[Dtype, ...] | None:
    """The dtypes of the results of a function; TypeError where CuPy has no loop for them, and None
    where it is no function of elements.
    """
    found = [dtype_of(operand) for operand in operands]
    if name not in REAL or None in found:
        return None
    return _results(name, *[pair for pair in found if pair is not None])


@cache
def _results(name: str, *operands: tuple[Dtype, Any]) -> tuple[Dtype, ...]:
    dtypes = tuple([dtype for dtype, _ in operands])
    weak = tuple([w for _, w in operands])
    strong = max([RANKS.get(d.kind, 2) for d, w in operands if w is False], default=-1)
    numbers = max([RANKS[NUMBERS[w].kind] for w in weak if w is not False], default=-1)
    if numbers == -1 or strong < numbers:
        weak = (False,) * len(weak)
    loop = REAL[name]._ops._guess_routine_from_in_types(dtypes, weak)
    if loop is None:
        raise TypeError(f"Wrong type ({dtypes}) of arguments for cupy_{name}")
    if loop.error_func is not None:
        loop.error_func()
    return tuple([np.dtype(dtype) for dtype in loop.out_types])


def operands_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """What the loop of a call of CuPy's is chosen by; None where no loop is."""
    if "dtype" in kwargs:
        return None
    if name == "where":
        return (True, *args[1:]) if len(args) == 3 else None
    if name in ("round", "around"):
        return args[0], args[1] if len(args) > 1 else kwargs.get("decimals", 0)
    if name in ("tril", "triu"):
        return True, args[0], dtype_of(args[0])[0].type(0)  # type: ignore[index]
    if name == "clip":
        return _clipped(*args, **kwargs)
    return args[: REAL[name].nin] if name in REAL else None


def _clipped(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> tuple[Any, ...]:
    dtype = a._host.dtype
    edges = (-np.inf, np.inf) if dtype.kind not in "iub" else (0, 1)
    ends = [dtype.type(e) if v is None else v for v, e in zip((a_min, a_max), edges)]
    return a, *ends


def of_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Dtype, ...] | None:
    """The dtypes of what a call of CuPy's answers, where a loop decides them."""
    operands = operands_of(name, args, kwargs)
    if operands is None:
        return None
    found = results("where" if name in ("tril", "triu") else name, *operands)
    out = kwargs.get("out")
    if found is not None and out is not None and type(out) is not tuple:
        check_output(name, found[0], out._host.dtype)
    return found


def check_output(name: str, found: Dtype, wanted: Dtype) -> None:
    """TypeError where CuPy does not write results of one dtype to an array of another."""
    if not np.can_cast(found, wanted, "same_kind"):
        raise TypeError(
            f"output (typecode '{found.char}') could not be coerced to provided output parameter "
            f"(typecode '{wanted.char}') according to the casting rule 'same_kind' (cupy_{name})"
        )


def _remainder(a: Any, b: Any) -> Any:
    """As CuPy's, but of integers, of which NumPy's is the same."""
    if np.result_type(a, b).kind in "iub":
        return np.remainder(a, b)
    return a - np.floor(np.true_divide(a, b)) * b


def _floor_divide(a: Any, b: Any) -> Any:
    if np.result_type(a, b).kind in "iub":
        return np.floor_divide(a, b)
    return np.floor(np.true_divide(a, b))


def _without_nan(a: Any, kth: Any, axis: int) -> Any:
    """What is selected by: CuPy's kernels lose their way where they meet nan, but for short rows
    and places far in, which are sorted.
    """
    lost = a.dtype.kind == "f" and a.shape[axis] >= 32 and np.isnan(a).any()
    return np.where(np.isnan(a), -np.inf, a) if lost else a


def _take(a: Any, indices: Any, axis: int | None = None, out: Any = None) -> Any:
    """CuPy takes the remainder of an index that is too large. NumPy subtracts the size again and
    again, for ever where a kernel that is only compiled has left nonsense.
    """
    size = a.size if axis is None else a.shape[axis]
    places = np.asarray(indices).astype(np.int64, copy=False)
    return np.take(a, places % size if size else places, axis, out)


# Where CuPy's results are others than NumPy's.
DIFFERENT: dict[str, Any] = {
    "remainder": _remainder, "mod": _remainder, "floor_divide": _floor_divide,
    "partition": lambda a, kth, axis=-1: np.partition(_without_nan(a, kth, axis), kth, axis),
    "take": _take,
    "argpartition": lambda a, kth, axis=-1: np.argpartition(_without_nan(a, kth, axis), kth, axis),
}  # fmt: skip


def fitted(host: Any, dtypes: tuple[Dtype, ...] | None) -> Any:
    """Results of NumPy's as CuPy's loop has them: in the order of their dims, whatever the order of
    the operands is.
    """
    if dtypes is None:
        return host
    if type(host) is np.ndarray and host.dtype == dtypes[0] and host.flags.c_contiguous:
        return host
    with np.errstate(all="ignore"):
        if isinstance(host, tuple):
            return tuple([np.asarray(h, d, order="C") for h, d in zip(host, dtypes)])
        return np.asarray(host, dtypes[0], order="C")
