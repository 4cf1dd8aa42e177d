"""Rows that have a kernel of their own on CUDA, where none can be made of the row.

A module here starts the kernels of one in `cugrad/backends/cupy/kernels`. A function with
`@forward("NAME")` computes the row of that name, one with `@backward("NAME")` its gradients; it
answers None for operands that its kernels do not take, and the row runs as a chain of CuPy's
functions. The row says what is computed, and is compared with the kernel in
`tests/backends/test_written_rows.py`. Begin with `registry.py`, then `norms.py`. Only
`cugrad/backends/cupy` imports from here.
"""

from . import (
    cells,
    norms,
    ordering,
    placed,
    products,
    scans,
    scores,
    sliding,
    totals,
    vectors,
)
from .alignments import ctc_loss, ctc_loss_backward
from .attention import attention, attention_backward, attention_of_mask
from .registry import backward_of, forward_of
from .sliding.pooling import grid_sample, grid_sample_backward

__all__ = [
    "attention",
    "attention_backward",
    "attention_of_mask",
    "backward_of",
    "ctc_loss",
    "ctc_loss_backward",
    "cells",
    "forward_of",
    "grid_sample",
    "grid_sample_backward",
    "norms",
    "ordering",
    "placed",
    "products",
    "scans",
    "scores",
    "sliding",
    "totals",
    "vectors",
]
