"""The floating-point operations of a call, from the shapes of its operands and of its result.

A multiplication and an addition are two.
"""

from __future__ import annotations

from math import prod

__all__ = [
    "convolution_flops", "convolution_input_flops", "convolution_weight_flops", "each_flops",
    "linear_weight_flops", "product_flops", "sparse_flops",
]  # fmt: skip

Shapes = list[list[int]]


def product_flops(shapes: Shapes, result: list[int]) -> int:
    return 2 * prod(result) * shapes[0][-1]


def linear_weight_flops(shapes: Shapes, result: list[int]) -> int:
    return 2 * prod(shapes[0]) * result[1]


def sparse_flops(shapes: Shapes, result: list[int]) -> int:
    return 2 * prod(shapes[0]) * shapes[3][-1]


def each_flops(shapes: Shapes, result: list[int]) -> int:
    return prod(shapes[0])


def convolution_flops(shapes: Shapes, result: list[int]) -> int:
    return 2 * prod(result) * prod(shapes[1][1:])


def convolution_input_flops(shapes: Shapes, result: list[int]) -> int:
    """Of the gradient of the input: as many as forward."""
    return 2 * prod(shapes[0]) * prod(shapes[1][1:])


def convolution_weight_flops(shapes: Shapes, result: list[int]) -> int:
    return 2 * prod(shapes[0]) * prod(result[1:])
