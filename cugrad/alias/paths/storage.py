"""torch.storage: bytes of a file, which readers of checkpoints ask for; other storages refuse."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...absent import STORAGE
from ..refusals import refuse_the_rest

__all__ = ["ByteStorage", "UntypedStorage"]


class ByteStorage:
    """Bytes in host memory, or of a file: a slice of them is one too, and `torch.asarray` reads it.

    >>> import cugrad as torch
    >>> torch.asarray(UntypedStorage(4)[1:3], dtype=torch.uint8)
    tensor([0, 0], dtype=torch.uint8)
    """

    def __init__(self, size: int = 0) -> None:
        self._bytes: Any = np.zeros(size, np.uint8)

    @classmethod
    def from_file(
        cls, filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0
    ) -> ByteStorage:
        """The first bytes of a file, read when they are used; changes stay in memory.

        With `shared` they are written to the file.
        """
        storage = cls()
        if nbytes:
            mode: Any = "r+" if shared else "c"
            storage._bytes = np.memmap(filename, np.uint8, mode, shape=(nbytes,)).view(np.ndarray)
        return storage

    def untyped(self) -> ByteStorage:
        """Itself."""
        return self

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._bytes.size

    size = __len__ = nbytes

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return int(self._bytes[index])
        part = type(self)()
        part._bytes = self._bytes[index]
        return part

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return self._bytes.tolist()

    @property
    def __array_interface__(self) -> Any:
        return self._bytes.__array_interface__


UntypedStorage = ByteStorage
refuse_the_rest(__name__, "storage", STORAGE)
