"""Finds the array that owns the memory of another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["OWNER_OF", "root_of"]

# Of arrays that show another one's memory and have no `base`: who that is; None: they own theirs.
OWNER_OF: dict[type, Callable[[Any], Any]] = {}


def root_of(array: Any) -> Any:
    """The array that owns an array's memory; itself, where it is no view.

    >>> import numpy as np
    >>> a = np.zeros((4, 6))
    >>> root_of(a[1:, ::2].T) is a
    True
    """
    kind, base = type(array), array.base
    while base is not None:
        if type(base) is not kind:  # what NumPy's as_strided puts between a view and its base
            base = getattr(base, "base", None)
            if type(base) is not kind:
                break
        array, base = base, base.base
    if OWNER_OF and kind in OWNER_OF:
        owner = OWNER_OF[kind](array)
        return array if owner is None else owner
    return array
