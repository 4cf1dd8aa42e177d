"""Steps of recurrent layers in one kernel beside the product; `nn/recurrent/scans.py` has what they
compute, and asks `xp` for them.
"""

from __future__ import annotations

from typing import Any

import cupy

from ...wanted import wanted
from ..kernels.cells import KERNELS
from .launch import BLOCK, FLOATS, LIMIT, blocks, int32, int64, kernel, name_of

__all__ = ["gru_back", "gru_slopes", "gru_step", "lstm_back", "lstm_slopes", "lstm_step"]

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


def lstm_step(
    gate: Array, add: Array, b_ih: Array | None, b_hh: Array | None, c: Array, cell: Array,
    shown: Array,
) -> bool:  # fmt: skip
    """A step of an LSTM; False for what the kernel does not take."""
    return _cell("lstm_step", 4, cell, gate, add, b_ih, b_hh, c, cell, shown)


def lstm_slopes(
    gates: Array, cells: Array, before: Array, d: Array, into_cell: Array, hidden: Array
) -> bool:
    """Its slopes; False for what the kernel does not take."""
    return _cell("lstm_slopes", 4, cells, gates, cells, before, d, into_cell, hidden)


def lstm_back(
    d: Array, cell: Array, now: Array, slopes: Array | None, into_cell: Array, gate: Array
) -> bool:
    """Its gradients; False for what the kernel does not take."""
    return _cell("lstm_back", 4, cell, d, cell, now, slopes, into_cell, gate)


def gru_step(
    gate: Array, add: Array, b_ih: Array | None, b_hh: Array | None, turned: Array, h: Array,
    new: Array,
) -> bool:  # fmt: skip
    """A step of a GRU; False for what the kernel does not take."""
    return _cell("gru_step", 3, new, gate, add, b_ih, b_hh, turned, h, new)


def gru_slopes(gates: Array, turned: Array, before: Array, d: Array, into_new: Array) -> bool:
    """Its slopes; False for what the kernel does not take."""
    return _cell("gru_slopes", 3, turned, gates, turned, before, d, into_new)


def gru_back(
    d: Array, into_new: Array, now: Array, through: Array | None, slopes: Array, gate: Array
) -> bool:
    """Its gradients; False for what the kernel does not take."""
    return _cell("gru_back", 3, now, d, into_new, now, through, slopes, gate)
