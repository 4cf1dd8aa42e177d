"""Checks files of tensors alone: the package's and ours are the same, and damaged ones are told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad.serialization import safetensors
from cugrad.serialization.safetensors import NAMES, SafetensorError


def tensors() -> dict[str, Any]:
    """A tensor of each dtype, and odd shapes."""
    some = {name: cugrad.tensor([0, 1, 1]).to(kind) for name, kind in NAMES.items()}
    some["F8_E8M0"] = cugrad.tensor([4, 1, 1]).to(cugrad.float8_e8m0fnu)  # it has no zero
    return {**some, "0-d": cugrad.tensor(2.5), "empty": cugrad.zeros(0, 3), "é": cugrad.ones(2, 2)}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    assert set(a) == set(b)
    for name, x in a.items():
        y = b[name]
        assert str(x.dtype) == str(y.dtype) and tuple(x.shape) == tuple(y.shape), name
        assert x.tolist() == y.tolist(), name
    return True


def test_files_hold_what_was_saved(tmp_path: Path, device: str) -> None:
    mine = {name: x.to(device) for name, x in tensors().items()}
    path = tmp_path / "x.safetensors"
    cugrad.save_file(mine, path, {"format": "pt"})
    assert path.read_bytes() == safetensors.save(mine, {"format": "pt"})
    assert same(cugrad.load_file(path, device=device), mine)
    assert cugrad.load_file(path, device)["F32"].device == mine["F32"].device
    assert same(safetensors.load(path.read_bytes()), mine)
    with safetensors.safe_open(path, "pt", device) as file:
        assert file.metadata() == {"format": "pt"} and list(file.keys()) == sorted(mine)
        assert sorted(file.offset_keys()) == sorted(mine)
        assert same({name: file.get_tensor(name) for name in file.keys()}, mine)  # noqa: SIM118
        part = file.get_slice("é")
        assert part[0].tolist() == [1, 1] and part.get_shape() == [2, 2]
        assert part.get_dtype() == "F32" and str(part[0].device) == str(mine["é"].device)
        with pytest.raises(SafetensorError, match="does not contain tensor nothing"):
            file.get_tensor("nothing")


def test_files_are_the_packages(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors.torch", reason="compares with the package")
    torch = pytest.importorskip("torch")
    mine = tensors()
    theirs = {
        name: torch.tensor(x.tolist(), dtype=getattr(torch, str(x.dtype)[6:])).reshape(x.shape)
        for name, x in mine.items()
    }
    assert safetensors.save(mine) == package.save(theirs)
    path = tmp_path / "x.safetensors"
    package.save_file(theirs, path, {"a": "b"})
    assert same(cugrad.load_file(path), theirs)
    cugrad.save_file(mine, path, {"a": "b"})
    assert same(package.load_file(path), mine)


def test_a_mapped_file_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    cugrad.save_file({"w": cugrad.arange(4.0)}, path)
    first = cugrad.load_file(path)["w"]
    first += 1  # of the memory alone
    assert cugrad.load_file(path)["w"].tolist() == [0, 1, 2, 3]
    cugrad.save_file({"w": cugrad.zeros(4)}, path)
    assert first.tolist() == [1, 2, 3, 4] and cugrad.load_file(path)["w"].tolist() == [0] * 4


def file_of(header: Any, data: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data


def entry(shape: Any, span: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": span}


DAMAGED = [
    b"", b"\0" * 7, file_of({}, size=1 << 62), file_of({}, size=3), file_of(b"{"), file_of([]),
    file_of(b"[" * 100_000), file_of(b'{"a":1,"a":2}'), file_of({"__metadata__": {"a": 1}}),
    file_of({"__metadata__": 3}), file_of({"w": 3}), file_of({"w": {}}), file_of({}, b"1234"),
    file_of({"w": entry([2], [0, 8])}, b"1234"), file_of({"w": entry([1], [0, 4])}, b"12345"),
    file_of({"w": entry([2], [0, 4])}, b"1234"), file_of({"w": entry([1], [4, 0])}, b"1234"),
    file_of({"w": entry([1], [2, 6])}, b"123456"), file_of({"w": entry([-1], [0, -4])}, b""),
    file_of({"w": entry([4], [0, 2], "F4")}, b"1234"),
    file_of({"w": entry([1], [0, 4], ["F32"])}, b"1234"),
    file_of({"w": entry([True], [0, 4])}, b"1234"), file_of({"w": entry([1.0], [0, 4])}, b"1234"),
    file_of({"w": entry([1], [0, 4, 4])}, b"1234"),
    file_of({"w": entry([1 << 40, 1 << 40], [0, 4])}, b"1234"),
    file_of({"a": entry([1], [0, 4]), "b": entry([1], [0, 4])}, b"1234"),
    file_of({"a": entry([1], [0, 4]), "b": entry([1], [8, 12])}, b"1" * 12),
    file_of({"w": entry([0] * 65, [0, 0])}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(DAMAGED)))
def test_damaged_files_are_errors(number: int, tmp_path: Path) -> None:
    with pytest.raises(SafetensorError):
        safetensors.load(DAMAGED[number])
    path = tmp_path / "x.safetensors"
    path.write_bytes(DAMAGED[number])
    with pytest.raises(SafetensorError):
        cugrad.load_file(path)


x = cugrad.arange(6.0)
WRONG: list[tuple[Any, type[Exception], str]] = [
    ([x], ValueError, "Expected a dict"),
    ({"x": 3}, ValueError, "Key `x` is invalid"),
    ({"x": x.reshape(2, 3).T}, ValueError, "non contiguous tensor: `x`"),
    ({"x": x, "y": x[2:]}, RuntimeError, "share memory.*x.*y|share memory.*y.*x"),
    ({"x": x.to_sparse()}, ValueError, "save a sparse tensor: `x`"),
    ({"x": x.to(cugrad.complex128)}, SafetensorError, "the format has no torch.complex128"),
]


@pytest.mark.parametrize("value, kind, text", WRONG, ids=[w[2][:20] for w in WRONG])
def test_what_a_file_cannot_hold(value: Any, kind: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(kind, match=text):
        cugrad.save_file(value, path)
    assert os.listdir(tmp_path) == []
    assert safetensors.save({"a": x[:3], "b": x[3:]})  # neighbours share nothing


def tied() -> Any:
    model = cugrad.nn.Sequential(cugrad.nn.Embedding(5, 3), cugrad.nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    return model


def test_models_with_parameters_that_are_one(tmp_path: Path) -> None:
    path, model, other = tmp_path / "x.safetensors", tied(), tied()
    safetensors.save_model(model, path)
    assert list(cugrad.load_file(path)) == ["0.weight"]
    assert safetensors.load_model(other, path) == (set(), [])
    assert other[1].weight.tolist() == model[0].weight.tolist()
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "1.weight"'):
        untied = cugrad.nn.Sequential(cugrad.nn.Embedding(5, 3), cugrad.nn.Linear(3, 5, bias=False))
        safetensors.load_model(untied, path)
    cugrad.save_file({"1.weight": model[0].weight.detach() * 2}, path)  # the other name
    assert safetensors.load_model(other, path) == (set(), [])
    np.testing.assert_array_equal(other[0].weight.detach().numpy(), 2 * model[0].weight.detach())


# Several files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [64, "1KB", "5GB"])
def test_checkpoints_of_several_files(limit: Any, tmp_path: Path) -> None:
    model, other = cugrad.nn.LSTM(4, 4, 2), cugrad.nn.LSTM(4, 4, 2)
    cugrad.serialization.save_sharded(model.state_dict(), tmp_path, limit)
    files = sorted(os.listdir(tmp_path))
    assert ("model.safetensors.index.json" in files) is (limit != "5GB")
    state = cugrad.serialization.load_checkpoint(tmp_path)
    assert same(state, model.state_dict())
    result = cugrad.serialization.load_sharded_checkpoint(other, tmp_path)
    assert result.missing_keys == result.unexpected_keys == []
    assert same(other.state_dict(), model.state_dict())
    cugrad.serialization.save_sharded(model.state_dict(), tmp_path, "1GB")
    assert same(cugrad.serialization.load_checkpoint(tmp_path), model.state_dict())
    model.to(cugrad.float64)
    with pytest.raises(RuntimeError, match="Missing key"):
        more = cugrad.nn.LSTM(4, 4, 3)
        cugrad.serialization.load_sharded_checkpoint(more, tmp_path)


def test_an_index_of_pickled_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="writes with PyTorch, which is not installed")
    model = torch.nn.Linear(3, 2)
    places = {}
    for name, value in model.state_dict().items():
        places[name] = f"pytorch_model-{name}.bin"
        torch.save({name: value}, tmp_path / places[name])
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for path in (tmp_path, index):
        assert same(cugrad.serialization.load_checkpoint(path), model.state_dict())
    other = cugrad.nn.Linear(3, 2)
    cugrad.serialization.load_sharded_checkpoint(other, tmp_path)
    assert same(other.state_dict(), model.state_dict())


@pytest.mark.parametrize(
    "index", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"w": 3}}',
              '{"weight_map": {"w": "../secret"}}', '{"weight_map": {"w": "/etc/passwd"}}',
              '{"weight_map": {"w": ""}}'],
)  # fmt: skip
def test_an_index_that_is_none(index: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=r"no index of a sharded checkpoint|of its own folder"):
        cugrad.serialization.load_checkpoint(tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cugrad.serialization.load_checkpoint(tmp_path / "nothing")
    with pytest.raises(ValueError, match="Can't find a checkpoint index"):
        cugrad.serialization.load_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError):
        cugrad.load_file(tmp_path / "nothing")
    (tmp_path / "a.safetensors").write_bytes(safetensors.save({"v": cugrad.ones(1)}))
    text = json.dumps({"weight_map": {"w": "a.safetensors"}})
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(KeyError, match="lacks"):
        cugrad.serialization.load_checkpoint(tmp_path)
    with pytest.raises(ValueError, match="want a number of bytes"):
        cugrad.serialization.save_sharded({}, tmp_path, "many")


def failing(after: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, which fails when it has been called so often."""
    count = [0]

    def limited(*args: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] > after:
            raise OSError("No space left on device")
        return call(*args, **options)

    return limited


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_an_interrupted_write_loses_nothing(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = cugrad.nn.LSTM(4, 4, 2).state_dict(), cugrad.nn.LSTM(4, 4, 2).state_dict()
    cugrad.serialization.save_sharded(old, tmp_path, 512)
    cugrad.save_file(old, tmp_path / "one.safetensors")
    cugrad.save(old, tmp_path / "one.pt")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(os, "fsync", failing(after, os.fsync))
    with pytest.raises(OSError, match="No space left"):
        for name, write in (("one.safetensors", cugrad.save_file), ("one.pt", cugrad.save)):
            if after == 0:
                with pytest.raises(OSError, match="No space left"):
                    write(new, tmp_path / name)
        cugrad.serialization.save_sharded(new, tmp_path, 512)
    if after == 0:
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert not [file for file in tmp_path.iterdir() if file.name.endswith(".part")]


@pytest.mark.parametrize("limits", [(512, 512), (512, "5GB"), ("5GB", 512)])
@pytest.mark.parametrize("after", range(6))
def test_a_crash_leaves_the_old_checkpoint_or_the_new_one(
    after: int, limits: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = cugrad.nn.LSTM(4, 4, 2).state_dict(), cugrad.nn.LSTM(4, 4, 2).state_dict()
    cugrad.serialization.save_sharded(old, tmp_path, limits[0])
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing(after, os.replace))
        patch.setattr(Path, "unlink", failing(0, Path.unlink))  # or it dies before it cleans up
        with pytest.raises(OSError, match="No space left"):
            cugrad.serialization.save_sharded(new, tmp_path, limits[1])
    loaded = cugrad.serialization.load_checkpoint(tmp_path)
    assert any(all(cugrad.equal(loaded[k], x) for k, x in s.items()) for s in (old, new))
    cugrad.serialization.save_sharded(new, tmp_path, limits[1])
    assert same(cugrad.serialization.load_checkpoint(tmp_path), new)
    index = tmp_path / "model.safetensors.index.json"
    if after == 0 and index.exists():  # nothing is left of the old one
        files = set(json.loads(index.read_text())["weight_map"].values())
        assert files == {f.name for f in tmp_path.iterdir()} - {index.name}
