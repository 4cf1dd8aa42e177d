"""PyTorch's archive: a zip file of uncompressed records, each aligned, below one directory."""

from __future__ import annotations

import mmap as memory_map
import os
import secrets
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

__all__ = ["Reader", "Writer", "written"]

ALIGNMENT = 64  # bytes, of the data of every record, as PyTorch does for mmap
VERSION = b"3\n"  # of the format: 3 since PyTorch 1.6
_HEADER = 30  # bytes of a local header before the name
_STAMP = (1980, 1, 1, 0, 0, 0)  # the same object makes the same file


class Writer:
    """Writes records to an open binary file; at the end of the block comes their directory."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._zip, self._name = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED), name

    def write(self, record: str, data: Any) -> None:
        """Adds a record; `data` is anything with a buffer."""
        entry = zipfile.ZipInfo(f"{self._name}/{record}", _STAMP)
        data = memoryview(data).cast("B")
        big = data.nbytes >= zipfile.ZIP64_LIMIT // 2
        start = self._zip.start_dir + _HEADER + len(entry.filename.encode()) + (20 if big else 0)
        gap = -(start + 4) % ALIGNMENT
        entry.extra = b"FB" + gap.to_bytes(2, "little") + b"Z" * gap  # PyTorch's padding
        entry.file_size = data.nbytes
        with self._zip.open(entry, "w", force_zip64=big) as out:
            for begin in range(0, data.nbytes, 1 << 26):
                out.write(data[begin : begin + (1 << 26)])

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *exc: object) -> None:
        if kind is not None:
            self._zip.fp = None  # an archive that is not complete gets no directory
        self._zip.close()


@contextmanager
def written(f: Any) -> Iterator[tuple[IO[bytes], str]]:
    """The open file to write to, and the name of the archive.

    A path gets its file only when all is written: until then its old content stays.
    """
    if not isinstance(f, (str, os.PathLike)):
        if getattr(f, "write", None) is None:
            raise AttributeError(
                "expected 'f' to be string, path, or a file-like object with a 'write' attribute"
            )
        yield f, "archive"
        return
    path = os.path.realpath(os.fspath(f))
    folder, base = os.path.split(path)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {os.path.dirname(os.fspath(f))} does not exist.")
    name = base.rpartition(".")[0] or base
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):  # a pipe, a device
        with open(path, "wb") as file:
            yield file, name
        return
    draft = os.path.join(folder, f".{base}.{secrets.token_hex(8)}.part")
    try:
        with open(draft, "xb") as file:
            if os.path.exists(path):
                os.chmod(draft, stat.S_IMODE(os.stat(path).st_mode))
            yield file, name
            file.flush()
            os.fsync(file.fileno())  # or a machine that stops now has neither file
        os.replace(draft, path)
    except BaseException:
        if os.path.exists(draft):
            os.unlink(draft)
        raise


class Reader:
    """Reads records of an archive, after a look at whether they can be what they claim."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
            raise _broken(str(error)) from None
        self._size = file.seek(0, os.SEEK_END)
        entries = self._zip.infolist()
        if not entries:
            raise _broken("it is empty")
        self._prefix = entries[0].filename.partition("/")[0] + "/"
        self._entries = {
            e.filename[len(self._prefix) :]: e
            for e in entries
            if e.filename.startswith(self._prefix)
        }
        self._starts = self._checked(entries)
        self._pages: memory_map.mmap | None = None

    def _checked(self, entries: list[zipfile.ZipInfo]) -> dict[str, int]:
        """Where the data of each record starts; RuntimeError for records that lie outside of the
        file or on one another, so that memory grows with the file and no faster."""
        spans, starts = [], {}
        for entry in entries:
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                raise _broken(f"record {entry.filename} is compressed or encrypted")
            header = self._at(entry.header_offset, _HEADER)
            if header[:4] != b"PK\x03\x04":
                raise _broken(f"record {entry.filename} has no header where it should be")
            skip = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            start = entry.header_offset + _HEADER + skip
            if entry.compress_size != entry.file_size or start + entry.file_size > self._size:
                raise _broken(f"record {entry.filename} goes beyond the end of the file")
            spans.append((entry.header_offset, start + entry.file_size, entry.filename))
            starts[entry.filename] = start
        spans.sort()
        for (_, end, name), (begin, _, other) in zip(spans, spans[1:]):
            if begin < end:
                raise _broken(f"records {name} and {other} overlap")
        return starts

    def _at(self, position: int, count: int) -> bytes:
        if not 0 <= position <= self._size:
            raise _broken("a record lies outside of the file")
        self._file.seek(position)
        data = self._file.read(count)
        if len(data) != count:
            raise _broken("the file ends within a record")
        return data

    def __contains__(self, record: str) -> bool:
        return record in self._entries

    def _entry(self, record: str) -> zipfile.ZipInfo:
        if record not in self._entries:
            raise RuntimeError(
                f"PytorchStreamReader failed locating file {record}: file not found in the archive"
            )
        return self._entries[record]

    def size(self, record: str) -> int:
        """The bytes of a record."""
        return self._entry(record).file_size

    def read(self, record: str) -> bytes:
        """A record, checked against its checksum."""
        return self.read_into_array(record).tobytes()

    def read_into_array(self, record: str) -> np.ndarray[Any, Any]:
        """A record as bytes in memory of its own, checked against its checksum."""
        entry = self._entry(record)
        home = np.empty(entry.file_size, np.uint8)
        self._file.seek(self._starts[entry.filename])
        target, done = memoryview(home), 0  # type: ignore[arg-type]
        read_into = getattr(self._file, "readinto", None)
        while done < entry.file_size:
            if read_into is not None:
                count = read_into(target[done:])
            else:
                piece = self._file.read(min(entry.file_size - done, 1 << 26))
                count = len(piece)
                target[done : done + count] = piece
            if not count:
                raise _broken("the file ends within a record")
            done += count
        if zlib.crc32(home) != entry.CRC:  # type: ignore[arg-type]
            raise _broken(f"record {record} is not what was written: its checksum differs")
        return home

    def map(self, record: str) -> np.ndarray[Any, Any]:
        """A record as bytes of the file, read when looked at; changes stay in memory.

        One mapping, with its descriptor, serves all records; it goes with the last of their arrays.
        """
        entry = self._entry(record)
        if not entry.file_size:
            return np.empty(0, np.uint8)
        if self._pages is None:
            self._pages = memory_map.mmap(self._file.fileno(), 0, access=memory_map.ACCESS_COPY)
        return np.frombuffer(self._pages, np.uint8, entry.file_size, self._starts[entry.filename])


def _broken(why: str) -> RuntimeError:
    return RuntimeError(
        f"PytorchStreamReader failed reading zip archive: {why}. The file is damaged, was not "
        "written to its end, or is none that save() wrote"
    )
