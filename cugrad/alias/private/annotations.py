"""torch.jit.annotations: names of types, which say nothing to an interpreter."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035

from ...tensor import Tensor

__all__ = ["Any", "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List",
           "Optional", "Tensor", "Tuple", "Union"]  # fmt: skip


class _Broadcasting:
    """`BroadcastingList2[int]`: a list, or one value that stands for as many."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _Broadcasting()
