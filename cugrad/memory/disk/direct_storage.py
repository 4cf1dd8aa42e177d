"""Copies between a GPU and a file that do not pass through host memory, by kvikio."""

from __future__ import annotations

import errno
import threading
import weakref
from typing import Any

from ...backends import backend_of
from .files import BLOCK, ScratchFile

__all__ = ["DeviceFile", "handle_of"]

_handles: weakref.WeakKeyDictionary[ScratchFile, Any] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def handle_of(file: ScratchFile) -> Any:
    """kvikio's handle of a file; None where kvikio is not installed, or cannot open it."""
    with _lock:
        if file not in _handles:
            try:
                import kvikio

                # the file may have no name; kvikio opens it again, as GPUDirect Storage needs it
                _handles[file] = kvikio.CuFile(f"/proc/self/fd/{file.fd}", "r+")
            except (ImportError, OSError, RuntimeError):
                _handles[file] = None
        return _handles[file]


class DeviceFile:
    """A scratch file as one transfer of a GPU's array sees it, in whatever thread that runs.

    The transfer begins behind all that the current stream has to do now: with what makes the array,
    or with the last use of the memory that the array was given.
    """

    __slots__ = ("file", "_backend", "_index", "_ready")

    def __init__(self, file: ScratchFile, array: Any) -> None:
        self.file, self._backend = file, backend_of(array)
        self._index = self._backend.device_index(array)
        self._ready = self._backend.current_stream().record_event()

    @property
    def is_mine(self) -> bool:
        return self.file.is_mine

    def write(self, array: Any, offset: int) -> None:
        """Writes bytes to an extent. OSError where that fails."""
        self._move(handle_of(self.file).write, array, offset, errno.ENOSPC)

    def read(self, array: Any, offset: int) -> None:
        """Fills an array with the bytes of an extent. OSError where that fails."""
        self._move(handle_of(self.file).read, array, offset, errno.EIO)

    def _move(self, how: Any, array: Any, offset: int, error: int) -> None:
        with self._backend.use_device(self._index):
            self._ready.synchronize()
            try:
                moved = how(array, array.nbytes, BLOCK + offset)
            except RuntimeError as e:  # kvikio reports errors of the system as this
                raise OSError(errno.EIO, f"kvikio: {e}") from e
        if moved != array.nbytes:
            raise OSError(error, f"kvikio moved {moved} of {array.nbytes} bytes")
