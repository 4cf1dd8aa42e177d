"""What the namespace `xp` of a backend says of itself, beside NumPy's names; and what most say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

__all__ = ["Features", "put_at"]


def put_at(array: Any, index: Any, values: Any) -> None:
    """`array[index] = values`, where a device has no other way."""
    array[index] = values


class Features:
    """The base of namespaces. One that passes names on to another answers as that one does.

    Where `sums_by_blas`, functions take the ways of a host, whose sums are of blocks of a size that
    is the same on all such devices: so they agree in every bit.
    """

    sorts_at_once = False  # where choosing some of many first takes as long as sorting all
    sums_by_blas = False  # products along rows are added up by BLAS
    block_elements = 1 << 16  # of runs that are computed at a time: they stay in a host's cache
    cache_elements: int | None = None  # as many functions of rows take at a time; None: all
    along_rows: Any = nullcontext  # within which functions read rows of so many elements in place
    workspace_bytes = 2 << 20  # which an op may borrow, for the columns of a convolution
    cast: Any = None  # a quicker way to another dtype than that of arrays
    copied: Any = None  # and to a copy in some order
    in_memory_order: Any = None  # has a function of elements answer in that of its operands
    codecs: Any = None  # kernels that encode and decode in one pass, see memory/codecs.py
    # a sparse matrix times a dense one, and elements of a product, see ops/linalg/sparse.py
    sparse_product: Any = None
    sampled_product: Any = None
    # kernels for the steps of recurrent layers, see nn/recurrent/scans.py
    lstm_step: Any = None
    lstm_slopes: Any = None
    lstm_back: Any = None
    gru_step: Any = None
    gru_slopes: Any = None
    gru_back: Any = None

    put_at = staticmethod(put_at)

    @staticmethod
    def one_kernel(name: str, run: Callable[[], Any]) -> Any:
        """What `run()` answers, at the cost of one kernel where kernels are simulated."""
        return run()
