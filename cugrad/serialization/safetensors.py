"""Files of tensors alone, in the format safetensors, which many public models have.

Such a file is a length (8 bytes, little-endian), a header in JSON (dtype, shape and place of each
tensor by name, and texts as metadata), and the elements: no code, and nothing to be run. Names are
those of the package safetensors (`safetensors.torch`), which reads and writes the same files; it is
not needed, and nothing here would be shorter with it. Source:
https://github.com/huggingface/safetensors, README, "Format".
"""

from __future__ import annotations

import json
import mmap as memory_map
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..backends import backend_of
from ..ops.dims import contiguous_strides
from ..ops.views.strided import address_of, storage_of
from ..runtime.absent import explain
from ..tensor import Tensor
from .archive import written
from .checked import shown
from .storages import LoadedStorage, mapping, view_of

__all__ = [
    "SafetensorError", "load", "load_file", "load_model", "safe_open", "save", "save_file",
    "save_model",
]  # fmt: skip

NAMES = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "I8": dtypes.int8,
    "F8_E5M2": dtypes.float8_e5m2, "F8_E4M3": dtypes.float8_e4m3fn,
    "F8_E8M0": dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz, "I16": dtypes.int16,
    "U16": dtypes.uint16, "F16": dtypes.float16, "BF16": dtypes.bfloat16, "I32": dtypes.int32,
    "U32": dtypes.uint32, "F32": dtypes.float32, "C64": dtypes.complex64, "F64": dtypes.float64,
    "I64": dtypes.int64, "U64": dtypes.uint64,
}  # fmt: skip
_NAME_OF = {kind: name for name, kind in NAMES.items()}
_ORDER = {kind: number for number, kind in enumerate(NAMES.values())}  # the package's, by size
LARGEST_HEADER = 100_000_000  # bytes; the package has the same limit


class SafetensorError(Exception):
    """A file that is damaged, or no file of this format; or tensors that it cannot hold."""


# Writing ------------------------------------------------------------------------------------------


