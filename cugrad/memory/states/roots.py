"""Which placed tensors are in which memory of a device: those that a write may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...backends.batched.arrays import plain
from ...tensor import Tensor
from ..geometry import root_of

if TYPE_CHECKING:
    from .home import Home

__all__ = ["ROOTS", "before_write", "lies_in", "lies_nowhere"]

ROOTS: dict[int, tuple[Home, ...]] = {}  # by the id of the array that owns the memory


def lies_in(home: Home, array: Any) -> int:
    """A home's bytes are in the memory of an array; the id of the array that owns it."""
    root = id(root_of(array))
    ROOTS[root] = (*ROOTS.get(root, ()), home)
    return root


def lies_nowhere(home: Home) -> None:
    """A home's bytes are no longer where they were."""
    before = ROOTS.get(home.root, ())
    if home in before:
        ROOTS[home.root] = tuple([each for each in before if each is not home])
        if len(before) == 1:
            del ROOTS[home.root]


def before_write(tensor: Tensor) -> None:
    """Memory is about to be changed, perhaps through an alias with a version of its own. Of several
    tensors in it all are taken to be.
    """
    for home in ROOTS.get(id(root_of(plain(tensor._array))), ()):
        home.changes()
