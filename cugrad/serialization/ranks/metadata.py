"""What a checkpoint of many ranks knows of itself: which tensors it has, in which boxes, and where.

The classes are PyTorch's, under whose names they are written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ... import dtypes
from ...dtypes import dtype as Dtype
from ...functions.calls.out import layout, strided
from ...functions.shapes.layouts import (
    channels_last,
    contiguous_format,
    memory_format,
    preserve_format,
)
from ...tensor import Size, Tensor
from ..names import TorchName

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "NAMES",
    "StorageInfo", "StorageMeta", "TensorProperties", "TensorStorageMetadata",
]  # fmt: skip


@dataclass
class ChunkStorageMetadata:
    """A box of a tensor's elements: where it begins, and how large it is."""

    offsets: Size
    sizes: Size


class MemoryFormat(Enum):
    """A memory format in a file; PyTorch's `_MEM_FORMAT_ENCODING`."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


FORMATS = {MemoryFormat(0): contiguous_format, MemoryFormat(1): channels_last,
           MemoryFormat(2): preserve_format}  # fmt: skip


@dataclass
class TensorProperties:
    """The dtype of a tensor; the other fields are PyTorch's, which says nothing by them."""

    dtype: Dtype = field(default_factory=lambda: dtypes.get_default_dtype())
    layout: layout = strided
    requires_grad: bool = False
    memory_format: memory_format = contiguous_format
    pin_memory: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        form = next(key for key, value in FORMATS.items() if value is self.memory_format)
        return self.dtype, self.layout, self.requires_grad, form, self.pin_memory

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype, self.layout, self.requires_grad, form, self.pin_memory = state
        self.memory_format = FORMATS[form]

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """Those of a tensor."""
        return TensorProperties(tensor.dtype, requires_grad=tensor.requires_grad)


@dataclass
class TensorStorageMetadata:
    """A tensor: its shape, and the boxes that ranks have written."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """An object that is no tensor."""


@dataclass
class StorageMeta:
    """What a storage says of a save or a load."""

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """What a checkpoint has: entries by their names, which join the keys on the way to them.

    `planner_data` has these keys, `storage_data` where the bytes are, by MetadataIndex.
    """

    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """An object, or the box of a tensor that begins at `offset`; `index` is where it may be looked
    for among the tensor's boxes.
    """

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(
        self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None
    ) -> None:  # fmt: skip
        own = vars(self)
        own["fqn"], own["index"] = fqn, index
        if offset is not None:
            own["offset"] = Size(offset)


@dataclass
class StorageInfo:
    """Where the bytes of an entry are; PyTorch's `_StorageInfo`."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


_METADATA = "torch.distributed.checkpoint.metadata"
# Under which names the classes are in files.
NAMES: dict[type, TorchName] = {
    **{kind: TorchName(_METADATA, kind.__name__) for kind in (
        BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
        TensorProperties, TensorStorageMetadata,
    )},
    MemoryFormat: TorchName(_METADATA, "_MEM_FORMAT_ENCODING"),
    StorageInfo: TorchName("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
}  # fmt: skip
