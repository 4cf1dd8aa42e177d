"""The op table: importing this package declares every row."""

from . import (
    activation,
    batch,
    conv,
    decompose,
    eigen,
    elementwise,
    factorize,
    fft,
    fold,
    index,
    linalg,
    nn,
    norm,
    pad,
    pool,
    reduce,
    scan,
    scatter,
    shape,
    softmax,
    sorting,
    special,
    special_functions,
    statistics,
    strided,
)  # fmt: skip
from .table import TABLE

__all__ = [
    "TABLE", "activation", "batch", "conv", "decompose", "eigen", "elementwise", "factorize", "fft",
    "fold", "index", "linalg", "nn", "norm", "pad", "pool", "reduce", "scan", "scatter", "shape",
    "softmax", "sorting", "special", "special_functions", "statistics", "strided",
]  # fmt: skip
