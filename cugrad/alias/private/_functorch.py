"""torch._C._functorch and torch._functorch.vmap: what tensors are told apart by within a vmap."""

from __future__ import annotations

from typing import Any

from ...backends.batched.arrays import BatchedArray
from ...func.trees import flatten as tree_flatten
from ...func.trees import unflatten as tree_unflatten
from ...tensor import Tensor
from ..refusals import refuse_the_rest

__all__ = ["Tensor", "is_batchedtensor", "tree_flatten", "tree_unflatten"]

REASON = "levels of transforms are no tensors' matter: use torch.vmap and torch.func"


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor stands for one example of many, within a vmap."""
    return isinstance(tensor, Tensor) and isinstance(tensor._array, BatchedArray)


refuse_the_rest(__name__, "_C._functorch", REASON)
