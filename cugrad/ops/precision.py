"""What rows share: half precision widened for sums and rounded once, and sums of what is there."""

from __future__ import annotations

from typing import Any

from ..dtypes import is_half

__all__ = ["is_complex", "narrow", "of_dtype_of", "sum_of", "wide"]

Array = Any


def is_complex(x: Any) -> bool:
    """Whether the elements of an array or a Tensor are complex."""
    return str(x.dtype).rpartition(".")[2].startswith("complex")


def wide(xp: Any, x: Array) -> Array:
    """Half precision as float32, in which sums are kept and of which only the result is rounded."""
    if not is_half(x.dtype):
        return x
    cast = xp.cast
    return x.astype(xp.float32) if cast is None else cast(x, xp.float32)


def narrow(xp: Any, x: Array, like: Array) -> Array:
    """`x` in the dtype of `like`."""
    if x.dtype == like.dtype:
        return x
    cast = xp.cast
    return x.astype(like.dtype) if cast is None else cast(x, like.dtype)


def of_dtype_of(m: Any, like: Any, x: Any) -> Any:
    """`narrow` in a formula: NumPy makes float32 of bfloat16 and a Python float."""
    return x if x.dtype == like.dtype else m.to_dtype(x, like.dtype)


def sum_of(*terms: Any) -> Any:
    """The sum of the terms that are there."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total