def save_file(
    tensors: Mapping[str, Tensor], filename: Any, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors by name to a file, and `metadata`, texts by name, which programs may want.

    The old file stays until the new one is complete. Tensors must be contiguous and share no
    memory: see `save_model` for models that share parameters.

    Raises ValueError for what is no dict of tensors, RuntimeError for tensors that share memory,
    SafetensorError for dtypes that the format lacks.

    >>> import cugrad as torch, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> torch.save_file({"w": torch.ones(2)}, path, {"format": "pt"})
    >>> torch.load_file(path)
    {'w': tensor([1., 1.])}
    """
    header, order = _header(tensors, metadata)
    with written(filename) as (file, _):
        file.write(header)
        for name in order:
            file.write(_bytes_of(tensors[name]))


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """What `save_file` would write."""
    header, order = _header(tensors, metadata)
    return b"".join([header, *(bytes(_bytes_of(tensors[name])) for name in order)])


def _header(tensors: Any, metadata: Mapping[str, str] | None) -> tuple[bytes, list[str]]:
    """The head of a file, and the order of the tensors in it: those of larger elements first."""
    _check(tensors, metadata)
    order = sorted(tensors, key=lambda name: (-_ORDER[tensors[name].dtype], name))
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name in order:
        tensor, end = tensors[name], at + tensors[name].nbytes
        shape = list(tensor.shape)
        entries[name] = {
            "dtype": _NAME_OF[tensor.dtype], "shape": shape, "data_offsets": [at, end]
        }  # fmt: skip
        at = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order


def _check(tensors: Any, metadata: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise ValueError(f"Expected a dict of [str, Tensor] but received {type(tensors)}")
    texts = {} if metadata is None else metadata
    for pair in texts.items():
        if not all(isinstance(text, str) for text in pair):
            raise TypeError(f"save_file: metadata has {pair!r}, want a text by name")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"Key `{name}` is invalid, expected Tensor but received {type(tensor)}"
            )
        if tensor.is_sparse:
            raise ValueError(
                f"You are trying to save a sparse tensor: `{name}` which the format does not "
                "support: call `.to_dense()`, or save its `.indices()` and `.values()`"
            )
        if tensor.dtype not in _NAME_OF:
            raise SafetensorError(f"the format has no {tensor.dtype}, which `{name}` is")
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. "
                "It either means you are trying to save tensors which are reference of each other "
                "in which case it's recommended to save only the full tensors, and reslice at load "
                "time, or simply call `.contiguous()` on your tensor to pack it before saving."
            )
    shared = shared_names(tensors)
    if shared:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential "
            f"differences when loading them again: {shared}. A potential way to correctly save "
            "your model is to use `save_model`."
        )


def _bytes_of(tensor: Tensor) -> Any:
    """The elements of a contiguous tensor, on the host, as what can be written."""
    array = tensor.detach()._array
    host = np.ascontiguousarray(backend_of(array).to_host(array))
    return memoryview(host.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def shared_names(tensors: Mapping[str, Tensor]) -> list[set[str]]:
    """The names of tensors whose memory overlaps, as sets."""
    spans = []
    for name, tensor in tensors.items():
        if tensor.nbytes:
            start = address_of(tensor._array)
            spans.append((str(tensor.device), start, start + tensor.nbytes, name))
    groups: list[set[str]] = []
    reached: tuple[str, int] = ("", 0)
    for place, start, end, name in sorted(spans):
        if (place, start) < reached and place == reached[0]:
            groups[-1].add(name)
            reached = max(reached, (place, end))
        else:
            groups.append({name})
            reached = (place, end)
    return [group for group in groups if len(group) > 1]


# Reading ------------------------------------------------------------------------------------------


class Contents:
    """The header of a file, checked, and its bytes, of which tensors are made when asked for."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        if data.nbytes < 8:
            raise SafetensorError("Error while deserializing header: header too small")
        size = int.from_bytes(data[:8].tobytes(), "little")
        if size > min(LARGEST_HEADER, data.nbytes - 8):
            raise SafetensorError(
                f"Error while deserializing header: a header of {size} bytes in a file of "
                f"{data.nbytes}"
            )
        try:
            entries = json.loads(data[8 : 8 + size].tobytes(), object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise SafetensorError(f"Error while deserializing header: {error}") from None
        if not isinstance(entries, dict):
            raise SafetensorError("Error while deserializing header: it is no object")
        self.metadata: dict[str, str] | None = entries.pop("__metadata__", None)
        self._check_metadata()
        self._data, self.entries = data[8 + size :], entries
        end = 0
        for begin, until in sorted(self._span(name) for name in entries):
            if begin != end:
                raise SafetensorError(f"Error while deserializing header: a gap at byte {end}")
            end = until
        if end != self._data.nbytes:
            raise SafetensorError(
                f"Error while deserializing header: {self._data.nbytes} bytes of elements in the "
                f"file, and {end} by the header"
            )

    def _check_metadata(self) -> None:
        if self.metadata is None:
            return
        texts = self.metadata.items() if isinstance(self.metadata, dict) else [(0, 0)]
        if not all(isinstance(text, str) for pair in texts for text in pair):
            raise SafetensorError("Error while deserializing header: metadata that is no text")

    def _span(self, name: str) -> tuple[int, int]:
        """Where the elements of a tensor lie; SafetensorError where they cannot."""
        entry = self.entries[name]
        fields = entry if isinstance(entry, dict) else {}
        kind: Any = fields.get("dtype")
        shape: Any = fields.get("shape")
        span: Any = fields.get("data_offsets")
        if not (_naturals(shape) and _naturals(span) and len(span) == 2):
            raise SafetensorError(f"Error while deserializing header: of tensor {shown(name)}")
        dtype = NAMES.get(kind) if isinstance(kind, str) else None
        if dtype is None:
            raise SafetensorError(
                f"tensor {shown(name)} has the dtype {shown(kind)}, want one of {', '.join(NAMES)}"
            )
        count = dtype.itemsize
        for extent in shape:
            count *= extent
        if len(shape) > 64 or span[1] - span[0] != count:
            raise SafetensorError(
                f"tensor {shown(name)} of shape {shown(shape)} needs {shown(count)} bytes, and has "
                f"{shown(span[1] - span[0])}"
            )
        return span[0], span[1]

    def tensor(self, name: str, device: Any) -> Tensor:
        """A tensor of the file; SafetensorError for a name that it lacks."""
        if name not in self.entries:
            raise SafetensorError(f"File does not contain tensor {name}")
        begin, end = self._span(name)
        entry = self.entries[name]
        place = mapping(f"cuda:{device}" if isinstance(device, int) else device)
        storage = place(LoadedStorage(self._data[begin:end], NAMES[entry["dtype"]]), "cpu")
        shape = tuple(entry["shape"])
        return view_of(storage, 0, shape, contiguous_strides(shape))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name stands there twice")
    return entries


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def _mapped(filename: Any) -> Contents:
    """A file, whose elements are read when they are looked at; changes stay in memory."""
    if not os.path.isfile(filename):
        raise FileNotFoundError(f"No such file or directory: {str(filename)!r}")
    with open(filename, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            raise SafetensorError("Error while deserializing header: header too small")
        pages = memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_COPY)
    return Contents(np.frombuffer(pages, np.uint8))


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors of a file by name, on a device.

    On the CPU they are mapped: elements are read from the file when they are looked at, and stay
    readable when the file is replaced. SafetensorError for a file that is damaged.
    """
    contents = _mapped(filename)
    return {name: contents.tensor(name, device) for name in contents.entries}


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors of a file that is in memory, in memory of their own."""
    contents = Contents(np.frombuffer(bytearray(data), np.uint8))
    return {name: contents.tensor(name, "cpu") for name in contents.entries}


class safe_open:
    """A file of which tensors are read one by one, or in parts.

    >>> import cugrad as torch, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> torch.save_file({"w": torch.arange(6.0).reshape(2, 3)}, path)
    >>> with torch.serialization.safetensors.safe_open(path, framework="pt") as file:
    ...     list(file.keys()), file.get_slice("w")[:, 1]
    (['w'], tensor([1., 4.]))
    """

    def __init__(self, filename: Any, framework: str = "pt", device: Any = "cpu") -> None:
        if framework not in ("pt", "torch", "pytorch", "cugrad"):
            raise SafetensorError(f"framework {framework} is invalid: want 'pt'")
        self._contents, self._device = _mapped(filename), device

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def keys(self) -> Iterable[str]:
        """The names of the tensors, sorted."""
        return sorted(self._contents.entries)

    def offset_keys(self) -> Iterable[str]:
        """The names of the tensors, as they lie in the file."""
        return sorted(self._contents.entries, key=self._contents._span)

    def metadata(self) -> dict[str, str] | None:
        """The texts that were saved with the tensors, if any."""
        return self._contents.metadata

    def get_tensor(self, name: str) -> Tensor:
        """A tensor; SafetensorError for a name that the file lacks."""
        return self._contents.tensor(name, self._device)

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor to be indexed: only the part that is taken goes to the device."""
        return TensorSlice(
            self._contents.tensor(name, "cpu"), self._device, self._contents.entries[name]
        )


class TensorSlice:
    """What `safe_open.get_slice` returns."""

    def __init__(self, tensor: Tensor, device: Any, entry: dict[str, Any]) -> None:
        self._tensor, self._device, self._entry = tensor, device, entry

    def __getitem__(self, index: Any) -> Tensor:
        device = f"cuda:{self._device}" if isinstance(self._device, int) else self._device
        return self._tensor[index].to(device)

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._entry["shape"])

    def get_dtype(self) -> str:
        """The file's name of the dtype, such as "F32"."""
        return str(self._entry["dtype"])


# Models -------------------------------------------------------------------------------------------


def _aliases(state: Mapping[str, Tensor], preferred: Iterable[str] = ()) -> dict[str, str]:
    """Name -> the name that is kept of the tensors with the same memory."""
    kept = set(preferred)
    alias: dict[str, str] = {}
    for group in shared_names(state):
        sizes = {name: storage_of(state[name]._array)[0].nbytes for name in group}
        whole = sorted(name for name in group if state[name].nbytes == sizes[name])
        if not whole:
            raise RuntimeError(
                "Error while trying to find names to remove to save state dict, but found no "
                f"suitable name to keep for saving amongst: {group}. None is covering the entire "
                "storage."
            )
        keep = next((name for name in whole if name in kept), whole[0])
        alias.update({name: keep for name in sorted(group) if name != keep})
    return alias


def save_model(
    model: Any, filename: Any, metadata: Mapping[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:  # fmt: skip
    """Writes a module's state dict to a file; of parameters that are one, it holds one.

    `force_contiguous` writes tensors that are not contiguous as if they were.
    """
    state = model.state_dict()
    alias = _aliases(state)
    texts = {**(metadata or {}), **alias}
    tensors = {name: tensor for name, tensor in state.items() if name not in alias}
    if force_contiguous:
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, filename, texts or None)


def load_model(
    model: Any, filename: Any, strict: bool = True, device: Any = "cpu"
) -> tuple[set[str], list[str]]:
    """Loads a file into a module; the names that it lacked, and those that the module lacks.

    Raises RuntimeError for any of them, where `strict`, and for shapes that do not fit.
    """
    state = load_file(filename, device)
    alias = _aliases(model.state_dict(), state)
    result = model.load_state_dict(state, strict=False)
    missing = {name for name in result.missing_keys if name not in alias}
    unexpected = [*result.unexpected_keys, *(name for name in alias if name in state)]
    if strict and (missing or unexpected):
        text = f"Error(s) in loading state_dict for {type(model).__name__}:"
        for what, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                quoted = ", ".join(f'"{name}"' for name in sorted(names))
                text += f"\n    {what} key(s) in state_dict: {quoted}"
        raise RuntimeError(text)
    return missing, unexpected


explain(__name__)
