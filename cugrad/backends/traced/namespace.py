"""`xp` for traced elements: NumPy's functions of one element, by NumPy's names."""

from __future__ import annotations

from contextlib import nullcontext
from math import sqrt
from typing import Any

import numpy as np

from .arrays import NUMBERS, Trace, Traced, Untraceable

__all__ = ["FUNCTIONS", "TracedBackend", "TracedNamespace"]

# What a graph may consist of, beside inputs, numbers, casts and `where`.
NAMES = """
    negative positive absolute square reciprocal sqrt exp quick_exp exp2 expm1 log log2 log10 log1p
    sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh erf erfc gammaln
    floor ceil trunc rint sign isnan isinf isfinite signbit logical_not invert
    add subtract multiply true_divide power floor_divide remainder fmod arctan2 hypot copysign
    nextafter maximum minimum fmax fmin logaddexp logaddexp2
    equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor
    bitwise_and bitwise_or bitwise_xor
"""
FUNCTIONS = frozenset(NAMES.split())
SAME = {"abs": "absolute", "divide": "true_divide", "round": "rint", "conjugate": "conj"}
DTYPES = ("float16", "float32", "float64", "bool_", "int32", "int64")


def trace_of(operands: Any) -> Trace:
    for x in operands:
        if type(x) is Traced:
            return x.trace
    raise Untraceable("it computes with numbers alone")


class Special:
    """`xp.special`: of its functions CUDA's own library has few."""

    def __getattr__(self, name: str) -> Any:
        if name != "gammaln":
            raise Untraceable(f"it computes with special.{name}")
        return lambda x: x.trace.apply(name, x)


class TracedNamespace:
    """NumPy's functions of elements; Untraceable for one that is no function of an element."""

    special = Special()
    cast = copied = None

    def __getattr__(self, name: str) -> Any:
        name = SAME.get(name, name)
        if name in DTYPES:
            return getattr(np, name)
        if name not in FUNCTIONS:
            raise Untraceable(f"it computes with {name}")

        def call(*operands: Any) -> Traced:
            for x in operands:
                if type(x) is not Traced and not isinstance(x, (*NUMBERS, np.generic)):
                    raise Untraceable(f"it gives {name} a {type(x).__name__}")
            return trace_of(operands).apply(name, *operands)

        return call

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Traced:
        return trace_of((condition, x, y)).apply("where", condition, x, y)

    @staticmethod
    def clip(x: Traced, low: Any = None, high: Any = None) -> Traced:
        if low is not None:
            x = x.trace.apply("maximum", x, low)
        return x if high is None else x.trace.apply("minimum", x, high)

    @staticmethod
    def positive_part(x: Any) -> Any:
        return x.trace.apply("maximum", x, 0)

    @staticmethod
    def normal_cdf(x: Any) -> Any:
        """Of half precision in float32, as on other devices."""
        wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
        return ((x.trace.apply("erf", wide * sqrt(0.5)) + 1) * 0.5).astype(x.dtype)

    @staticmethod
    def quick_exp(x: Any, factor: float = 1.0) -> Any:
        power = -x if factor == -1 else x * factor
        return x.trace.apply("quick_exp", power)

    @staticmethod
    def full(shape: Any, value: Any, dtype: Any) -> Any:
        """A number of a dtype, which does not give way to others as Python's do."""
        if shape != () or type(value) not in NUMBERS:
            raise Untraceable("it makes arrays of a shape")
        return np.dtype(dtype).type(value)

    @staticmethod
    def zeros_like(x: Traced) -> Traced:
        return x.trace.number(0, x.dtype)

    @staticmethod
    def ones_like(x: Traced) -> Traced:
        return x.trace.number(1, x.dtype)

    @staticmethod
    def real(x: Traced) -> Traced:
        if x.dtype.kind == "c":
            raise Untraceable("it computes with real parts")
        return x

    @staticmethod
    def conj(x: Traced) -> Traced:
        return x.conj()

    @staticmethod
    def ascontiguousarray(x: Traced) -> Traced:
        """The result lies in the order of its dims, whatever the inputs do."""
        x.trace.in_order = True
        return x


class TracedBackend:
    """What elements answer to `backend_of`, so that rows and formulas run on them."""

    name = "traced"
    device_type = "cuda"  # for which the graph becomes a kernel
    readable, runs_rows, makes_kernels, stands_in = True, False, False, False
    keeps_launches = False
    attention: Any = None
    array_types: tuple[type, ...] = (Traced,)
    xp = TracedNamespace()

    def wrap(self, value: Any) -> Any:
        return value

    def device_index(self, array: Any) -> int | None:
        return None

    def quiet(self) -> Any:
        return nullcontext()
