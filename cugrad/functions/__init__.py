"""PyTorch's functions over the rows: they check arguments, then call one or two ops.

Each file holds one kind. What its `__all__` names is a function of `cugrad`, what its `METHODS`
names a method of Tensor; a name has one declaration. `arithmetic` makes the elementwise functions
of rows, `out` adds `out=` and NumPy's names of arguments, and `mistakes` says which argument was
wrong; `arguments`, `bounds` and `words` serve the others. Rooms above import FUNCTIONS, or a
function from its file. Begin with `copies`.
"""

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
from .declaring import declared
from .einsum import einsum
from .index import getitem, setitem
from .out import accepting
from .reduce import vector_norm

__all__ = [
    "FUNCTIONS", "METHODS", "PROPERTIES", "accepting", "declared", "einsum", "getitem", "setitem",
    "vector_norm",
]  # fmt: skip

# Public functions and methods of Tensor, by name; PROPERTIES are methods read without a call.
_FILES = (
    reduce, shape, copies, composites, linalg, index, queries, sorting, statistics, calculus,
    splitting, histograms, scatter, arranging, grids, strided, view_copies,
    padding, ranges, layouts, elementary,
)  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = accepting(declared(
    arithmetic.FUNCTIONS, elementary.FUNCTIONS, {"einsum": einsum},
    *({name: getattr(file, name) for name in file.__all__} for file in _FILES),
))  # fmt: skip
METHODS: dict[str, Callable[..., Any]] = declared(
    *(file.METHODS for file in _FILES), inplace.METHODS
)
PROPERTIES: dict[str, Callable[..., Any]] = shape.PROPERTIES
