"""Whether a tensor is the only one that has its array, by counting references."""

from __future__ import annotations

from sys import getrefcount

import numpy as np

from ...tensor import Tensor, make
from ..geometry import BYTE, root_of
from .placed import FIELD

__all__ = ["is_alone"]


def _references(tensor: Tensor) -> tuple[int, int]:
    """How many references there are to a tensor's array, and to the one that owns its memory."""
    array = FIELD.__get__(tensor)
    root = root_of(array)
    return getrefcount(array), getrefcount(root)


ALONE = _references(make(np.empty(2)))
ALONE_IN_VIEW = _references(make(np.empty(8, BYTE)[:4].view(np.float32)))


def is_alone(tensor: Tensor, root: int, is_copied: bool) -> bool:
    """Whether no one else has a tensor's array, or a view of it; `root` is the id of the array that
    owns the memory, to which a copy that is under way refers, too.
    """
    array, owner = _references(tensor)
    if id(FIELD.__get__(tensor)) == root:
        return array <= ALONE[0] + is_copied
    return array <= ALONE_IN_VIEW[0] and owner <= ALONE_IN_VIEW[1] + is_copied
