"""Storages: the memory that a tensor and its views share, as bytes or as elements of one dtype."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ... import dtypes
from ...autograd.recording.mirrors import lying
from ...backends import backend_of
from ...backends.several import copy_of
from ...device import device as Device
from ...dtypes import as_dtype
from ...dtypes import dtype as Dtype
from ...ops.views.strided import address_of, storage_of
from ...tensor import Tensor, make

__all__ = ["METHODS", "TYPES", "TypedStorage", "UntypedStorage", "is_storage", "storage",
           "untyped_storage"]  # fmt: skip


class _Storage:
    """What both kinds have: a one-dimensional array, read and written by place."""

    _flat: Any

    def data_ptr(self) -> int:
        """The address of its first byte."""
        return address_of(self._flat)

    _cdata = property(data_ptr)

    @property
    def device(self) -> Device:
        """Where it is."""
        return make(self._flat).device

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return backend_of(self._flat).device_type == "cuda"

    def nbytes(self) -> int:
        """How many bytes it has."""
        return int(self._flat.nbytes)

    def size(self) -> int:
        """How many elements it has."""
        return int(self._flat.size)

    __len__ = size

    def element_size(self) -> int:
        """The bytes of an element."""
        return int(self._flat.itemsize)

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        return make(self._flat).tolist()

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __setitem__(self, index: Any, value: Any) -> None:
        make(self._flat)[index] = value

    def fill_(self, value: Any) -> Any:
        """Sets every element."""
        self[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Takes the elements of a storage of its size."""
        make(self._flat).copy_(make(source._flat), non_blocking)
        return self

    def resize_(self, size: int) -> Any:
        """NotImplementedError, but for its own size: tensors keep their memory."""
        if size != self.size():
            raise NotImplementedError(
                f"resize_ of a storage: got {size}, want its own size, {self.size()}: memory is "
                "the tensors', and goes with the last of them. To let go of it, set x.data = "
                "x.new_empty(0), and what was there again when it is needed"
            )
        return self


class UntypedStorage(_Storage):
    """The memory of a tensor and its views, in bytes; or new bytes on the host, which are zero.

    A slice of one is one too. `torch.asarray` and `Tensor.set_` read it.

    >>> import cugrad as torch
    >>> torch.tensor([1.0, 2.0]).untyped_storage()
    <torch.storage.UntypedStorage of 8 bytes on cpu>
    >>> torch.asarray(torch.UntypedStorage(4)[1:3], dtype=torch.uint8)
    tensor([0, 0], dtype=torch.uint8)
    """

    def __init__(self, size: Any = 0) -> None:
        self._flat = np.zeros(size, np.uint8) if isinstance(size, int) else _host(size, np.uint8)

    @classmethod
    def _of(cls, flat: Any) -> UntypedStorage:
        storage = cls()
        storage._flat = flat
        return storage

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        """New bytes, as a `collate_fn` in a worker asks for: what it sends is shared anyway."""
        return cls(size)

    @classmethod
    def from_file(
        cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0
    ) -> UntypedStorage:
        """The first bytes of a file, read when they are used; changes stay in memory.

        With `shared` they are written to the file.
        """
        if not nbytes:
            return cls()
        mode: Any = "r+" if shared else "c"
        return cls._of(np.memmap(filename, np.uint8, mode, shape=(nbytes,)).view(np.ndarray))

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)._of(self._flat[index])
        return int(self._flat[index])

    def clone(self) -> UntypedStorage:
        """The same bytes in memory of its own."""
        return type(self)._of(copy_of(self._flat))

    def cpu(self) -> UntypedStorage:
        """The same bytes on the host."""
        return type(self)._of(make(self._flat).cpu()._array)

    @property
    def __array_interface__(self) -> Any:
        return self._flat.__array_interface__

    def __repr__(self) -> str:
        return f"<torch.storage.UntypedStorage of {self.nbytes()} bytes on {self.device}>"


def _host(values: Any, dtype: Any) -> Any:
    return np.array(list(values), dtype)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that this tensor shares with its views; it does not grow or shrink."""
    flat = storage_of(lying(self))[0]
    return UntypedStorage._of(flat.view(np.uint8) if flat.ndim == 1 else flat)


class TypedStorage(_Storage):
    """The memory of a tensor and its views, in elements of its dtype; deprecated in PyTorch.

    >>> import cugrad as torch
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x[1].storage().tolist(), isinstance(x.storage(), torch.FloatStorage)
    ([1.0, 2.0, 3.0, 4.0], True)
    """

    def __init__(
        self, *sizes: Any, wrap_storage: UntypedStorage | None = None, dtype: Any = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        self.dtype: Dtype = as_dtype(dtypes.get_default_dtype() if dtype is None else dtype)
        if device is not None and Device(device).type != "cpu":
            raise RuntimeError(f"TypedStorage: new ones are on the host, got device={device}")
        if wrap_storage is not None:
            self._flat = wrap_storage._flat.view(self.dtype.numpy)
        else:
            size = sizes[0] if sizes else 0
            numpy = self.dtype.numpy
            self._flat = np.zeros(size, numpy) if isinstance(size, int) else _host(size, numpy)

    def _new_shared(self, size: int) -> TypedStorage:
        """New elements of its dtype on the host, which are zero."""
        return TypedStorage(size, dtype=self.dtype)

    def untyped(self) -> UntypedStorage:
        """The same memory in bytes."""
        return UntypedStorage._of(self._flat.view(np.uint8))

    _untyped_storage = property(untyped)

    def __getitem__(self, index: Any) -> Any:
        part = make(self._flat)[index]
        return part.tolist() if isinstance(index, slice) else part.item()

    def __repr__(self) -> str:
        lines = "".join(f" {value}\n" for value in self.tolist())
        return (f"{lines}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of "
                f"size {len(self)}]")  # fmt: skip


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage.

    >>> import cugrad as torch
    >>> torch.is_storage(torch.ones(2).untyped_storage()), torch.is_storage(torch.ones(2))
    (True, False)
    """
    return isinstance(obj, _Storage)


def storage(self: Tensor) -> TypedStorage:
    """The memory that this tensor shares with its views, by element; deprecated in PyTorch."""
    memory = TypedStorage(dtype=self.dtype)
    memory._flat = storage_of(lying(self))[0]
    return memory


class _OfDtype(type):
    """The class of `torch.FloatStorage` and its like, which make and know typed storages."""

    dtype: Dtype

    def __call__(cls, *sizes: Any, **more: Any) -> TypedStorage:
        return TypedStorage(*sizes, dtype=cls.dtype, **more)

    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is TypedStorage and instance.dtype is cls.dtype


def _type_of(dtype: Dtype) -> Any:
    return _OfDtype(
        f"{dtypes.type_name(dtype)}Storage", (TypedStorage,),
        {"dtype": dtype, "__module__": __name__.partition(".")[0],
         "__doc__": f"A typed storage of {dtype}."},
    )  # fmt: skip


TYPES: dict[str, Any] = {
    kind.__name__: kind for kind in map(_type_of, (
        dtypes.bool_, dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64,
        dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex64,
        dtypes.complex128,
    ))
}  # fmt: skip
METHODS = {"storage": storage, "untyped_storage": untyped_storage}
