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
    refused,
    regions,
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
    "fold", "index", "linalg", "nn", "norm", "pad", "pool", "reduce", "refused", "regions", "scan",
    "scatter", "shape", "softmax", "sorting", "special", "special_functions", "statistics",
    "strided",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Says what to use in the place of PyTorch's `torch.ops.aten`."""
    said = f"module {__name__!r} has no attribute {name!r}"
    if name == "aten":
        said += ": an op goes by its name in docs/ops.md, as 'mm' for torch.ops.aten.mm.default"
    raise AttributeError(said)
