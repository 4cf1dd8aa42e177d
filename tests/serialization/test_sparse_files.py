"""save and load of sparse tensors: PyTorch's files and ours are the same."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import pytest

import cugrad


@pytest.fixture(params=["cugrad", "to torch", "from torch"])
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A writer and a reader."""
    if request.param == "cugrad":
        return cugrad, cugrad
    torch = pytest.importorskip("torch")
    return (cugrad, torch) if request.param == "to torch" else (torch, cugrad)


def made(lib: Any) -> Any:
    """A sparse tensor, (3, 4, 2), one place of which is listed twice."""
    values = lib.arange(8.0).reshape(4, 2)
    with warnings.catch_warnings():  # PyTorch's, of checks that are off
        warnings.simplefilter("ignore")
        return lib.sparse_coo_tensor([[0, 2, 2, 0], [1, 0, 3, 1]], values, (3, 4, 2))


def described(x: Any) -> Any:
    return (x.is_sparse, tuple(x.shape), x.is_coalesced(), str(x.dtype), x.requires_grad,
            x._indices().tolist(), x._values().tolist())  # fmt: skip


def through(obj: Any, pair: tuple[Any, Any], old: bool = False, **options: Any) -> Any:
    file = io.BytesIO()
    pair[0].save(obj, file, _use_new_zipfile_serialization=not old)
    file.seek(0)
    with warnings.catch_warnings():  # PyTorch's, of checks that are off
        warnings.simplefilter("ignore")
        return pair[1].load(file, **options)


CASES = {
    "as made": made,
    "coalesced": lambda lib: made(lib).coalesce(),
    "of integers": lambda lib: lib.eye(3, dtype=lib.int64).to_sparse(),
    "of nothing": lambda lib: lib.zeros(2, 0).to_sparse(),
    "with a gradient": lambda lib: made(lib).requires_grad_(),
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_sparse_tensors(pair: Any, name: str, old: bool, weights_only: bool) -> None:
    x = CASES[name](pair[0])
    y = through([x, x], pair, old, weights_only=weights_only)
    want = described(x.detach())  # PyTorch's files say nothing of requires_grad
    assert y[0] is y[1] and described(y[0]) == want and y[0].is_leaf


def test_sparse_buffers_and_parameters(pair: Any) -> None:
    def module(lib: Any) -> Any:
        m = lib.nn.Module()
        m.register_buffer("adjacency", made(lib))
        m.weight = lib.nn.Parameter(lib.eye(3).to_sparse())
        return m

    source, target = module(pair[0]), module(pair[1])
    with pair[0].no_grad():
        source.adjacency.mul_(3)
        source.weight.mul_(5)
    state = through(source.state_dict(), pair)
    assert described(state["adjacency"]) == described(source.adjacency)
    target.load_state_dict(state)
    assert described(target.adjacency) == described(source.adjacency)
    assert described(target.weight) == described(source.weight)


def test_attributes_and_parameters_as_objects(pair: Any) -> None:
    x = made(pair[0])
    x.note = {"kept": [1]}
    y = through(x, pair)
    assert y.note == {"kept": [1]} and described(y) == described(x)
    for requires_grad in (True, False):
        p = through(pair[0].nn.Parameter(made(pair[0]), requires_grad), pair)
        assert isinstance(p, pair[1].nn.Parameter) and p.requires_grad is requires_grad
        assert described(p.detach()) == described(made(pair[0]))


def test_copies_keep_attributes_and_stay_parameters() -> None:
    p = cugrad.nn.Parameter(made(cugrad))
    p.note = [1]
    for twin in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert isinstance(twin, cugrad.nn.Parameter) and twin.requires_grad and twin.note == [1]
        assert twin.note is not p.note and twin._values() is not p._values()


def test_memory_is_shared_and_moved() -> None:
    values = cugrad.arange(2.0)
    x = cugrad.sparse_coo_tensor([[0, 1]], values, (2,))
    y, twin = through([x, values], (cugrad, cugrad))
    twin.fill_(7)
    assert y.to_dense().tolist() == [7, 7]
    moved = through(x, (cugrad, cugrad), map_location="simulated")
    assert str(moved.device).startswith("simulated") and str(moved._indices().device) != "cpu"


LIES = {
    "a place beyond the size": {"size": (1,)},
    "a negative size": {"size": (-1,)},
    "too few dims": {"size": ()},
    "more dims": {"size": (2, 2)},
    "a size of another type": {"size": (2.0,)},
    "a size that overflows": {"size": (1 << 63,)},
    "no places": {"places": None},
    "fewer values": {"values": cugrad.ones(1)},
    "no values": {"values": [1.0, 1.0]},
    "another layout": {"layout": cugrad.strided},
    "a layout that is none": {"layout": 3},
}


@pytest.mark.parametrize("name", LIES)
def test_files_that_lie(name: str) -> None:
    from cugrad.serialization.names import TorchName, rebuild_sparse

    said: dict[str, Any] = {
        "layout": cugrad.sparse_coo, "places": cugrad.tensor([[0, 1]]), "values": cugrad.ones(2),
        "size": (2,),
    }  # fmt: skip
    assert rebuild_sparse(said["layout"], tuple(said.values())[1:]).shape == (2,)
    said.update(LIES[name])

    class Lie:
        def __reduce__(self) -> Any:
            call = TorchName("torch._utils", "_rebuild_sparse_tensor")
            return call, (said["layout"], tuple(said.values())[1:])

    file = io.BytesIO()
    cugrad.save(Lie(), file)
    file.seek(0)
    with pytest.raises((pickle.UnpicklingError, RuntimeError)):
        cugrad.load(file)


def test_other_layouts_say_so() -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():  # PyTorch's, of layouts that are new
        warnings.simplefilter("ignore")
        rows = torch.eye(2).to_sparse_csr()
    file = io.BytesIO()
    torch.save(rows, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="layout 'torch.sparse_csr'"):
        cugrad.load(file)
