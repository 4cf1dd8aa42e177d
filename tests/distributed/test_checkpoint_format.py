"""Checkpoints of many ranks are PyTorch's, both ways; planners and storages may be the user's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import cugrad as torch
import cugrad.distributed.checkpoint as dcp
from cugrad.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from cugrad.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from cugrad.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
from cugrad.distributed.checkpoint.planner import TensorWriteData, WriteItemType
from cugrad.distributed.checkpoint.stateful import Stateful

pytestmark = pytest.mark.host_only


def state(lib: Any, more: int = 0) -> dict[str, Any]:
    """A state dict with all that there may be in one."""
    return {
        "model": {
            "matrix": lib.arange(6.0).reshape(2, 3) + more, "number": lib.tensor(3 + more),
            "half": lib.ones(3, dtype=lib.bfloat16) + more, "empty": lib.zeros(0, 2),
            "part": lib.arange(10.0)[2:4] + more, "flags": lib.tensor([True, more == 0]),
            "transposed": (lib.arange(6.0).reshape(2, 3) + more).t(),
        },
        "optimizer": {"state": {0: {"step": lib.tensor(1.0) + more}},
                      "param_groups": [{"lr": 0.5 + more, "params": [0, 1]}]},
        "pair": (1, "two", more), "step": 7 + more, "nothing": None if more == 0 else 0,
    }  # fmt: skip


def flat(value: Any) -> dict[str, Any]:
    """What can be compared, of nested dicts."""
    if hasattr(value, "tolist"):
        return {"": (str(value.dtype), tuple(value.shape), value.tolist())}
    if not isinstance(value, dict):
        return {"": value}
    return {f"{k}.{n}": x for k, v in value.items() for n, x in flat(v).items()}


def test_pytorch_reads_what_is_written_and_the_other_way(tmp_path: Path) -> None:
    theirs = pytest.importorskip("torch", reason="PyTorch is not installed")
    their_dcp = pytest.importorskip("torch.distributed.checkpoint")
    dcp.save(state(torch), checkpoint_id=tmp_path / "ours")
    with pytest.warns(UserWarning, match="single process"):
        their_dcp.save(state(theirs), checkpoint_id=tmp_path / "theirs")
    for folder in (tmp_path / "ours", tmp_path / "theirs"):
        ours = state(torch, 1)
        dcp.load(ours, checkpoint_id=folder)
        assert flat(ours) == flat(state(torch))
        read = state(theirs, 1)
        with pytest.warns(UserWarning, match="single process"):
            their_dcp.load(read, checkpoint_id=folder)
        assert flat(read) == flat(state(theirs)) == flat(ours)
    read = {"x": theirs.zeros(4, 3)}
    dcp.save({"x": torch.zeros(4, 3)}, planner=InRows(), checkpoint_id=tmp_path / "rows")
    with pytest.warns(UserWarning, match="single process"):
        their_dcp.load(read, checkpoint_id=tmp_path / "rows")
    assert read["x"].tolist() == [[float(i)] * 3 for i in range(4)]


class InRows(dcp.DefaultSavePlanner):
    """Writes tensors row by row, each of its number."""

    def create_local_plan(self) -> dcp.SavePlan:
        items = []
        for item in super().create_local_plan().items:
            data = item.tensor_data
            assert data is not None
            rows, *rest = data.size
            for i in range(rows):
                chunk = dcp.ChunkStorageMetadata(torch.Size([i, 0]), torch.Size([1, *rest]))
                part = TensorWriteData(chunk, TensorProperties(data.properties.dtype), data.size)
                index = MetadataIndex(item.index.fqn, chunk.offsets)
                items.append(dcp.WriteItem(index, WriteItemType.SHARD, tensor_data=part))
        return dcp.SavePlan(items)

    def lookup_object(self, index: MetadataIndex) -> Any:
        assert index.offset is not None
        return super().lookup_object(index)[:1] + float(index.offset[0])


def test_planners_and_writers_are_the_users(tmp_path: Path) -> None:
    x = {"x": torch.zeros(4, 3)}
    for how, files in (({}, 1), ({"single_file_per_rank": False}, 4), ({"thread_count": 2}, 2)):
        writer = dcp.FileSystemWriter(tmp_path, **how)
        metadata = dcp.save(x, storage_writer=writer, planner=InRows())
        assert len(metadata.storage_data) == 4
        assert len(list(tmp_path.glob("*.distcp"))) == files  # those of the save before are gone
        read = {"x": torch.empty(4, 3)}
        dcp.load(read, storage_reader=dcp.FileSystemReader(tmp_path))
        assert read["x"].tolist() == [[float(i)] * 3 for i in range(4)]
    with pytest.raises(RuntimeError, match="Checkpoint already exists"):
        dcp.save(x, storage_writer=dcp.FileSystemWriter(tmp_path, overwrite=False))
    read = {"x": torch.empty(4, 3), "y": 5}
    with pytest.raises(RuntimeError, match=r"Missing key in checkpoint state_dict: y\."):
        dcp.load(read, checkpoint_id=tmp_path)
    dcp.load(read, checkpoint_id=tmp_path, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert read["y"] == 5 and read["x"][3, 0] == 3

    class Missing(InRows):
        def create_local_plan(self) -> dcp.SavePlan:
            return dcp.SavePlan(super().create_local_plan().items[1:])

    with pytest.raises(ValueError, match="'x' has 12 elements, of which ranks have 9"):
        dcp.save(x, checkpoint_id=tmp_path, planner=Missing())
    with pytest.raises(ValueError, match="expected BytesStorageMetadata but found"):
        dcp.load({"x": 1}, checkpoint_id=tmp_path)


def test_files_of_one_process_become_checkpoints_and_the_other_way(tmp_path: Path) -> None:
    whole = state(torch)
    torch.save(whole, tmp_path / "file.pt")
    torch_save_to_dcp(tmp_path / "file.pt", tmp_path / "folder")
    read = state(torch, 1)
    dcp.load(read, checkpoint_id=tmp_path / "folder")
    assert flat(read) == flat(whole)
    dcp_to_torch_save(tmp_path / "folder", tmp_path / "again.pt")
    again = torch.load(tmp_path / "again.pt", weights_only=False)
    assert flat(again) == flat(whole)
    groups = again["optimizer"]["param_groups"]
    assert groups == whole["optimizer"]["param_groups"]
    some: dict[str, Any] = {}
    planner = _EmptyStateDictLoadPlanner(keys={"model.part", "optimizer"})
    dcp.load(some, checkpoint_id=tmp_path / "folder", planner=planner)
    assert list(some) == ["model", "optimizer"] and list(some["model"]) == ["part"]


class Counter(Stateful):
    def __init__(self, count: int) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "tensor": torch.full((2,), float(self.count))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"] + int(state_dict["tensor"].sum())


def test_what_has_a_state_is_asked_for_it_and_given_it_back(tmp_path: Path) -> None:
    assert isinstance(torch.nn.Linear(1, 1), Stateful) and not isinstance({}, Stateful)
    dcp.save({"counter": Counter(7)}, checkpoint_id=tmp_path)
    counter = Counter(0)
    dcp.load({"counter": counter}, checkpoint_id=tmp_path)
    assert counter.count == 21


def test_what_was_damaged_is_told(tmp_path: Path) -> None:
    dcp.save({"x": torch.arange(100.0)}, checkpoint_id=tmp_path)
    (part,) = tmp_path.glob("*.distcp")
    data = bytearray(part.read_bytes())
    at = data.index(torch.arange(100.0).numpy().tobytes()[40:80])
    data[at] ^= 1
    part.write_bytes(bytes(data))
    with pytest.raises(RuntimeError, match="its checksum differs"):
        dcp.load({"x": torch.zeros(100)}, checkpoint_id=tmp_path)
    metadata = tmp_path / ".metadata"
    metadata.write_bytes(metadata.read_bytes()[:-20])
    with pytest.raises(ValueError, match="is damaged, or no checkpoint's"):
        dcp.load({"x": torch.zeros(100)}, checkpoint_id=tmp_path)
    metadata.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="was not an allowed global"):
        dcp.load({"x": torch.zeros(100)}, checkpoint_id=tmp_path)
    metadata.write_text("{}")
    with pytest.raises(ValueError, match="format that this library had before"):
        dcp.load({"x": torch.zeros(100)}, checkpoint_id=tmp_path)


class Evil:
    def __reduce__(self) -> Any:
        return print, ("run",)


def test_a_file_outside_of_the_folder_is_not_read(tmp_path: Path) -> None:
    metadata = dcp.save({"x": torch.ones(2)}, checkpoint_id=tmp_path)

    class Reader(dcp.FileSystemReader):
        def read_metadata(self, *args: Any, **kwargs: Any) -> dcp.Metadata:
            for info in metadata.storage_data.values():
                info.relative_path = "../" + info.relative_path
            return metadata

    with pytest.raises(ValueError, match="is not in the folder of the checkpoint"):
        dcp.load({"x": torch.ones(2)}, storage_reader=Reader(tmp_path))
