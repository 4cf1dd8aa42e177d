"""torch.return_types: the classes of the tuples that functions return."""

from __future__ import annotations

from typing import Any

from . import linalg  # noqa: F401  declares those of its functions
from .functions.calls.return_types import CLASSES
from .runtime.absent import refuse
from .utils._pytree import register_pytree_node

__all__ = ["all_return_types", "pytree_register_structseq", *CLASSES]

all_return_types = list(CLASSES.values())


def pytree_register_structseq(cls: Any) -> None:
    """Has trees go into the tuples of a class, and make tuples of it again."""
    register_pytree_node(cls, lambda values: (list(values), None), lambda values, _: cls(*values))


def __getattr__(name: str) -> Any:
    kind = CLASSES.get(name.removesuffix("_out"))  # with out= it is the same class
    return refuse(__name__, name) if kind is None else kind
