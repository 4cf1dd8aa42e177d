"""save and load: files that PyTorch reads and writes too, shared memory, devices, paths."""

from __future__ import annotations

import io
import os
import pickle
import warnings
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cugrad
from cugrad import dtypes

hypothesis = pytest.importorskip("hypothesis")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

DTYPES = dtypes.EVERY


def saved(obj: Any, lib: Any = cugrad) -> io.BytesIO:
    file = io.BytesIO()
    lib.save(obj, file)
    file.seek(0)
    return file


def through(obj: Any, writer: Any = cugrad, reader: Any = cugrad, **options: Any) -> Any:
    return reader.load(saved(obj, writer), **options)


def filled(lib: Any, dtype: str, *shape: int) -> Any:
    """0, 1, 2, ... of any dtype, in either library; 1, 2, ... of the one that has no zero."""
    n, first = int(np.prod(shape)), dtype == "float8_e8m0fnu"
    return lib.tensor([i % 2 if dtype == "bool" else i + first for i in range(n)],
                      dtype=getattr(lib, dtype)).reshape(shape)  # fmt: skip


@pytest.fixture(params=["cugrad", "to torch", "from torch"])
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A writer and a reader."""
    if request.param == "cugrad":
        return cugrad, cugrad
    torch = pytest.importorskip("torch")
    return (cugrad, torch) if request.param == "to torch" else (torch, cugrad)


# What a file holds --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [str(d).removeprefix("torch.") for d in DTYPES])
def test_every_dtype(pair: Any, dtype: str) -> None:
    writer, reader = pair
    for x in (filled(writer, dtype, 2, 3), filled(writer, dtype, 1).reshape(()),
              filled(writer, dtype, 0).reshape(0, 3)):  # fmt: skip
        y = through(x, writer, reader)
        assert str(y.dtype) == f"torch.{dtype}" and y.shape == x.shape and y.tolist() == x.tolist()
        assert isinstance(y, reader.Tensor) and not y.requires_grad and y.is_leaf


def objects(lib: Any) -> dict[str, Any]:
    x = lib.arange(6.0).reshape(2, 3)
    return {
        "nested": {"a": [1, (x, None)], 2: {"b": x[0]}, (1, "k"): "text \u20ac\U0001f600"},
        "numbers": [0, -1, 255, 256, 65536, -(2**31), 2**31, 2**70, -(2**70), 0.1, float("inf"),
                    True, False, None, 1 - 2j],
        "text and bytes": ["", "a" * 300, b"", b"\x00\xff" * 200, bytearray(b"abc")],
        "sets": [set(), {1, "a"}, Counter("aab")],
        "ordered": OrderedDict([("b", 1), ("a", x)]),
        "torch's own": [x.shape, x.dtype, x.device, lib.strided, lib.Size([])],
        "parameters": [lib.nn.Parameter(x), lib.nn.Parameter(x, requires_grad=False)],
        "wants a gradient": [x.clone().requires_grad_(), x],
        "state dict": lib.nn.Sequential(lib.nn.Linear(3, 2), lib.nn.BatchNorm1d(2)).state_dict(),
    }  # fmt: skip


def described(value: Any) -> Any:
    """An object of either library in terms of neither."""
    if type(value).__name__ in ("Tensor", "Parameter"):
        return type(value).__name__, value.tolist(), str(value.dtype), value.requires_grad
    if isinstance(value, dict):
        return [(described(k), described(v)) for k, v in value.items()]
    if type(value) in (list, tuple):
        return type(value).__name__, [described(v) for v in value]
    return type(value).__name__, str(value) if type(value) is not set else sorted(map(str, value))


@pytest.mark.parametrize("name", list(objects(cugrad)))
def test_objects(pair: Any, name: str) -> None:
    writer, reader = pair
    obj = objects(writer)[name]
    assert described(through(obj, writer, reader)) == described(obj)
    if name == "ordered" or name == "state dict":
        assert type(through(obj, writer, reader)) is OrderedDict


def test_a_model_and_its_optimizer_go_on(pair: Any) -> None:
    writer, reader = pair

    def trained(lib: Any, state: Any = None, steps: int = 3) -> Any:
        model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 1))
        optimizer = lib.optim.AdamW(model.parameters(), lr=0.1)
        if state is None:
            with lib.no_grad():
                for p in model.parameters():
                    p.copy_(filled(lib, "float32", *p.shape) / 10 - 0.3)
        else:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        x = filled(lib, "float32", 5, 3) / 7
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    state = through(trained(writer), writer, reader)
    assert state["model"]._metadata[""] == {"version": 1}
    continued, whole = trained(reader, state), trained(reader, steps=6)
    for name, value in whole["model"].items():
        assert np.allclose(continued["model"][name].numpy(), value.numpy(), atol=1e-6), name


class Named(cugrad.Tensor):
    """A class of tensors."""


def test_attributes_and_classes(pair: Any) -> None:
    writer, reader = pair
    x = writer.ones(2)
    x.note = {"kept": [1]}
    y = through(x, writer, reader)
    assert y.note == {"kept": [1]} and y.tolist() == [1, 1]
    p = writer.nn.Parameter(writer.ones(2))
    p.tag = "weight"
    q = through(p, writer, reader)
    assert type(q) is reader.nn.Parameter and q.tag == "weight" and q.requires_grad


def test_classes_of_tensors_want_leave() -> None:
    x = Named([1.0, 2.0])
    file = saved(x)
    with pytest.raises(pickle.UnpicklingError, match="GLOBAL .*Named was not an allowed global"):
        cugrad.load(file)
    with cugrad.serialization.safe_globals([Named]):
        y = cugrad.load(file)
    assert type(y) is Named and y.tolist() == [1, 2]


def test_conjugates_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert through(x.conj(), torch, cugrad).tolist() == x.conj().tolist()
    assert through(x.conj().imag, torch, cugrad).tolist() == x.conj().imag.tolist()


def test_hooks_are_not_saved(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    x.register_hook(lambda g: g)
    with pytest.warns(UserWarning, match="backward hook .* on tensor will not be serialized"):
        saved(x, lib)


# Memory -------------------------------------------------------------------------------------------


def test_shared_memory_stays_shared(pair: Any) -> None:
    writer, reader = pair
    base = writer.arange(12.0).reshape(3, 4)
    views = {"base": base, "row": base[1], "transposed": base.mT, "steps": base[::2, 1::2],
             "flat": base.reshape(-1), "wide": base[:, :1].expand(3, 5), "same": base}  # fmt: skip
    found = through(views, writer, reader)
    assert found["same"] is found["base"]
    for name, view in views.items():
        assert found[name].stride() == view.stride() and found[name].tolist() == view.tolist()
        assert found[name].storage_offset() == view.storage_offset()
    found["base"][1, 1] = 50
    views["base"][1, 1] = 50
    for name, view in views.items():
        assert found[name].tolist() == view.tolist(), name
    assert len(zipfile.ZipFile(saved(views, writer)).namelist()) <= 8  # one storage


def test_a_view_brings_its_memory(pair: Any) -> None:
    writer, reader = pair
    found = through(writer.arange(100.0)[10:12], writer, reader)
    assert found.tolist() == [10, 11] and found.untyped_storage().nbytes() == 400


def test_one_memory_of_two_dtypes(lib: Any) -> None:
    x = lib.ones(4)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        saved([x, x.view(lib.int32)], lib)


def test_memory_with_gaps() -> None:
    array = np.zeros((4, 6), np.float32)[::2, ::3]
    gaps = cugrad.from_numpy(np.lib.stride_tricks.as_strided(array, (2, 2), array.strides))
    assert through(gaps).tolist() == [[0, 0], [0, 0]]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_view(data: Any) -> None:
    torch = pytest.importorskip("torch")
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4), label="shape")
    x = cugrad.arange(float(np.prod(shape))).reshape(shape)
    for _ in range(data.draw(st.integers(0, 3), label="views")):
        if x.ndim and data.draw(st.booleans()):
            d = data.draw(st.integers(0, x.ndim - 1))
            x = x.transpose(d, data.draw(st.integers(0, x.ndim - 1)))
        elif x.ndim and x.shape[0] > 1:
            x = x[data.draw(st.integers(0, x.shape[0] - 1)) :: data.draw(st.integers(1, 3))]
    for reader in (cugrad, torch):
        y = through(x, cugrad, reader)
        assert y.tolist() == x.tolist() and tuple(y.stride()) == tuple(x.stride())
    assert through(through(x, cugrad, torch), torch, cugrad).tolist() == x.tolist()


def test_mapped_files(tmp_path: Path, pair: Any) -> None:
    writer, reader = pair
    path = tmp_path / "x.pt"
    x = writer.arange(1000.0)
    writer.save({"x": x, "y": x[1:3], "z": writer.zeros(0), "b": writer.ones(3).bool()}, path)
    found = reader.load(path, mmap=True)
    found["x"][1] = -5
    assert found["y"].tolist() == [-5, 2] and found["z"].shape == (0,)
    assert found["b"].tolist() == [True] * 3
    assert reader.load(path)["x"][1].item() == 1  # changes stay in memory
    with pytest.raises(ValueError, match="f must be a file path in order to use the mmap"):
        reader.load(saved(x, writer), mmap=True)


def test_records_are_aligned(tmp_path: Path) -> None:
    cugrad.save([cugrad.ones(3), cugrad.ones(5, dtype=cugrad.float64)], tmp_path / "x.pt")
    data = (tmp_path / "x.pt").read_bytes()
    for entry in zipfile.ZipFile(tmp_path / "x.pt").infolist():
        at = entry.header_offset
        skip = sum(int.from_bytes(data[at + k : at + k + 2], "little") for k in (26, 28))
        assert (at + 30 + skip) % 64 == 0 and entry.filename.startswith("x/")


def test_byte_order() -> None:
    swapped = io.BytesIO()
    with zipfile.ZipFile(saved([cugrad.arange(3.0), cugrad.tensor([1 + 2j]), cugrad.ones(2).bool(),
                                cugrad.tensor([7], dtype=cugrad.uint16)])) as old, \
         zipfile.ZipFile(swapped, "w") as new:  # fmt: skip
        sizes = {"data/0": "f4", "data/1": "f4", "data/2": "u1", "data/3": "u2"}
        for entry in old.infolist():
            data, name = old.read(entry), entry.filename.removeprefix("archive/")
            if name in sizes:
                data = np.frombuffer(data, sizes[name]).byteswap().tobytes()
            new.writestr(entry.filename, b"big" if name == "byteorder" else data)
    found = cugrad.load(swapped)
    assert [x.tolist() for x in found] == [[0, 1, 2], [1 + 2j], [True, True], [7]]


# Devices ------------------------------------------------------------------------------------------


def test_devices() -> None:
    with cugrad.device("simulated"):
        x = cugrad.arange(4.0)
        objects = {"x": x, "view": x[1:3]}
    file = saved(objects)
    back = cugrad.load(file)
    assert back["x"].device.type == "simulated" and back["view"].tolist() == [1, 2]
    back["x"][1] = 9
    assert back["view"].tolist() == [9, 2]
    restored = cugrad.serialization.default_restore_location
    for where in ("cpu", cugrad.device("cpu"), {"simulated": "cpu", "simulated:0": "cpu"},
                  lambda storage, place: storage.cpu(),
                  lambda storage, place: restored(storage, "cpu")):  # fmt: skip
        assert cugrad.load(file, map_location=where)["x"].device.type == "cpu"
    assert cugrad.load(file, map_location=lambda s, p: None)["x"].device.type == "simulated"
    host = cugrad.load(saved(cugrad.ones(2, device="cpu")), map_location="simulated")
    assert host.device.type == "simulated" and host.tolist() == [1, 1]


def test_devices_that_are_not_here() -> None:
    if cugrad.cuda.is_available():
        pytest.skip("there is a GPU")
    file = saved(cugrad.ones(2, device="cpu"))
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device but"):
        cugrad.load(file, map_location="cuda")
    with pytest.raises(RuntimeError, match="Expected one of"):
        cugrad.load(file, map_location="abacus")
    with pytest.raises(TypeError, match="map_location must be a device"):
        cugrad.load(file, map_location=3)
    with pytest.raises(TypeError, match="must return the storage"):
        cugrad.load(file, map_location=lambda storage, place: 3)


# Files --------------------------------------------------------------------------------------------


def test_paths(tmp_path: Path) -> None:
    for path in (tmp_path / "a.pt", str(tmp_path / "b"), str(tmp_path / "\u00e4 b.c.pt")):
        cugrad.save({"x": cugrad.ones(1)}, path)
        assert cugrad.load(path)["x"].item() == 1
    with pytest.raises(RuntimeError, match=r"Parent directory .*/nowhere does not exist\."):
        cugrad.save(1, tmp_path / "nowhere" / "x.pt")
    with pytest.raises(IsADirectoryError):
        cugrad.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="nope"):
        cugrad.load(tmp_path / "nope.pt")
    with pytest.raises(AttributeError, match="file-like object with a 'write' attribute"):
        cugrad.save(1, 3)
    with pytest.raises(AttributeError, match="from a file that is seekable"):
        cugrad.load(3)


class Unpicklable:
    def __reduce__(self) -> Any:
        raise KeyError("no")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "x.pt"
    cugrad.save(1, path)
    with pytest.raises(KeyError):
        cugrad.save([cugrad.ones(2), Unpicklable()], path)
    monkeypatch.setattr(cugrad.serialization.StorageCollector, "bytes_of", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cugrad.save(cugrad.ones(2), path)
    assert cugrad.load(path) == 1 and os.listdir(tmp_path) == ["x.pt"]


def test_links_and_modes_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "x.pt", tmp_path / "link.pt"
    path.write_bytes(b"")
    path.chmod(0o640)
    link.symlink_to(path)
    cugrad.save(2, link)
    assert link.is_symlink() and cugrad.load(path) == 2 and path.stat().st_mode & 0o777 == 0o640


def test_the_same_object_makes_the_same_file() -> None:
    def model() -> Any:
        return {"a": cugrad.arange(3.0), "b": [1, 2]}

    assert saved(model()).getvalue() == saved(model()).getvalue()


def test_files_without_readinto_and_in_pieces() -> None:
    class Slow:
        def __init__(self, inner: io.BytesIO) -> None:
            self.inner, self.seek, self.tell = inner, inner.seek, inner.tell

        def read(self, n: int = -1) -> bytes:
            return self.inner.read(n)

        def seekable(self) -> bool:
            return True

    assert cugrad.load(Slow(saved(cugrad.arange(3.0)))).tolist() == [0, 1, 2]


def test_without_weights_only() -> None:
    obj = {"f": Path("a"), "x": cugrad.arange(3.0), "p": cugrad.nn.Parameter(cugrad.ones(1))}
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        through(obj)
    found = through(obj, weights_only=False)
    assert found["f"] == Path("a") and found["x"].tolist() == [0, 1, 2]
    assert type(found["p"]) is cugrad.nn.Parameter
    module = through(cugrad.nn.Linear(2, 1), weights_only=False)
    assert module(cugrad.ones(1, 2)).shape == (1, 1)
    with pytest.raises(TypeError, match="encoding needs weights_only=False"):
        through(1, encoding="latin1")
    assert through("a", weights_only=False, encoding="latin1") == "a"


def test_modules_of_torch_need_torch() -> None:
    torch = pytest.importorskip("torch")
    file = saved(torch.nn.Linear(2, 1), torch)
    with pytest.raises(pickle.UnpicklingError, match="names torch.nn.modules.linear.Linear, which"):
        cugrad.load(file, weights_only=False)
    unsafe = cugrad.serialization.get_unsafe_globals_in_checkpoint(file)
    assert unsafe == ["torch.nn.modules.linear.Linear"]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_protocols(protocol: int) -> None:
    obj = {"a": [b"x" * 300, "y" * 300, {1, 2}, (1, 2, 3, 4), bytearray(b"z"), 2**80],
           "x": cugrad.ones(2), "s": cugrad.Size([1])}  # fmt: skip
    file = io.BytesIO()
    cugrad.save(obj, file, pickle_protocol=protocol)
    found = cugrad.load(file)
    assert str(found) == str(obj)
    torch = pytest.importorskip("torch")
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.load(file, weights_only=False)["x"].tolist() == [1, 1]


def test_files_of_old_pytorch() -> None:
    torch = pytest.importorskip("torch")
    obj = {**objects(torch)["nested"], "p": torch.nn.Parameter(torch.ones(2))}
    obj["s"] = torch.nn.Linear(2, 1).state_dict()
    obj["o"] = OrderedDict(a=torch.ones(2).bfloat16())
    x = torch.arange(12.0).reshape(3, 4)
    obj["views"] = [x, x[1], x.t()]
    file = io.BytesIO()
    torch.save(obj, file, _use_new_zipfile_serialization=False)
    found = cugrad.load(file)
    assert described(found) == described(obj)
    found["views"][0][1, 1] = 50
    assert found["views"][1][1].item() == 50 and found["views"][2][1, 1].item() == 50
    assert cugrad.load(file, map_location="simulated")["p"].device.type == "simulated"
    data = file.getvalue()
    for end in range(0, len(data), 7):
        with pytest.raises((pickle.UnpicklingError, RuntimeError, EOFError)):
            cugrad.load(io.BytesIO(data[:end]))
    file = io.BytesIO()
    torch.save(Path("a"), file, _use_new_zipfile_serialization=False)
    for weights_only in (True, False):
        with pytest.raises(pickle.UnpicklingError, match="was not an allowed global by default"):
            cugrad.load(file, weights_only=weights_only)


def test_files_for_old_pytorch() -> None:
    torch = pytest.importorskip("torch")
    linear = cugrad.nn.Linear(2, 1)
    x = cugrad.arange(12.0).reshape(3, 4)
    obj = {**objects(cugrad)["nested"], "p": linear.weight, "s": linear.state_dict(),
           "views": [x, x[1], x.t()], "empty": cugrad.zeros(0)}  # fmt: skip
    file = io.BytesIO()
    cugrad.save(obj, file, _use_new_zipfile_serialization=False)
    for lib in (torch, cugrad):
        file.seek(0)
        found = lib.load(file)
        assert described(found) == described(obj)
        found["views"][0][1, 1] = 50
        assert found["views"][1][1].item() == 50 and found["views"][2][1, 1].item() == 50
    with pytest.raises(NotImplementedError, match="has no torch.uint16"):
        cugrad.save(x.to(cugrad.uint16), file, _use_new_zipfile_serialization=False)


def test_files_that_cannot_seek() -> None:
    class Pipe:
        def __init__(self) -> None:
            self.data = bytearray()

        def write(self, piece: Any) -> int:
            self.data += piece
            return len(piece)

        def flush(self) -> None:
            pass

    pipe = Pipe()
    cugrad.save({"x": cugrad.arange(3.0), "y": cugrad.ones(1)}, pipe)
    found = cugrad.load(io.BytesIO(bytes(pipe.data)))
    assert found["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("protocol", [2, 4])
def test_names_in_a_file(protocol: int) -> None:
    file = io.BytesIO()
    cugrad.save([Path("a"), Path("b"), Counter("a")], file, pickle_protocol=protocol)
    names = cugrad.serialization.get_unsafe_globals_in_checkpoint(file)
    assert [name.rpartition(".")[2] for name in names] == [type(Path("a")).__name__]


# Whole modules ------------------------------------------------------------------------------------

WHOLE = [
    "nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))",
    "nn.Sequential(nn.Dropout(0.5), nn.LayerNorm(4), nn.MultiheadAttention(4, 2), nn.GELU())",
    "nn.ModuleDict({'a': nn.LSTM(3, 4), 'b': nn.Embedding(4, 2), 'c': nn.CrossEntropyLoss()})",
]


@pytest.mark.parametrize("text", WHOLE)
def test_whole_modules_under_safe_globals(text: str) -> None:
    module = eval(text, {"nn": cugrad.nn}).eval()
    file = saved(module)
    names = cugrad.serialization.get_unsafe_globals_in_checkpoint(file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="was not an allowed global"):
        cugrad.load(file)
    file.seek(0)
    layers = [type(part) for part in module.modules()]
    assert {f"{layer.__module__}.{layer.__qualname__}" for layer in layers} == set(names)
    with cugrad.serialization.safe_globals(layers):  # and nothing that users do not know
        twin = cugrad.load(file)
    assert repr(twin) == repr(module)
    for name, value in module.state_dict().items():
        assert twin.state_dict()[name].tolist() == value.tolist()
    for part in twin.modules():
        part.register_forward_hook(lambda *a: None).remove()


def test_lazy_parameters_in_files(pair: Any) -> None:
    writer, reader = pair
    state = writer.nn.Sequential(writer.nn.LazyLinear(3), writer.nn.LazyBatchNorm1d()).state_dict()
    file = saved(state, writer)
    back = reader.load(file, weights_only=reader is cugrad)
    assert [repr(v) for v in back.values()] == [repr(v) for v in state.values()]


def test_tensors_of_the_meta_device_in_files(pair: Any) -> None:
    """There are no elements to write: a file has their layout."""
    writer, reader = pair
    parts = {
        "columns": writer.empty(2, 3, dtype=writer.bfloat16, device="meta").t(),
        "leaf": writer.empty(2, device="meta", requires_grad=True),
        "weight": writer.nn.Parameter(writer.empty(4, device="meta")),
    }
    back = through(parts, writer, reader, map_location="cpu")
    assert [type(t).__name__ for t in back.values()] == ["Tensor", "Tensor", "Parameter"]
    for name, t in parts.items():
        assert back[name].is_meta and back[name].stride() == t.stride()
        assert str(back[name].dtype) == str(t.dtype)
        assert back[name].requires_grad == t.requires_grad
