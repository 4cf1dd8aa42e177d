"""Two inputs, and how they are compared: truths, numbers, tensors, or any objects.

The names are PyTorch's, whose tests derive classes of their own from these.
"""

from __future__ import annotations

import cmath
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..dtypes import (
    bfloat16,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    int64,
    promote_types,
    uint16,
    uint32,
    uint64,
)
from ..functions.calls.out import layout, strided
from ..functions.creation.factories import as_tensor
from ..functions.queries import isclose
from ..tensor import Tensor
from .mismatches import ErrorMeta, make_scalar_mismatch_msg, make_tensor_mismatch_msg

__all__ = [
    "BooleanPair", "NonePair", "NumberPair", "ObjectPair", "Pair", "TensorLikePair",
    "UnsupportedInputs", "default_tolerances", "get_tolerances",
]  # fmt: skip

# (rtol, atol) by dtype: PyTorch's documentation of torch.testing.assert_close. Others are exact.
TOLERANCES = {
    float16: (1e-3, 1e-5), bfloat16: (1.6e-2, 1e-5), float32: (1.3e-6, 1e-5),
    float64: (1e-7, 1e-7), complex64: (1.3e-6, 1e-5), complex128: (1e-7, 1e-7),
}  # fmt: skip


def default_tolerances(
    *inputs: Tensor | dtype, dtype_precisions: dict[dtype, tuple[float, float]] | None = None
) -> tuple[float, float]:
    """The largest relative and the largest absolute tolerance of tensors, or dtypes."""
    precisions = dtype_precisions or TOLERANCES
    for item in inputs:
        if not isinstance(item, (Tensor, dtype)):
            raise TypeError(
                f"Expected a torch.Tensor or a torch.dtype, but got {type(item)} instead."
            )
    kinds = [item.dtype if isinstance(item, Tensor) else item for item in inputs]
    pairs = [precisions.get(kind, (0.0, 0.0)) for kind in kinds]
    return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)


def get_tolerances(
    *inputs: Tensor | dtype, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()
) -> tuple[float, float]:
    """The tolerances that were given, else those of the inputs; ErrorMeta where one was."""
    if rtol is not None and atol is not None:
        return rtol, atol
    if rtol is not None or atol is not None:
        missing = "rtol" if rtol is None else "atol"
        text = f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        raise ErrorMeta(ValueError, text, id=id)
    return default_tolerances(*inputs)


# Pairs --------------------------------------------------------------------------------------------


class UnsupportedInputs(Exception):
    """A kind of pair does not take the inputs: the next kind is tried."""


class Pair(ABC):
    """Two inputs, and how they are compared; `id` are the keys that lead to them."""

    def __init__(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **unknown_parameters: Any
    ) -> None:
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters  # options of other kinds of pairs

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: Any, cls: Any) -> None:
        if not all(isinstance(item, cls) for item in inputs):
            raise UnsupportedInputs

    def _fail(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=id or getattr(self, "id", ()))

    @abstractmethod
    def compare(self) -> None:
        """Raises ErrorMeta where the inputs differ."""

    def extra_repr(self) -> Sequence[str | tuple[str, Any]]:
        """Attributes, or names and values, that belong into the representation."""
        return []

    def __repr__(self) -> str:
        shown: list[tuple[str, Any]] = [
            (name, getattr(self, name)) for name in ("id", "actual", "expected")
        ]
        for extra in self.extra_repr():
            shown.append((extra, getattr(self, extra)) if isinstance(extra, str) else extra)
        lines = [f"    {name}={value!s}," for name, value in shown]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


class ObjectPair(Pair):
    """Any two objects, by `==`."""

    def compare(self) -> None:
        try:
            equal = self.actual == self.expected
        except Exception as error:
            text = f"{self.actual} == {self.expected} failed with:\n{error}."
            raise ErrorMeta(ValueError, text, id=self.id) from error
        if not equal:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """Two inputs, one of which is None."""

    def __init__(self, actual: Any, expected: Any, **other_parameters: Any) -> None:
        if actual is not None and expected is not None:
            self._inputs_not_supported()
        super().__init__(actual, expected, **other_parameters)

    def compare(self) -> None:
        if self.actual is not self.expected:
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


