"""torch.utils._foreach_utils: lists of tensors by device and dtype, as optimizers ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tensor import Tensor

__all__ = ["_device_has_foreach_support", "_get_foreach_kernels_supported_devices",
           "_get_fused_kernels_supported_devices", "_group_tensors_by_device_and_dtype",
           "_has_foreach_support"]  # fmt: skip


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The kinds of device whose lists of tensors are computed in few launches."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """The kinds of device with optimizers of one launch."""
    return ["cuda", "cpu"]


def _device_has_foreach_support(device: Any) -> bool:
    """Whether lists of tensors on a device may be computed together: everywhere."""
    return True


def _has_foreach_support(tensors: Sequence[Tensor | None], device: Any) -> bool:
    """Whether these may be computed together."""
    return all(t is None or type(t) is Tensor for t in tensors)


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]]:
    """Columns of lists by the device and the dtype of what the first list holds in them."""
    groups: dict[tuple[Any, Any], tuple[list[list[Tensor | None]], list[int]]] = {}
    for number, first in enumerate(tensorlistlist[0]):
        assert first is not None, "the first list has a tensor in every place"
        lists, numbers = groups.setdefault(
            (first.device, first.dtype), ([[] for _ in tensorlistlist], [])
        )
        for column, tensors in zip(lists, tensorlistlist):
            if tensors:
                column.append(tensors[number])
        if with_indices:
            numbers.append(number)
    return groups
