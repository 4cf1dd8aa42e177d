"""torch._dynamo: what programs say to PyTorch's compiler is heard, and changes nothing."""

from __future__ import annotations

from typing import Any

from ...compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    substitute_in_graph,
)
from ...runtime.absent import COMPILED
from ...runtime.contexts import Context
from ..refusals import refuse_the_rest

__all__ = [
    "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph",
    "graph_break", "is_compiling", "is_dynamo_supported", "list_backends", "mark_dynamic",
    "mark_static", "mark_static_address", "maybe_mark_dynamic", "reset", "substitute_in_graph",
]  # fmt: skip


class Patch(Context):
    """A setting of the compiler for a while: nothing."""

    def __init__(self, *names: Any, **values: Any) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...


class Config:
    """Settings of a compiler that is not there: each may be set, and is None until then."""

    patch = Patch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)


config = Config()


def disallow_in_graph(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def graph_break(msg: str = "") -> None:
    """There is no graph to break."""


def mark_dynamic(t: Any, index: Any = None, **how: Any) -> None:
    """Shapes are as they are."""


maybe_mark_dynamic = mark_static = mark_static_address = mark_dynamic


def is_dynamo_supported() -> bool:
    """False."""
    return False


refuse_the_rest(__name__, "_dynamo", COMPILED)
