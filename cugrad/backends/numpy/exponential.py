"""e to a power, in the way that NumPy is quickest at: where it can, as a power of two.

NumPy's exp of float32 is exact to a unit in the last place, and takes twice the time of its exp2,
where the processor has vectors for that. The product with log2(e) is rounded, so e^x has about
x units of error in the last place: none to speak of in probabilities, where e^x is next to 1.
"""

from __future__ import annotations

from math import e, log2
from typing import Any

import numpy as np

__all__ = ["SCALE", "powers", "quick_exp"]

Array = np.ndarray[Any, Any]


def _has_vectors(name: str) -> bool:
    """Whether NumPy computes a function of float32 by vectors of this processor."""
    try:
        from numpy.lib.introspect import opt_func_info
    except ImportError:  # NumPy 2.0
        return False
    current = opt_func_info(func_name=f"^{name}$", signature="float32")[name]["ff"]["current"]
    return not current.startswith("baseline")


powers, SCALE = (np.exp2, log2(e)) if _has_vectors("exp2") else (np.exp, 1.0)
# ^ powers(x * SCALE) is e^x


def quick_exp(x: Array, factor: float = 1.0, out: Array | None = None) -> Array:
    """e^(x * factor), of float32 to some six digits where it is not below e^-20 or above e^20.

    >>> quick_exp(np.array([0.0, 1.0], np.float32), -1).round(4).tolist()
    [1.0, 0.367900013923645]
    """
    if x.dtype != np.float32 or SCALE == 1:
        return np.exp(x if factor == 1 else x * factor, out=out)
    scaled = np.multiply(x, np.float32(factor * SCALE), out=out)
    return powers(scaled, out=scaled if type(scaled) is np.ndarray else None)
