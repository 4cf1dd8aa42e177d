"""save and load: objects with tensors in files, PyTorch's and cugrad's the same.

`archive.py` writes and reads PyTorch's zip files, `unpickling.py` their pickles without running
what stands in them: begin there. `safetensors.py` has files of tensors alone, `sharded.py`
checkpoints of several files, `ranks` those of several processes. `materialising.py` fills a model
from one, weight by weight: `cugrad.memory.materialise`. Programs use `cugrad.save`,
`cugrad.load`, `cugrad.save_file`, `cugrad.load_file` and `cugrad.distributed.checkpoint`; no other
room computes with what is here.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

from ..runtime.absent import explain
from ..runtime.contexts import Context
from ..runtime.kept import Switch
from . import safetensors as safetensors
from .archive import VERSION, Reader, Writer, written
from .checked import shown, storage_name
from .names import CALLS, VALUES
from .old_format import is_old, load_old, save_old
from .pickling import pickled
from .safetensors import load_file, load_model, safe_open, save_file, save_model
from .sharded import load_checkpoint, load_sharded_checkpoint, save_sharded
from .storages import LoadedStorage, StorageCollector, default_restore_location, mapping
from .unpickling import PickleMachine, SafeGlobals, unpickled

__all__ = [
    "DEFAULT_PROTOCOL", "add_safe_globals", "clear_safe_globals", "default_restore_location",
    "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "load_checkpoint", "load_file",
    "load_model", "load_sharded_checkpoint", "safe_globals", "safe_open", "save", "save_file",
    "save_model", "save_sharded",
]  # fmt: skip

DEFAULT_PROTOCOL = 2
# For annotations: what `load` takes.
MAP_LOCATION: TypeAlias = Any
FileLike: TypeAlias = str | os.PathLike[str] | io.IOBase
_safe = SafeGlobals()

_UNSAFE = (
    "In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` "
    "from `False` to `True`. Re-running `torch.load` with `weights_only` set to `False` will "
    "likely succeed, but it can result in arbitrary code execution. Do it only if you got the file "
    "from a trusted source."
)


def save(
    obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True, _disable_byteorder_record: bool = False,
) -> None:  # fmt: skip
    """Writes an object to a file that `load`, and PyTorch's `torch.load`, read.

    Args:
        obj: a tensor, or Python objects with tensors in them: a state dict, for example. Tensors
            that share memory share it in the file, and after loading; a view is saved with all
            the memory that it is a view of.
        f: a path, or an open binary file. Under a path the old file stays until the new one is
            complete, and an error leaves it as it was.
        pickle_module: Python's `pickle`; NotImplementedError for others.
        pickle_protocol: of what is not a tensor; PyTorch loads 2 with weights_only.
        _use_new_zipfile_serialization: False writes the format before PyTorch 1.6, which has
            not all dtypes: NotImplementedError for the others.
        _disable_byteorder_record: the file does not say in which order bytes are.

    >>> import cugrad as torch, io
    >>> file = io.BytesIO()
    >>> torch.save({"w": torch.ones(2)}, file)
    >>> torch.load(file)
    {'w': tensor([1., 1.])}
    """
    if pickle_module is not pickle:
        raise NotImplementedError(f"save: got pickle_module {pickle_module!r}, want pickle")
    storages = StorageCollector()
    data = pickled(obj, storages, pickle_protocol, old=not _use_new_zipfile_serialization)
    if not _use_new_zipfile_serialization:
        with written(f) as (file, _):
            save_old(file, data, storages)
        return
    with written(f) as (file, name), Writer(file, name) as archive:
        archive.write("data.pkl", data)
        if not _disable_byteorder_record:
            archive.write("byteorder", sys.byteorder.encode())
        for number in range(len(storages.found)):
            archive.write(f"data/{number}", storages.bytes_of(number))
        archive.write("version", VERSION)


def load(
    f: Any, map_location: Any = None, pickle_module: Any = None, *,
    weights_only: bool | None = None,
    mmap: bool | None = None, **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Reads what `save`, or PyTorch's `torch.save`, wrote.

    Args:
        f: a path, or an open binary file that can seek.
        map_location: the device for all tensors; or a dict from the devices they were saved from;
            or a function of a storage and that device, which returns the storage, its `cpu()` or
            `cuda()`, or None. Default: where they were.
        pickle_module: whose `Unpickler` reads what is no tensor, with `weights_only=False` alone.
        weights_only: only tensors, plain Python objects, and what `add_safe_globals` allows (the
            default): no file can then run code. With False a file can do anything, unless it is
            one of PyTorch before 1.6, which are always read the careful way.
        mmap: elements are read from the file when they are looked at; `f` must be a path.
        pickle_load_args: arguments of `pickle.Unpickler`, only with `weights_only=False`.

    Raises UnpicklingError for a file that names anything else, or is no such file; RuntimeError for
    one that is damaged, and for a device that cannot be used here.
    """
    weights_only = weights_only is not False
    if pickle_module is not None and weights_only:
        raise RuntimeError(
            "Can not safely load weights when explicit pickle_module is specified; "
            "want weights_only=False"
        )
    trusting = _trusting(pickle if pickle_module is None else pickle_module)
    if pickle_load_args and weights_only:
        raise TypeError(f"load: {', '.join(pickle_load_args)} needs weights_only=False")
    by_path = isinstance(f, (str, os.PathLike))
    if mmap and not by_path:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not by_path:
        return _loaded(
            _seekable(f), map_location, weights_only, bool(mmap), trusting, pickle_load_args
        )
    with open(f, "rb") as file:
        return _loaded(file, map_location, weights_only, bool(mmap), trusting, pickle_load_args)


