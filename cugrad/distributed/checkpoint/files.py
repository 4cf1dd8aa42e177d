"""The files of a checkpoint: one of bytes for each rank, and one that says what they are."""

from __future__ import annotations

import json
import os
import pickle
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "CheckpointException", "FileSystemReader", "FileSystemWriter", "Metadata", "PartWriter",
    "SavedBox", "SavedEntry", "read_chunk", "read_object",
]  # fmt: skip

# A folder has a file of bytes for each rank that wrote, PREFIX, a word of that save and the rank,
# and METADATA, in JSON. METADATA comes last, in one step, and names the others: until then a
# checkpoint that was there before is whole. Then the files that it named go.
METADATA = ".metadata"
PREFIX = "part"
FORMAT = "cugrad distributed checkpoint 1"
ALIGNMENT = 64  # bytes, so that arrays may be mapped


class CheckpointException(Exception):
    """What went wrong on which ranks: `failures` has an error for each, and all ranks raise it."""

    def __init__(self, msg: str, failures: dict[int, str]) -> None:
        super().__init__(msg + "; ".join(f"rank {r}: {text}" for r, text in failures.items()))
        self._failures = failures

    @property
    def failures(self) -> dict[int, str]:
        """The text of what went wrong, by rank."""
        return self._failures


@dataclass
class FileSystemWriter:
    """Says where `save` writes: a folder, which all ranks see."""

    path: str | os.PathLike[str]


@dataclass
class FileSystemReader:
    """Says where `load` reads."""

    path: str | os.PathLike[str]


@dataclass
class SavedBox:
    """A box of a tensor's elements, or the pickle of an object, and where its bytes are."""

    offsets: list[int]
    sizes: list[int]
    file: str = ""
    begin: int = 0
    nbytes: int = 0
    checksum: int = 0


@dataclass
class SavedEntry:
    """A tensor in chunks, or an object, whose `dtype` is None."""

    dtype: str | None
    shape: list[int]
    chunks: list[SavedBox] = field(default_factory=list)


@dataclass
class Metadata:
    """What a checkpoint has: entries by their names, which join the keys on the way to them."""

    entries: dict[str, SavedEntry]

    def write(self, folder: Path) -> None:
        """Makes this the checkpoint in a folder, in one step."""
        text = json.dumps({"format": FORMAT, "entries": asdict(self)["entries"]})
        temporary = folder / (METADATA + ".new")
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / METADATA)
        sync_folder(folder)
        needed = {chunk.file for entry in self.entries.values() for chunk in entry.chunks}
        for path in folder.glob(f"{PREFIX}-*"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    @staticmethod
    def read(folder: Path) -> Metadata:
        """What is in a folder; FileNotFoundError where there is no checkpoint."""
        path = folder / METADATA
        if not path.exists():
            raise FileNotFoundError(
                f"load: {folder} has no checkpoint: a save that did not come to its end leaves none"
            )
        data = json.loads(path.read_text())
        if data.get("format") != FORMAT:
            raise ValueError(f"load: {path} is not of the format {FORMAT!r}")
        return Metadata({
            name: SavedEntry(e["dtype"], e["shape"], [SavedBox(**chunk) for chunk in e["chunks"]])
            for name, e in data["entries"].items()
        })  # fmt: skip


def sync_folder(folder: Path) -> None:
    """Has the names in a folder survive a loss of power."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class PartWriter:
    """A rank's file, made when there is something to write."""

    def __init__(self, folder: Path, word: str, rank: int) -> None:
        self.path = folder / f"{PREFIX}-{word}-{rank}"
        self.file: Any = None

    def write(self, data: Any, offsets: list[int], sizes: list[int]) -> SavedBox:
        """Writes bytes, or the elements of an array."""
        if self.file is None:
            self.file = open(self.path, "wb")  # noqa: SIM115 (`close` ends it)
        view = memoryview(data).cast("B") if isinstance(data, bytes) else _bytes_of(data)
        begin = self.file.tell()
        if begin % ALIGNMENT:
            self.file.write(b"\0" * (ALIGNMENT - begin % ALIGNMENT))
            begin = self.file.tell()
        self.file.write(view)
        return SavedBox(offsets, sizes, self.path.name, begin, view.nbytes, zlib.crc32(view))

    def close(self, keep: bool) -> None:
        """Has the file on the disk, or removes it."""
        if self.file is None:
            return
        if keep:
            self.file.flush()
            os.fsync(self.file.fileno())
        self.file.close()
        if not keep:
            self.path.unlink(missing_ok=True)


def _bytes_of(array: Any) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def read_chunk(folder: Path, chunk: SavedBox, dtype: Any, box: tuple[slice, ...]) -> Any:
    """The elements of a box within a chunk; ValueError where a chunk that is read in whole is not
    what was written.
    """
    raw = np.memmap(folder / chunk.file, np.uint8, "r", chunk.begin, (chunk.nbytes,))
    array = raw.view(dtype).reshape(chunk.sizes)[box]
    if list(array.shape) == chunk.sizes:
        _check(chunk, raw)
    return array


def read_object(folder: Path, chunk: SavedBox) -> Any:
    """The object of a pickle: ranks trust their checkpoints, as they trust each other."""
    with open(folder / chunk.file, "rb") as file:
        file.seek(chunk.begin)
        data = file.read(chunk.nbytes)
    _check(chunk, data)
    return pickle.loads(data)


def _check(chunk: SavedBox, data: Any) -> None:
    if zlib.crc32(data) != chunk.checksum:
        raise ValueError(
            f"load: {chunk.file} is damaged: {chunk.nbytes} bytes from {chunk.begin} are not what "
            "was written"
        )
