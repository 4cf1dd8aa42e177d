"""Checkpoints of many ranks from files of one process, and the other way."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ...functions.creation.factories import empty
from .. import load as load_file
from .. import save as save_file
from .default_planner import DefaultLoadPlanner
from .filesystem import FileSystemReader
from .loading import load
from .metadata import Metadata, TensorStorageMetadata
from .saving import save

__all__ = ["EmptyStateDictLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]


class EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty dict with all that a checkpoint has, or with what is below some `keys`.

    Tensors are whole, on the CPU. PyTorch's `_EmptyStateDictLoadPlanner`.
    """

    def __init__(self, keys: Iterable[str] | None = None, **how: Any) -> None:
        super().__init__(**how)
        self.keys = None if keys is None else set(keys)

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:  # fmt: skip
        if state_dict or metadata is None:
            raise AssertionError("load: EmptyStateDictLoadPlanner wants an empty dict")
        for name, entry in metadata.state_dict_metadata.items():
            path = (metadata.planner_data or {}).get(name, (name,))
            starts = {".".join(map(str, path[: i + 1])) for i in range(len(path))}
            if self.keys is None or self.keys & starts:
                is_tensor = isinstance(entry, TensorStorageMetadata)
                value = empty(entry.size, dtype=entry.properties.dtype, device="cpu") if is_tensor \
                    else None  # type: ignore[union-attr]  # fmt: skip
                _put(state_dict, path, value)
        super().set_up_planner(state_dict, metadata, is_coordinator)


def _put(whole: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Puts a value into nested dicts and lists, which grow as it needs."""
    for key, below in zip(path, (*path[1:], None)):
        if isinstance(whole, list):
            assert isinstance(key, int)
            whole.extend([None] * (key + 1 - len(whole)))
        inside = whole[key] if isinstance(whole, list) else whole.get(key)
        if below is None:
            inside = value
        elif inside is None:
            inside = [] if isinstance(below, int) else {}
        whole[key] = inside
        whole = inside


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]
) -> None:
    """Writes all of a checkpoint of many ranks to one file, for `cugrad.load`; by one process.

    Keys of dicts are strings there.
    """
    state: dict[str, Any] = {}
    load(
        state, storage_reader=FileSystemReader(dcp_checkpoint_dir),
        planner=EmptyStateDictLoadPlanner(), no_dist=True,
    )  # fmt: skip
    save_file(state, torch_save_path)


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]
) -> None:
    """Writes what is in a file as a checkpoint that many ranks read; by one process.

    The file may do anything: convert what you trust.
    """
    state = load_file(torch_save_path, map_location="cpu", weights_only=False)
    save(state, checkpoint_id=dcp_checkpoint_dir, no_dist=True)
