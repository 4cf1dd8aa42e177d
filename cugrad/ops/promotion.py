"""Type promotion: the dtype in which the operands of an op meet, by PyTorch's rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..backends import backend_of
from ..backends.batched.arrays import plain
from ..dtypes import BOOL, COMPLEX, FLOAT, INTEGER, dtype, is_half

SCALARS = (bool, int, float, complex)


def result_dtype(operands: Any) -> dtype:
    """The dtype of an op on arrays and Python scalars.

    Arrays with dimensions decide; 0-d arrays, then Python scalars, count only when their category
    (bool < integer < float < complex) is higher.
    """
    ranks: list[dtype | None] = [None, None, None]  # of dimensioned, 0-d, Python scalars
    for x in operands:
        if type(x) in SCALARS:
            rank, kind = 2, _scalar_dtype(x)
        elif x is None:
            continue
        else:
            rank, kind = (0 if x.ndim else 1), dtypes.of(x.dtype)
        previous = ranks[rank]
        ranks[rank] = kind if previous is None else dtypes.promote_types(previous, kind)
    result: dtype | None = None
    for candidate in ranks:
        if result is None:
            result = candidate
        elif candidate is None or candidate.category <= result.category:
            continue
        elif candidate.category == COMPLEX and result.category == FLOAT:
            result = result.to_complex()  # the width of the operand that decides
        else:
            result = dtypes.promote_types(result, candidate)
    assert result is not None
    return result


def _scalar_dtype(value: Any) -> dtype:
    if type(value) is bool:
        return dtypes.bool_
    if type(value) is int:
        return dtypes.int64
    default = dtypes.get_default_dtype()
    return default if type(value) is float else default.to_complex()


def meet(op: Any, operands: list[Any]) -> tuple[list[Any], Any]:
    """The promoted operands as the row wants them, and the NumPy dtype they met in.

    The dtype is None when no operand had to change.
    """
    if op.promote == "cast":
        return operands, None
    chosen = operands if op.variadic else [operands[i] for i in op.promoted]
    arrays = [x for x in chosen if x is not None and type(x) not in SCALARS]
    if len(arrays) == len(chosen):
        first = arrays[0].dtype
        if all(x.dtype is first or x.dtype == first for x in arrays[1:]):
            if op.promote != "float" or dtypes.of(first).category >= FLOAT:
                return operands, None
    if op.promote == "same":
        _demand_same(op, arrays)
        return operands, None
    if op.promote == "weighed":
        weight = chosen[-1]
        _demand_same(op, arrays if getattr(weight, "ndim", 1) else arrays[:-1])
        chosen = arrays  # a number is of their dtype, or an error
    target = result_dtype(chosen)
    if op.promote == "float" and target.category <= INTEGER:
        target = dtypes.get_default_dtype()
    numpy_dtype, changed = target.numpy, False
    met = list(operands)
    exact = _exact(op, operands, target) if op.exact else None
    for i in range(len(operands)) if op.variadic else op.promoted:
        x = operands[i]
        if x is None:
            continue
        if i == exact:
            changed = changed or type(x) not in SCALARS
            met[i] = float(x) if type(x) in SCALARS else x.astype(np.float32)
        elif type(x) in SCALARS:
            met[i] = fit_scalar(x, target)
        elif x.dtype != numpy_dtype:
            cast = backend_of(x).xp.cast
            met[i] = x.astype(numpy_dtype) if cast is None else cast(x, numpy_dtype)
            changed = True
    return met, numpy_dtype if changed else None


def _exact(op: Any, operands: list[Any], target: dtype) -> int | None:
    """Which operand meets others of half precision on the host as it is, rounded with the result
    alone: a real number, or an array of no dims, that the row says is exact.
    """
    i = op.inputs.index(op.exact)
    x = operands[i]
    if not is_half(target.numpy) or not all(_is_on_host(a) for a in operands if a is not x):
        return None
    return i if type(x) in SCALARS or is_exact(x, target.numpy) else None


def _is_on_host(x: Any) -> bool:
    return type(plain(x)) is np.ndarray


def is_exact(x: Any, half: Any) -> bool:
    """Whether an array, or a tensor, is one number on the host of another dtype than `half`."""
    array = getattr(x, "_array", x)
    return type(array) is np.ndarray and not array.ndim and array.dtype != half


def check_numbers(op: Any, operands: list[Any], params: dict[str, Any]) -> None:
    """RuntimeError where a number that the row says must fit is out of the range of the dtype in
    which the operands meet. Beyond half precision's range it is infinite, as in PyTorch's `where`.
    """
    for name in op.fits:
        value: Any = operands[op.inputs.index(name)] if name in op.inputs else params.get(name)
        if type(value) in SCALARS and (type(value) is complex or not 0 <= value <= 127):
            others = [operands[i] for i in op.promoted]
            target = result_dtype(others[:-1] if op.promote == "weighed" else others)
            if op.promote == "float" and target.category <= INTEGER:
                target = dtypes.get_default_dtype()
            dtypes.check_number(value, target)


def fit_scalar(value: Any, target: dtype) -> Any:
    """A Python scalar that an array of `target` takes without changing its own dtype."""
    if target.category == INTEGER and type(value) is int:
        bits = 8 * target.itemsize
        if not -(2**63) <= value < 2**64:
            raise OverflowError(f"int too big to convert: {value} is no number of 64 bits")
        low = -(1 << bits - 1) if target.is_signed else 0
        return (value - low) % (1 << bits) + low  # wraps, as PyTorch does
    if type(value) is complex and target.category < COMPLEX and value.imag == 0:
        value = value.real
    if target.category == BOOL:
        return bool(value)
    if target is dtypes.bfloat16:
        return target.numpy.type(value)  # a Python float would make float32 of it
    if target.category >= FLOAT and type(value) is not complex:
        return float(value)
    return value


def as_of(array: Any, value: Any) -> Any:
    """A number as one of the dtype of an array of whole numbers: cut, and -1 is the largest where
    there are no negative ones. Others, and None, stay as they are.
    """
    if value is None or array.dtype.kind not in "iu":
        return value
    return fit_scalar(int(value), dtypes.of(array.dtype))


def refuse(op: Any, arrays: list[Any]) -> None:
    """NotImplementedError for dtypes in which PyTorch does not have this op, though NumPy does."""
    for x in arrays:
        if hasattr(x, "dtype") and x.dtype.kind in op.refuses:
            raise NotImplementedError(f"\"{op.name}\" not implemented for '{_type_name(x)}'")


def _type_name(x: Any) -> str:
    return dtypes.type_name(dtypes.of(x.dtype))


def _demand_same(op: Any, arrays: list[Any]) -> None:
    kinds = [dtypes.of(x.dtype) for x in arrays]
    for kind in kinds[1:]:
        if kind is not kinds[0]:
            goal = kinds[0] if kinds[0].category > kind.category else kind
            raise RuntimeError(
                f"{op.name}: expected all tensors to have the same dtype, but got: "
                f"{kinds[0]} != {kind}; convert one with .to({goal})"
            )


def share_device(op: Any, operands: list[Any]) -> list[Any]:
    """The operands on one device: 0-d host tensors follow the others; else a RuntimeError."""
    arrays = [x for x in operands if hasattr(x, "dtype")]
    home = next((x for x in arrays if backend_of(x).device_type != "cpu"), None)
    if home is None:
        return operands
    backend = backend_of(home)
    moved = []
    for x in operands:
        if hasattr(x, "dtype") and backend_of(x) is not backend:
            if x.ndim:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two "
                    f"devices, {backend.device_type}:{backend.device_index(home)} and cpu! "
                    f"(when running {op.name}; move one with x.to(device))"
                )
            x = backend.asarray(np.asarray(x))
        moved.append(x)
    return moved
