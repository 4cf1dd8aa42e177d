"""A scratch file that is gone when its process ends, in whatever way, and the extents in it."""

from __future__ import annotations

import errno
import mmap
import os
import re
import secrets
import stat
import threading
import weakref
from bisect import bisect_left
from typing import Any, TypeVar

import numpy as np

from ...ops.views.strided import address_of

__all__ = [
    "BLOCK", "FULL", "DiskFullError", "Extents", "ScratchFile", "aligned_empty", "living",
    "scratch_directory",
]  # fmt: skip

T = TypeVar("T")
BLOCK = 4096  # bytes: direct I/O needs addresses and offsets that are multiples of it
MAGIC = b"cugrad spans 1\n"
NAME = re.compile(r"cugrad-[0-9a-f]{16}\.spans")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the errors of a disk, a quota and a limit
BOUNCE = 1 << 22  # bytes copied at a time if the disk refuses the array's address


class DiskFullError(OSError):
    """No room for saved tensors in a directory: its disk, a quota, or the limit that was given."""


def aligned_empty(nbytes: int) -> tuple[Any, Any]:
    """Uninitialised bytes that are no view of an array; and the same up to a multiple of BLOCK.

    >>> wanted, padded = aligned_empty(5)
    >>> wanted.nbytes, padded.nbytes, isinstance(wanted.base, np.ndarray)
    (5, 4096, False)
    """
    room = -(-nbytes // BLOCK) * BLOCK
    raw = np.empty(room + BLOCK, np.uint8)
    skip = -address_of(raw) % BLOCK
    memory = memoryview(raw)[skip : skip + room]  # type: ignore[arg-type]
    if not nbytes:
        return np.empty(0, np.uint8), np.empty(0, np.uint8)
    return np.frombuffer(memory, np.uint8, nbytes), np.frombuffer(memory, np.uint8)


def scratch_directory(directory: Any = None) -> str:
    """The directory to use, by its real path; None: $TMPDIR or /var/tmp, since /tmp may be memory.

    FileNotFoundError, NotADirectoryError or PermissionError where files cannot be made.
    """
    if directory is None:
        import tempfile  # here: it would make `import cugrad` slower

        usual = "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()
        directory = os.environ.get("TMPDIR") or usual
    if not isinstance(directory, (str, bytes, os.PathLike)):
        raise TypeError(f"save_on_disk: directory: got {directory!r}, want a path")
    path = os.path.realpath(os.fsdecode(directory))
    what = f"save_on_disk: directory {path!r}"
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, f"{what} does not exist; make it with os.makedirs")
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, f"{what} is a file, want a directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"{what} is not writable by this process")
    return path


