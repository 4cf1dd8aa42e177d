"""torch._tensor_str: how a tensor is printed, for classes that print themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...functions.interop.printing import elements_text, set_printoptions, with_suffixes
from ...functions.interop.printing import options as PRINT_OPTS
from ...tensor import Tensor

__all__ = ["PRINT_OPTS", "printoptions"]


def _tensor_str(self: Tensor, indent: int) -> str:
    """The elements in brackets; lines begin `indent` columns in."""
    return elements_text(self, indent)


def _add_suffixes(
    tensor_str: str, suffixes: list[str], indent: int, force_newline: bool = False
) -> str:
    """The text, what is said behind it, and a bracket."""
    if not suffixes:
        return tensor_str + ")"
    if force_newline:
        first = f"{tensor_str},\n{' ' * indent}{suffixes[0]}"
        return with_suffixes(first, suffixes[1:], indent)
    return with_suffixes(tensor_str, suffixes, indent)


@contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """A context with options of `set_printoptions`."""
    before = dict(vars(PRINT_OPTS))
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        vars(PRINT_OPTS).clear()
        vars(PRINT_OPTS).update(before)
