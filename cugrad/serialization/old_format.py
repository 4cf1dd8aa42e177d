"""Files of PyTorch before 1.6: pickles one after another, then the storages."""

from __future__ import annotations

import pickle
import sys
from typing import IO, Any

import numpy as np

from ..dtypes import dtype
from .checked import shown, storage_name
from .storages import LoadedStorage, Location, StorageCollector
from .unpickling import PickleMachine, Safe, unpickled

__all__ = ["is_old", "load_old", "save_old"]

MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of such a file
PROTOCOL = 1001
_START = pickle.dumps(MAGIC, 2)


def is_old(start: bytes) -> bool:
    """Whether a file that starts so is of the old format."""
    return start.startswith(_START)


def save_old(file: IO[bytes], data: bytes, storages: StorageCollector) -> None:
    """Writes a pickle and the storages that it names as PyTorch did before 1.6."""
    sizes = {"short": 2, "int": 4, "long": 4}
    system = {
        "protocol_version": PROTOCOL, "little_endian": sys.byteorder == "little",
        "type_sizes": sizes,
    }  # fmt: skip
    file.write(b"".join(pickle.dumps(part, 2) for part in (MAGIC, PROTOCOL, system)))
    file.write(data)
    file.write(pickle.dumps([str(number) for number in range(len(storages.found))], 2))
    for number, flat in enumerate(storages.found):
        file.write(int(flat.size).to_bytes(8, "little"))
        file.write(memoryview(storages.bytes_of(number)))  # type: ignore[arg-type]


class _Reader:
    """Takes a file apart: the places of its parts are known only from the parts before."""

    def __init__(self, data: bytes, safe: Safe) -> None:
        self.data, self.safe, self.at = data, safe, 0
        self.left = len(data)  # bytes that storages may have
        self.kinds: dict[str, tuple[dtype, int, str]] = {}  # of storages: type, elements, place
        self.zeros: dict[str, LoadedStorage] = {}

    def part(self, load_storage: Any) -> Any:
        """The next pickle."""
        machine = PickleMachine(self.data, load_storage, self.safe, self.at)
        value = unpickled(machine)
        self.at = machine.at
        return value

    def noted(self, name: tuple[Any, ...]) -> LoadedStorage:
        """A storage of zeros in the place of one whose elements come later in the file: one for
        each key, and together no larger than the file."""
        kind, key, place, count = storage_name(name, 6)
        if kind.dtype is None:
            raise pickle.UnpicklingError("a storage without its type")
        if name[5] is not None:
            raise pickle.UnpicklingError("a storage that is a view of another is not supported")
        said = kind.dtype, count, place
        if self.kinds.setdefault(key, said) != said:
            raise RuntimeError(f"load: storage {shown(key)} has two types, sizes or places")
        if key not in self.zeros:
            self.left -= count * kind.dtype.itemsize
            if self.left < 0:
                raise RuntimeError(f"load: storage {shown(key)} is larger than the file")
            zeros = np.zeros(count * kind.dtype.itemsize, np.uint8)
            self.zeros[key] = LoadedStorage(zeros, kind.dtype)
        return self.zeros[key]

    def storage(self, key: Any) -> np.ndarray[Any, Any]:
        """The bytes of the next storage."""
        kind, count, _ = self.kinds[key]
        start = self.at + 8
        stop = start + count * kind.itemsize
        if int.from_bytes(self.data[self.at : start], "little", signed=True) != count:
            raise RuntimeError(f"load: storage {shown(key)} has another size than its tensors say")
        if stop > len(self.data):
            raise RuntimeError("load: the file ends within a storage; it is not whole")
        self.at = stop
        return np.frombuffer(self.data[start:stop], np.uint8).copy()


def _none(name: Any) -> Any:
    raise pickle.UnpicklingError("a storage where none belongs")


def load_old(data: bytes, place_of: Location, safe: Safe) -> Any:
    """The object of a file of the old format; as `load` with weights_only, always.

    The object is read twice: first for what its storages are, as those come behind it.
    """
    file = _Reader(data, safe)
    magic, protocol, system = file.part(_none), file.part(_none), file.part(_none)
    if magic != MAGIC or protocol != PROTOCOL or type(system) is not dict:
        raise RuntimeError(f"load: protocol version {shown(protocol)}, want {PROTOCOL}")
    if system.get("little_endian") is not True:
        raise RuntimeError("load: an old file of a big-endian machine is not supported")
    start = file.at
    file.part(file.noted)
    keys = file.part(_none)
    if (
        type(keys) is not list
        or any(type(k) is not str for k in keys)
        or ({*keys} != {*file.kinds} or len(keys) != len(file.kinds))
    ):
        raise pickle.UnpicklingError("the file has not the list of its storages")
    storages = {}
    file.zeros.clear()
    for key in keys:
        kind, _, place = file.kinds[key]
        storages[key] = place_of(LoadedStorage(file.storage(key), kind), place)
    file.at = start
    return file.part(lambda name: storages[name[2]])
