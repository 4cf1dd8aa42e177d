"""Finds the array that owns the memory of another one."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

__all__ = ["OWNER_OF", "has_all_alone", "root_of"]

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


def has_all_alone(array: Any) -> bool:
    """Whether an array owns its memory, or shows all of what nothing else refers to.

    >>> import numpy as np
    >>> a = np.zeros((4, 6))
    >>> has_all_alone(a), has_all_alone(a.reshape(24)), has_all_alone(np.zeros(24).reshape(4, 6))
    (True, False, True)
    """
    root = root_of(array)
    return root is array or root is array.base and _shows_all(array, root)


def _shows_all(view: Any, root: Any) -> bool:
    return root.nbytes == view.nbytes and getrefcount(root) <= OF_ONE_VIEW


def _count_behind(view: Any) -> int:
    root = root_of(view)
    return _count(view, root)


def _count(view: Any, root: Any) -> int:
    return getrefcount(root)


OF_ONE_VIEW = _count_behind(np.empty(2).reshape(1, 2))
