"""Checkpoints in folders: files of what each rank wrote, and one that says what they are."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from ...autograd.mode import no_grad
from ...futures import Future
from .. import load, save
from ..pickling import pickled
from ..storages import StorageCollector
from ..unpickling import PickleMachine, unpickled
from .default_planner import narrowed
from .metadata import NAMES, Metadata, StorageInfo, StorageMeta
from .planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from .storage import StorageReader, StorageWriter, WriteResult

__all__ = ["FileSystemReader", "FileSystemWriter"]

# METADATA comes last, in one step, and names the other files: until then a checkpoint that was
# there before is whole. Then the files that it named go.
METADATA, SUFFIX, VERSION = ".metadata", ".distcp", "1.0.0"
ALIGNMENT = 64  # bytes, of what is written of a tensor
# Of the folder's name, which PyTorch writes as a path.
PATHS: dict[str, Any] = {
    **dict.fromkeys(("pathlib.PosixPath", "pathlib._local.PosixPath"), PurePosixPath),
    **dict.fromkeys(("pathlib.WindowsPath", "pathlib._local.WindowsPath"), PureWindowsPath),
}
OLD = b"{"  # begins a `.metadata` of this library's own, former format


class FileView(io.RawIOBase):
    """A part of an open file, as if it were a file: what is written or read as an archive."""

    def __init__(self, file: IO[bytes], begin: int, length: int | None = None) -> None:
        self.file, self.begin, self.length, self.at = file, begin, length, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return self.length is not None

    def writable(self) -> bool:
        return self.length is None

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        end = self.length or 0
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: end}[whence]
        return self.at

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        count = max(min(len(target), (self.length or 0) - self.at), 0)
        self.file.seek(self.begin + self.at)
        data = self.file.read(count)
        target[: len(data)] = data
        self.at += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        self.file.seek(self.begin + self.at)
        count = self.file.write(data)
        self.at += count
        return count


@dataclass
class StoragePrefix:
    """How the names of a rank's files begin; PyTorch's `_StoragePrefix`."""

    prefix: str


class FileSystemWriter(StorageWriter):
    """Writes checkpoints to a folder, which all ranks see; PyTorch reads them.

    A checkpoint that is in the folder stays whole until the new one is, whatever happens.

    Args:
        path: the folder.
        single_file_per_rank: one file for each rank (and thread), rather than for each entry.
        sync_files: whether files are on the disk when `save` returns.
        thread_count: how many threads write on each rank.
        per_thread_copy_ahead: PyTorch's for GPUs, whose copies here are one after the other.
        overwrite: whether there may be a checkpoint in the folder.
    """

    def __init__(
        self, path: str | os.PathLike[str], single_file_per_rank: bool = True,
        sync_files: bool = True, thread_count: int = 1, per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False, overwrite: bool = True, _extensions: Any = None,
        serialization_format: Any = None,
    ) -> None:  # fmt: skip
        if cache_staged_state_dict or _extensions or serialization_format is not None:
            raise NotImplementedError(
                "FileSystemWriter: got cache_staged_state_dict=, _extensions= or "
                "serialization_format=, which are not here: leave them out"
            )
        self.path, self.single_file_per_rank = Path(path), single_file_per_rank
        self.sync_files = sync_files
        self.thread_count, self.overwrite = max(thread_count, 1), overwrite
        self.save_id = secrets.token_hex(8)

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        """The folder."""
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self.path = Path(checkpoint_id)
        self.save_id = secrets.token_hex(8)

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(checkpoint_id=self.path, save_id=self.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / METADATA).exists():
            raise RuntimeError(f"Checkpoint already exists and self.overwrite={self.overwrite}.")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [  # other names than those of the checkpoint before
            dataclasses.replace(plan, storage_data=StoragePrefix(f"__{rank}_{self.save_id}_"))
            for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[Any]:
        files = [[item] for item in plan.items]
        if self.single_file_per_rank:
            count = min(self.thread_count, len(plan.items))
            files = [plan.items[i::count] for i in range(count)]
        names = [f"{plan.storage_data.prefix}{i}{SUFFIX}" for i in range(len(files))]

        def write(name: str, items: list[WriteItem]) -> list[WriteResult]:
            return self._write_file(name, items, planner)

        try:
            if self.thread_count > 1:
                with ThreadPoolExecutor(self.thread_count) as threads:
                    parts = list(threads.map(write, names, files))
            else:
                parts = [write(*one) for one in zip(names, files, strict=True)]
        except BaseException:
            for name in names:
                (self.path / name).unlink(missing_ok=True)
            raise
        results = [result for part in parts for result in part]
        return Future.of(lambda: results)

    def _write_file(
        self, name: str, items: list[WriteItem], planner: SavePlanner
    ) -> list[WriteResult]:  # fmt: skip
        results = []
        with open(self.path / name, "wb") as file:
            for item in items:
                begin = -(-file.tell() // ALIGNMENT) * ALIGNMENT
                file.write(b"\0" * (begin - file.tell()))
                data: Any = planner.resolve_data(item)
                if item.type is WriteItemType.BYTE_IO:
                    file.write(data.getbuffer())
                else:
                    if data.untyped_storage().nbytes() != data.nbytes:
                        data = data.clone()  # else the file has all that it is a view of
                    save(data.detach().cpu(), FileView(file, begin))
                    file.seek(0, os.SEEK_END)
                length = file.tell() - begin
                results.append(WriteResult(item.index, length, StorageInfo(name, begin, length)))
            if self.sync_files:
                file.flush()
                os.fsync(file.fileno())
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.version = VERSION
        metadata.storage_data = {r.index: r.storage_data for part in results for r in part}
        metadata.storage_meta = self.storage_meta()
        draft = self.path / (METADATA + ".tmp")
        with open(draft, "wb") as file:
            file.write(pickled(_plain(metadata), StorageCollector(), 2, NAMES))
            if self.sync_files:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, self.path / METADATA)
        if self.sync_files:
            _sync(self.path)
        needed = {info.relative_path for info in metadata.storage_data.values()}
        for path in self.path.glob(f"__*{SUFFIX}"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" not in os.fspath(checkpoint_id)


def _plain(metadata: Metadata) -> Metadata:
    """The same with a path that any machine reads."""
    meta = metadata.storage_meta
    assert meta is not None
    shown = dataclasses.replace(meta, checkpoint_id=str(meta.checkpoint_id))
    return dataclasses.replace(metadata, storage_meta=shown)


def _sync(folder: Path) -> None:
    """Has the names in a folder survive a loss of power."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class FileSystemReader(StorageReader):
    """Reads checkpoints from a folder, this library's and PyTorch's.

    What says what they are is read without running anything; objects that are no tensors come from
    pickles, which may do anything: load what you trust.
    """

    def __init__(self, path: str | os.PathLike[str], _extension_registry: Any = None) -> None:
        if _extension_registry is not None:
            raise NotImplementedError("FileSystemReader: got _extension_registry=, want None")
        self.path = Path(path)
        self.storage_data: dict[Any, StorageInfo] = {}
        self.load_id = secrets.token_hex(8)

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        """The folder."""
        return self.path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self.path = Path(checkpoint_id)
        self.storage_data, self.load_id = {}, secrets.token_hex(8)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = self.path / METADATA
        if not path.exists():
            raise FileNotFoundError(
                f"load: {self.path} has no checkpoint: a save that did not come to its end leaves "
                "none"
            )
        data = path.read_bytes()
        if data.startswith(OLD):
            raise ValueError(
                f"load: {path} is of the format that this library had before PyTorch's: load it "
                "with the version that wrote it"
            )
        allowed = {f"{name.module}.{name.name}": kind for kind, name in NAMES.items()} | PATHS
        try:
            metadata = unpickled(PickleMachine(data, _no_storage, allowed))
        except pickle.UnpicklingError as error:
            raise ValueError(f"load: {path} is damaged, or no checkpoint's ({error})") from error
        if not isinstance(metadata, Metadata):
            raise ValueError(f"load: {path} is no checkpoint's")
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[Any]:
        files: dict[str, list[tuple[ReadItem, StorageInfo]]] = {}
        for item in plan.items:
            info = self.storage_data[item.storage_index]
            if info.transform_descriptors:
                raise NotImplementedError(
                    f"load: {info.relative_path} was changed by {info.transform_descriptors} when "
                    "it was written, want a checkpoint without extensions"
                )
            files.setdefault(info.relative_path, []).append((item, info))
        for name, items in files.items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"load: {name!r} is not in the folder of the checkpoint")
            with open(self.path / name, "rb") as file:
                for item, info in items:
                    self._read(item, FileView(file, info.offset, info.length), planner)
        return Future.of(lambda: None)

    @staticmethod
    def _read(item: ReadItem, view: FileView, planner: LoadPlanner) -> None:
        if item.type is LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(view.read()))
            return
        source = load(view, map_location="cpu")
        with no_grad():
            target = planner.resolve_tensor(item).detach()
            target.copy_(narrowed(source, item.storage_offsets, item.lengths))
        planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return "://" not in os.fspath(checkpoint_id)


def _no_storage(name: Any) -> Any:
    raise pickle.UnpicklingError("it names a tensor")
