"""Rows of embedding_bag: sums, means and maxima of the rows of a matrix that bags of numbers name.

Sums and means are linear in the matrix, in a gradient and in weights of the numbers, so three rows
are the derivatives of one another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..precision import narrow, wide
from ..table import CAST, LINEAR, NONE, row

Array = Any


class _Numbers(NamedTuple):
    """Numbers in a row, the bag of each, how many bags there are, and which count: None for all."""

    flat: Array
    bag: Array
    bags: int
    counted: Array | None

    def sizes(self, xp: Any, dtype: Any) -> Array:
        """How many count in each bag, and 1 where none does."""
        ones = xp.ones(self.flat.shape, dtype)
        if self.counted is not None:
            ones = self.counted.astype(dtype)
        sizes = xp.zeros(self.bags, dtype)
        xp.index_add(sizes, self.bag, ones)
        return xp.maximum(sizes, 1)

    def only_counted(self, xp: Any, x: Array, other: float) -> Array:
        """x, (numbers, columns), with something else for numbers that do not count."""
        return (
            x if self.counted is None else xp.where(self.counted[:, None], x, x.dtype.type(other))
        )


def _numbers(xp: Any, indices: Array, offsets: Array | None, padding_idx: int) -> _Numbers:
    flat = xp.reshape(indices, -1)
    if offsets is None:
        bags, size = indices.shape
        bag = xp.arange(flat.shape[0]) // max(size, 1)
    else:
        bags, places = offsets.shape[0], xp.arange(flat.shape[0], dtype=offsets.dtype)
        bag = xp.maximum(xp.searchsorted(offsets, places, side="right") - 1, 0)
    return _Numbers(flat, bag, bags, None if padding_idx < 0 else flat != padding_idx)


def _embedding_bag(
    xp: Any, weight: Array, indices: Array, offsets: Array | None, per_sample_weights: Array | None,
    mean: bool = False, padding_idx: int = -1,
) -> Array:  # fmt: skip
    numbers = _numbers(xp, indices, offsets, padding_idx)
    rows = wide(xp, xp.take(weight, numbers.flat, axis=0))
    if per_sample_weights is not None:
        rows = rows * wide(xp, xp.reshape(per_sample_weights, (-1, 1)))
    total = xp.zeros((numbers.bags, rows.shape[1]), rows.dtype)
    if numbers.bags:
        xp.index_add(total, numbers.bag, numbers.only_counted(xp, rows, 0))
    if mean:
        total = total / numbers.sizes(xp, total.dtype)[:, None]
    return narrow(xp, total, weight)


def _embedding_bag_backward(
    xp: Any, grad: Array, indices: Array, offsets: Array | None, per_sample_weights: Array | None,
    num_weights: int, mean: bool = False, padding_idx: int = -1,
) -> Array:  # fmt: skip
    numbers, wide_grad = _numbers(xp, indices, offsets, padding_idx), wide(xp, grad)
    if mean:
        wide_grad = wide_grad / numbers.sizes(xp, wide_grad.dtype)[:, None]
    result = xp.zeros((num_weights, grad.shape[1]), wide_grad.dtype)
    if numbers.bags:
        rows = xp.take(wide_grad, numbers.bag, axis=0)
        if per_sample_weights is not None:
            rows = rows * wide(xp, xp.reshape(per_sample_weights, (-1, 1)))
        xp.index_add(result, numbers.flat, numbers.only_counted(xp, rows, 0))
    return narrow(xp, result, grad)


def _embedding_bag_weights_backward(
    xp: Any, grad: Array, weight: Array, indices: Array, offsets: Array | None,
    mean: bool = False, padding_idx: int = -1,
) -> Array:  # fmt: skip
    numbers, wide_grad = _numbers(xp, indices, offsets, padding_idx), wide(xp, grad)
    if not numbers.bags:
        return xp.zeros(indices.shape, grad.dtype)
    if mean:
        wide_grad = wide_grad / numbers.sizes(xp, wide_grad.dtype)[:, None]
    rows = wide(xp, xp.take(weight, numbers.flat, axis=0))
    both = numbers.only_counted(xp, xp.take(wide_grad, numbers.bag, axis=0) * rows, 0)
    return narrow(xp, xp.reshape(xp.sum(both, axis=1), indices.shape), grad)


row(
    "embedding_bag", "weight indices offsets? per_sample_weights?", _embedding_bag, LINEAR,
    promote=CAST, public=False, kernels=(1, 0),
    weight=lambda m, g, indices, offsets, per_sample_weights, weight_shape, mean, padding_idx: (
        m.embedding_bag_backward(g, indices, offsets, per_sample_weights, weight_shape[0], mean,
                                 padding_idx)),
    per_sample_weights=lambda m, g, weight, indices, offsets, mean, padding_idx: (
        m.embedding_bag_weights_backward(g, weight, indices, offsets, mean, padding_idx)),
    doc="sums of the rows of weight in each line of indices, or from each of offsets on; or means",
)  # fmt: skip

row(
    "embedding_bag_backward", "grad indices offsets? per_sample_weights?", _embedding_bag_backward,
    LINEAR, promote=CAST, kernels=(3, 0),
    grad=lambda m, g, indices, offsets, per_sample_weights, mean, padding_idx: (
        m.embedding_bag(g, indices, offsets, per_sample_weights, mean, padding_idx)),
    per_sample_weights=lambda m, g, grad, indices, offsets, mean, padding_idx: (
        m.embedding_bag_weights_backward(grad, g, indices, offsets, mean, padding_idx)),
    doc="the adjoint of embedding_bag in its matrix, of num_weights rows",
)  # fmt: skip

row(
    "embedding_bag_weights_backward", "grad weight indices offsets?",
    _embedding_bag_weights_backward, LINEAR, promote=CAST, kernels=(1, 0),
    grad=lambda m, g, weight, indices, offsets, mean, padding_idx: (
        m.embedding_bag(weight, indices, offsets, g, mean, padding_idx)),
    weight=lambda m, g, grad, indices, offsets, weight_shape, mean, padding_idx: (
        m.embedding_bag_backward(grad, indices, offsets, g, weight_shape[0], mean, padding_idx)),
    doc="the adjoint of embedding_bag in the weights of its numbers",
)  # fmt: skip


# Maxima -------------------------------------------------------------------------------------------


def _embedding_bag_max(
    xp: Any, weight: Array, indices: Array, offsets: Array | None, padding_idx: int = -1
) -> tuple[Array, Array]:
    numbers = _numbers(xp, indices, offsets, padding_idx)
    rows, count = wide(xp, xp.take(weight, numbers.flat, axis=0)), numbers.flat.shape[0]
    values, shape = numbers.only_counted(xp, rows, -float("inf")), (numbers.bags, rows.shape[1])
    most, first = xp.full(shape, -float("inf"), rows.dtype), xp.full(shape, count, xp.int64)
    if numbers.bags:
        xp.index_reduce(most, numbers.bag, values, "maximum")
        are_most = (values == xp.take(most, numbers.bag, axis=0)) | xp.isnan(values)
        if numbers.counted is not None:
            are_most = are_most & numbers.counted[:, None]
        places = xp.where(are_most, xp.arange(count)[:, None], count)
        xp.index_reduce(first, numbers.bag, places, "minimum")
    none = xp.full((1,), weight.shape[0], numbers.flat.dtype)
    named = xp.take(xp.concatenate([numbers.flat, none]), first).astype(xp.int64)
    nothing = xp.zeros((1, shape[1]), rows.dtype)
    result = xp.take_along_axis(xp.concatenate([rows, nothing]), first, 0)
    return narrow(xp, result, weight), named


def _max_vjp(m: Any, g: Any, rows: Any, weight_shape: tuple[int, int]) -> Any:
    more = m.gather_backward(g, rows, (weight_shape[0] + 1, weight_shape[1]), 0)
    return m.slice_view(more, (slice(0, weight_shape[0], 1), slice(None)))


def _max_jvp(m: Any, weight_t: Any, rows: Any) -> tuple[Any, None]:
    return m.gather(m.constant_pad_nd(weight_t, ((0, 1), (0, 0)), 0.0), rows, 0), None


row(
    "embedding_bag_max", "weight indices offsets?", _embedding_bag_max, NONE,
    outputs="result rows", nondifferentiable="rows", promote=CAST, public=False, kernels=(1, 0),
    node="EmbeddingBagBackward0", weight=_max_vjp, jvp=_max_jvp,
    doc="the largest of the rows of each bag, of equal ones the first, and the row of each number: "
        "weight_shape[0] for an empty bag, of which it is 0",
)  # fmt: skip
