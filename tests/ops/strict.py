"""An array that can do only what a derivative formula may ask, and refuses everything else."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from cugrad.ops.table import TABLE, raw

SCALARS = (bool, int, float, complex)  # exact types: np.float64 is a float, and promotes


class NotAllowed(AssertionError):
    """A formula did something that a recorded run, or a CUDA one, could not do."""


def value_of(strict: StrictArray) -> Any:
    """The array inside."""
    return strict._StrictArray__value  # type: ignore[attr-defined]


class StrictArray:
    """Operators, `.shape`, `.ndim`, `.dtype`; no methods, no NumPy, no indexing, no truth value.

    Operators take arrays of their own kind and Python scalars, and must not promote: a result of
    inexact operands has the dtype of one of them.
    """

    __slots__ = ("__value",)
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        if isinstance(value, np.generic) or not hasattr(value, "dtype"):
            raise NotAllowed(f"an array was expected here, got {type(value).__name__}")
        self.__value = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.__value.shape

    @property
    def ndim(self) -> int:
        return self.__value.ndim

    @property
    def dtype(self) -> Any:
        return self.__value.dtype

    def __getattr__(self, name: str) -> Any:
        raise NotAllowed(f"a formula asked an array for .{name}; want an operator or m.{name}(...)")

    def __repr__(self) -> str:
        return f"StrictArray({self.shape}, {self.dtype})"


def _operand(value: Any, sign: str) -> Any:
    if isinstance(value, StrictArray):
        return value_of(value)
    if type(value) in SCALARS:
        return value
    raise NotAllowed(f"operand of {sign}: {type(value).__name__}, want an array or Python scalar")


def _operator(name: str, compute: Callable[..., Any], keeps_dtype: bool) -> Callable[..., Any]:
    reflected = name.startswith("__r") and name not in ("__rshift__",)

    def method(self: StrictArray, *others: Any) -> StrictArray:
        operands = [_operand(o, name) for o in (self, *others)]
        if reflected:
            operands.reverse()
        result = compute(*operands)
        if isinstance(result, np.generic):
            result = np.asarray(result)
        inexact = {o.dtype for o in operands if hasattr(o, "dtype") and _is_inexact(o.dtype)}
        turned = any(type(o) is complex for o in operands)  # a gradient times 1j
        if keeps_dtype and inexact and not turned and result.dtype not in inexact:
            raise NotAllowed(f"{name} promotes {sorted(map(str, inexact))} to {result.dtype}")
        return StrictArray(result)

    return method


def _is_inexact(dtype: Any) -> bool:
    return dtype.kind in "fc" or dtype.name == "bfloat16"


ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
LOGIC = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
for word in ARITHMETIC:
    function = getattr(operator, word)
    setattr(StrictArray, f"__{word}__", _operator(f"__{word}__", function, True))
    setattr(StrictArray, f"__r{word}__", _operator(f"__r{word}__", function, True))
for word, function in LOGIC.items():
    setattr(StrictArray, f"__{word}__", _operator(f"__{word}__", function, True))
    setattr(StrictArray, f"__r{word}__", _operator(f"__r{word}__", function, True))
for word in ("neg", "invert", "abs"):
    setattr(
        StrictArray, f"__{word}__", _operator(f"__{word}__", getattr(operator, word), word != "abs")
    )
for word in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(StrictArray, f"__{word}__", _operator(f"__{word}__", getattr(operator, word), False))


def _no_matmul(self: StrictArray, other: Any) -> Any:
    raise NotAllowed("a formula used @, which accumulates half in half; want m.matmul(a, b)")


StrictArray.__matmul__ = StrictArray.__rmatmul__ = _no_matmul  # type: ignore[attr-defined]


def _refusal(name: str) -> Callable[..., Any]:
    def method(self: StrictArray, *args: Any, **kwargs: Any) -> Any:
        raise NotAllowed(f"a formula used {name} of an array; want operators and m.* only")

    return method


for word in (
    "bool", "len", "iter", "getitem", "setitem", "float", "int", "complex", "index", "contains",
    "array", "iadd", "isub", "imul", "itruediv", "ipow", "imatmul", "iand", "ior", "ixor",
):  # fmt: skip
    setattr(StrictArray, f"__{word}__", _refusal(f"__{word}__"))


def strict(value: Any) -> Any:
    """Wraps arrays, also inside tuples and lists; leaves None and everything else."""
    if isinstance(value, (tuple, list)):
        return type(value)(strict(v) for v in value)
    return StrictArray(value) if hasattr(value, "dtype") and hasattr(value, "ndim") else value


def unwrap(value: Any) -> Any:
    """Takes the wrapping off again; an array that never had one is refused."""
    if isinstance(value, StrictArray):
        return value_of(value)
    if isinstance(value, np.ndarray | np.generic) or type(value).__name__ == "ndarray":
        raise NotAllowed(f"a formula made a bare {type(value).__name__}; want operators and m.*")
    if isinstance(value, (tuple, list)):
        return type(value)(unwrap(v) for v in value)
    return value


class StrictNamespace:
    """`m` of a formula: any row of the table, on strict arrays, and nothing that is not a row."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in TABLE:
            raise NotAllowed(f"a formula called m.{name}, which is no row")

        def call(*args: Any, **params: Any) -> Any:
            args = tuple(unwrap(a) for a in args)
            return strict(getattr(raw, name)(*args, **{k: unwrap(v) for k, v in params.items()}))

        return call
