"""The names that files give to things, PyTorch's, and what they stand for here."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import dtypes
from ..autograd.recording.node import HookDict
from ..device import device
from ..functions.calls.out import layout, sparse_coo, strided
from ..functions.creation.ranges import empty_strided
from ..functions.shapes.layouts import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
)
from ..nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter
from ..sparse import SparseTensor, sparse_coo_tensor
from ..tensor import Size, Tensor
from .checked import StorageType, extents, shown
from .storages import NAMES, LoadedStorage, view_of

__all__ = ["CALLS", "VALUES", "TorchName"]


class TorchName(NamedTuple):
    """A global of a pickle, written by its name without a look at what it is."""

    module: str
    name: str

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} is a name for a file, it cannot be called here")


def rebuild_tensor(
    storage: LoadedStorage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    if type(storage) is not LoadedStorage:
        raise TypeError(f"a tensor's storage is {type(storage).__name__}")
    return view_of(storage, offset, size, stride)


def rebuild_tensor_v2(
    storage: LoadedStorage, offset: int, size: tuple[int, ...], stride: tuple[int, ...],
    requires_grad: bool, hooks: Any, metadata: dict[str, Any] | None = None,
) -> Tensor:  # fmt: skip
    if type(metadata) is dict and type(storage) is LoadedStorage:  # PyTorch keeps these as bits
        storage = storage.resolved(metadata.get("conj") is True, metadata.get("neg") is True)
    tensor = rebuild_tensor(storage, offset, size, stride)
    return tensor.requires_grad_() if requires_grad is True else tensor


def rebuild_tensor_v3(
    storage: LoadedStorage, offset: int, size: tuple[int, ...], stride: tuple[int, ...],
    requires_grad: bool, hooks: Any, dtype: dtypes.dtype, metadata: dict[str, Any] | None = None,
) -> Tensor:  # fmt: skip
    if type(dtype) is not dtypes.dtype or type(storage) is not LoadedStorage:
        raise TypeError("a tensor has no storage, or no dtype")
    typed = storage.typed(dtype)
    return rebuild_tensor_v2(typed, offset, size, stride, requires_grad, hooks, metadata)


def rebuild_meta(
    dtype: dtypes.dtype, size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool
) -> Tensor:
    """A tensor on the meta device, of which there is nothing more."""
    if type(dtype) is not dtypes.dtype:
        raise TypeError("a tensor has no dtype")
    _, size, stride = extents(0, size, stride)
    needs = requires_grad is True
    return empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=needs)


def rebuild_sparse(kind: layout, parts: tuple[Any, ...]) -> SparseTensor:
    """A tensor of places and values; RuntimeError for places that it does not have."""
    places, values, size, *coalesced = parts
    if kind is not sparse_coo or type(places) is not Tensor or type(values) is not Tensor:
        raise TypeError("a sparse tensor has no places, or no values")
    _, size, _ = extents(0, size, size)
    return sparse_coo_tensor(places, values, size, is_coalesced=coalesced == [True])


def rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


def rebuild_parameter_with_state(
    data: Tensor, requires_grad: bool, hooks: Any, state: Any
) -> Parameter:
    parameter = Parameter(data, requires_grad)
    _set_state(parameter, state)
    return parameter


def rebuild_from_type(
    function: Callable[..., Any], kind: type[Tensor], args: tuple[Any, ...], state: Any
) -> Any:
    """A tensor with attributes, or of a class of the user's."""
    makers = (
        rebuild_tensor_v2, rebuild_tensor_v3, rebuild_sparse, rebuild_meta, rebuild_parameter,
    )  # fmt: skip
    if function not in makers or not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise TypeError("want a function that makes a tensor, and a class of tensors")
    tensor = function(*args)
    if isinstance(tensor, SparseTensor):
        kind = SparseTensor
    if type(tensor) is not kind:
        plain, tensor = tensor, object.__new__(kind)
        tensor.fill_in(plain._array, plain.requires_grad)
    _set_state(tensor, state)
    return tensor


def _set_state(tensor: Tensor, state: Any) -> None:
    attributes = state[0] if type(state) is tuple and state else state
    if not attributes:
        return
    if not isinstance(attributes, dict) or not all(type(name) is str for name in attributes):
        raise TypeError(f"the attributes of a tensor are {type(attributes).__name__}, want a dict")
    tensor.__dict__.update(attributes)


