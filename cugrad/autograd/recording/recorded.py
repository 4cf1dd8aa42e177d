"""The ops on Tensors, by name: `recorded.mul(x, y)`, or `first_of.max_pool(x)` for those of whose
outputs only the first is wanted, where the others are saved, and no Tensors.
"""

from __future__ import annotations

from typing import Any

from ...ops.table import TABLE

__all__ = ["first_of", "recorded"]


class RecordedNamespace:
    """The ops on Tensors: `m` in a formula under create_graph, and what public functions call."""

    def __init__(self, alone: bool = False) -> None:
        self.__dict__["alone"] = alone

    def __getattr__(self, name: str) -> Any:
        op = TABLE.get(name)
        if op is None:
            raise AttributeError(f"no row named {name!r} in the op table")
        from .fast import compile_function  # here, since formulas import this module

        call = compile_function(op, alone=self.alone)
        self.__dict__[name] = call  # so the next access does not come here
        return call


recorded = RecordedNamespace()
first_of = RecordedNamespace(alone=True)
