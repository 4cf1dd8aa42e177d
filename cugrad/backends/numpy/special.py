"""SciPy's special functions for the NumPy backend, imported when the first of them is asked for.

Those of them that Python has too do without SciPy, number by number.
"""

from __future__ import annotations

import math
from functools import cache, partial
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
        if name in APART:
            value = partial(APART[name], value)
        self.__dict__[name] = value  # found without this detour from now on
        return value


# SciPy takes fifty times as long for a number outside of what it has a series for.


def _erfinv(function: Any, x: Any) -> Any:
    """nan beyond -1 and 1, which SciPy would find out one by one."""
    beyond = np.abs(x) > 1
    return function(np.where(beyond, np.nan, x)) if beyond.any() else function(x)


def _digamma(function: Any, x: Any) -> Any:
    """Of negative numbers by those of 1 - x: DLMF 5.5.4."""
    whole = np.trunc(x)
    turned = (x < 0) & (x != whole)  # no pole
    if not turned.any():
        return function(x)
    wide = np.where(turned, 1 - np.asarray(x, np.float64), x)
    part = np.where(turned, np.asarray(x, np.float64) - whole, 0.5)
    return (function(wide) - np.where(turned, np.pi / np.tan(np.pi * part), 0)).astype(x.dtype)


APART = {"erfinv": _erfinv, "digamma": _digamma}


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
