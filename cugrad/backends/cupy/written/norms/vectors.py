"""Weights, biases, means and factors as kernels of layers that standardise are told of them."""

from __future__ import annotations

from typing import Any

import cupy

from ..launch import FLOATS, accumulator, dense, int32, name_of

__all__ = ["moments_of", "parts_of", "vectors", "weight_dtype"]

Array = Any  # cupy.ndarray
WEIGHT, BIAS, MEAN = 1, 2, 4  # `parts` of the kernels
ndarray = cupy.ndarray


def weight_dtype(x: Array, n: int, *vectors: Array | None) -> str | None:
    """The dtype of weight and bias, of n elements each; None where the kernels take them not."""
    names = {name_of(v.dtype) for v in vectors if v is not None} or {name_of(x.dtype)}
    if (
        len(names) > 1
        or not names <= {name_of(x.dtype), "float32"}
        or name_of(x.dtype) not in FLOATS
    ):
        return None
    if any(v is not None and v.size != n for v in vectors):
        return None
    return names.pop()


def parts_of(weight: Any, bias: Any = None, mean: bool = True) -> Any:
    return int32((weight is not None) * WEIGHT + (bias is not None) * BIAS + mean * MEAN)


def vectors(x: Array, weight: Array | None, bias: Array | None) -> tuple[Array, Array]:
    """Weight and bias, and another array in the place of what is absent and not read."""
    one = x if bias is None else dense(bias)
    first = one if weight is None else dense(weight)
    return first, first if bias is None else one


def moments_of(x: Array, *moments: Array | None) -> list[Array] | None:
    """Means and factors as the kernels read them; None where they are in another dtype."""
    if any(m is None or m.dtype != accumulator(x.dtype) for m in moments):
        return None
    return [dense(m) for m in moments]
