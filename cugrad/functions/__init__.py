"""PyTorch's functions over the rows: they check arguments, then call one or two ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import (
    arithmetic,
    arranging,
    calculus,
    composites,
    copies,
    elementary,
    grids,
    histograms,
    index,
    inplace,
    layouts,
    linalg,
    padding,
    queries,
    ranges,
    reduce,
    scatter,
    shape,
    sorting,
    splitting,
    statistics,
    strided,
    view_copies,
)
from .einsum import einsum
from .index import getitem, setitem
from .out import accepting
from .reduce import vector_norm

__all__ = [
    "FUNCTIONS", "METHODS", "PROPERTIES", "accepting", "einsum", "getitem", "setitem",
    "vector_norm",
]  # fmt: skip

# Public functions and methods of Tensor, by name; PROPERTIES are methods read without a call.
FUNCTIONS: dict[str, Callable[..., Any]] = {**arithmetic.FUNCTIONS, "einsum": einsum}
METHODS: dict[str, Callable[..., Any]] = {}
for _module in (
    reduce, shape, copies, composites, linalg, index, queries, sorting, statistics, calculus,
    splitting, histograms, scatter, arranging, grids, strided, view_copies,
    padding, ranges, layouts, elementary,
):  # fmt: skip
    FUNCTIONS.update({name: getattr(_module, name) for name in _module.__all__})
    METHODS.update(_module.METHODS)
FUNCTIONS.update(elementary.FUNCTIONS)
METHODS.update(inplace.METHODS)
for _name in (
    "contiguous", "getitem", "index_put_", "is_contiguous", "pad", "reach", "setitem",
    "vector_norm",
):  # fmt: skip
    del FUNCTIONS[_name]
FUNCTIONS = accepting(FUNCTIONS)
PROPERTIES: dict[str, Callable[..., Any]] = shape.PROPERTIES
