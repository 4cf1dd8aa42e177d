"""What `repr` says of a sparse tensor."""

from __future__ import annotations

from typing import Any

from ..functions.interop.printing import history, implied_dtypes, with_suffixes
from ..tensor import Tensor

__all__ = ["text_of"]


def text_of(x: Any) -> str:
    """Places, values and all the rest, as PyTorch has it."""
    values = _body("values=", x._values()).replace(f", dtype={x.dtype}", "")
    text = f"tensor({_body('indices=', x._indices())},\n       {values},\n       "
    suffixes = [f"nnz={x._nnz()}", f"layout={x.layout}"]
    if x.dtype not in implied_dtypes():
        suffixes.insert(1, f"dtype={x.dtype}")
    if x.requires_grad:
        suffixes.append(history(x._values()))
    return with_suffixes(f"{text}size={tuple(x.shape)}", suffixes, len("tensor("))


def _body(name: str, x: Tensor) -> str:
    """A tensor behind its name, in lines that begin below its first elements."""
    if not x.numel():
        return f"{name}tensor([], size={tuple(x.shape)})"
    return name + repr(x.detach()).replace("\n", "\n" + " " * len("tensor(" + name))
