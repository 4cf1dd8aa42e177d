"""Python's operators of tensors.

Where the other operand is of a class that an op does not take, they leave the answer to that class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.recording.fast import compile_function
from ..autograd.recording.record import apply, recorded
from ..ops.table import TABLE
from ..runtime.dispatching import left_to_other
from ..tensor import Tensor
from .maths.arithmetic import FUNCTIONS, INPLACE, METHODS, refuse_bools
from .maths.products import matmul

__all__ = ["OPERATORS"]


def _operator(name: str) -> Callable[..., Any]:
    return compile_function(TABLE[name], asks=True, operator=True)


def _reflected(name: str) -> Callable[..., Any]:
    op = TABLE[name]

    def call(self: Tensor, other: Any) -> Any:
        try:
            return apply(op, (other, self))
        except TypeError as error:
            return left_to_other(error)

    return call


def _minus(self: Tensor, other: Any) -> Any:
    refuse_bools(self, other)
    try:
        return recorded.sub(self, other)
    except TypeError as error:
        return left_to_other(error)


def _taken_from(self: Tensor, other: Any) -> Any:
    try:
        return FUNCTIONS["sub"](other, self)
    except TypeError as error:
        return left_to_other(error)


def _compare(name: str) -> Callable[..., Any]:
    op, function = TABLE[name], FUNCTIONS[name]

    def call(self: Tensor, other: Any) -> Any:
        if other is None or isinstance(other, (str, list, tuple, dict, type)):
            return NotImplemented
        try:
            return function(self, other)
        except TypeError as error:
            return left_to_other(error)

    call.__doc__ = f"`{op.name}`, element by element."
    return call


def _at(self: Tensor, other: Any) -> Any:
    try:
        return matmul(self, other)
    except TypeError as error:
        return left_to_other(error)


def _in_place(name: str) -> Callable[..., Any]:
    function = INPLACE[name]

    def call(self: Tensor, other: Any) -> Any:
        try:
            return function(self, other)
        except TypeError as error:
            return left_to_other(error)

    call.__doc__ = function.__doc__
    return call


OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"__{n}__": _operator(row) for n, row in (
        ("add", "add"), ("mul", "mul"), ("truediv", "div"), ("floordiv", "floor_divide"),
        ("mod", "remainder"), ("pow", "pow"), ("and", "bitwise_and"), ("or", "bitwise_or"),
        ("xor", "bitwise_xor"), ("lshift", "bitwise_left_shift"),
        ("rshift", "bitwise_right_shift"))},
    **{f"__r{n}__": _operator(row) for n, row in (
        ("add", "add"), ("mul", "mul"), ("and", "bitwise_and"), ("or", "bitwise_or"),
        ("xor", "bitwise_xor"))},
    **{f"__r{n}__": _reflected(row) for n, row in (
        ("truediv", "div"), ("floordiv", "floor_divide"), ("mod", "remainder"), ("pow", "pow"),
        ("lshift", "bitwise_left_shift"), ("rshift", "bitwise_right_shift"))},
    "__sub__": _minus, "__rsub__": _taken_from,
    "__matmul__": _at, "__rmatmul__": lambda self, other: _at(other, self),
    "__neg__": METHODS["neg"], "__pos__": lambda self: self, "__abs__": METHODS["abs"],
    "__invert__": METHODS["bitwise_not"],
    **{f"__i{n}__": _in_place(row) for n, row in (
        ("add", "add_"), ("sub", "sub_"), ("mul", "mul_"), ("truediv", "div_"),
        ("floordiv", "floor_divide_"), ("mod", "remainder_"), ("pow", "pow_"),
        ("and", "bitwise_and_"), ("or", "bitwise_or_"), ("xor", "bitwise_xor_"),
        ("lshift", "bitwise_left_shift_"), ("rshift", "bitwise_right_shift_"))},
    **{f"__{n}__": _compare(n) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip
_CALLED = {"__pow__": "pow", "__ipow__": "pow_"}  # as PyTorch does
for _name, _function in OPERATORS.items():
    if _function not in METHODS.values():
        _function.__name__ = _CALLED.get(_name, _name)
        _function.__qualname__ = f"Tensor.{_function.__name__}"
