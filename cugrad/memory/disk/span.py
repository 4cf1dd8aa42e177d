"""DiskSpan: bytes that a store keeps, while they are written, read ahead, read and given up."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from .transfers import Transfer

if TYPE_CHECKING:
    from .store import DiskStore

__all__ = ["DiskSpan"]


class DiskSpan:
    """Bytes that a store keeps. They can be read any number of times, and are freed with the span.

    A span is also an event. It happens when the array that was written is no longer needed.
    """

    __slots__ = ("store", "file", "nbytes", "offset", "writing", "reading", "home", "known",
                 "__weakref__")  # fmt: skip

    def __init__(self, store: DiskStore, nbytes: int) -> None:
        self.store: DiskStore | None = store
        self.nbytes, self.offset = nbytes, -1
        self.known: Any = weakref.ref(self)  # the store's reference to it
        self.file: Any = None
        self.home: Any = None  # the backend and device of the bytes; None: the host
        self.writing: Transfer | None = None
        self.reading: tuple[Transfer, Any] | None = (
            None  # a read ahead: the bytes, and where they go
        )

    @property
    def resident(self) -> Any:
        """The array that was written, as long as it is in memory; then None."""
        writing = self.writing
        return None if writing is None else writing.array

    def detach(self) -> None:
        """Lets the array that was written change: waits until it is on disk, or keeps a copy."""
        self.synchronize()
        if self.writing is not None and self.writing.array is not None:
            self.writing.array = self.writing.array.copy()

    @property
    def on_disk(self) -> bool:
        """Whether the bytes are on disk, or on their way there; False if there is no room."""
        return self.writing is not None and self.writing.error is None

    def query(self) -> bool:
        """Whether `synchronize` would return at once."""
        return self.writing is None or self.writing.is_done

    def synchronize(self) -> None:
        """Waits until the bytes are on disk, or have failed to get there."""
        if self.writing is not None:
            self.writing.finish()

    def read(self) -> Any:
        """The bytes, in a new array. OSError where the disk fails; DiskFullError where the bytes
        could not be written and must not stay in memory.
        """
        return self._opened()._read(self, None)

    def read_into(self, array: Any) -> None:
        """Copies the bytes into an array of uint8 of one dim, without gaps."""
        if array.dtype != np.uint8 or array.shape != (self.nbytes,) or not array.flags.c_contiguous:
            raise ValueError(
                f"read_into: got {array.dtype} of shape {array.shape}, want uint8 of shape "
                f"({self.nbytes},), without gaps"
            )
        self._opened()._read(self, array)

    def prefetch(self, into: Any = None) -> None:
        """Begins to read the bytes, so that `read` need not wait, or `read_into` that array."""
        self._opened()._fetch(self, into)

    def is_here(self) -> bool:
        """Whether what `prefetch` began has ended."""
        return self.reading is not None and self.reading[0].is_done

    def abandon(self) -> None:
        """Ends what `prefetch` began: no thread uses its array any more."""
        reading, self.reading = self.reading, None
        if reading is not None:
            reading[0].wanted = False
            reading[0].finish()

    def _opened(self) -> DiskStore:
        if self.store is None:
            raise ValueError("save_on_disk: this span is closed")
        return self.store

    def close(self) -> None:
        """Frees the bytes. Takes no lock: the garbage collector may call this while one is held."""
        store, self.store = self.store, None
        if store is None:
            return
        if self.writing is not None:
            self.writing.wanted = False
        if self.reading is not None:
            self.reading[0].wanted = False
        if self.offset >= 0:
            store._closed.append((self.file, self.offset, self.nbytes, self.writing, self.known))

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, TypeError):
            pass  # half made, or the interpreter is shutting down
