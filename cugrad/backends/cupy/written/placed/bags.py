"""embedding_bag: a kernel forward, and backward what adds up rows, as for embedding."""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np

from ...kernels.placed.bags import KERNELS, MOST
from ..launch import BLOCK, FLOATS, LIMIT, blocks, dense, int32, int64, kernel, name_of, pack_of
from ..launch import accumulator as sums_of
from ..registry import forward
from .copies import INDICES, MOST_Y, team_for
from .sums import with_rows

__all__: list[str] = []

Array = Any  # cupy.ndarray
ndarray = cupy.ndarray


class Bags(NamedTuple):
    """Numbers, where bags of them begin, unless they are lines, and what numbers are multiplied by;
    how many bags there are, and numbers in a line.
    """

    numbers: Array
    offsets: Array | None
    factors: Array | None
    bags: int
    size: int

    @property
    def arrays(self) -> tuple[Array, Array | None]:
        return self.numbers, self.offsets

    @property
    def told(self) -> tuple[Any, ...]:
        return int64(self.numbers.size), int64(self.bags), int64(self.size)


def _bags(x: Array, indices: Array, offsets: Array | None, factors: Array | None) -> Bags | None:
    """None where a kernel does not take them."""
    if name_of(x.dtype) not in FLOATS or name_of(indices.dtype) not in INDICES or x.ndim != 2:
        return None
    if offsets is not None and (offsets.dtype != indices.dtype or offsets.ndim != 1):
        return None
    if factors is not None and (factors.dtype != x.dtype or factors.shape != indices.shape):
        return None
    bags, size = indices.shape if offsets is None else (offsets.size, 0)
    if not (bags and x.size and indices.size) or max(bags, indices.size) >= LIMIT:
        return None
    numbers, begins = dense(indices), None if offsets is None else dense(offsets)
    return Bags(numbers, begins, None if factors is None else dense(factors), bags, size)


def _pooled(weight: Array, bags: Bags, how: int, padding_idx: int) -> tuple[Array, Array | None]:
    n, width = weight.shape
    weight = dense(weight)
    result = ndarray((bags.bags, width), weight.dtype)
    rows = ndarray(result.shape, np.int64) if how == MOST else None
    pack = pack_of(width, weight, result)
    team = team_for(width // pack)
    run = kernel(KERNELS["pool_bags"], "pool_bags", name_of(weight.dtype),
                 name_of(bags.numbers.dtype), pack, HOW=how)  # fmt: skip
    run((blocks(bags.bags, BLOCK // team), min(MOST_Y, blocks(width, team * pack))), (BLOCK,),
        (weight, *bags.arrays, bags.factors, result, rows, int64(n), *bags.told, int64(width),
         int64(padding_idx), int32(team)))  # fmt: skip
    return result, rows


@forward("embedding_bag", keeps=True)
def embedding_bag(
    weight: Array, indices: Array, offsets: Array | None, per_sample_weights: Array | None,
    mean: bool, padding_idx: int,
) -> Array | None:  # fmt: skip
    """In one kernel."""
    bags = _bags(weight, indices, offsets, per_sample_weights)
    return None if bags is None else _pooled(weight, bags, int(mean), padding_idx)[0]


@forward("embedding_bag_max", keeps=True)
def embedding_bag_max(
    weight: Array, indices: Array, offsets: Array | None, padding_idx: int
) -> tuple[Array, Array | None] | None:
    """In one kernel."""
    bags = _bags(weight, indices, offsets, None)
    return None if bags is None else _pooled(weight, bags, MOST, padding_idx)


@forward("embedding_bag_backward", keeps=True)
def embedding_bag_backward(
    grad: Array, indices: Array, offsets: Array | None, per_sample_weights: Array | None,
    num_weights: int, mean: bool, padding_idx: int,
) -> Array | None:  # fmt: skip
    """As `embedding_dense_backward`, after a kernel that finds the bag of each number."""
    bags = _bags(grad, indices, offsets, per_sample_weights)
    if bags is None or not num_weights:
        return None
    of = ndarray(bags.numbers.shape, np.int32)
    shares = ndarray(of.shape, sums_of(grad.dtype))
    run = kernel(KERNELS["bags_of_numbers"], "bags_of_numbers", name_of(grad.dtype),
                 name_of(bags.numbers.dtype), HOW=int(mean))  # fmt: skip
    run((blocks(bags.bags, 8),), (BLOCK,),
        (*bags.arrays, bags.factors, of, shares, int64(num_weights), *bags.told,
         int64(padding_idx)))  # fmt: skip
    shape = num_weights, grad.shape[1]
    return with_rows(None, grad, bags.numbers, shape, 0, 1.0, padding_idx, (of, shares))


@forward("embedding_bag_weights_backward", keeps=True)
def embedding_bag_weights_backward(
    grad: Array, weight: Array, indices: Array, offsets: Array | None, mean: bool, padding_idx: int
) -> Array | None:
    """In one kernel."""
    bags = _bags(weight, indices, offsets, None)
    if bags is None or grad.dtype != weight.dtype or grad.shape != (bags.bags, weight.shape[1]):
        return None
    (n, width), result = weight.shape, ndarray(indices.shape, grad.dtype)
    grad, weight = dense(grad), dense(weight)
    pack = pack_of(width, grad, weight)
    run = kernel(KERNELS["products_of_bags"], "products_of_bags", name_of(grad.dtype),
                 name_of(bags.numbers.dtype), pack, HOW=int(mean))  # fmt: skip
    run((blocks(indices.size, 8),), (BLOCK,),
        (grad, weight, *bags.arrays, result, int64(n), *bags.told, int64(width),
         int64(padding_idx)))  # fmt: skip
    return result
