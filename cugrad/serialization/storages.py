"""Storages: the memory that tensors share, as files and `map_location` see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..backends import backend_of, get
from ..backends.several import there
from ..device import device as Device
from ..ops.dims import contiguous_strides
from ..ops.views.strided import address_of, layout_of, storage_of
from ..tensor import Tensor, make
from .checked import extents

__all__ = [
    "NAMES", "LoadedStorage", "StorageCollector", "default_restore_location", "mapping", "view_of",
]  # fmt: skip

# PyTorch's names of storages by element type; unsigned integers of more bytes have none.
NAMES = {
    dtypes.bool_: "BoolStorage", dtypes.uint8: "ByteStorage", dtypes.int8: "CharStorage",
    dtypes.int16: "ShortStorage", dtypes.int32: "IntStorage", dtypes.int64: "LongStorage",
    dtypes.float16: "HalfStorage", dtypes.bfloat16: "BFloat16Storage",
    dtypes.float32: "FloatStorage", dtypes.float64: "DoubleStorage",
    dtypes.complex64: "ComplexFloatStorage", dtypes.complex128: "ComplexDoubleStorage",
}  # fmt: skip


class StorageCollector:
    """The storages that a file is going to have, each once, numbered as they come."""

    def __init__(self) -> None:
        self.found: list[Any] = []  # flat arrays; held, so that no address is used again
        self._keys: dict[Any, tuple[str, Any]] = {}

    def of(self, tensor: Tensor) -> tuple[str, str, int, int, tuple[int, ...]]:
        """The key of a tensor's storage, its location, its size, the offset and the strides."""
        array = tensor._array
        flat, start = storage_of(array)
        stride = layout_of(array) if array.size else tensor.stride()
        if flat.ndim != 1 or start < 0 or any(s < 0 for s in stride):
            flat, start = array.reshape(-1), 0  # memory with gaps: the elements alone
            stride = contiguous_strides(array.shape)
        place = str(tensor.device)
        mark: Any = (place, address_of(flat), flat.nbytes) if flat.nbytes else id(flat)
        if tensor._may_be_away:  # it need not stay on its device until the file is written
            mark, flat = tensor._mark_of_storage, backend_of(flat).to_host(flat)
        key, dtype = self._keys.get(mark, (None, flat.dtype))
        if dtype != flat.dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                f"types: {dtypes.of(dtype)} and {tensor.dtype}; clone() one of them first"
            )
        if key is None:
            key = str(len(self.found))
            self._keys[mark] = key, flat.dtype
            self.found.append(flat)
        return key, place, int(flat.size), start, tuple(stride)

    def bytes_of(self, number: int) -> np.ndarray[Any, Any]:
        """The bytes of a storage, on the host."""
        flat = self.found[number]
        host = np.ascontiguousarray(backend_of(flat).to_host(flat))
        return host.reshape(-1).view(np.uint8)


class LoadedStorage:
    """A storage that was read: bytes on the host, until a tensor wants it on its device."""

    def __init__(
        self, data: Any, dtype: dtypes.dtype, place: str = "cpu", swap: bool = False
    ) -> None:
        self._data, self._array = data, None
        self._others: dict[Any, LoadedStorage] = {}  # the same bytes, seen otherwise
        self.dtype, self.device, self._swap = dtype, Device(place), swap

    def nbytes(self) -> int:
        """How many bytes it has."""
        return int(self._data.nbytes)

    size = __len__ = nbytes

    def to(self, device: Any) -> LoadedStorage:
        """The same bytes, for another device."""
        return LoadedStorage(self._data, self.dtype, str(Device(device)), self._swap)

    def typed(self, dtype: dtypes.dtype) -> LoadedStorage:
        """The same bytes as elements of another type."""
        if dtype is self.dtype:
            return self
        if dtype not in self._others:
            if self._data.nbytes % dtype.itemsize:
                raise ValueError(f"a storage of {self._data.nbytes} bytes is no {dtype}")
            self._others[dtype] = LoadedStorage(self._data, dtype, str(self.device), self._swap)
        return self._others[dtype]

    def resolved(self, conj: bool, neg: bool) -> LoadedStorage:
        """The elements as views with these bits see them, in memory of their own.

        All of the storage, once for all its views: however many there are, and however large they
        say that they are, memory is that of the file.
        """
        if not (conj or neg):
            return self
        if (conj, neg) not in self._others:
            array = self.array.conj() if conj else self.array
            other = LoadedStorage(self._data, self.dtype, str(self.device), self._swap)
            other._array = -array if neg else array
            self._others[conj, neg] = other
        return self._others[conj, neg]

    def cpu(self) -> LoadedStorage:
        return self.to("cpu")

    def cuda(self, device: Any = None) -> LoadedStorage:
        if isinstance(device, (Device, str)):
            return self.to(device)
        return self.to("cuda" if device is None else f"cuda:{device}")

    @property
    def array(self) -> Any:
        """The elements as a flat array on the device, the same for all tensors that share it."""
        if self._array is None:
            kind = self.dtype.numpy
            flat = self._data
            if self.dtype is dtypes.bool_:
                flat = (flat != 0).view(np.uint8)  # no byte but 0 and 1 is a bool
            if flat.ctypes.data % kind.itemsize:
                flat = flat.copy()
            typed = flat.view(kind)
            if self._swap and kind.itemsize > 1:
                typed = flat.view(f"u{kind.itemsize}" if kind.kind != "c" else kind).byteswap()
                typed = typed.view(kind)
            self._array = self._on_device(typed)
        return self._array

    def _on_device(self, typed: np.ndarray[Any, Any]) -> Any:
        if self.device.type == "cpu":
            return typed
        backend = get(self.device.type)
        with backend.use_device(self.device.index):
            return backend.asarray(typed)


