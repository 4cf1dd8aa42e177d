"""SciPy's special functions for the NumPy backend, imported when the first of them is asked for.

Those of them that Python has too do without SciPy, number by number.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

__all__ = ["ScipySpecial", "by_number"]


class ScipySpecial:
    """`xp.special` of the NumPy backend: scipy.special, which is an optional dependency."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            import scipy.special
        except ImportError as error:
            raise ImportError(
                f"special functions of tensors on the CPU need SciPy (here {name}), which is not "
                "installed; install it with: pip install 'cugrad[scipy]'"
            ) from error
        value = getattr(scipy.special, name)
        self.__dict__[name] = value  # found without this detour from now on
        return value


@cache
def _of_doubles(name: str) -> Any:
    """SciPy's function, several times as quick as Python's number by number, if SciPy is there."""
    try:
        return getattr(ScipySpecial(), name)
    except ImportError:
        return np.frompyfunc(getattr(math, name), 1, 1)


def by_number(name: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`erf` or `erfc` of numbers, computed in double precision and rounded to their dtype.

    >>> by_number("erfc", np.array([0.0, 2.0])).round(4).tolist()
    [1.0, 0.0047]
    """
    doubles = np.positive(x, dtype=np.float64)  # of NumPy, so that results lie as those of others
    return np.asarray(_of_doubles(name)(doubles)).astype(x.dtype, copy=False)
