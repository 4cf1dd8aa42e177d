"""What tensors are told apart by within a vmap, and older names of `torch.vmap`.

It stands for torch._C._functorch, torch._functorch.vmap and torch._vmap_internals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends.batched.arrays import BatchedArray
from ...func.batching import vmap as batched
from ...func.trees import flatten as tree_flatten
from ...func.trees import unflatten as tree_unflatten
from ...tensor import Tensor
from ..refusals import refuse_the_rest

__all__ = ["Tensor", "is_batchedtensor", "tree_flatten", "tree_unflatten"]

REASON = "levels of transforms are no tensors' matter: use torch.vmap and torch.func"


def _vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0) -> Callable[..., Any]:
    """`torch.vmap` by the name of its first years."""
    return batched(func, in_dims, out_dims)


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor stands for one example of many, within a vmap."""
    return isinstance(tensor, Tensor) and isinstance(tensor._array, BatchedArray)


refuse_the_rest(__name__, "_C._functorch", REASON)
