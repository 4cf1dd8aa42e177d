"""Elements of arrays as expressions: each op on them is noted in the graph that they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["NUMBERS", "Trace", "Traced", "Untraceable", "reached_from"]

NUMBERS = (bool, int, float)
OF_COMPLEX = frozenset(["positive", "negative", "square", "conj", "add", "subtract", "multiply",
                        "true_divide", "where"])  # fmt: skip

# The dtype in which these compare, choose or decide is that in which their operands meet.
DECIDING = frozenset([
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf",
    "isfinite", "signbit", "logical_and", "logical_or", "logical_xor", "logical_not",
])  # fmt: skip


# What these cut off depends on how their operand was rounded.
CUTTING = frozenset(["trunc", "floor", "ceil", "rint"])


class Untraceable(Exception):
    """Says what of a row is no expression of its elements."""


class Traced:
    """One element: an input, a number, or a function of others. Compared by identity in a graph."""

    __slots__ = ("trace", "name", "function", "operands", "dtype", "meeting", "value")

    trace: Trace
    name: int  # its place in the graph: what it is made of comes before it
    function: str  # "input", "number", "astype", or a name of NumPy's
    operands: tuple[Traced, ...]
    dtype: np.dtype[Any]
    meeting: np.dtype[Any]  # in which its operands meet
    value: Any  # of a number; which input it is

    @property
    def flags(self) -> Any:
        """The memory order of a result is decided elsewhere: see `Trace.in_order`."""
        return SimpleNamespace(c_contiguous=False)

    @property
    def strides(self) -> tuple[int, ...]:
        return ()

    @property
    def shape(self) -> tuple[int, ...]:
        if self.trace.shape is None:
            raise Untraceable("it reads the shape of an array")
        return self.trace.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> Traced:
        return self.trace.cast(self, np.dtype(dtype))

    def copy(self, order: str = "C") -> Traced:
        if order == "C" and self.function == "input":
            self.trace.in_order = True
        return self

    def conj(self) -> Traced:
        return self.trace.conjugate(self)

    def __bool__(self) -> bool:
        raise Untraceable("what it computes depends on the values of elements")

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(f"it reads .{name} of an array")

    def __len__(self) -> int:
        raise Untraceable("it counts the elements of an array")

    def __getitem__(self, index: Any) -> Any:
        raise Untraceable("it takes parts of an array")

    __hash__ = object.__hash__


class Trace:
    """A graph of expressions, in the order in which they can be computed.

    `shape` is the shape of all elements together, None where it must not be asked for.
    """

    def __init__(self, shape: tuple[int, ...] | None = None) -> None:
        self.nodes: list[Traced] = []
        self.shape = shape
        self.in_order = False  # whether the result lies in the order of its dims
        self._known: dict[Any, Traced] = {}

    def input(self, index: int, dtype: np.dtype[Any]) -> Traced:
        return self._node("input", (), dtype, dtype, index)

    def number(self, value: Any, dtype: np.dtype[Any]) -> Traced:
        if isinstance(value, complex):
            raise Untraceable("it computes with a complex number")
        return self._node("number", (), dtype, dtype, value)

    def cast(self, x: Traced, dtype: np.dtype[Any]) -> Traced:
        if x.dtype == dtype:
            return x
        if x.function == "number":
            return self.number(x.value, dtype)
        if x.dtype.kind == "c" and dtype.kind != "c":
            raise Untraceable("it drops imaginary parts")
        return self._node("astype", (x,), dtype, dtype, None)

    def conjugate(self, x: Traced) -> Traced:
        if x.dtype.kind != "c":
            return x
        return x.operands[0] if x.function == "conj" else self.apply("conj", x)

    def apply(self, function: str, *operands: Any) -> Traced:
        """A function of NumPy's of elements and numbers, in the dtypes that NumPy would use."""
        kinds = tuple([x.dtype if hasattr(x, "dtype") else type(x) for x in operands])
        meeting, dtype = dtypes_of(function, kinds)
        if meeting.kind == "c" and function not in OF_COMPLEX:
            raise Untraceable(f"it computes {function} of complex numbers")
        if (
            function in CUTTING
            and meeting.itemsize == 2
            and any(type(x) is Traced and x.operands for x in operands)
        ):
            raise Untraceable(f"it computes {function} of what is rounded to half precision")
        first = 1 if function == "where" else 0  # the condition stays what it is
        if function in DECIDING and meeting.itemsize == 2:  # as NumPy compares: in half precision
            operands = tuple([x if type(x) is Traced else float(meeting.type(x)) for x in operands])
        met = [self._met(x, meeting) for x in operands[first:]]
        condition = [self._met(x, np.dtype(bool)) for x in operands[:first]]
        return self._node(function, (*condition, *met), dtype, meeting, None)

    def _met(self, x: Any, dtype: np.dtype[Any]) -> Traced:
        if type(x) is Traced:
            return self.cast(x, dtype)
        return self.number(x.item() if isinstance(x, np.generic) else x, dtype)

    def _node(
        self, function: str, operands: tuple[Traced, ...], dtype: Any, meeting: Any, value: Any
    ) -> Traced:
        names = tuple([x.name for x in operands])
        key = function, names, dtype, meeting, type(value), repr(value)
        node = self._known.get(key)
        if node is None:
            node = self._known[key] = object.__new__(Traced)
            node.trace, node.name, node.function = self, len(self.nodes), function
            node.operands, node.dtype, node.meeting = operands, dtype, meeting
            node.value = value
            self.nodes.append(node)
        return node


