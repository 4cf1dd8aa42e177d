"""Steps of recurrent layers in one kernel beside the product; `nn/recurrent/scans.py` has what they
compute, and asks `xp` for them.
"""

from __future__ import annotations

from typing import Any

import cupy

from ...wanted import wanted
from ..kernels.cells import KERNELS
from .launch import BLOCK, FLOATS, LIMIT, blocks, int32, int64, kernel, name_of

__all__ = ["gru_back", "gru_step", "lstm_back", "lstm_step"]

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray


def _cell(name: str, gates: int, state: Array, *arrays: Array | None) -> bool:
    """Starts the kernel for states (rows, n), if all arrays lie dense, with so many gates; says
    whether it did.
    """
    if not wanted.fused or type(state) is not ndarray or name_of(state.dtype) not in FLOATS:
        return False
    there = [x for x in arrays if x is not None]
    if any(type(x) is not ndarray or x.dtype != state.dtype for x in there):
        return False
    rows, n = state.shape
    if not all(x.flags.c_contiguous for x in there) or not 0 < n * gates < LIMIT or not rows:
        return False
    run = kernel(KERNELS[name], name, name_of(state.dtype))
    run((blocks(state.size),), (BLOCK,), (*arrays, int64(state.size), int32(n)))
    return True


def lstm_step(gate: Array, add: Array, c: Array, cell: Array, shown: Array) -> bool:
    """A step of an LSTM; False for what the kernel does not take."""
    return _cell("lstm_step", 4, cell, gate, add, c, cell, shown)


def lstm_back(
    d: Array, cell: Array, now: Array, slopes: Array | None, into_cell: Array, gate: Array
) -> bool:
    """Its gradients; False for what the kernel does not take."""
    return _cell("lstm_back", 4, cell, d, cell, now, slopes, into_cell, gate)


def gru_step(
    gate: Array, add: Array, bias: Array | None, turned: Array, h: Array, new: Array
) -> bool:
    """A step of a GRU; False for what the kernel does not take."""
    return _cell("gru_step", 3, new, gate, add, bias, turned, h, new)


def gru_back(d: Array, into_new: Array, now: Array, slopes: Array, gate: Array) -> bool:
    """Its gradients; False for what the kernel does not take."""
    return _cell("gru_back", 3, now, d, into_new, now, slopes, gate)
