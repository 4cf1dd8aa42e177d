"""PyTorch's functions over the rows: they check arguments, then call one or two ops.

Each file holds one kind. What its `__all__` names is a function of `cugrad`, what its `METHODS`
names a method of Tensor; a name has one declaration. The rooms: `creation` (tensors from data, in
ranges, at random), `shapes` (views, copies, joins), `indexing`, `maths` (elements, reductions,
orders, products), `interop` (other libraries, numbers, text), and `calls`, which has what all of
them do with arguments and results. `methods.py` hangs everything on Tensor. Rooms above import
FUNCTIONS, or a function from its file. Begin with `shapes/copies.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops.table import TABLE
from . import queries
from .calls.declaring import declared
from .calls.out import accepting
from .creation import factories, grids, random, ranges
from .indexing import index, puts, scatter
from .indexing.index import getitem, setitem
from .maths import (
    arithmetic,
    calculus,
    composites,
    elementary,
    histograms,
    inplace,
    products,
    reduce,
    segments,
    sorting,
    spectral,
    statistics,
)
from .maths.einsum import einsum
from .maths.reduce import vector_norm
from .shapes import (
    arranging,
    copies,
    layouts,
    padding,
    splitting,
    storages,
    strided,
    view_copies,
    views,
)

__all__ = [
    "FUNCTIONS", "METHODS", "PROPERTIES", "TAKES_OUT", "accepting", "declared", "einsum", "getitem",
    "setitem", "vector_norm",
]  # fmt: skip

# Public functions and methods of Tensor, by name; PROPERTIES are methods read without a call.
_FILES = (
    reduce, views, copies, composites, products, index, queries, sorting, statistics, calculus,
    splitting, histograms, scatter, puts, arranging, grids, strided, view_copies,
    padding, ranges, layouts, elementary, spectral, segments,
)  # fmt: skip
_PLAIN = declared(
    arithmetic.FUNCTIONS, elementary.FUNCTIONS, {"einsum": einsum},
    *({name: getattr(file, name) for name in file.__all__} for file in _FILES),
)  # fmt: skip
# Those that take out=: rows say it themselves, files beside their `__all__`.
TAKES_OUT: frozenset[str] = frozenset().union(
    (name for name in arithmetic.FUNCTIONS if name not in TABLE or TABLE[name].out),
    *(getattr(file, "TAKES_OUT", ()) for file in (*_FILES, factories, random)),
)
FUNCTIONS: dict[str, Callable[..., Any]] = accepting(_PLAIN, TAKES_OUT)
METHODS: dict[str, Callable[..., Any]] = declared(
    *(file.METHODS for file in _FILES), inplace.METHODS, storages.METHODS
)
PROPERTIES: dict[str, Callable[..., Any]] = views.PROPERTIES
