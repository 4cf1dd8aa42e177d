"""The op table: importing this package declares every row."""

from . import (
    activation,
    conv,
    decompose,
    elementwise,
    fft,
    index,
    linalg,
    nn,
    pool,
    reduce,
    shape,
    special,
)  # fmt: skip
from .table import TABLE

__all__ = [
    "TABLE", "activation", "conv", "decompose", "elementwise", "fft", "index", "linalg", "nn",
    "pool", "reduce", "shape", "special",
]  # fmt: skip