def _seekable(f: Any) -> Any:
    try:
        f.seek(f.tell())
        f.read  # noqa: B018
    except (io.UnsupportedOperation, AttributeError) as error:
        raise type(error)(
            f"{error}. You can only torch.load from a file that is seekable. Please pre-load the "
            "data into a buffer like io.BytesIO and try to load from it instead."
        ) from None
    return f


def _archive(file: Any) -> Reader:
    """The archive in a file; the errors say what the file is instead."""
    file.seek(0)
    start = file.read(4)
    if not start:
        raise EOFError("Ran out of input: the file is empty")
    if start[:2] != b"PK":
        kind = "a pickle" if start[:1] == b"\x80" else "something else"
        raise pickle.UnpicklingError(
            f"Weights only load failed: the file is {kind}, none that save() wrote"
        )
    archive = Reader(file)
    if "constants.pkl" in archive:
        raise RuntimeError(
            "Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``: "
            "they hold a program; save the state_dict() instead"
        )
    version = archive.read("version").strip()
    if not version.isdigit() or not 1 <= int(version[:9]) <= 10:
        raise RuntimeError(f"load: the format has version {version[:20]!r}, want one of 1 to 10")
    return archive


def _loaded(
    file: Any, map_location: Any, weights_only: bool, mmap: bool, trusting: type[Any],
    options: dict[str, Any],
) -> Any:  # fmt: skip
    place_of = mapping(map_location)
    file.seek(0)
    if is_old(file.read(32)):
        if mmap:
            raise RuntimeError(
                "mmap can only be used with files saved with "
                "`torch.save(_use_new_zipfile_serialization=True)`, please torch.save your "
                "checkpoint with this option in order to use mmap."
            )
        file.seek(0)
        try:
            return load_old(file.read(), place_of, _safe.by_name())
        except pickle.UnpicklingError as error:
            raise _advice(error) from error.__cause__
    archive = _archive(file)
    order = archive.read("byteorder") if "byteorder" in archive else b"little"
    if order not in (b"little", b"big"):
        raise RuntimeError(f"load: Unknown endianness type: {order[:20]!r}")
    swap = order.decode() != sys.byteorder
    by_key: dict[str, LoadedStorage] = {}

    def storage(name: Any) -> LoadedStorage:
        kind, key, place, count = storage_name(name, 5)
        dtype = kind.dtype or VALUES["torch.uint8"]
        if key not in by_key:
            record = f"data/{key}"
            if archive.size(record) != count * dtype.itemsize:
                raise RuntimeError(
                    f"load: storage {shown(key)} has {archive.size(record)} bytes in the file, and "
                    f"{count} elements of {dtype} by its name"
                )
            data = archive.map(record) if mmap else archive.read_into_array(record)
            by_key[key] = place_of(LoadedStorage(data, dtype, "cpu", swap), place)
        return by_key[key].typed(dtype)

    data = archive.read("data.pkl")
    if not weights_only:
        return trusting(io.BytesIO(data), storage, **{"encoding": "utf-8", **options}).load()
    try:
        return unpickled(PickleMachine(data, storage, _safe.by_name()))
    except pickle.UnpicklingError as error:
        raise _advice(error) from error.__cause__