def make_bytes(text: str, encoding: str = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise TypeError(f"bytes of {type(text).__name__} in {shown(encoding)}, want text in latin1")
    return text.encode("latin1")


def make_nothing() -> bytes:
    return b""  # Python writes no bytes at all as bytes()


def make_bytearray(data: Any = b"", encoding: str = "latin-1") -> bytearray:
    return bytearray(data if type(data) is bytes else make_bytes(data, encoding))


def make_complex(real: float, imag: float = 0.0) -> complex:
    if type(real) not in (int, float) or type(imag) not in (int, float):
        raise TypeError("a complex number has no numbers for its parts")
    return complex(real, imag)


def make_size(extents: tuple[int, ...] = ()) -> Size:
    if type(extents) not in (tuple, list) or not all(type(n) is int for n in extents):
        raise TypeError("a Size has entries that are no integers")
    return Size(extents)


def make_device(kind: str, index: int | None = None) -> device:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise TypeError("a device has no name")
    return device(kind, index)


def make_set(entries: Any = ()) -> set[Any]:
    if type(entries) not in (list, tuple):
        raise TypeError(f"a set is made of {type(entries).__name__}, want a list")
    return set(entries)


def make_ordered(entries: Any = ()) -> OrderedDict[Any, Any]:
    if type(entries) not in (list, tuple, dict):
        raise TypeError(f"an OrderedDict is made of {type(entries).__name__}, want a list")
    return OrderedDict(entries)


def make_counter(counts: Any = ()) -> Counter[Any]:
    if type(counts) is not dict and counts != ():
        raise TypeError(f"a Counter is made of {type(counts).__name__}, want a dict")
    return Counter(dict(counts))


def make_parameter(data: Tensor, requires_grad: bool = True) -> Parameter:
    return Parameter(data, requires_grad)


def make_parameter_without_shape(
    requires_grad: bool = True, place: Any = None, kind: Any = None
) -> UninitializedParameter:
    return UninitializedParameter(*_checked(requires_grad, place, kind))


def make_buffer_without_shape(
    requires_grad: bool = False, place: Any = None, kind: Any = None
) -> UninitializedBuffer:
    return UninitializedBuffer(*_checked(requires_grad, place, kind))


def _checked(requires_grad: Any, place: Any, kind: Any) -> tuple[Any, ...]:
    options = ((requires_grad, bool), (place, device), (kind, dtypes.dtype))
    if any(value is not None and type(value) is not want for value, want in options):
        raise TypeError("a tensor without a shape has no dtype, or no device")
    return requires_grad is True, place, kind


def make_hooks() -> HookDict:
    return HookDict()


def get_layout(name: str) -> layout:
    for each in (strided, sparse_coo):
        if name == str(each):
            return each
    raise pickle.UnpicklingError(
        f"load: the file has a tensor of layout {shown(name)}, want torch.strided or "
        "torch.sparse_coo: call to_sparse_coo() before saving it"
    )


# What a name stands for, and what a call of it does. The functions check what they are given: a
# file may say anything.
CALLS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "torch._utils._rebuild_tensor": (rebuild_tensor, rebuild_tensor),
    "torch._utils._rebuild_tensor_v2": (rebuild_tensor_v2, rebuild_tensor_v2),
    "torch._utils._rebuild_tensor_v3": (rebuild_tensor_v3, rebuild_tensor_v3),
    "torch._utils._rebuild_sparse_tensor": (rebuild_sparse, rebuild_sparse),
    "torch._utils._rebuild_meta_tensor_no_storage": (rebuild_meta, rebuild_meta),
    "torch._utils._rebuild_parameter": (rebuild_parameter, rebuild_parameter),
    "torch._utils._rebuild_parameter_with_state": (
        rebuild_parameter_with_state, rebuild_parameter_with_state
    ),
    "torch._tensor._rebuild_from_type_v2": (rebuild_from_type, rebuild_from_type),
    "torch.nn.parameter.Parameter": (Parameter, make_parameter),
    "torch.nn.parameter.UninitializedParameter": (
        UninitializedParameter, make_parameter_without_shape
    ),
    "torch.nn.parameter.UninitializedBuffer": (UninitializedBuffer, make_buffer_without_shape),
    f"{HookDict.__module__}.HookDict": (HookDict, make_hooks),
    "torch.serialization._get_layout": (get_layout, get_layout),
    "torch.Size": (Size, make_size),
    "torch.device": (device, make_device),
    "collections.OrderedDict": (OrderedDict, make_ordered),
    "collections.Counter": (Counter, make_counter),
    "_codecs.encode": (make_bytes, make_bytes),
    "builtins.bytes": (bytes, make_nothing),
    "builtins.bytearray": (bytearray, make_bytearray),
    "builtins.set": (set, make_set),
    "builtins.complex": (complex, make_complex),
}  # fmt: skip

# What a name stands for where it cannot be called.
VALUES: dict[str, Any] = {
    "torch.Tensor": Tensor,
    "torch.storage.UntypedStorage": StorageType("UntypedStorage", None),
    **{str(kind): kind for kind in dtypes.EVERY},
    **{f"torch.{name}": StorageType(name, kind) for kind, name in NAMES.items()},
    **{str(f): f for f in (contiguous_format, preserve_format, channels_last, channels_last_3d)},
}