class BooleanPair(Pair):
    """Two truth values, Python's or NumPy's."""

    def __init__(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **other_parameters: Any
    ) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return bool, np.bool_

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> Any:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return self._to_bool(actual, id=id), self._to_bool(expected, id=id)

    def _to_bool(self, bool_like: Any, *, id: tuple[Any, ...]) -> bool:
        if not isinstance(bool_like, (bool, np.bool_)):
            raise ErrorMeta(TypeError, f"Unknown boolean type {type(bool_like)}.", id=id)
        return bool(bool_like)

    def compare(self) -> None:
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class NumberPair(Pair):
    """Two numbers, Python's or NumPy's."""

    _TYPE_TO_DTYPE: dict[type, dtype] = {int: int64, float: float64, complex: complex128}
    _NUMBER_TYPES = (int, float, complex)

    def __init__(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), rtol: float | None = None,
        atol: float | None = None, equal_nan: bool = False, check_dtype: bool = False,
        **other_parameters: Any,
    ) -> None:  # fmt: skip
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)
        kinds = [self._TYPE_TO_DTYPE[type(number)] for number in (actual, expected)]
        self.rtol, self.atol = get_tolerances(*kinds, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_dtype = equal_nan, check_dtype

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return *self._NUMBER_TYPES, np.number

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> Any:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return self._to_number(actual, id=id), self._to_number(expected, id=id)

    def _to_number(self, number_like: Any, *, id: tuple[Any, ...]) -> Any:
        if isinstance(number_like, np.number):
            return number_like.item()
        if not isinstance(number_like, self._NUMBER_TYPES):
            raise ErrorMeta(TypeError, f"Unknown number type {type(number_like)}.", id=id)
        return int(number_like) if isinstance(number_like, bool) else number_like

    def compare(self) -> None:
        actual, expected, rtol, atol = self.actual, self.expected, self.rtol, self.atol
        if self.check_dtype and type(actual) is not type(expected):
            self._fail(
                AssertionError, f"The (d)types do not match: {type(actual)} != {type(expected)}."
            )
        both_nan = self.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)
        if actual == expected or both_nan:
            return
        difference = abs(actual - expected)
        if not (cmath.isfinite(difference) and difference <= atol + rtol * abs(expected)):
            text = make_scalar_mismatch_msg(actual, expected, rtol=rtol, atol=atol)
            self._fail(AssertionError, text)

    def extra_repr(self) -> Sequence[str]:
        return "rtol", "atol", "equal_nan", "check_dtype"