class Extents:
    """The free parts of a file, in multiples of BLOCK. Parts that are given back are used again.

    >>> extents = Extents(limit=3 * BLOCK)
    >>> extents.take(5), extents.take(BLOCK + 1), extents.take(1)
    (0, 4096, None)
    >>> extents.give_back(0, 5)
    >>> extents.take(BLOCK), extents.used
    (0, 12288)
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.end = 0  # bytes of the file that have been in use
        self.used = 0
        self._starts: list[int] = []  # where free parts begin, in order; neighbours are joined
        self._sizes: list[int] = []

    def missing(self, nbytes: int) -> int:
        """The bytes by which the file has to grow for an extent of `nbytes`."""
        size = -(-nbytes // BLOCK) * BLOCK
        if any(s >= size for s in self._sizes):
            return 0
        at_end = self._starts and self._starts[-1] + self._sizes[-1] == self.end
        return size - (self._sizes[-1] if at_end else 0)

    def take(self, nbytes: int) -> int | None:
        """The offset of a free extent, the one that fits best; None above the limit."""
        size = -(-nbytes // BLOCK) * BLOCK
        fitting = [(s, i) for i, s in enumerate(self._sizes) if s >= size]
        if not fitting:
            grown = self.missing(nbytes)
            if self.limit is not None and self.end + grown > self.limit:
                return None
            self._free(self.end, grown)
            self.end += grown
            fitting = [(self._sizes[-1], len(self._sizes) - 1)]
        extent, i = min(fitting)
        start = self._starts[i]
        if extent == size:
            del self._starts[i], self._sizes[i]
        else:
            self._starts[i], self._sizes[i] = start + size, extent - size
        self.used += size
        return start

    def give_back(self, start: int, nbytes: int) -> None:
        """Frees the extent of `nbytes` that begins at `start`."""
        size = -(-nbytes // BLOCK) * BLOCK
        self.used -= size
        self._free(start, size)

    def keep(self, taken: list[tuple[int, int]]) -> None:
        """Frees all but these extents, each an offset and a number of bytes."""
        self._starts, self._sizes, self.used = [], [], 0
        at = 0
        for start, nbytes in [*sorted(taken), (self.end, 0)]:
            if start > at:
                self._free(at, start - at)
            at = start + -(-nbytes // BLOCK) * BLOCK
            self.used += at - start
        self.end = at

    def _free(self, start: int, size: int) -> None:
        starts, sizes = self._starts, self._sizes
        i = bisect_left(starts, start)
        if i < len(starts) and start + size == starts[i]:
            size += sizes[i]
            del starts[i], sizes[i]
        if i and starts[i - 1] + sizes[i - 1] == start:
            sizes[i - 1] += size
        else:
            starts.insert(i, start)
            sizes.insert(i, size)


class ScratchFile:
    """A file for this process alone. If the system allows it, its directory does not list it.

    On Linux it has no name (O_TMPFILE), so its space is free again when the process ends, by a
    crash too. Where the file system cannot do that, or with `named`, it is `cugrad-*.spans`, and
    goes when it is closed or the interpreter ends. As long as the process lives a lock is held on
    it: the next process that uses the directory removes files without a holder.

    Bytes pass by direct I/O where the file system has it, not through the page cache, which would
    take the memory that was to be freed; arrays that the disk does not take as they lie are copied
    into aligned memory piece by piece. `direct=False` asks for the page cache.
    """

    def __init__(self, directory: str, *, named: bool = False, direct: bool = True) -> None:
        self.directory = directory
        _sweep(directory)
        self.path: str | None = None
        flags = os.O_RDWR | os.O_CLOEXEC
        self.fd = -1 if named else _open_nameless(directory, flags)
        if self.fd < 0:
            self.path, self.fd = _open_named(directory, flags)
        self.is_mine = True  # False in a child that was forked
        self.aligned = 1  # an array needs no copy if its address is a multiple of this
        self._close = weakref.finalize(self, _finish, self.fd, self.path, os.getpid())
        try:
            self._begin(direct)
        except BaseException:
            self._close()
            raise
        _files.add(self)

    def _begin(self, direct: bool) -> None:
        """Writes the first block, and finds out by it what the file system can do."""
        import socket

        text = MAGIC + f"process {os.getpid()} of {socket.gethostname()}\n".encode()
        header: Any = np.frombuffer(text.ljust(BLOCK, b"\0"), np.uint8)
        aligned = aligned_empty(2 * BLOCK)[1]
        aligned[:BLOCK] = header
        skewed = aligned_empty(2 * BLOCK)[1][16 : 16 + BLOCK]  # NumPy aligns its arrays so
        skewed[:] = header
        self.direct = direct and self._switch_direct(True)
        attempts = [(skewed, 1), (aligned[:BLOCK], BLOCK)] if self.direct else []
        for block, self.aligned in attempts:
            try:
                os.pwrite(self.fd, block, 0)
                return
            except OSError as error:
                if error.errno in FULL:
                    raise
        if self.direct:
            self.direct, self.aligned = False, 1
            self._switch_direct(False)
        os.pwrite(self.fd, header, 0)

    def _switch_direct(self, on: bool) -> bool:
        """Switches direct I/O on or off; whether that could be done."""
        if not hasattr(os, "O_DIRECT"):
            return False
        import fcntl  # not on Windows

        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
        except OSError:
            return False
        return True

    def grow(self, end: int) -> None:
        """Makes the file long enough for extents up to `end`; OSError if it may not be."""
        os.ftruncate(self.fd, BLOCK + end)

    def free_bytes(self) -> int | None:
        """What the file system has left for this user; None where it does not say."""
        try:
            status = os.fstatvfs(self.fd)
        except OSError:
            return None
        return status.f_bavail * status.f_frsize

    def write(self, array: Any, offset: int) -> None:
        """Writes bytes to an extent. OSError where the disk has no room, or another fault."""
        total, done = array.nbytes, 0
        fits = self.aligned == 1 or address_of(array) % self.aligned == 0
        while done < total:
            part = array[done:]
            if self.direct and fits and total - done >= BLOCK:
                part = part[: part.nbytes // BLOCK * BLOCK]
            elif self.direct:
                part = _bounce(total - done)
                count = min(part.nbytes, total - done)
                part[:count] = array[done : done + count]
            wrote = self._whole_blocks(os.pwrite(self.fd, part, BLOCK + offset + done))
            if not wrote:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done += wrote

    def read(self, array: Any, offset: int) -> None:
        """Fills an array with the bytes of an extent. OSError where the disk has a fault."""
        total, done = array.nbytes, 0
        fits = self.aligned == 1 or address_of(array) % self.aligned == 0
        while done < total:
            part, bounced = array[done:], False
            if self.direct and fits and total - done >= BLOCK:
                part = part[: part.nbytes // BLOCK * BLOCK]
            elif self.direct:
                part, bounced = _bounce(total - done), True
            got = self._whole_blocks(os.preadv(self.fd, [part], BLOCK + offset + done))
            if not got:
                raise OSError(errno.EIO, f"a file in {self.directory} has lost what was written")
            if bounced:
                got = min(got, total - done)
                array[done : done + got] = part[:got]
            done += got

    def _whole_blocks(self, count: int) -> int:
        """The bytes behind which the next transfer may begin."""
        return count // BLOCK * BLOCK if self.direct else count

    def discard(self) -> None:
        """Gives the name and the disk's space back at once; what is read later fails."""
        if self.is_mine:
            os.ftruncate(self.fd, 0)
            if self.path is not None:
                _unlink(self.path)

    def forget(self) -> None:
        """In a child that was forked: closes what is the parent's."""
        self.is_mine = False
        self._close()


