"""CUDA graphs: what a stream is told, written down once and done many times by one launch.

`capture.py` has PyTorch's `cuda.CUDAGraph` and `cuda.graph`: begin there. `callables.py` makes
graphs of modules, forward and backward, and `steps.py` one of a whole training step. Other rooms
import from here what `cugrad.cuda` shows.
"""

from __future__ import annotations

from .callables import make_graphed_callables
from .capture import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from .steps import capture_step

__all__ = [
    "CUDAGraph", "capture_step", "graph", "graph_pool_handle", "is_current_stream_capturing",
    "make_graphed_callables",
]  # fmt: skip
