"""Runs a function of tensors once for all entries of their first dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...backends.batched import arrays as batched
from ...tensor import Tensor
from ..recording.recorded import recorded
from ..transforms import active, opened_level

__all__ = ["over_batch"]


def over_batch(
    function: Callable[..., Sequence[Tensor | None]],
    tensors: Sequence[Tensor | None],
    randomness: str = "error",
) -> list[Tensor | None]:
    """What `function(*tensors)` returns for each entry of the tensors' first dimension, stacked.

    `func.vmap` without its options: None goes in and out as it is; all else is a tensor. A result
    that is the same for all entries is repeated. Custom Functions need no rule: they see tensors of
    one entry, whose elements cannot be read.

    >>> import cugrad as torch
    >>> over_batch(lambda x: (x.sum(), None), [torch.ones(2, 3)])
    [tensor([3., 3.]), None]
    """
    if any(x is not None and not x.ndim for x in tensors):
        raise ValueError(
            "vmap(vjp, in_dims=0, ...)(<inputs>): Got in_dim=0 for some input, but that input is a "
            "Tensor of dimensionality 0 so expected in_dim to satisfy 0 <= in_dim < 0."
        )
    sizes = sorted({x.shape[0] for x in tensors if x is not None})
    if len(sizes) != 1:
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    level = opened_level(sizes[0], randomness)
    level.asks_functions = False
    inside = [None if x is None else recorded.vmap_wrap(x, level, 0) for x in tensors]
    with active(level):
        outputs = function(*inside)
    results: list[Tensor | None] = []
    own = {id(x._array): t for x, t in zip(inside, tensors, strict=True) if x is not None}
    for x in outputs:
        if x is not None and id(x._array) in own:  # an argument as it came
            results.append(own[id(x._array)])
            continue
        if x is not None and level not in batched.levels_of(x._array):
            x = recorded.vmap_lift(x, level)
        results.append(None if x is None else recorded.vmap_unwrap(x, level, 0))
    return results
