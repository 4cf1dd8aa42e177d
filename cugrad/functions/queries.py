"""Questions about tensors and dtypes, answered with Python values."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from .. import dtypes
from ..backends import backend_of
from ..backends.batched.arrays import unify
from ..backends.several import there
from ..dtypes import dtype as Dtype
from ..ops.dims import broadcast_shapes
from ..ops.promotion import result_dtype
from ..tensor import Tensor, make
from .calls.arguments import array_of

__all__ = [
    "allclose", "can_cast", "equal", "finfo", "iinfo", "is_complex", "is_floating_point",
    "is_tensor", "isclose", "numel", "result_type",
]  # fmt: skip


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a real floating-point one."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input.is_complex()


def numel(input: Tensor) -> int:
    """The number of elements."""
    return array_of(input, "numel").size


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and the same elements. Waits for the device.

    >>> import cugrad as torch
    >>> torch.equal(torch.tensor([1, 2]), torch.tensor([1, 2]))
    True
    """
    a, b = array_of(input, "equal"), array_of(other, "equal", "other", 2)
    _demand_one_device("equal", input, other)
    return a.shape == b.shape and bool((a == b).all())


def isclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Element by element, whether |input - other| <= atol + rtol * |other|.

    RuntimeError when the dtypes differ, or a tolerance is negative.
    """
    array_of(input, "isclose"), array_of(other, "isclose", "other", 2)
    if input.dtype is not other.dtype:
        kinds = [dtypes.type_name(x.dtype) for x in (input, other)]
        raise RuntimeError(f"{kinds[0]} did not match {kinds[1]} (isclose)")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    _demand_one_device("isclose", input, other)
    broadcast_shapes(input._array.shape, other._array.shape)  # or an error
    a, b = unify((input._array, other._array))
    backend = backend_of(a)
    if input.dtype.name in ("float16", "bfloat16"):
        a, b = a.astype(np.float32), b.astype(np.float32)
    with backend.quiet():
        return make(
            backend.wrap(backend.xp.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan))
        )


def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether `isclose` holds for all elements. Waits for the device.

    >>> import cugrad as torch
    >>> torch.allclose(torch.tensor([1.]), torch.tensor([1. + 1e-7]))
    True
    """
    return bool(there(lambda x: x.all(), isclose(input, other, rtol, atol, equal_nan)._array))


def _demand_one_device(function: str, a: Tensor, b: Tensor) -> None:
    if a.device != b.device:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{a.device} and {b.device}! (when running {function}; move one with x.to(device))"
        )


def result_type(tensor1: Any, tensor2: Any) -> Dtype:
    """The dtype of an arithmetic op on two tensors or Python numbers.

    >>> import cugrad as torch
    >>> torch.result_type(torch.tensor([1, 2], dtype=torch.int32), 1.0)
    torch.float32
    """
    for position, x in enumerate((tensor1, tensor2), 1):
        if not isinstance(x, (Number, np.generic)):
            array_of(x, "result_type", f"tensor{position}", position)
    return result_dtype([x._array if isinstance(x, Tensor) else x for x in (tensor1, tensor2)])


def can_cast(from_: Dtype, to: Dtype) -> bool:
    """Whether an in-place op may put results of dtype `from_` into a tensor of dtype `to`."""
    for position, (name, kind) in enumerate((("from_", from_), ("to", to)), 1):
        if not isinstance(kind, Dtype) and kind not in (bool, int, float, complex):
            raise TypeError(
                f"can_cast(): argument '{name}' (position {position}) must be torch.dtype, not "
                f"{type(kind).__name__}"
            )
    return dtypes.as_dtype(from_).category <= dtypes.as_dtype(to).category


class _Limits:
    """The numeric limits of a dtype, under NumPy's names for them."""

    def __init__(self, kind: Dtype, info: Any, names: tuple[str, ...]) -> None:
        self.dtype, self.bits = kind.name, 8 * kind.itemsize
        self._names = names
        for name in names:
            value = getattr(info, name)
            setattr(self, name, float(value) if isinstance(self, finfo) else int(value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Limits) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        values = ", ".join(f"{n}={getattr(self, n):g}" for n in self._names)
        return f"{type(self).__name__}({values}, dtype={self.dtype})"


class finfo(_Limits):
    """Limits of a floating-point dtype: bits, min, max, eps, tiny, resolution.

    >>> finfo(dtypes.float32).eps
    1.1920928955078125e-07
    """

    eps: float
    max: float
    min: float
    resolution: float
    smallest_normal: float
    tiny: float

    def __init__(self, type: Dtype | None = None) -> None:
        kind = dtypes.as_dtype(type or dtypes.get_default_dtype()).to_real()
        if not kind.is_floating_point:
            raise TypeError(f"torch.finfo() requires a floating point input type, got {kind}")
        if kind.name in dtypes.OF_ML_DTYPES:
            import ml_dtypes

            info: Any = ml_dtypes.finfo(kind.numpy)
        else:
            info = np.finfo(kind.numpy)
        super().__init__(kind, info, ("resolution", "min", "max", "eps", "smallest_normal", "tiny"))
        digits = {"float16": 3, "bfloat16": 2, "float32": 6, "float64": 15}.get(kind.name, 0)
        self.resolution = float(f"1e-{digits}")


class iinfo(_Limits):
    """Limits of an integer dtype: bits, min, max.

    >>> iinfo(dtypes.int8).max
    127
    """

    max: int
    min: int

    def __init__(self, type: Dtype) -> None:
        kind = dtypes.as_dtype(type)
        if kind.category != dtypes.INTEGER:
            raise TypeError(f"torch.iinfo() requires an integer input type, got {kind}")
        super().__init__(kind, np.iinfo(kind.numpy), ("min", "max"))


METHODS = {f.__name__: f for f in (allclose, equal, isclose)}
