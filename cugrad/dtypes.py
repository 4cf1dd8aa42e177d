"""Element types: PyTorch's names over NumPy's dtypes, and the promotion lattice between them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .runtime.kept import LASTING, of_thread

__all__ = [
    "check_fits", "check_number", "dtype", "get_default_dtype", "is_differentiable", "is_floating",
    "is_half", "of", "promote_types", "set_default_dtype", "type_name",
]  # fmt: skip


class dtype:
    """One element type, such as `cugrad.float32`: a value to compare and to pass.

    >>> import cugrad as torch
    >>> torch.float16.itemsize, torch.float16.is_floating_point, torch.complex64.to_real()
    (2, True, torch.float32)
    """

    __slots__ = ("name", "_numpy", "category", "itemsize", "is_floating_point", "is_complex")
    name: str
    category: int
    itemsize: int
    is_floating_point: bool
    is_complex: bool

    def __init__(self, name: str, category: int, itemsize: int) -> None:
        self.name, self.category, self.itemsize = name, category, itemsize
        self.is_floating_point = category == FLOAT
        self.is_complex = category == COMPLEX
        self._numpy: np.dtype[Any] | None = None

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of this element type: for bfloat16 and float8, that of ml_dtypes."""
        if self._numpy is None:
            of_numpy = self.name not in OF_ML_DTYPES
            self._numpy = np.dtype(self.name) if of_numpy else _of_ml_dtypes(self.name)
        return self._numpy

    @property
    def is_signed(self) -> bool:
        """Whether the dtype holds negative numbers."""
        return self.name != "bool" and not self.name.startswith("uint")

    def to_real(self) -> dtype:
        """The dtype of the absolute value: float32 for complex64, itself for real dtypes."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def to_complex(self) -> dtype:
        """The complex dtype that holds this one: complex128 for float64, else complex64."""
        return complex128 if self.name in ("float64", "complex128") else complex64

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)


BOOL, INTEGER, FLOAT, COMPLEX = range(4)

bool_ = dtype("bool", BOOL, 1)
uint8 = dtype("uint8", INTEGER, 1)
int8 = dtype("int8", INTEGER, 1)
int16 = short = dtype("int16", INTEGER, 2)
int32 = int_ = dtype("int32", INTEGER, 4)
int64 = long = dtype("int64", INTEGER, 8)
float16 = half = dtype("float16", FLOAT, 2)
bfloat16 = dtype("bfloat16", FLOAT, 2)
float32 = float_ = dtype("float32", FLOAT, 4)
float64 = double = dtype("float64", FLOAT, 8)
complex64 = cfloat = dtype("complex64", COMPLEX, 8)
complex128 = cdouble = dtype("complex128", COMPLEX, 16)

# As in PyTorch, these three meet no other integers: they are for storage and for bits.
uint16 = dtype("uint16", INTEGER, 2)
uint32 = dtype("uint32", INTEGER, 4)
uint64 = dtype("uint64", INTEGER, 8)
LIMITED = (uint16, uint32, uint64)

ALL = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64,
       complex64, complex128)  # fmt: skip
# Numbers of a byte, to keep and to cast: they meet no others.
float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu = FLOAT8 = tuple(
    [dtype(f"float8_{form}", FLOAT, 1) for form in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz",
                                                    "e8m0fnu")]
)  # fmt: skip
OF_ML_DTYPES = frozenset([bfloat16.name, *(d.name for d in FLOAT8)])
EVERY = (*ALL, *LIMITED, *FLOAT8)
_BY_NAME = {d.name: d for d in EVERY}
_BY_NUMPY: dict[np.dtype[Any], dtype] = {
    d.numpy: d for d in _BY_NAME.values() if d.name not in OF_ML_DTYPES
}


def _named(name: str) -> dtype:
    """The dtype of a name; what pickles and copies refer to."""
    return _BY_NAME[name]


def _of_ml_dtypes(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise RuntimeError(
            f'{name} needs the package ml_dtypes: pip install "cugrad[bf16]"'
        ) from None
    return np.dtype(getattr(ml_dtypes, name))


def of(numpy_dtype: Any) -> dtype:
    """The element type of a NumPy dtype; TypeError for one that tensors cannot hold.

    >>> import numpy as np
    >>> of(np.dtype("float32"))
    torch.float32
    """
    kind = _BY_NUMPY.get(numpy_dtype)
    if kind is not None:
        return kind
    as_numpy = np.dtype(numpy_dtype)
    if as_numpy.name in OF_ML_DTYPES:
        _BY_NUMPY[as_numpy] = kind = _BY_NAME[as_numpy.name]
        kind._numpy = as_numpy
        return kind
    kind = _BY_NUMPY.get(as_numpy.newbyteorder("="))
    if kind is None:
        raise TypeError(
            f"can't convert an array of dtype {as_numpy} to a tensor, want one of: "
            + ", ".join(_BY_NAME)
        )
    return kind


class _Answers(dict[Any, bool]):
    """What a test says of NumPy dtypes; a question that was asked before is a look-up."""

    def __init__(self, test: Callable[[dtype], bool]) -> None:
        self._test = test

    def __missing__(self, numpy_dtype: Any) -> bool:
        kind = _BY_NUMPY.get(numpy_dtype) or _BY_NAME.get(np.dtype(numpy_dtype).name)
        answer = self[numpy_dtype] = kind is not None and self._test(kind)
        return answer


# Questions about the dtype of an array. NumPy's kind does not answer them: bfloat16 is a "V".
is_differentiable = _Answers(lambda d: d.category >= FLOAT).__getitem__  # real or complex
is_floating = _Answers(lambda d: d.category == FLOAT).__getitem__  # real
is_half = _Answers(lambda d: d.category == FLOAT and d.itemsize == 2).__getitem__


def as_dtype(value: Any) -> dtype:
    """`value` as an element type: a `dtype`, or Python's bool, int, float or complex."""
    if type(value) is dtype:
        return value
    if value in _PYTHON:
        return _PYTHON[value]
    raise TypeError(f"dtype must be a torch.dtype such as torch.float32, got {value!r}")


