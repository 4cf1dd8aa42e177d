"""Device memory: CuPy's caching pool twice, so that small blocks lie apart from large ones.

A small tensor that lives long pins no large block then. What the driver is asked for are segments,
as PyTorch asks for them: 2 MiB for small blocks, 20 MiB for what has less than 10, else whole
multiples of 2 MiB. CuPy's pool would ask for each block as it is; so its miss is seen, a segment is
put into it whole, and it takes the block out of that. Begin with `sized.py`. Only
`cugrad/backends/cupy` imports from here.
"""

from .registry import (
    bytes_allocated,
    bytes_reserved,
    give_up_free_blocks,
    limit_of,
    most_reserved,
    set_limit,
)
from .segments import Missing, Retried
from .sized import SizedPools, in_place_of, pool_of, process_pools
from .watched import forget_peaks, forget_sums, segments, statistics, watch, watching

__all__ = [
    "Missing", "Retried", "SizedPools", "bytes_allocated", "bytes_reserved", "forget_peaks",
    "forget_sums", "give_up_free_blocks", "in_place_of", "limit_of", "most_reserved", "segments",
    "set_limit", "statistics", "watch", "watching",
]  # fmt: skip
