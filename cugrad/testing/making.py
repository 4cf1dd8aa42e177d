"""`make_tensor`: random tensors to try a function with."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ..dtypes import dtype as Dtype
from ..functions.creation.factories import complex as complex_of
from ..functions.creation.factories import empty
from ..functions.creation.random import rand, randint
from ..functions.queries import finfo, iinfo
from ..tensor import Tensor

__all__ = ["make_tensor"]


def make_tensor(
    *shape: Any,
    dtype: Dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of `shape` with elements drawn evenly from [low, high).

    Args:
        shape: sizes, or one sequence of them.
        dtype, device: of the result; `device` may be "cpu", "cuda" or "simulated".
        low, high: by default 0 and 2 for bool, 0 and 10 for unsigned whole numbers, -9 and 10 for
            signed ones, -9 and 9 for floating-point and complex ones (real and imaginary parts);
            clamped to what the dtype can hold.
        requires_grad: whether the result is a leaf that requires gradients.
        noncontiguous: every other element of a larger tensor; not together with `memory_format`.
        exclude_zero: the smallest positive number of the dtype, or 1, in the place of zeros.
        memory_format: of the result.

    Raises ValueError for an empty or infinite range, for `requires_grad` with whole numbers, and
    for `noncontiguous` with `memory_format`.

    >>> import cugrad as torch
    >>> t = torch.testing.make_tensor(2, 3, dtype=torch.float32, device="cpu", low=0, high=1)
    >>> t.shape, bool(((t >= 0) & (t < 1)).all())
    (torch.Size([2, 3]), True)
    """
    sizes = tuple(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    floating = dtype.is_floating_point or dtype.is_complex
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"noncontiguous={noncontiguous!r} and memory_format={memory_format!r}"
        )
    if requires_grad and not floating:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"dtype={dtype!r}"
        )
    low, high = _limits(dtype, low, high)
    result = _drawn(math.prod(sizes), dtype, device, low, high).reshape(sizes)
    if noncontiguous and result.numel() > 1:
        spread = empty((*sizes[:-1], 2 * sizes[-1]), dtype=dtype, device=device)[..., ::2]
        result = spread.copy_(result)
    if exclude_zero:
        result[result == 0] = finfo(dtype).tiny if floating else 1
    if memory_format is not None:
        result = result.contiguous(memory_format=memory_format)
    return result.requires_grad_(requires_grad) if floating else result


def _limits(dtype: Dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """The range asked for, or the default one, within what the dtype can hold."""
    if any(x is not None and math.isnan(x) for x in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low!r} and high={high!r}")
    if dtype.is_floating_point or dtype.is_complex:
        defaults, info = (-9, 9), finfo(dtype)
        lowest, highest = info.min, info.max
    elif str(dtype) == "torch.bool":
        defaults, lowest, highest = (0, 2), 0, 2
    else:
        bounds = iinfo(dtype)
        lowest, highest = bounds.min, bounds.max
        defaults = (0, 10) if lowest == 0 else (-9, 10)
    start, end = defaults[0] if low is None else low, defaults[1] if high is None else high
    if start > end:
        raise ValueError(f"`low` must be less than or equal to `high`, but got {start} > {end}")
    if start == end:
        if not (dtype.is_floating_point or dtype.is_complex):
            raise ValueError(f"`low` must be less than `high`, but got {start} >= {end}")
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is "
            "deprecated since 2.1 and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning, stacklevel=3,
        )  # fmt: skip
    if end < lowest or start > highest:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{start}, {end}), but {dtype} "
            f"only supports [{lowest}, {highest}]"
        )
    return max(start, lowest), min(end, highest)


def _drawn(count: int, dtype: Dtype, device: Any, low: float, high: float) -> Tensor:
    """A vector of `count` elements."""
    if dtype.is_complex:
        parts = [_drawn(count, dtype.to_real(), device, low, high) for _ in range(2)]
        return complex_of(*parts)
    if dtype.is_floating_point:
        evenly = rand(count, device=device, dtype=dtype)
        return evenly * high + (1 - evenly) * low  # high - low may be infinite
    return randint(math.ceil(low), math.ceil(high), (count,), device=device).to(dtype)
