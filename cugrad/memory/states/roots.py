"""Who has which memory of a device: the placed tensors in it, and whether anyone else has it."""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from ...autograd.recording.mirrors import written_with
from ...backends.batched.arrays import plain
from ...tensor import Tensor, make
from ..geometry import BYTE, root_of
from .placed import FIELD

if TYPE_CHECKING:
    from .home import Home

__all__ = ["ROOTS", "before_write", "is_alone", "lies_in", "lies_nowhere"]

# By the id of the array that owns the memory. The garbage collector may take out a home between any
# two lines below: nothing is computed from a reading and then written back.
ROOTS: dict[int, dict[Home, None]] = {}


def lies_in(home: Home, array: Any) -> None:
    """A home's bytes are in the memory of an array: `root` is the id of the array that owns it."""
    home.root = root = id(root_of(array))  # first: an interrupt leaves no entry that no one knows
    homes = ROOTS.get(root)
    if homes is None:
        homes = {home: None}
    homes[home] = None
    # the last of the others may have been taken out since, and the dict with it
    ROOTS[root] = homes


def lies_nowhere(home: Home) -> None:
    """A home's bytes are no longer where they were."""
    homes = ROOTS.get(home.root, {})
    if len(homes) == 1 and home in homes:
        del ROOTS[home.root]  # first: an interrupt leaves no empty dict
        return
    homes.pop(home, None)
    if not homes:
        ROOTS.pop(home.root, None)


def before_write(tensor: Tensor) -> None:
    """Memory is about to be changed, perhaps through an alias with a version of its own. Of several
    tensors in it all are taken to be.
    """
    for array in written_with(tensor):
        for home in list(ROOTS.get(id(root_of(plain(array))), ())):
            home.changes()


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