def _advice(error: pickle.UnpicklingError) -> pickle.UnpicklingError:
    """The error, with what PyTorch says around it."""
    text = str(error)
    if "was not an allowed global by default" in text:
        text = (
            "This file can still be loaded, to do so you have two "
            "options, do those steps only if you trust the source of the checkpoint. \n\t(1) "
            f"{_UNSAFE}\n\t(2) Alternatively, to load with `weights_only=True` please check the "
            f"recommended steps in the following error message.\n\tWeightsUnpickler error: {text}"
        )
    return pickle.UnpicklingError(f"Weights only load failed. {text}")


def _trusting(module: Any) -> type[Any]:
    """The unpickler of `pickle`, or of a module like it, for files that may do what they like."""
    return type("Trusting", (_Trusting, module.Unpickler), {})


class _Trusting:
    """What an unpickler does with storages, and with PyTorch's names."""

    def __init__(self, file: Any, storage: Any, **options: Any) -> None:
        super().__init__(file, **options)  # type: ignore[call-arg]
        self._storage = storage

    def persistent_load(self, name: Any) -> Any:
        return self._storage(name)

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in CALLS:
            return CALLS[full][0]
        if module.partition(".")[0] != "torch":
            return super().find_class(module, name)  # type: ignore[misc]
        if full in VALUES:
            return VALUES[full]
        raise pickle.UnpicklingError(
            f"load: the file names {full}, which only PyTorch has; save a state_dict() there"
        )


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allows files to name these classes and functions, and to call them, when they are loaded.

    An entry is the class, or a pair of it and the full name by which files know it.
    """
    _safe.entries = [*_safe.entries, *(g for g in safe_globals if g not in _safe.entries)]


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` has allowed."""
    return list(_safe.entries)


def clear_safe_globals() -> None:
    """Allows nothing any more."""
    _safe.entries = []


class safe_globals(Switch, Context):
    """`add_safe_globals` for the block.

    >>> import cugrad as torch, fractions, io
    >>> file = io.BytesIO()
    >>> torch.save(fractions.Fraction(1, 3), file)
    >>> with torch.serialization.safe_globals([fractions.Fraction]):
    ...     torch.load(file)
    Fraction(1, 3)
    """

    def __init__(self, safe_globals: list[Any]) -> None:
        self.safe_globals = safe_globals

    def as_is(self) -> list[Any]:
        return _safe.entries

    def change(self, before: list[Any]) -> None:
        add_safe_globals(self.safe_globals)

    def put_back(self, before: list[Any]) -> None:
        _safe.entries = before

    def clone(self) -> safe_globals:
        """Another context with the same globals."""
        return type(self)(self.safe_globals)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The names in a file that `load` would refuse; the file is read, not loaded."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return get_unsafe_globals_in_checkpoint(file)
    try:
        names = _names(_archive(_seekable(f)).read("data.pkl"))
    except ValueError as error:
        raise pickle.UnpicklingError(f"the pickle is damaged: {error}") from None
    allowed = {*CALLS, *VALUES, *_safe.by_name()}
    return sorted(name.removeprefix("builtins.") for name in names - allowed)


def _names(data: bytes) -> set[str]:
    """The globals of a pickle, by full name."""
    names: set[str] = set()
    texts: list[Any] = []
    memo: dict[Any, Any] = {}
    for opcode, value, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            names.add(str(value).replace(" ", ".").replace("__builtin__.", "builtins."))
        elif opcode.name == "STACK_GLOBAL":
            names.add(".".join(map(str, texts[-2:])))
        elif "PUT" in opcode.name or opcode.name == "MEMOIZE":
            memo[len(memo) if value is None else value] = texts[-1] if texts else None
        elif "GET" in opcode.name:
            texts.append(memo.get(value))
        elif isinstance(value, str):
            texts.append(value)
    return names


explain(__name__)
