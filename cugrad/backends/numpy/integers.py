"""Quotients and remainders of integers, which a host refuses to divide by zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["divider"]


def divider(function: np.ufunc) -> Callable[..., Any]:
    """`function` of two operands that have met; RuntimeError for an integer divisor of zero.

    NumPy notes a division by zero as it divides, so nothing looks for the zeros beforehand.
    """

    def divided(x1: Any, x2: Any, **named: Any) -> Any:
        array = x1 if isinstance(x1, np.ndarray) else x2
        if array.dtype.kind not in "iu":
            return function(x1, x2, **named)
        try:
            with np.errstate(divide="raise"):
                return function(x1, x2, **named)
        except FloatingPointError:
            raise RuntimeError(
                f"ZeroDivisionError: {function.__name__} of integers by zero; divide by what "
                "torch.where() makes of the divisor, or as floating point, x.double()"
            ) from None

    divided.__name__ = function.__name__
    return divided
