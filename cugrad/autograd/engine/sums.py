"""Sums of gradients that meet, by the launches that a backend keeps."""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Any

from ...backends import Backend, on_register
from ...runtime.dispatching import TWINS, unasked

__all__ = ["add_to", "plus"]

_kernels: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {}  # by the type of arrays


def _enter(backend: Backend) -> None:
    if backend.keeps_launches:
        _kernels[backend.array_types[0]] = backend.plus, backend.add_to


on_register(_enter)


def plus(a: Any, b: Any) -> Any:
    """`a + b`, of arrays or Tensors."""
    kernels = _kernels.get(type(a))
    if kernels is not None:
        return kernels[0](a, b)
    return unasked(add, a, b) if TWINS else a + b


def add_to(a: Any, b: Any) -> Any:
    """`a += b`: another object where `a` is a number."""
    kernels = _kernels.get(type(a))
    if kernels is not None:
        return kernels[1](a, b)
    a += b
    return a
