"""`assert_close`: whether a result is what was expected, up to rounding, and where it is not."""

from __future__ import annotations

import cmath
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int64,
    promote_types,
)
from ..functions.creation.factories import as_tensor
from ..functions.queries import isclose
from ..tensor import Tensor

__all__ = ["assert_allclose", "assert_close"]

# (rtol, atol) by dtype: PyTorch's documentation of torch.testing.assert_close. Others are exact.
TOLERANCES = {
    float16: (1e-3, 1e-5), bfloat16: (1.6e-2, 1e-5), float32: (1.3e-6, 1e-5),
    float64: (1e-7, 1e-7), complex64: (1.3e-6, 1e-5), complex128: (1e-7, 1e-7),
}  # fmt: skip
NUMBERS = {bool: None, int: None, float: float64, complex: complex128}
Path = tuple[Any, ...]


class Checks(NamedTuple):
    """What `assert_close` was asked to compare, and how exactly."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    device: bool
    dtype: bool
    layout: bool
    stride: bool

    def tolerances(self, *dtypes: Any) -> tuple[float, float]:
        """The relative and the absolute one: those asked for, or the larger ones of the dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        pairs = [TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
        return max(rtol for rtol, _ in pairs), max(atol for _, atol in pairs)


class Mismatch(Exception):
    """A difference, and where in the nested inputs it is."""

    def __init__(self, kind: type[Exception], text: str, path: Path = ()) -> None:
        super().__init__(text)
        self.kind, self.text, self.path = kind, text, path

    def error(self, msg: Any) -> Exception:
        """The exception for the caller, with a text of the caller's if there is one."""
        where = "".join(f"[{key!r}]" for key in self.path)
        text = f"{self.text}\n\nThe failure occurred for item {where}" if where else self.text
        if msg is not None:
            text = msg if isinstance(msg, str) else msg(text)
        return self.kind(text)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| in each element.

    Args:
        actual, expected: Tensors, NumPy arrays, Python numbers, None, or sequences and mappings of
            them, nested at will.
        allow_subclasses: whether one of the two may be of a subclass of the other's class.
        rtol, atol: the relative and the absolute tolerance; both or none of them. By default those
            of PyTorch for the dtype: 1.3e-6 and 1e-5 for float32, 1e-7 for float64, 1e-3 and 1e-5
            for float16, 1.6e-2 and 1e-5 for bfloat16, and 0 for whole numbers.
        equal_nan: whether nan is equal to nan.
        check_device, check_dtype, check_stride: whether these must be the same, too.
            `check_layout` finds nothing, since all tensors are strided.
        msg: a text for the error, or a function that makes one of the text that it would have.

    Raises AssertionError with the number of elements that differ and the greatest difference,
    TypeError for inputs that cannot be compared, ValueError for one tolerance without the other.

    >>> import cugrad as torch
    >>> torch.testing.assert_close(torch.ones(2), torch.tensor([1., 1.0000001]))
    >>> torch.testing.assert_close([torch.ones(2), 1.0], [torch.ones(2), 2.0])
    Traceback (most recent call last):
    AssertionError: Scalars are not close!
    <BLANKLINE>
    Expected 2.0 but got 1.0.
    Absolute difference: 1.0 (up to 1e-07 allowed)
    Relative difference: 0.5 (up to 1e-07 allowed)
    <BLANKLINE>
    The failure occurred for item [1]
    """
    __tracebackhide__ = True
    checks = Checks(
        allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout,
        check_stride,
    )  # fmt: skip
    try:
        differences = []
        for compare, path in list(_pairs(actual, expected, checks, ())):
            try:
                compare()
            except Mismatch as mismatch:
                mismatch.path = path
                differences.append(mismatch)
    except Mismatch as mismatch:  # the inputs are not of one form
        raise mismatch.error(None) from None
    if differences:
        raise differences[0].error(msg) from None


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = True, msg: str = "",
) -> None:  # fmt: skip
    """Deprecated in PyTorch: `assert_close` without a look at device and dtype."""
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a "
        "future release. Please use `torch.testing.assert_close()` instead.",
        FutureWarning, stacklevel=2,
    )  # fmt: skip
    actual, expected = (x if isinstance(x, Tensor) else as_tensor(x) for x in (actual, expected))
    if rtol is None and atol is None:
        rtol, atol = Checks(True, None, None, equal_nan, False, False, False, False).tolerances(
            actual.dtype, expected.dtype
        )
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True,
        check_dtype=False, check_stride=False, msg=msg or None,
    )  # fmt: skip


# Pairs of leaves ----------------------------------------------------------------------------------


def _pairs(
    actual: Any, expected: Any, checks: Checks, path: Path
) -> Iterator[tuple[Callable[[], None], Path]]:
    """A comparison for each pair of leaves, with the keys that lead to it."""
    if _are(actual, expected, Sequence) and not _are(actual, expected, str, any_of=True):
        if len(actual) != len(expected):
            text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            raise Mismatch(AssertionError, text, path)
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            yield from _pairs(a, b, checks, (*path, i))
    elif _are(actual, expected, Mapping):
        missing = sorted(expected.keys() - actual.keys(), key=str)
        further = sorted(actual.keys() - expected.keys(), key=str)
        if missing or further:
            raise Mismatch(
                AssertionError,
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {further}",
                path,
            )
        for key in sorted(actual, key=str):
            yield from _pairs(actual[key], expected[key], checks, (*path, key))
    else:
        yield _comparison(actual, expected, checks, path), path


def _are(actual: Any, expected: Any, kind: Any, any_of: bool = False) -> bool:
    kinds = isinstance(actual, kind), isinstance(expected, kind)
    return any(kinds) if any_of else all(kinds)


def _comparison(actual: Any, expected: Any, checks: Checks, path: Path) -> Callable[[], None]:
    """How two leaves are compared; TypeError for a kind that is not known."""
    if actual is None or expected is None:
        return lambda: _compare_none(actual, expected)
    truths = (bool, np.bool_)
    if isinstance(actual, truths) and isinstance(expected, truths):
        return lambda: _compare_truths(bool(actual), bool(expected))
    numbers = (int, float, complex, np.number)
    if isinstance(actual, numbers) and isinstance(expected, numbers):
        _demand_both_tolerances(checks, path)
        pair = [x.item() if isinstance(x, np.number) else x for x in (actual, expected)]
        return lambda: _compare_numbers(pair[0], pair[1], checks)
    if isinstance(actual, (Tensor, np.ndarray)) and _are_related(actual, expected, checks):
        _demand_both_tolerances(checks, path)
        if isinstance(actual, Tensor):
            return lambda: _compare_tensors(actual, expected, checks)
        return lambda: _compare_tensors(as_tensor(actual), as_tensor(expected), checks)
    raise Mismatch(
        TypeError,
        "No comparison pair was able to handle inputs of type "
        f"{type(actual)} and {type(expected)}.",
        path,
    )


def _demand_both_tolerances(checks: Checks, path: Path) -> None:
    if (checks.rtol is None) != (checks.atol is None):
        missing = "rtol" if checks.rtol is None else "atol"
        text = f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
        raise Mismatch(ValueError, text, path)


def _are_related(actual: Any, expected: Any, checks: Checks) -> bool:
    if type(actual) is type(expected):
        return True
    kinds = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    return checks.allow_subclasses and kinds


def _compare_none(actual: Any, expected: Any) -> None:
    if actual is not expected:
        raise Mismatch(AssertionError, f"None mismatch: {actual} is not {expected}")


def _compare_truths(actual: bool, expected: bool) -> None:
    if actual is not expected:
        raise Mismatch(AssertionError, f"Booleans mismatch: {actual} is not {expected}")


def _compare_numbers(actual: Any, expected: Any, checks: Checks) -> None:
    if checks.dtype and type(actual) is not type(expected):
        raise Mismatch(
            AssertionError, f"The (d)types do not match: {type(actual)} != {type(expected)}."
        )
    rtol, atol = checks.tolerances(NUMBERS[type(actual)], NUMBERS[type(expected)])
    if not _numbers_close(actual, expected, rtol, atol, checks.equal_nan):
        raise Mismatch(AssertionError, _scalar_text(actual, expected, rtol, atol))


def _numbers_close(actual: Any, expected: Any, rtol: float, atol: float, equal_nan: bool) -> bool:
    if equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
        return True
    if actual == expected:
        return True
    difference = abs(actual - expected)
    return cmath.isfinite(difference) and bool(difference <= atol + rtol * abs(expected))


def _scalar_text(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    difference = abs(actual - expected)
    relative = float("inf") if expected == 0 else difference / abs(expected)
    lines = [f"Scalars are not {'close' if rtol or atol else 'equal'}!", ""]
    lines.append(f"Expected {expected} but got {actual}.")
    for name, value, allowed in (("Absolute", difference, atol), ("Relative", relative, rtol)):
        limit = f" (up to {allowed} allowed)" if rtol or atol else ""
        lines.append(f"{name} difference: {value}{limit}")
    return "\n".join(lines)


# Tensors ------------------------------------------------------------------------------------------


def _compare_tensors(actual: Tensor, expected: Tensor, checks: Checks) -> None:
    actual, expected = actual.detach(), expected.detach()
    _demand("shape", actual.shape, expected.shape)
    if checks.device:
        _demand("device", actual.device, expected.device)
    if checks.dtype:
        _demand("dtype", actual.dtype, expected.dtype)
    if checks.stride:
        _demand("stride()", actual.stride(), expected.stride())
    rtol, atol = checks.tolerances(actual.dtype, expected.dtype)
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    dtype = promote_types(actual.dtype, expected.dtype)
    actual, expected = actual.to(dtype), expected.to(dtype)
    matches = isclose(actual, expected, rtol, atol, checks.equal_nan)
    if not matches.all():
        raise Mismatch(AssertionError, _tensor_text(actual, expected, matches, rtol, atol))


def _demand(name: str, actual: Any, expected: Any) -> None:
    if actual != expected:
        raise Mismatch(
            AssertionError,
            f"The values for attribute '{name}' do not match: {actual} != {expected}.",
        )


def _tensor_text(
    actual: Tensor, expected: Tensor, matches: Tensor, rtol: float, atol: float
) -> str:
    """How many elements differ, and where they differ most."""
    if not actual.dim():
        return _scalar_text(actual.item(), expected.item(), rtol, atol)
    count, size = int((~matches).sum()), actual.numel()
    lines = [f"Tensor-likes are not {'close' if rtol or atol else 'equal'}!", ""]
    lines.append(f"Mismatched elements: {count} / {size} ({count / size:.1%})")
    if actual.dtype.category < float32.category:  # a uint8 cannot be negative
        actual, expected = actual.to(int64), expected.to(int64)
    difference = (actual - expected).abs()
    relative = (difference / expected.abs()).masked_fill(matches, 0)
    difference = difference.masked_fill(matches, 0)
    for name, values, allowed in (("absolute", difference, atol), ("relative", relative, rtol)):
        flat = int(values.argmax())
        value = values.reshape(-1)[flat].item()
        index = tuple(int(i) for i in np.unravel_index(flat, tuple(values.shape)))
        limit = f" (up to {allowed} allowed)" if rtol or atol else ""
        lines.append(f"Greatest {name} difference: {value} at index {index}{limit}")
    return "\n".join(lines)
