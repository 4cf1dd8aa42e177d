"""Rows of dropout, and of masks that are kept as bits."""

from __future__ import annotations

from math import prod
from typing import Any

from ..precision import narrow
from ..table import AS_INPUT, CAST, FLOAT, LINEAR, row

Array = Any


def _native_dropout(
    xp: Any, self: Array, bits: Array, mask_shape: tuple[int, ...], p: float
) -> Array:
    kept = xp.reshape(xp.unpackbits(bits)[: prod(mask_shape)], mask_shape)
    scale = kept.astype(self.dtype)
    scale *= 1 / (1 - p) if p < 1 else 0.0
    return narrow(xp, self * scale, self)


row(
    "native_dropout", "self bits", _native_dropout, LINEAR, promote=FLOAT,
    dense=AS_INPUT,
    self=lambda m, g, bits, mask_shape, p: m.native_dropout(g, bits, mask_shape, p),
    kernels=(1, 0),
    doc="self where the mask of mask_shape, packed in bits, is 1, scaled by 1 / (1 - p), else 0",
)  # fmt: skip


def _where_bits(xp: Any, self: Array, bits: Array) -> Array:
    chosen = xp.reshape(xp.unpackbits(bits)[: self.size], self.shape)
    return xp.where(chosen.astype(bool), self, xp.zeros((), self.dtype))


row(
    "where_bits", "self bits", _where_bits, LINEAR, promote=CAST,
    self=lambda m, g, bits: m.where_bits(g, bits),
    doc="self where the mask of its shape, packed in bits, is 1, else 0",
)  # fmt: skip
