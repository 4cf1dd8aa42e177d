"""The op table: importing this package declares every row.

`table.py` has the table and what a row is: begin reading there. The rows stand in the files beside
it (elements one by one, the Fourier transform, places by index) and in rooms: `linalg` (products,
systems, factors), `nn` (convolutions, pooling, norms, losses), `reductions` (sums, scans, orders),
`views` (views, copies, and parts of a tensor). Rooms above import `table`, `dims` and `promotion`,
and ask for a row by its name; rows know arrays and backends, no Tensor and no graph.
"""

from . import elementwise, fft, index, refused, resample, scatter, special, special_functions
from .linalg import (
    cholesky,
    determinants,
    eigen,
    eigh,
    exponential,
    inverse,
    lu,
    products,
    qr,
    sparse,
    svd,
    triangular,
)
from .nn import (
    activation,
    adaptive,
    bags,
    conv,
    dropout,
    embedding,
    fold,
    norm,
    norm_weights,
    pad,
    pool,
    softmax,
)
from .reductions import extrema, reduce, scan, sorting, statistics
from .table import TABLE
from .views import batch, mirrored, regions, shape, strided

__all__ = [
    "TABLE", "activation", "adaptive", "bags", "batch", "cholesky", "conv", "determinants",
    "dropout", "eigen", "eigh", "elementwise", "embedding", "exponential", "extrema", "fft",
    "fold", "index", "inverse", "lu", "norm", "norm_weights", "pad", "pool", "products", "qr",
    "reduce", "refused", "regions", "resample", "scan", "scatter", "shape", "softmax", "sorting",
    "sparse", "special", "special_functions", "statistics", "strided", "svd", "triangular",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Says what to use in the place of PyTorch's `torch.ops.aten`."""
    said = f"module {__name__!r} has no attribute {name!r}"
    if name == "aten":
        said += ": an op goes by its name in docs/ops.md, as 'mm' for torch.ops.aten.mm.default"
    raise AttributeError(said)
