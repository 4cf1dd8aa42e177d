"""torch._utils: what packages take of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from ...accelerator import get_device_module
from ...cuda import current_device
from ...cuda import is_available as cuda_is_available
from ...device import device as device_of
from ...functions import FUNCTIONS
from ...nn.utils.convert_parameters import parameters_to_vector
from ...serialization.names import rebuild_parameter as _rebuild_parameter
from ...serialization.names import rebuild_tensor_v2 as _rebuild_tensor_v2
from ...tensor import Tensor

__all__ = ["_element_size", "_flatten_dense_tensors", "_get_available_device_type",
           "_get_device_index", "_get_device_module", "_import_dotted_name", "_rebuild_parameter",
           "_rebuild_tensor_v2", "_take_tensors", "_unflatten_dense_tensors"]  # fmt: skip


def _element_size(dtype: Any) -> int:
    """The bytes of an element."""
    size: int = dtype.itemsize
    return size


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one row, tensor behind tensor."""
    return parameters_to_vector(tensors)


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a row in the shapes of the tensors, one behind the other."""
    parts = FUNCTIONS["split"](flat, [t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """The tensors in lists of one type, each of at most so many bytes, or of one tensor."""
    lists: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        alike = lists.setdefault(tensor.type(), [])
        if alike and sum(map(_size, (*alike, tensor))) > size_limit:
            yield alike
            alike = lists[tensor.type()] = []
        alike.append(tensor)
    yield from lists.values()


def _import_dotted_name(name: str) -> Any:
    """What stands at a path, `torch.nn.Linear`, of which the first name is that of a package."""
    package, *names = name.split(".")
    return reduce(getattr, names, __import__(package))


def _get_available_device_type() -> str | None:
    """The kind of device beside the CPU that is here: "cuda", or None."""
    return "cuda" if cuda_is_available() else None


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of device, `torch.cuda` for one; RuntimeError where there is none."""
    return get_device_module(device_type)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a GPU: of `device`, or with `optional` that of the current one.

    With `allow_cpu` -1 stands for the CPU. ValueError for what is no GPU.
    """
    if isinstance(device, int):
        return device
    place = None if device is None else device_of(device)
    if place is not None and place.type == "cpu" and allow_cpu:
        return -1
    if place is not None and place.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {place}")
    if place is not None and place.index is not None:
        return int(place.index)
    if not optional:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got: {device}"
        )
    return current_device()
