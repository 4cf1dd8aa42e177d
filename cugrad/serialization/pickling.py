"""Writes objects as PyTorch would have pickled them: its names, and storages kept apart."""

from __future__ import annotations

import codecs
import io
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .. import dtypes
from ..device import device
from ..functions.calls.out import layout
from ..functions.shapes.layouts import memory_format
from ..nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter, is_lazy
from ..sparse import SparseTensor
from ..tensor import Size, Tensor
from .names import TorchName
from .storages import NAMES, StorageCollector

__all__ = ["pickled"]

_PLAIN = {str, int, float, bool, type(None), list, dict, tuple, bytes}
_UTILS = "torch._utils"
EMPTY: Mapping[type, TorchName] = {}


def pickled(
    obj: Any, storages: StorageCollector, protocol: int, names: Mapping[type, TorchName] = EMPTY,
    old: bool = False,
) -> bytes:  # fmt: skip
    """The pickle of an object, whose tensors name storages by their keys.

    `names` has classes that are called otherwise in the file; `old`: as files before PyTorch 1.6
    name storages.
    """
    out = io.BytesIO()
    _Pickler(out, storages, protocol, names, old).dump(obj)
    return out.getvalue()


class _StorageName:
    """A storage of the file, as a tensor of it names it."""

    def __init__(self, *name: Any) -> None:
        self.name = name


def _global_of(obj: Any) -> TorchName | None:
    """PyTorch's name of an object that a file names."""
    if type(obj) is TorchName:
        return obj
    if type(obj) in (dtypes.dtype, memory_format):
        return TorchName("torch", str(obj).removeprefix("torch."))
    if obj is Tensor:
        return TorchName("torch", "Tensor")
    if any(obj is kind for kind in (Parameter, UninitializedParameter, UninitializedBuffer)):
        return TorchName("torch.nn.parameter", obj.__name__)
    return None


class _Pickler(pickle._Pickler):
    # Python's own, as C's looks up what it writes the name of

    def __init__(
        self, out: Any, storages: StorageCollector, protocol: int, names: Mapping[type, TorchName],
        old: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(out, protocol)
        self._storages, self._further, self._old = storages, names, old
        self._names: dict[tuple[str, str], TorchName] = {}

    def persistent_id(self, obj: Any) -> Any:
        return obj.name if type(obj) is _StorageName else None

    def save_global(self, obj: Any, name: str | None = None) -> None:
        entry = self._further.get(obj) if isinstance(obj, type) else None
        entry = entry or _global_of(obj)
        if entry is None:
            super().save_global(obj, name)  # type: ignore[misc]
            return
        self.write(b"c%s\n%s\n" % (entry.module.encode(), entry.name.encode()))  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is bytes and not obj and self.proto < 3:  # type: ignore[attr-defined]
            return codecs.encode, ("", "latin1")  # PyTorch refuses bytes()
        if kind in _PLAIN:
            return NotImplemented
        entry = _global_of(obj)
        if entry is not None:
            return entry.name
        if isinstance(obj, Tensor) and not is_lazy(obj):
            return self._tensor(obj)
        if kind is Size:
            return self._torch("torch", "Size"), (tuple(obj),)
        if kind is device:
            index = () if obj.index is None else (obj.index,)
            return self._torch("torch", "device"), (obj.type, *index)
        if kind is layout:
            return self._torch("torch.serialization", "_get_layout"), (str(obj),)
        return NotImplemented

    def _torch(self, module: str, name: str) -> TorchName:
        """One object for each name, so that it is written once."""
        return self._names.setdefault((module, name), TorchName(module, name))

    def _tensor(self, t: Tensor) -> Any:
        rare = t._rare
        hooks = None if rare is None or rare.leaf is None else rare.leaf.tensor_hooks.get(0)
        for hook in list(hooks.values()) if hooks else ():
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized", stacklevel=2)
        state = dict(t.__dict__)
        kind_of_tensor = getattr(type(t), "_usual", type(t))  # as it was made
        if kind_of_tensor is SparseTensor and state.pop("_is_param", False):
            kind_of_tensor = Parameter
        if kind_of_tensor is Parameter:
            args: tuple[Any, ...] = (t.detach(), t.requires_grad, OrderedDict())
            if state:
                name = self._torch(_UTILS, "_rebuild_parameter_with_state")
                return name, (*args, state)
            return self._torch(_UTILS, "_rebuild_parameter"), args
        if isinstance(t, SparseTensor):
            kind_of_tensor = Tensor
            name, args = self._of_places(t)
        else:
            name, args = self._of_memory(t)
        if kind_of_tensor is Tensor and not state:
            return name, args
        return self._torch("torch._tensor", "_rebuild_from_type_v2"), (
            name,
            kind_of_tensor,
            args,
            state,
        )

    def _of_places(self, t: SparseTensor) -> tuple[TorchName, tuple[Any, ...]]:
        """The call that makes a sparse tensor; as PyTorch's, it forgets `requires_grad`."""
        parts = t._indices(), t._values().detach(), t.shape, t.is_coalesced()
        return self._torch(_UTILS, "_rebuild_sparse_tensor"), (t.layout, parts)

    def _of_memory(self, t: Tensor) -> tuple[TorchName, tuple[Any, ...]]:
        """The call that makes a tensor of its storage, or of none on the meta device."""
        if t.is_meta:
            args: tuple[Any, ...] = t.dtype, tuple(t.shape), t.stride(), t.requires_grad
            return self._torch(_UTILS, "_rebuild_meta_tensor_no_storage"), args
        key, place, count, offset, stride = self._storages.of(t)
        kind = t.dtype
        if self._old and kind not in NAMES:
            raise NotImplementedError(f"save: the format before PyTorch 1.6 has no {kind}")
        name = self._torch(_UTILS, "_rebuild_tensor_v2" if kind in NAMES else "_rebuild_tensor_v3")
        if kind in NAMES:
            storage = self._torch("torch", NAMES[kind])
        else:
            storage, count = self._torch("torch.storage", "UntypedStorage"), count * kind.itemsize
        args = (
            _StorageName("storage", storage, key, place, count, *((None,) if self._old else ())),
            offset, tuple(t.shape), stride, t.requires_grad, OrderedDict(),
            *(() if kind in NAMES else (kind,)),
        )  # fmt: skip
        return name, args
