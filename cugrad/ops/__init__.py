"""The op table: importing this package declares every row."""

from . import activation, conv, elementwise, index, linalg, nn, pool, reduce, shape, special
from .table import TABLE

__all__ = [
    "TABLE",
    "activation",
    "conv",
    "elementwise",
    "index",
    "linalg",
    "nn",
    "pool",
    "reduce",
    "shape",
    "special",
]
