"""Tensors of evenly spaced numbers, and tensors with strides of one's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.recording.operands import number
from ...autograd.recording.record import recorded
from ...backends import backend_of
from ...backends.several import at_home
from ...backends.wanted import known
from ...ops import dims as D
from ...ops.promotion import fit_scalar
from ...tensor import Tensor
from ..calls.arguments import array_of
from ..shapes.copies import stack
from .factories import _finish, _numpy_dtype, _place, _shape

__all__ = [
    "arange", "empty_permuted", "empty_strided", "linspace", "logspace", "range", "vander",
]  # fmt: skip
TAKES_OUT = frozenset(__all__) - {"empty_permuted", "empty_strided", "vander"}


def _bounds(function: str, start: Any, end: Any, step: Any) -> tuple[Any, Any, Any]:
    """Three numbers; RuntimeError where they lead nowhere or to no end."""
    start, end = number(start, function, "start"), number(end, function, "end")
    step = number(step, function, "step")
    for x in (start, end, step):
        dtypes.check_fits(x, dtypes.float64)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign: got {start}, {end}, {step}"
        )
    return start, end, step


def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`start, start + step, ...` up to, without, `end`; one argument counts from 0.

    int64 when all arguments are ints, else the default dtype. RuntimeError for a zero step, or one
    that leads away from `end`.

    >>> import cugrad as torch
    >>> torch.arange(1, 2.5, 0.5)
    tensor([1.0000, 1.5000, 2.0000])
    """
    if end is None:
        start, end = 0, start
    if end is None:
        raise TypeError("arange() missing 1 required argument: 'end'")
    start = 0 if start is None else start
    start, end, step = _bounds("arange", start, end, step)
    whole = all(isinstance(x, (int, np.integer)) for x in (start, end, step))
    kind = np.dtype(np.int64) if whole and dtype is None else _of_reals("arange", dtype)
    if kind == np.int64:
        start, end, step = int(start), int(end), int(step)
        whole = True
        if step == 0:
            raise RuntimeError("step must be nonzero")
    n = -((start - end) // step) if whole else math.ceil((end - start) / step)
    if kind.kind in "iu":
        start, step, whole = int(start), int(step), True
    return _evenly(n, start, step, np.dtype("int64" if whole else "float64"), kind, device,
                   requires_grad)  # fmt: skip


def _of_reals(function: str, dtype: Any) -> np.dtype[Any]:
    """The dtype of the numbers, NotImplementedError where these are not real."""
    kind = _numpy_dtype(dtype)
    if kind.kind in "bc":
        name = dtypes.type_name(dtypes.of(kind))
        raise NotImplementedError(f"\"{function}_cpu\" not implemented for '{name}'")
    return kind


def _evenly(
    n: int, start: Any, step: Any, wide: Any, kind: Any, device: Any, requires_grad: bool
) -> Tensor:
    backend, place = _place(device)
    with backend.use_device(place.index):
        array = (backend.xp.arange(max(n, 0), dtype=wide) * step + start).astype(kind)
    return _finish(array, requires_grad)


def range(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`start, start + step, ...` up to `end`, which is included: PyTorch's old arange.

    >>> import cugrad as torch
    >>> torch.range(1, 3)
    tensor([1., 2., 3.])
    """
    if end is None:
        start, end = 0, start
    start, end, step = _bounds("range", start, end, step)
    kind = _of_reals("range", dtype)
    n = math.floor((end - start) / step) + 1
    wide = np.dtype("int64" if kind.kind in "iu" else "float64")
    if kind.kind in "iu":
        start, step = int(start), int(step)
    return _evenly(n, start, step, wide, kind, device, requires_grad)


def _space(
    function: str, start: Any, end: Any, steps: Any, dtype: Any, device: Any
) -> tuple[Any, Any]:
    """Evenly spaced numbers in double precision, and the dtype that is wanted."""
    for x in (start, end):
        if isinstance(x, Tensor) and x._array.ndim:
            raise RuntimeError(
                f"{function} only supports 0-dimensional start and end tensors, but got a tensor "
                f"with {x._array.ndim} dimension(s)."
            )
    start, end = number(start, function, "start"), number(end, function, "end")
    if steps is None:
        raise TypeError(f"{function}() wants steps, the number of values")
    steps = D.one_int(steps, "steps")
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps} ({function})")
    if dtype is None and any(isinstance(x, complex) for x in (start, end)):
        dtype = dtypes.get_default_dtype().to_complex()
    kind = _numpy_dtype(dtype)
    if kind.kind != "c" and any(isinstance(x, complex) for x in (start, end)):
        raise RuntimeError(
            f"{function}: got complex start or end, want real ones for {dtypes.of(kind)}"
        )
    if kind.kind == "b":
        raise NotImplementedError(f"\"{function}_cpu\" not implemented for 'Bool'")
    for x in (start, end):
        dtypes.check_fits(x, dtypes.of(kind))
    if kind.kind in "iu":
        start, end = (fit_scalar(int(x), dtypes.of(kind)) for x in (start, end))
    backend, place = _place(device)
    with backend.use_device(place.index):
        return backend.xp.linspace(start, end, steps), kind


def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` evenly spaced values from `start` to `end`, both included.

    >>> import cugrad as torch
    >>> torch.linspace(0, 1, 3)
    tensor([0.0000, 0.5000, 1.0000])
    """
    values, kind = _space("linspace", start, end, steps, dtype, device)
    with at_home(values):
        return _finish(values.astype(kind), requires_grad)


def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`base` to the powers of `linspace(start, end, steps)`."""
    base = number(base, "logspace", "base")
    if isinstance(base, complex):
        raise TypeError("logspace(): argument 'base' must be float, not complex")
    values, kind = _space("logspace", start, end, steps, dtype, device)
    with at_home(values), backend_of(values).quiet():
        return _finish((base**values).astype(kind), requires_grad)


def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of whatever is in memory, with these strides, counted in elements.

    >>> import cugrad as torch
    >>> torch.empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    shape, steps = _shape((D.int_tuple(size, "size"),)), D.int_tuple(stride, "stride")
    if len(shape) != len(steps):
        raise RuntimeError(
            f"mismatch in length of strides and shape: got size {list(shape)} and stride "
            f"{list(steps)} (empty_strided)"
        )
    if any(s < 0 for s in steps):
        raise RuntimeError(f"empty_strided: strides must not be negative, got {list(steps)}")
    kind = _numpy_dtype(dtype)
    reach = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, steps))
    backend, place = _place(device)
    with backend.use_device(place.index):
        memory = known(backend.xp.empty(reach, kind))
        strides = tuple([s * kind.itemsize for s in steps])
        array = backend.xp.lib.stride_tricks.as_strided(memory, shape, strides)
    return _finish(array, requires_grad)


def empty_permuted(
    size: Any,
    physical_layout: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of whatever is in memory, whose dims lie there in the order `physical_layout`."""
    shape = _shape((D.int_tuple(size, "size"),))
    order = D.int_tuple(physical_layout, "physical_layout")
    if len(order) != len(shape):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(shape)} is not equal to len(physical_layout) = {len(order)}"
        )
    for d in order:
        if not 0 <= d < len(shape):
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {len(shape) - 1}, but got "
                f"{d} in physical_layout {list(order)})"
            )
    if len(set(order)) < len(order):
        raise RuntimeError(f"Duplicate dim not allowed in physical_layout {list(order)}")
    steps = [0] * len(shape)
    for d, s in zip(order, D.contiguous_strides(tuple([shape[d] for d in order]))):
        steps[d] = s
    return empty_strided(shape, steps, dtype=dtype, device=device, requires_grad=requires_grad)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector's elements, N - 1 to 0, a line for each element.

    >>> import cugrad as torch
    >>> torch.vander(torch.tensor([2, 3]), 3)
    tensor([[4, 2, 1],
            [9, 3, 1]])
    """
    array = array_of(x, "vander", "x")
    if array.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = array.size if N is None else N
    if count < 0:
        raise RuntimeError(f"N must be non-negative, got {count} (vander)")
    kind = dtypes.of(array.dtype)
    if kind.category < dtypes.FLOAT:
        x = recorded.to_dtype(x, np.dtype("int64"))
    if not count:
        return recorded.new_zeros(x, (array.size, 0))
    powers = [recorded.new_ones(x, array.shape)]
    while len(powers) < count:
        powers.append(recorded.mul(powers[-1], x))
    return stack(powers if increasing else powers[::-1], 1)


METHODS: dict[str, Any] = {}
