"""ReduceOp: how a collective makes one tensor of those of all ranks."""

from __future__ import annotations

from enum import Enum
from typing import Any

from .. import dtypes
from ..dtypes import dtype as Dtype

__all__ = ["ReduceOp", "check_reduction", "reduce_op", "supports_complex"]


class ReduceOp(Enum):
    """How a collective makes one tensor of those of all ranks.

    AVG is SUM over the number of ranks. BAND, BOR and BXOR are for integers and bool; of bool, SUM
    and MAX are "any", PRODUCT and MIN are "all". Half precision is summed up in float32 on CPUs.
    """

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


setattr(ReduceOp, "RedOpType", ReduceOp)  # noqa: B010 - PyTorch's name for the type of an operation


class reduce_op:
    """The operations by their old names: `reduce_op.SUM`. Use ReduceOp."""

    SUM, PRODUCT, MIN, MAX = ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether complex numbers can be reduced so: they are summed up only."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG)


def check_reduction(name: str, op: Any, dtype: Dtype) -> None:
    """ValueError, or TypeError for what is no ReduceOp, unless elements can be reduced so."""
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{name}: got op={op!r}, want a ReduceOp such as ReduceOp.SUM")
    if dtype.is_complex and not supports_complex(op):
        raise ValueError(f"{name} does not support {op} on complex tensors")
    if op in BITS and (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"Cannot use {op} with non-integral dtype ({name}: got {dtype})")
    if op is ReduceOp.AVG and dtype is dtypes.bool_:
        raise ValueError(f"Cannot use ReduceOp.AVG with Bool ({name})")
