"""Counts floating-point operations: of matrix products, convolutions, sums and products."""

from __future__ import annotations

from typing import Any

from ...ops.table import CONVOLUTION, PRODUCT, TABLE

__all__ = ["backward_flops", "flops_of"]


def flops_of(name: str, shapes: list[Any], result: list[int] | None) -> int | None:
    """The operations of one call, from the shapes of its arguments and of its result.

    A multiplication and an addition are two. None where it is not known. Attention is counted by
    the products that it is made of.

    >>> flops_of("mm", [[2, 3], [3, 4]], [2, 4])
    48
    >>> flops_of("convolution", [[1, 3, 8, 8], [5, 3, 3, 3], []], [1, 5, 6, 6])
    9720
    """
    if result is None or not shapes or not shapes[0]:
        return None
    op = TABLE.get(name) or TABLE.get(name.rstrip("_"))
    return None if op is None or op.flops is None else op.flops(shapes, result)


def backward_flops(name: str, forward: int | None, mask: int) -> int | None:
    """The operations of a node: for each operand that gets a gradient, as many as forward.

    >>> backward_flops("mm", 48, 0b11), backward_flops("add", 6, 0b11)
    (96, None)
    """
    op = TABLE.get(name)
    if forward is None or op is None or op.cost not in (PRODUCT, CONVOLUTION):
        return None
    operands = (mask & 1) + (mask >> 1 & 1)  # a bias costs next to nothing
    return forward * operands or None