class TensorLikePair(Pair):
    """Two tensors, or what can be made tensors, of related classes."""

    def __init__(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (),
        allow_subclasses: bool = True, rtol: float | None = None, atol: float | None = None,
        equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
        check_layout: bool = True, check_stride: bool = False, **other_parameters: Any,
    ) -> None:  # fmt: skip
        actual, expected = self._process_inputs(
            actual, expected, id=id, allow_subclasses=allow_subclasses
        )
        super().__init__(actual, expected, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(actual, expected, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool
    ) -> Any:
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or (not allow_subclasses and type(actual) is not type(expected)):
            self._inputs_not_supported()
        tensors = [self._to_tensor(item) for item in (actual, expected)]
        for tensor in tensors:
            self._check_supported(tensor, id=id)
        return tensors

    def _to_tensor(self, tensor_like: Any) -> Tensor:
        if isinstance(tensor_like, Tensor):
            return tensor_like
        try:
            return as_tensor(tensor_like)
        except Exception:
            raise UnsupportedInputs from None

    def _check_supported(self, tensor: Tensor, *, id: tuple[Any, ...]) -> None:
        if not isinstance(tensor.layout, layout):
            raise ErrorMeta(ValueError, f"Unsupported tensor layout {tensor.layout}", id=id)

    def compare(self) -> None:
        actual, expected = self.actual.detach(), self.expected.detach()
        self._compare_attributes(actual, expected)
        if not (actual.is_meta or expected.is_meta):
            self._compare_values(*self._equalize_attributes(actual, expected))

    def _compare_attributes(self, actual: Tensor, expected: Tensor) -> None:
        plain = actual.layout is expected.layout is strided
        for name, asked in (
            ("shape", True), ("layout", self.check_layout),
            ("stride()", self.check_stride and plain), ("device", self.check_device),
            ("dtype", self.check_dtype),
        ):  # fmt: skip
            if not asked:
                continue
            one, two = (getattr(x, name.removesuffix("()")) for x in (actual, expected))
            if name.endswith("()"):
                one, two = one(), two()
            if one != two:
                text = f"The values for attribute '{name}' do not match: {one} != {two}."
                self._fail(AssertionError, text)

    def _equalize_attributes(self, actual: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
        """Both on one device, of one dtype and one layout, for a comparison of values."""
        if actual.device != expected.device:
            actual, expected = actual.cpu(), expected.cpu()
        if actual.dtype != expected.dtype:
            kinds = [int64 if x.dtype in (uint16, uint32, uint64) else x.dtype
                     for x in (actual, expected)]  # fmt: skip
            common = promote_types(*kinds)
            actual, expected = actual.to(common), expected.to(common)
        if actual.layout is not expected.layout:
            actual, expected = (
                x if x.layout is strided else x.to_dense() for x in (actual, expected)
            )
        return actual, expected

    def _compare_values(self, actual: Tensor, expected: Tensor) -> None:
        options: dict[str, Any] = {
            "rtol": self.rtol, "atol": self.atol, "equal_nan": self.equal_nan
        }  # fmt: skip
        if actual.layout is not strided:
            self._compare_sparse_coo_values(actual, expected, **options)
            return
        narrow = actual.dtype.is_floating_point and actual.dtype.itemsize == 1
        if narrow and (self.rtol or self.atol):
            self._fail(
                AssertionError,
                f"Rtol={self.rtol} and atol={self.atol} are not supported for bitwise comparison "
                "of low dimensional floats. Please use rtol=0.0 and atol=0.0.",
            )
        self._compare_regular_values_close(actual, expected, **options)

    def _compare_sparse_coo_values(self, actual: Any, expected: Any, **options: Any) -> None:
        """The numbers of dims and of places, the places, and the values of sparse tensors."""
        for what, one, two in (
            ("sparse dimensions", actual.sparse_dim(), expected.sparse_dim()),
            ("specified values", actual._nnz(), expected._nnz()),
        ):
            if one != two:
                text = f"The number of {what} in sparse COO tensors does not match: {one} != {two}"
                self._fail(AssertionError, text)
        self._compare_regular_values_equal(
            actual._indices(), expected._indices(), identifier="Sparse COO indices"
        )
        self._compare_regular_values_close(
            actual._values(), expected._values(), identifier="Sparse COO values", **options
        )

    def _compare_regular_values_equal(
        self, actual: Tensor, expected: Tensor, *, equal_nan: bool = False, identifier: Any = None
    ) -> None:
        self._compare_regular_values_close(
            actual, expected, rtol=0, atol=0, equal_nan=equal_nan, identifier=identifier
        )

    def _compare_regular_values_close(
        self, actual: Tensor, expected: Tensor, *, rtol: float, atol: float, equal_nan: bool,
        identifier: Any = None,
    ) -> None:  # fmt: skip
        matches = isclose(actual, expected, rtol, atol, equal_nan)
        if matches.all():
            return
        how: dict[str, Any] = {"rtol": rtol, "atol": atol, "identifier": identifier}
        if actual.dim():
            text = make_tensor_mismatch_msg(actual, expected, matches, **how)
        else:
            text = make_scalar_mismatch_msg(actual.item(), expected.item(), **how)
        self._fail(AssertionError, text)

    def extra_repr(self) -> Sequence[str]:
        return (
            "rtol", "atol", "equal_nan", "check_device", "check_dtype", "check_layout",
            "check_stride",
        )  # fmt: skip
