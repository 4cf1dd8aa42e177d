"""The op table: importing this package declares every row."""

from . import conv, elementwise, index, linalg, nn, pool, reduce, shape
from .table import TABLE

__all__ = ["TABLE", "conv", "elementwise", "index", "linalg", "nn", "pool", "reduce", "shape"]