def view_of(
    storage: LoadedStorage, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> Tensor:
    """A tensor that sees a storage this way; ValueError where it would see beyond."""
    offset, size, stride = extents(offset, size, stride)
    count = 1
    for n in size:
        count *= n
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if count else 0
    flat = storage.array
    if last >= flat.size and count or count * storage.dtype.itemsize >= 1 << 62:
        raise ValueError(
            f"a tensor of size {list(size)}, stride {list(stride)} and offset {offset} goes beyond "
            f"its storage of {flat.size} elements"
        )
    if not count:
        return make(there(lambda a: backend_of(a).xp.empty(size, a.dtype), flat))
    if stride == contiguous_strides(size):
        return make(flat[offset : offset + count].reshape(size))
    item = flat.dtype.itemsize
    steps = tuple([s * item for s in stride])
    if isinstance(flat, np.ndarray):  # unlike as_strided, this keeps the storage as its base
        seen = np.ndarray(size, flat.dtype, flat.view(np.uint8), offset * item, steps)
        return make(seen)
    return make(backend_of(flat).xp.lib.stride_tricks.as_strided(flat[offset:], size, steps))


Location = Callable[[LoadedStorage, str], LoadedStorage]


def mapping(map_location: Any) -> Location:
    """What `map_location` says, as a function of a storage and the place it was saved from."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        places = map_location
        return lambda storage, place: default_restore_location(storage, places.get(place, place))
    if isinstance(map_location, (str, bytes, Device)):
        where = map_location.decode() if isinstance(map_location, bytes) else str(map_location)
        Device(where)
        return lambda storage, place: default_restore_location(storage, where)
    if not callable(map_location):
        raise TypeError(
            "load: map_location must be a device, a string, a dict of strings or a function of a "
            f"storage and a string, got {type(map_location).__name__}"
        )

    def called(storage: LoadedStorage, place: str) -> LoadedStorage:
        answer = map_location(storage, place)
        if answer is None:
            return default_restore_location(storage, place)
        if not isinstance(answer, LoadedStorage):
            raise TypeError(
                "load: the function given as map_location must return the storage, its cpu() or "
                f"cuda(), or None, got {type(answer).__name__}"
            )
        return answer

    return called


def default_restore_location(storage: LoadedStorage, location: str) -> LoadedStorage:
    """A storage of a file on a device: what functions that are given as `map_location` return.

    RuntimeError where there is no such device.

    >>> import cugrad as torch, io
    >>> from cugrad.serialization import default_restore_location
    >>> file = io.BytesIO()
    >>> torch.save(torch.ones(2), file)
    >>> _ = file.seek(0)
    >>> torch.load(file, map_location=lambda s, place: default_restore_location(s, "cpu"))
    tensor([1., 1.])
    """
    try:
        where = Device(location)
    except RuntimeError:
        raise RuntimeError(
            f"don't know how to restore data location of storage (tagged with {location}): give "
            "map_location='cpu'"
        ) from None
    try:
        get(where.type)
    except RuntimeError as error:
        raise RuntimeError(
            f"Attempting to deserialize object on a {where.type.upper()} device but "
            f"torch.cuda.is_available() is False ({error}). If you are running on a CPU-only "
            "machine, please use torch.load with map_location=torch.device('cpu') to map your "
            "storages to the CPU."
        ) from None
    return storage.to(where)