def reached_from(outputs: Sequence[Traced]) -> list[Traced]:
    """The nodes that outputs are made of, in the order in which they can be computed."""
    if not outputs:
        return []
    nodes, names = outputs[0].trace.nodes, {x.name for x in outputs}
    for node in reversed(nodes):
        if node.name in names:
            names.update(x.name for x in node.operands)
    return [node for node in nodes if node.name in names]


@cache
def dtypes_of(function: str, kinds: tuple[Any, ...]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The dtype in which operands meet, and that of the result: NumPy's, of no elements at all.

    A kind is a dtype, or the type of a Python number.
    """
    none = [k(1) if isinstance(k, type) else np.empty(0, k) for k in kinds]
    with np.errstate(all="ignore"):
        if function in ("erf", "erfc", "gammaln"):
            dtype = none[0].dtype
        else:
            try:
                name = "exp" if function == "quick_exp" else function
                dtype = getattr(np, name)(*none).dtype
            except TypeError as error:
                raise Untraceable(f"NumPy has no {function} of {kinds}") from error
        if function not in DECIDING:
            return dtype, dtype
        return (np.add(*none).dtype if len(none) == 2 else none[0].dtype), dtype


def _operator(function: str, swapped: bool) -> Any:
    def method(self: Traced, other: Any) -> Any:
        if type(other) is not Traced and not isinstance(other, (*NUMBERS, np.generic)):
            raise Untraceable(f"it computes with a {type(other).__name__}")
        x, y = (other, self) if swapped else (self, other)
        if function == "power" and type(other) in (int, float) and not swapped:
            return _power(self, other)
        return self.trace.apply(function, x, y)

    return method


def _power(x: Traced, exponent: Any) -> Traced:
    """NumPy's quick ways for the exponents that have one."""
    apply = x.trace.apply
    if x.dtype.kind in "fV" and exponent in (-1, 0.5, 1, 2):
        quick = {-1: "reciprocal", 0.5: "sqrt", 1: "positive", 2: "square"}
        return apply(quick[exponent], x)
    return apply("power", x, exponent)


for _method, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "pow": "power",
    "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor",
}.items():  # fmt: skip
    setattr(Traced, f"__{_method}__", _operator(_name, False))
    setattr(Traced, f"__r{_method}__", _operator(_name, True))
for _method, _name in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}.items():  # fmt: skip
    setattr(Traced, f"__{_method}__", _operator(_name, False))
for _method, _name in {"neg": "negative", "invert": "invert", "abs": "absolute"}.items():
    setattr(Traced, f"__{_method}__", lambda self, _name=_name: self.trace.apply(_name, self))
