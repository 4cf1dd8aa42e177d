"""torch._higher_order_ops.associative_scan: the scan that models of state spaces import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....functions.shapes.copies import cat, stack
from ....utils import _pytree as pytree

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:  # fmt: skip
    """What an associative function makes of all elements up to each, along a dim, in pairs.

    `xs` is a tensor or a tree of tensors of one size of `dim`, and so are the arguments and the
    result of `combine_fn`, which may get any number of elements at a time. From the end on if
    `reverse`. ValueError for another size, or a tree without tensors.

    >>> import cugrad as torch
    >>> associative_scan(lambda x, y: x + y, torch.arange(5), 0)
    tensor([ 0,  1,  3,  6, 10])
    """
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("associative_scan: xs: got no tensors, want at least one")
    if len({x.shape[dim] for x in leaves}) > 1:
        raise ValueError(
            f"associative_scan: xs: want one size of dim {dim}, got "
            f"{[tuple(x.shape) for x in leaves]}"
        )
    rows = [(x.flip(dim) if reverse else x).movedim(dim, 0) for x in leaves]

    def combine(first: list[Any], second: list[Any]) -> list[Any]:
        trees = [pytree.tree_unflatten([x.movedim(0, dim) for x in each], spec)
                 for each in (first, second)]  # fmt: skip
        return [x.movedim(dim, 0) for x in pytree.tree_flatten(combine_fn(*trees))[0]]

    results = [x.movedim(0, dim) for x in _scanned(combine, rows)]
    return pytree.tree_unflatten([x.flip(dim) for x in results] if reverse else results, spec)


def _scanned(combine: Callable[[list[Any], list[Any]], list[Any]], rows: list[Any]) -> list[Any]:
    """The scan along the first dim: that of pairs gives all odd elements, and they the even ones.

    It calls itself once for each doubling of the size.
    """
    size = rows[0].shape[0]
    if size < 2:
        return rows
    odd = _scanned(combine, combine([x[:-1:2] for x in rows], [x[1::2] for x in rows]))
    first = [x[:1] for x in rows]
    if size > 2:
        before = [x[:-1] for x in odd] if size % 2 == 0 else odd
        even = combine(before, [x[2::2] for x in rows])
        first = [cat([a, b]) for a, b in zip(first, even)]
    return [_interleaved(a, b) for a, b in zip(first, odd)]


def _interleaved(even: Any, odd: Any) -> Any:
    pairs = stack([even[: odd.shape[0]], odd], 1).flatten(0, 1)
    return pairs if even.shape[0] == odd.shape[0] else cat([pairs, even[-1:]])