_files: weakref.WeakSet[ScratchFile] = weakref.WeakSet()
_swept: set[str] = set()
_local = threading.local()


def _bounce(nbytes: int) -> Any:
    """Aligned memory of this thread, for so many bytes or fewer: the system's, which counts to none
    of the steps that a budget measures.
    """
    if not hasattr(_local, "bounce"):
        _local.bounce = np.frombuffer(mmap.mmap(-1, BOUNCE, mmap.MAP_PRIVATE), np.uint8)
    return _local.bounce[: -(-min(nbytes, BOUNCE) // BLOCK) * BLOCK]


def _open_nameless(directory: str, flags: int) -> int:
    """A file without a name; -1 where the file system has none."""
    if not hasattr(os, "O_TMPFILE"):
        return -1
    try:
        return os.open(directory, flags | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return -1
        raise


def _open_named(directory: str, flags: int) -> tuple[str, int]:
    """A new file with a name, and a lock on it for as long as this process lives."""
    while True:
        path = os.path.join(directory, f"cugrad-{secrets.token_hex(8)}.spans")
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        # another process may have removed it before it was locked
        if _lock(fd) is not False and _is_at(path, fd):
            return path, fd
        os.close(fd)


def _lock(fd: int) -> bool | None:
    """Whether the lock is ours now; None where the file system has no locks."""
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _is_at(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def living(members: weakref.WeakSet[T]) -> list[T]:
    """What is in a set that other threads may add to meanwhile."""
    while True:
        try:
            return list(members)
        except RuntimeError:  # its size has changed
            continue


def _sweep(directory: str) -> None:
    """Removes the named files in a directory whose processes are gone, once in a process."""
    if directory in _swept:
        return
    _swept.add(directory)
    mine = {file.path for file in living(_files)}
    try:
        names = [name for name in os.listdir(directory) if NAME.fullmatch(name)]
    except PermissionError:  # a user may be allowed to make files here, and not to list them
        return
    for path in [os.path.join(directory, name) for name in names]:
        if path not in mine:
            _remove_stale(path)


def _remove_stale(path: str) -> None:
    """Removes a file of ours, if no process holds it any more."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return
        ours = status.st_size == 0 or os.pread(fd, len(MAGIC), 0) == MAGIC
        if ours and _lock(fd) and _is_at(path, fd):
            os.unlink(path)
    except OSError:
        pass
    finally:
        os.close(fd)


def _finish(fd: int, path: str | None, process: int) -> None:
    """Closes a file, and removes it if it has a name and is this process's."""
    if path is not None and process == os.getpid():
        _unlink(path)
    os.close(fd)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _after_fork() -> None:
    for file in living(_files):
        file.forget()
    _files.clear()
    _swept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