_TYPE_NAMES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    **{d.name: d.name.capitalize() for d in FLOAT8},
}  # fmt: skip


def type_name(d: dtype) -> str:
    """What PyTorch's messages and old type names call a dtype: "Float" for float32."""
    return _TYPE_NAMES[d.name]


_C_NAMES = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
    "int32": "int", "bool": "bool", "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}  # fmt: skip


def check_fits(value: Any, d: dtype) -> None:
    """RuntimeError unless a Python number is in the range of a dtype; -1 fits unsigned ones, but
    -1.0 does not.

    >>> check_fits(300, int8)
    Traceback (most recent call last):
    RuntimeError: value cannot be converted to type int8_t without overflow
    """
    real = value.real if isinstance(value, complex) and value.imag == 0 else value
    if isinstance(real, complex):
        fits = d.category in (BOOL, COMPLEX)
    elif d.category == BOOL:
        fits = True
    elif d.category == INTEGER:
        most = 2 ** (8 * d.itemsize - d.is_signed) - 1
        wraps = d.is_signed or type(real) is not float
        fits = (-most - d.is_signed if wraps else 0) <= real <= most  # nan is not
    else:
        most = _LARGEST[d.to_real().name]
        fits = not most < abs(real) < float("inf")
    if not fits:
        name = _C_NAMES.get(d.name, f"{d.name}_t")
        raise RuntimeError(f"value cannot be converted to type {name} without overflow")


def check_number(value: Any, d: dtype) -> None:
    """`check_fits` of a number in arithmetic: beyond half precision's range it is infinite.

    >>> check_number(1e6, float16)
    """
    check_fits(value, float64 if is_half(d.numpy) else d)


_LARGEST = {
    "float16": 65504.0, "bfloat16": (2 - 2**-7) * 2.0**127, "float32": (2 - 2**-23) * 2.0**127,
    "float64": (2 - 2**-52) * 2.0**1023, "float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0, "float8_e5m2fnuz": 57344.0, "float8_e8m0fnu": 2.0**127,
}  # fmt: skip
_PYTHON: dict[Any, dtype] = {bool: bool_, int: int64, float: float64, complex: complex128}


@cache
def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that both convert to, by PyTorch's lattice.

    >>> promote_types(int64, float16), promote_types(uint8, int8), promote_types(float16, bfloat16)
    (torch.float16, torch.int16, torch.float32)
    """
    for kind in (type1, type2):
        if type(kind) is not dtype and kind not in _PYTHON:
            raise TypeError(f"promote_types(): want two torch.dtype, got {kind!r}")
    type1, type2 = as_dtype(type1), as_dtype(type2)
    low, high = sorted((type1, type2), key=lambda d: (d.category, d.itemsize))
    if low is not high and (low in LIMITED or high in LIMITED) and high.category != FLOAT:
        raise RuntimeError(
            "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
            f"{type_name(type1)} and {type_name(type2)}"
        )
    if low is high or low.category == BOOL:
        return high
    if low in FLOAT8 or high in FLOAT8:
        raise RuntimeError(
            "Promotion for Float8 Types is not supported, attempted to promote "
            f"{type_name(type1)} and {type_name(type2)}"
        )
    if low.category < FLOAT <= high.category and low.category == INTEGER:
        return high
    if high.category == COMPLEX:
        return complex128 if low is float64 else high
    if high.category == FLOAT:  # two floats; two different halves meet in float32
        return float32 if low.itemsize == high.itemsize else high
    if uint8 in (low, high):
        return int16 if int8 in (low, high) else high
    return high


class _Default(threading.local):
    dtype = float32


_default = of_thread(_Default(), LASTING)


def get_default_dtype() -> dtype:
    """The floating-point dtype of new tensors made from Python floats; float32 at start."""
    return _default.dtype


def set_default_dtype(d: dtype) -> None:
    """Sets the default floating-point dtype of this thread; TypeError for any other dtype."""
    if type(d) is not dtype or not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d!r}")
    _default.dtype = d
