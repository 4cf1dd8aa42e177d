"""`swap_tensors`: two tensors become each other, and whoever holds one holds the other then."""

from __future__ import annotations

import copyreg
import weakref
from typing import Any

from ..tensor import Tensor

__all__ = ["swap_tensors"]


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchanges all that two tensors are: elements, dtype, gradients, class and attributes.

    RuntimeError where one has a weak reference, as views and their bases do, and where their
    classes have different slots. A graph that was made before sends its gradient to the object
    that was there, whatever it is now.

    >>> import cugrad as torch
    >>> a, b = torch.ones(2), torch.zeros(3, dtype=torch.int64)
    >>> torch.utils.swap_tensors(a, b)
    >>> a, b
    (tensor([0, 0, 0]), tensor([1., 1.]))
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(tensor):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    slots = {*copyreg._slotnames(type(t1))}  # type: ignore[attr-defined]
    if slots != {*copyreg._slotnames(type(t2))}:  # type: ignore[attr-defined]
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    for name in ("__class__", "__dict__", *slots):
        one, two = getattr(t1, name, _MISSING), getattr(t2, name, _MISSING)
        _put(t1, name, two)
        _put(t2, name, one)


_MISSING: Any = object()


def _put(tensor: Tensor, name: str, value: Any) -> None:
    if value is not _MISSING:
        setattr(tensor, name, value)
    elif hasattr(tensor, name):
        delattr(tensor, name)
